"""Rounds that tell the model what was already answered, to find what it would not have tried (batch exploration)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from breadth.base.checks import require
from breadth.inference.prompts import with_suffix
from breadth.inference.records import Answer, Ask, Candidate, Run, Task
from breadth.inference.stopping.never import Never
from breadth.inference.strategies.adaptive_vote import majority_with_confidence
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, best_scored, judge_score, majority, request_scores

LISTING_PROMPT = (
    "Others have already arrived at these answers: {answers}. They may be right or wrong. Find a different approach, "
    "or confirm one of them by an independent method."
)

MAX_ANSWER_CHARACTERS = 200
"""Characters of an answer that are told."""


@dataclass(frozen=True)
class BatchExploration(Strategy):
    """Draw in rounds; from the second on, list the answers given so far and ask for another way, or for a confirmation by other means.

    With a judge the candidate with the largest u = score - penalty (c - 1) / n wins, where c of n candidates share its
    answer. Our adaptation to inference of a training reward that charges for an answer repeated within a batch (arXiv
    2509.06941); no rule for decoding is published. Rounds of 4, five answers listed and a penalty of 0.5 are starting
    points without published figures: measure. Listing nothing is independent sampling, and with a penalty of 0 the
    plain best-of-N. Confirming is always allowed, lest the right answer be driven out.
    Candidates after the first round saw others' answers: no stop rule and no posterior that assumes independence is
    applied to them. Harm: it buys coverage with the accuracy of the single draw. Use it with a judge that can tell
    right from wrong; by vote alone it may well be worse than an adaptive vote.
    """

    batch: int = 4
    """Draws in a round."""
    rounds: int = 4
    """Rounds at most; a judge that holds a candidate for right ends them."""
    listed: int = 5
    """Answers told to the next round, most frequent first; 0 tells none."""
    penalty: float = 0.5
    """What a candidate's score loses when all others give the same answer."""
    judge: str = ""
    """Judge that scores the candidates; empty for none."""
    listing: str = LISTING_PROMPT
    """How the answers are told; {answers} stands for them."""

    def __post_init__(self) -> None:
        require(self, "batch", self.batch >= 1, "at least one draw")
        require(self, "rounds", self.rounds >= 1, "at least one round")
        require(self, "listed", self.listed >= 0, "0 or more answers")
        require(self, "penalty", 0 <= self.penalty < float("inf"), "0 or more")
        require(self, "listing", "{answers}" in self.listing, "words with {answers} in them")

    def __call__(self, task: Task) -> Run:
        """Draw round after round, then choose."""
        poll = Poll(task)
        stopped = "most"
        for _ in range(self.rounds):
            drawn: list[Candidate] = yield self._ask(poll)
            poll.add((yield from request_scores(drawn, self.judge)))
            solved = any(candidate.solved for candidate in poll.seen)
            if solved or not drawn:
                stopped = "solved" if solved else "budget"
                break
        figures = {"answers": float(len(poll.members)), "draws": float(len(poll.seen))}
        return replace(self._best(poll), stopped=stopped, figures=figures)

    def _ask(self, poll: Poll) -> Ask:
        ranked = sorted(poll.members, key=len, reverse=True)[: self.listed]
        if not ranked:
            return Ask(self.batch)
        told = self.listing.replace(
            "{answers}", "; ".join((group[0].answer or "")[:MAX_ANSWER_CHARACTERS] for group in ranked)
        )
        return Ask(self.batch, prompt=with_suffix(poll.task.prompt, told), independent=False, purpose="exploration")

    def _best(self, poll: Poll) -> Answer:
        if self.judge and any(judge_score(candidate) is not None for candidate in poll.seen):
            return best_scored(poll, self._utility(poll))
        notes = ("No judge scored the candidates: the plain vote decided.",) * bool(self.judge and poll.seen)
        if all(candidate.independent for candidate in poll.seen):
            answer = majority_with_confidence(poll, Never(), "")
        else:
            answer = majority(poll)
            notes += (
                (
                    "Later rounds knew the answers of earlier ones: their agreement is no evidence, and no confidence"
                    " is given."
                ),
            )
        return replace(answer, notes=(*answer.notes, *notes))

    def _utility(self, poll: Poll) -> Callable[[Candidate], float | None]:
        share = {id(candidate): (len(group) - 1) / len(poll.seen) for group in poll.members for candidate in group}

        def utility(candidate: Candidate) -> float | None:
            score = judge_score(candidate)
            return None if score is None else score - self.penalty * share.get(id(candidate), 0.0)

        return utility
