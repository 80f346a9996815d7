"""The outcome bonus: rewards final answers that were rarely given to a problem before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from breadth.base.catalogue import Paper
from breadth.base.errors import MechanismError, require
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
    """Reward answers rarely given before, and penalise those given often.

    It adds to the advantage, so it comes after the estimator.

    ``A += coefficient * (min(1, sqrt(1 / N)) - baseline)`` with N how often this answer was given to this problem in
    earlier generations (UCB, UCB-Mean and UCB-Con of 2509.06941, which adds a KL to the base model). For groups with
    equal rewards it is the only signal. A FlatFilter before it removes that signal, so filter after it, on the
    advantage.

    An answer that cannot be parsed gets no bonus and is not counted; otherwise breaking the format would pay. Answers
    must be canonical by the checker's own equivalence, or 1/2 and 0.5 count as two. All answers are counted, including
    those of rollouts that were dropped or have no reward.

    Harm: without a baseline it rewards returning to known wrong answers and does not reliably help at test time. With
    one, a frequent answer is penalised but an unparsable one is not: keep the coefficient below the advantage gap
    between correct and wrong, and between good and bad format.
    """

    paper = Paper(
        "arXiv 2509.06941",
        "outcome-based exploration, over generations",
        "an unparsable answer gets no bonus; counts are from before the generation",
    )
    neutral: ClassVar[Mapping[str, Any]] = {"coefficient": 0.0}

    follows = Role.ESTIMATOR

    coefficient: float = 0.1
    """Size of the bonus relative to the advantage. We do not know the paper's; ours is the middle of 0.05 to 0.2, worth
    sweeping.
    """
    baseline: Literal["none", "mean", "constant"] = "constant"
    """What is subtracted: nothing, the group's mean bonus, or ``constant``, which was best for k = 1 to 32 in the
    paper.
    """
    constant: float = 0.5
    """The constant baseline. We do not know the paper's; at 0.5 an answer given more than 4 times is penalised."""

    def __post_init__(self) -> None:
        require(self, "baseline", self.baseline in ("none", "mean", "constant"), "'none', 'mean' or 'constant'")
        require(self, "coefficient", self.coefficient >= 0, "a number of 0 or more")
        require(self, "constant", 0 <= self.constant <= 1, "a number between 0 and 1")

    @property
    def needs(self) -> frozenset[str]:
        """The problem and the answer of each rollout."""
        return frozenset({"problems", "outcomes"})

    def init(self) -> OutcomeCounts:
        """Start with no answer seen."""
        return OutcomeCounts()

    def apply(self, batch: Rollouts, state: OutcomeCounts, selection: Selection | None) -> Effect[Rollouts]:
        """Add the bonus, by the counts from before this generation, and count its answers."""
        answers = problem_answers(batch)
        seen = batch.rewards.new_tensor(
            [state.counts.get(problem, {}).get(outcome or "", 0) for problem, outcome in answers]
        )
        given = seen.new_tensor([outcome is not None for _, outcome in answers]).bool()
        counted = batch.is_scored & given
        bonus = seen.clamp(min=1).rsqrt()
        if self.baseline == "mean":
            bonus = bonus - group_mean(bonus, batch.groups, counted)
        elif self.baseline == "constant":
            bonus = bonus - self.constant
        bonus = masked_values(bonus, counted)
        occurrences: Counter[Hashable] = Counter(answer for answer in answers if answer[1] is not None)
        stats = {
            "answers": Counts(occurrences),
            "bonus": Mean(bonus.sum(), counted.sum()),
            "new": Mean((counted & (seen == 0)).sum(), counted.sum()),
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
        """Report groups of one with the mean baseline, which equals their bonus."""
        if regime.group_size == 1 and self.baseline == "mean":
            return NoEffect(
                "outcome-bonus",
                "with one rollout per problem the mean baseline cancels the bonus.",
                "Use the constant baseline.",
            )
        return None


def problem_answers(batch: Rollouts) -> list[tuple[str, str | None]]:
    """Return (problem, outcome) of each rollout."""
    problems, outcomes = not_none(batch.problems), not_none(batch.outcomes)
    if not len(problems) == len(outcomes) == len(batch):
        problem = f"There are {len(batch)} rollouts, but {len(problems)} problems and {len(outcomes)} outcomes."
        raise MechanismError(problem, "Give one problem and one outcome (None where there is none) for each rollout.")
    return list(zip(problems, outcomes, strict=True))
