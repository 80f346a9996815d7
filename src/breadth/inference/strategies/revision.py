"""Let the model revise its own answer, and choose among all it gave (sequential revision)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from breadth.base.checks import require
from breadth.base.errors import MeasureError
from breadth.inference.prompts import with_turns
from breadth.inference.records import Ask, Candidate, Prompt, Run, Task
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, request_scores, select_best


@dataclass(frozen=True)
class FlipMatrix:
    """Steps of chains by whether the answer was right before and after; they sum to the chains' lengths, each less one."""

    right_to_wrong: int = 0
    """Steps that lost a right answer."""
    wrong_to_right: int = 0
    """Steps that found it."""
    stayed_right: int = 0
    """Steps that kept it."""
    stayed_wrong: int = 0
    """Steps that did not find it; an answer that cannot be read is wrong."""

    @property
    def steps(self) -> int:
        """All steps."""
        return self.right_to_wrong + self.wrong_to_right + self.stayed_right + self.stayed_wrong

    @property
    def net(self) -> int:
        """Right answers that the chains have gained from first to last."""
        return self.wrong_to_right - self.right_to_wrong


def count_flips(chains: Sequence[Sequence[str | None]], truths: Sequence[str]) -> FlipMatrix:
    """Count the flips in chains of answer keys, each graded by the key of its truth.

    Revision without new information loses about as many right answers as it finds (arXiv 2310.01798); accuracy alone
    hides it. `breadth.measure.oscillation` counts the same within one trace, where answers come with positions.
    """
    if len(chains) != len(truths):
        raise MeasureError(
            f"There are {len(chains)} chains and {len(truths)} truths.", "Give each chain the key of its right answer."
        )
    counts = {(was, became): 0 for was in (True, False) for became in (True, False)}
    for chain, truth in zip(chains, truths, strict=True):
        right = [key == truth for key in chain]
        for step in pairwise(right):
            counts[step] += 1
    return FlipMatrix(counts[True, False], counts[False, True], counts[True, True], counts[False, False])


def changes(chain: Sequence[str | None]) -> tuple[int, int]:
    """Return how often the answer of a chain changed, and how often it changed to one it had given before; unread ones are passed over."""
    read = [key for key in chain if key is not None]
    changed = [place for place in range(1, len(read)) if read[place] != read[place - 1]]
    return len(changed), sum(read[place] in read[:place] for place in changed)


REVISION_INSTRUCTION = (
    "Go through your solution above once more. If you find a mistake, correct it and solve the problem again; if you"
    " find none, say so. End with your final answer, in the same form as before."
)


@dataclass(frozen=True)
class Revision(Strategy):
    """Answer, then revise the answer a few times with the last ones in view; take the best of the whole chain, not the last.

    Each round shows the last ``keep`` replies, each with the instruction and what the judge said of it. The chain ends
    at its rounds or when the judge holds a reply for right. The best is the judge's, or the answer given most often.
    Four kept is the setting of arXiv 2408.03314, whose model was trained to revise; the prompt for models that were not
    is ours, feedback and refinement in one (self-refine uses two). Four rounds is our choice. How often the answer
    changed, and went back to an earlier one, is in the figures; `count_flips` grades chains. Replies of a chain saw one
    another, so no confidence follows from their vote. Harm: without new information (a judge's words) revision turns
    right answers wrong about as often as wrong ones right (arXiv 2310.01798); an adaptive vote with as many draws is
    the better use of them.
    """

    rounds: int = 4
    """Replies of the chain, the first included."""
    keep: int = 4
    """Replies shown to the next."""
    judge: str = ""
    """Judge that scores the replies and whose words are shown; empty for none."""
    weighted: bool = False
    """Whether replies with the same answer add up their scores."""
    instruction: str = REVISION_INSTRUCTION
    """What the user says to a reply."""

    def __post_init__(self) -> None:
        require(self, "rounds", self.rounds >= 1, "at least one reply")
        require(self, "keep", self.keep >= 1, "at least one reply")
        require(self, "instruction", bool(self.instruction.strip()), "words")

    def __call__(self, task: Task) -> Run:
        """Draw the chain, then choose."""
        chain: list[Candidate] = []
        stopped = "most"
        while len(chain) < self.rounds:
            drawn: list[Candidate] = yield self._ask(task.prompt, chain)
            chain += yield from request_scores(drawn, self.judge)
            if not drawn or chain[-1].solved or chain[-1].finish == "tool_calls":
                stopped = "solved" if drawn and chain[-1].solved else "answered" if drawn else "budget"
                break
        poll = Poll(task)
        poll.add(chain)
        answer = select_best(poll, by=self.judge, weighted=self.weighted)
        changed, returned = changes([candidate.key for candidate in chain])
        figures = {"rounds": float(len(chain)), "changes": float(changed), "returns": float(returned)}
        note = (
            "The replies of a chain saw one another: their agreement is no evidence, and no confidence is given.",
        ) * (len(chain) > 1)
        return replace(answer, stopped=stopped, figures=figures, notes=(*answer.notes, *note))

    def _ask(self, prompt: Prompt, chain: list[Candidate]) -> Ask:
        if not chain:
            return Ask(1)
        turns = [
            (reply.full_text, "\n\n".join(filter(None, (reply.feedback, self.instruction))))
            for reply in chain[-self.keep :]
        ]
        return Ask(1, prompt=with_turns(prompt, turns), independent=False, purpose="revision")
