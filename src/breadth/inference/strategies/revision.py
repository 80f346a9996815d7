"""Let the model revise its own answer, and choose among all it gave (sequential revision)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

from breadth.base.catalogue import Paper
from breadth.base.errors import MeasureError, require
from breadth.inference.records import Ask, Candidate, Prompt, Run, Task
from breadth.inference.strategy import Strategy, with_turns
from breadth.inference.voting import Poll, request_scores, select_best


@dataclass(frozen=True)
class FlipMatrix:
    """Counts of revision steps by whether the answer was right before and after."""

    right_to_wrong: int = 0
    """Steps that lost a right answer."""
    wrong_to_right: int = 0
    """Steps that found the right answer."""
    stayed_right: int = 0
    """Steps that kept the right answer."""
    stayed_wrong: int = 0
    """Steps from wrong to wrong; an answer that cannot be read is wrong."""

    @property
    def steps(self) -> int:
        """Number of steps: the chains' lengths, each less one."""
        return self.right_to_wrong + self.wrong_to_right + self.stayed_right + self.stayed_wrong

    @property
    def net(self) -> int:
        """Right answers gained by the chains from first to last reply."""
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


def count_changes(chain: Sequence[str | None]) -> tuple[int, int]:
    """Return how often a chain's answer changed, and how often back to an earlier one; unread replies are skipped."""
    read = [key for key in chain if key is not None]
    changed = [place for place in range(1, len(read)) if read[place] != read[place - 1]]
    return len(changed), sum(read[place] in read[:place] for place in changed)


REVISION_INSTRUCTION = (
    "Go through your solution above once more. If you find a mistake, correct it and solve the problem again; if you"
    " find none, say so. End with your final answer, in the same form as before."
)


@dataclass(frozen=True)
class Revision(Strategy):
    """Answer, then revise a few times with the last replies in view; take the best of the whole chain, not the last.

    Each round shows the last ``keep`` replies, each with the instruction and the judge's feedback. The chain ends after
    its rounds, or when the judge accepts a reply as right. The best is the judge's, or the most frequent answer. Four
    kept is the setting of arXiv 2408.03314, whose model was trained to revise; the prompt for models that were not is
    ours, feedback and refinement in one (self-refine uses two). Four rounds is our choice. How often the answer
    changed, and returned to an earlier one, is in the figures; `count_flips` grades chains. Replies of a chain saw one
    another, so no confidence follows from their vote. Harm: without new information (a judge's feedback) revision turns
    right answers wrong about as often as wrong ones right (arXiv 2310.01798); an adaptive vote makes better use of as
    many samples.
    """

    paper = Paper("arXiv 2408.03314", "revisions", "selection over the whole chain")
    example: ClassVar[Mapping[str, Any]] = {"rounds": 3}

    rounds: int = 4
    """Replies of the chain, the first included."""
    keep: int = 4
    """Replies shown to the next round."""
    judge: str = ""
    """Judge that scores the replies and whose feedback is shown; empty for none."""
    weighted: bool = False
    """Whether replies with the same answer add up their scores."""
    instruction: str = REVISION_INSTRUCTION
    """User message after each reply."""

    def __post_init__(self) -> None:
        require(self, "rounds", self.rounds >= 1, "at least one reply")
        require(self, "keep", self.keep >= 1, "at least one reply")
        require(self, "instruction", bool(self.instruction.strip()), "words")

    def __call__(self, task: Task) -> Run:
        """Sample the chain, then choose."""
        chain: list[Candidate] = []
        stopped = "most"
        while len(chain) < self.rounds:
            drawn: list[Candidate] = yield self.next_round(task.prompt, chain)
            chain += yield from request_scores(drawn, self.judge)
            if not drawn or chain[-1].solved or chain[-1].finish == "tool_calls":
                stopped = "solved" if drawn and chain[-1].solved else "answered" if drawn else "budget"
                break
        poll = Poll(task)
        poll.add(chain)
        answer = select_best(poll, by=self.judge, weighted=self.weighted)
        changed, returned = count_changes([candidate.key for candidate in chain])
        figures = {"rounds": float(len(chain)), "changes": float(changed), "returns": float(returned)}
        note = (
            "The replies of a chain saw one another: their agreement is no evidence, and no confidence is given.",
        ) * (len(chain) > 1)
        return replace(answer, stopped=stopped, figures=figures, notes=(*answer.notes, *note))

    def next_round(self, prompt: Prompt, chain: list[Candidate]) -> Ask:
        """Return the request of the next round, with the last replies and their feedback."""
        if not chain:
            return Ask(1)
        turns = [
            (reply.full_text, "\n\n".join(filter(None, (reply.feedback, self.instruction))))
            for reply in chain[-self.keep :]
        ]
        return Ask(1, prompt=with_turns(prompt, turns), independent=False, purpose="revision")
