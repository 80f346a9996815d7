"""Rounds that show the model the answers so far, to find what it would not have tried (batch exploration)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.records import Answer, Ask, Candidate, Run, Task
from breadth.inference.stopping.rule import Never
from breadth.inference.strategies.adaptive_vote import majority_with_confidence
from breadth.inference.strategy import Strategy, with_suffix
from breadth.inference.voting import Poll, best_scored, judge_score, majority, request_scores

LISTING_PROMPT = (
    "Others have already arrived at these answers: {answers}. They may be right or wrong. Find a different approach, "
    "or confirm one of them by an independent method."
)

MAX_ANSWER_CHARACTERS = 200
"""Most characters of an answer that are listed."""


@dataclass(frozen=True)
class BatchExploration(Strategy):
    """Sample in rounds; from the second on, list the answers so far and ask for another way, or a confirmation.

    With a judge the candidate with the largest u = score - penalty (c - 1) / n wins, where c of n candidates share its
    answer. Our adaptation to inference of a training reward that charges for an answer repeated within a batch (arXiv
    2509.06941); no rule for decoding is published. Rounds of 4, five answers listed and a penalty of 0.5 are starting
    points without published figures: measure. Listing nothing is independent sampling, and with a penalty of 0 plain
    best-of-N. Confirming an answer by other means is always allowed, so the right answer is not driven out.
    Candidates after the first round saw others' answers: no stop rule and no posterior that assumes independence is
    applied to them. Harm: it trades the accuracy of a single sample for coverage. Use it with a judge that can tell
    right from wrong; by vote alone it may be worse than an adaptive vote.
    """

    paper = Paper(
        "arXiv 2509.06941",
        "batch exploration",
        "a prompt-level relative of a training-time penalty; candidates are marked as not independent",
    )
    example: ClassVar[Mapping[str, Any]] = {"batch": 2, "rounds": 2}

    batch: int = 4
    """Samples per round."""
    rounds: int = 4
    """Most rounds; they end early when a judge accepts a candidate as right."""
    listed: int = 5
    """Answers shown to the next round, most frequent first; 0 shows none."""
    penalty: float = 0.5
    """What a candidate's score loses when all others give the same answer."""
    judge: str = ""
    """Judge that scores the candidates; empty for none."""
    listing: str = LISTING_PROMPT
    """Prompt that lists the answers in place of {answers}."""

    def __post_init__(self) -> None:
        require(self, "batch", self.batch >= 1, "at least one sample")
        require(self, "rounds", self.rounds >= 1, "at least one round")
        require(self, "listed", self.listed >= 0, "0 or more answers")
        require(self, "penalty", 0 <= self.penalty < float("inf"), "0 or more")
        require(self, "listing", "{answers}" in self.listing, "words with {answers} in them")

    def __call__(self, task: Task) -> Run:
        """Sample the rounds, then choose."""
        poll = Poll(task)
        stopped = "most"
        for _ in range(self.rounds):
            drawn: list[Candidate] = yield self.next_round(poll)
            poll.add((yield from request_scores(drawn, self.judge)))
            solved = any(candidate.solved for candidate in poll.seen)
            if solved or not drawn:
                stopped = "solved" if solved else "budget"
                break
        figures = {"answers": float(len(poll.members)), "draws": float(len(poll.seen))}
        return replace(self.choose(poll), stopped=stopped, figures=figures)

    def next_round(self, poll: Poll) -> Ask:
        """Return the request of the next round, with the answers so far."""
        ranked = sorted(poll.members, key=len, reverse=True)[: self.listed]
        if not ranked:
            return Ask(self.batch)
        listing = self.listing.replace(
            "{answers}", "; ".join((group[0].answer or "")[:MAX_ANSWER_CHARACTERS] for group in ranked)
        )
        return Ask(self.batch, prompt=with_suffix(poll.task.prompt, listing), independent=False, purpose="exploration")

    def choose(self, poll: Poll) -> Answer:
        """Return the best candidate by the judge's scores less the penalty, or the plain vote without a judge."""
        if self.judge and any(judge_score(candidate) is not None for candidate in poll.seen):
            return best_scored(poll, self.utility(poll))
        notes = ("No judge scored the candidates: the plain vote decided.",) * bool(self.judge and poll.seen)
        if all(candidate.independent for candidate in poll.seen):
            answer = majority_with_confidence(poll, Never(), "")
        else:
            answer = majority(poll)
            notes += (
                (
                    "Later rounds saw the answers of earlier ones: their agreement is no evidence, and no confidence"
                    " is given."
                ),
            )
        return replace(answer, notes=(*answer.notes, *notes))

    def utility(self, poll: Poll) -> Callable[[Candidate], float | None]:
        """Return the function that gives a candidate's score less the penalty for repeated answers."""
        share = {id(candidate): (len(group) - 1) / len(poll.seen) for group in poll.members for candidate in group}

        def score_less_penalty(candidate: Candidate) -> float | None:
            score = judge_score(candidate)
            return None if score is None else score - self.penalty * share.get(id(candidate), 0.0)

        return score_less_penalty
