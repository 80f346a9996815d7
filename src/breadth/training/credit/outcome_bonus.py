"""The outcome bonus: pays for final answers that a problem has seldom been given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from breadth.base.checks import require
from breadth.base.errors import MechanismError
from breadth.base.stats import Counts, Mean
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Role, Selection
from breadth.training.ops import group_mean, masked_values
from breadth.training.records import Rollouts, not_none


@dataclass(frozen=True)
class OutcomeCounts:
    """Every answer given so far, by problem."""

    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Problem -> outcome -> how often it was given in the generations before."""


@dataclass(frozen=True)
class OutcomeBonus(Mechanism[Rollouts, OutcomeCounts]):
    """Pay for answers seldom given before, and charge for those given often.

    Put it after the estimator: it adds to the advantage.

    ``A += coefficient * (min(1, sqrt(1 / N)) - baseline)`` with N how often this answer was given to this problem in
    earlier generations (UCB, UCB-Mean and UCB-Con of 2509.06941, which keeps a KL to the base model beside it). Groups
    without a difference in reward get their only signal from it: a FlatFilter before it takes that away, so filter
    after it, on the total advantage.

    An answer that could not be parsed gets no bonus and is not counted, or failing the format would be exploring.
    Answers must be canonical by the checker's own equivalence, or 1/2 and 0.5 are two. All answers are counted, also of
    rollouts that were dropped or have no reward.

    Harm: without a baseline it pays for going back to known wrong answers and does not reliably help at test. With one,
    an often-given answer is charged while an unparsable one is not: keep the coefficient below the gap that correctness
    or the format makes in the advantage.
    """

    follows = Role.ESTIMATOR

    coefficient: float = 0.1
    """Size of the bonus against the advantage. The paper's is not known to us; ours is the middle of 0.05 to 0.2, worth
    sweeping.
    """
    baseline: Literal["none", "mean", "constant"] = "constant"
    """What is taken off: nothing, the group's mean bonus, or ``constant``. The constant one was best over k = 1 to 32
    in the paper.
    """
    constant: float = 0.5
    """The constant baseline. The paper's value is not known to us; at 0.5 an answer is charged once it was given more
    than 4 times.
    """

    def __post_init__(self) -> None:
        require(self, "baseline", self.baseline in ("none", "mean", "constant"), "'none', 'mean' or 'constant'")
        require(self, "coefficient", self.coefficient >= 0, "a number of 0 or more")
        require(self, "constant", 0 <= self.constant <= 1, "a number between 0 and 1")

    @property
    def needs(self) -> frozenset[str]:
        """Whose answers they are, and the answers."""
        return frozenset({"problems", "outcomes"})

    def init(self) -> OutcomeCounts:
        """Nothing seen."""
        return OutcomeCounts()

    def apply(self, batch: Rollouts, state: OutcomeCounts, selection: Selection | None) -> Effect[Rollouts]:
        """Add the bonus, by the counts from before this generation, and count its answers."""
        answers = _answers(batch)
        seen = batch.rewards.new_tensor(
            [state.counts.get(problem, {}).get(outcome or "", 0) for problem, outcome in answers]
        )
        given = seen.new_tensor([outcome is not None for _, outcome in answers]).bool()
        among = batch.is_scored & given
        bonus = seen.clamp(min=1).rsqrt()
        if self.baseline == "mean":
            bonus = bonus - group_mean(bonus, batch.groups, among)
        elif self.baseline == "constant":
            bonus = bonus - self.constant
        bonus = masked_values(bonus, among)
        counted: Counter[Hashable] = Counter(answer for answer in answers if answer[1] is not None)
        stats = {
            "answers": Counts(counted),
            "bonus": Mean(bonus.sum(), among.sum()),
            "new": Mean((among & (seen == 0)).sum(), among.sum()),
        }
        return Effect(batch.add_advantages(self.coefficient * bonus), stats=stats)

    def update(self, state: OutcomeCounts, stats: Mapping[str, Any]) -> OutcomeCounts:
        """Add this generation's answers to the counts."""
        answers = stats.get("answers", Counts()).by_label
        touched = {problem: dict(state.counts.get(problem, {})) for problem, _ in answers}
        for (problem, outcome), times in answers.items():
            touched[problem][outcome] = touched[problem].get(outcome, 0) + int(times)
        return OutcomeCounts({**state.counts, **touched})

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Tell of groups of one, whose mean is their own bonus."""
        if regime.group_size == 1 and self.baseline == "mean":
            return NoEffect(
                "outcome-bonus",
                "with one rollout per problem the mean baseline takes all of the bonus.",
                "Use the constant baseline.",
            )
        return None


def _answers(batch: Rollouts) -> list[tuple[str, str | None]]:
    """Return (problem, outcome) of each rollout."""
    problems, outcomes = not_none(batch.problems), not_none(batch.outcomes)
    if not len(problems) == len(outcomes) == len(batch):
        problem = f"{len(batch)} rollouts came with {len(problems)} problems and {len(outcomes)} outcomes."
        raise MechanismError(problem, "Give one problem and one outcome (None where there is none) for each rollout.")
    return list(zip(problems, outcomes, strict=True))
