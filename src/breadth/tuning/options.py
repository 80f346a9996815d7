"""Everything the policy may be chosen from: plain draws voted on at each width, and thinking forced to each budget, with score and cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy
from breadth.measure.vote_counting import maj_at_k_by_problem
from breadth.tuning.evidence import ArmEvidence, Evidence, Floats


@dataclass(frozen=True, eq=False)
class Option:
    """One policy that was measured."""

    name: str
    """What it is called in the report."""
    strategy: Strategy
    """What runs it."""
    width: int
    """Samples it draws for a question."""
    budget: int | None
    """Thinking tokens it forces; None for none."""
    scores: Floats
    """Its score on each question: accuracy, or agreement where right answers are not known."""
    costs: Floats
    """Tokens it writes for each question."""
    seconds: float
    """Mean seconds to an answer: votes are drawn side by side, so one takes as long as the slowest of a group."""
    money: float
    """Mean cost of a question by the prices given."""

    @property
    def score(self) -> float:
        """Its mean score."""
        return float(self.scores.mean())

    @property
    def cost(self) -> float:
        """Its mean cost."""
        return float(self.costs.mean())


def measured_options(evidence: Evidence) -> tuple[Option, ...]:
    """Return every option, cheapest first.

    A vote of k is scored exactly from the samples there are: the mean over all ways to draw k of them, ties shared.
    Nothing is drawn for each width apart, so all widths rest on the same samples.
    """
    votes = plain_votes(evidence)
    forced = [_forced(arm) for arm in evidence.serial]
    return tuple(sorted([*votes, *forced], key=lambda option: (option.cost, option.width)))


def plain_votes(evidence: Evidence) -> list[Option]:
    """Return the vote of each width over plain draws, narrowest first."""
    plain, widths = evidence.plain, sorted({1, *evidence.plan.widths})
    return [
        Option(
            "one plain draw" if width == 1 else f"vote of {width}",
            Single() if width == 1 else Vote(width),
            width,
            None,
            scores,
            plain.tokens.mean(axis=1) * width,
            _slowest(plain.seconds, width),
            float(plain.money.mean()) * width,
        )
        for width, scores in zip(widths, votes_of(plain, widths).T, strict=True)
    ]


def votes_of(arm: ArmEvidence, widths: list[int]) -> Floats:
    """Return the score of votes over an arm's samples: questions x widths."""
    rows = np.repeat(np.arange(len(arm.classes)), arm.classes.shape[1])
    return maj_at_k_by_problem(rows, arm.classes.ravel(), arm.worth.ravel(), widths)


def _forced(evidence: ArmEvidence) -> Option:
    return Option(
        evidence.arm.name,
        evidence.arm.strategy,
        1,
        evidence.arm.budget,
        evidence.worth.mean(axis=1),
        evidence.tokens.mean(axis=1),
        float(evidence.seconds.mean()),
        float(evidence.money.mean()),
    )


def _slowest(seconds: Floats, width: int) -> float:
    """Return the mean time of the slowest of ``width`` samples, over groups of neighbouring ones."""
    groups = seconds.shape[1] // width
    return float(seconds[:, : groups * width].reshape(len(seconds), groups, width).max(axis=2).mean())
