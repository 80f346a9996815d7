"""The repeat penalty: penalises a rollout for every other one of its group with the same answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from breadth.base.catalogue import Paper
from breadth.base.errors import MechanismError, require
from breadth.base.stats import Mean
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Role, Selection
from breadth.training.ops import group_count, masked_values
from breadth.training.records import Rollouts, not_none


@dataclass(frozen=True)
class RepeatPenalty(Mechanism[Rollouts, None]):
    """Penalise the answer that others of the group gave too.

    It adds to the advantage, so it comes after the estimator.

    ``A_i -= coefficient * (how many of the others gave a_i) / n`` with n the scored rollouts of the group (batch
    exploration, 2509.06941). An answer that cannot be parsed equals no other. Answers must be canonical by the
    checker's own equivalence, or 1/2 and 0.5 count as two. In the paper it was best at large k late in training.

    Harm: repeating the correct answer is penalised too, so on solved problems it opposes the reward: keep
    ``coefficient * (n - 1) / n`` below the gap between the advantages of correct and wrong. An unparsable answer is
    never penalised; give the format its own reward.
    """

    paper = Paper(
        "arXiv 2509.06941", "outcome-based exploration, within a batch", "an unparsable answer gets no penalty"
    )
    neutral: ClassVar[Mapping[str, Any]] = {"coefficient": 0.0}

    follows = Role.ESTIMATOR

    coefficient: float = 0.1
    """Size of the penalty relative to the advantage. We do not know the paper's; ours is the middle of 0.05 to 0.2,
    worth sweeping.
    """

    def __post_init__(self) -> None:
        require(self, "coefficient", self.coefficient >= 0, "a number of 0 or more")

    @property
    def needs(self) -> frozenset[str]:
        """The answers."""
        return frozenset({"outcomes"})

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        """Subtract the penalty from the advantages; rollouts without a reward neither pay nor count."""
        outcomes, is_scored = not_none(batch.outcomes), batch.is_scored
        if len(outcomes) != len(batch):
            raise MechanismError(
                f"There are {len(batch)} rollouts, but {len(outcomes)} outcomes.",
                "Give one for each rollout, None if there is none.",
            )
        given = list(zip(batch.groups.tolist(), outcomes, strict=True))
        times = Counter(answer for answer, scored in zip(given, is_scored.tolist(), strict=True) if scored)
        others = batch.rewards.new_tensor([times[answer] - 1 if answer[1] is not None else 0 for answer in given])
        penalty = masked_values(others / group_count(batch.groups, is_scored), is_scored)
        stats = {
            "penalty": Mean(penalty.sum(), is_scored.sum()),
            "repeated": Mean((penalty > 0).sum(), is_scored.sum()),
        }
        return Effect(batch.add_advantages(-self.coefficient * penalty), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report groups of one, where no answer is repeated."""
        if regime.group_size == 1:
            return NoEffect(
                "repeat-penalty",
                "with one rollout per problem no answer is repeated.",
                "Sample at least two per problem.",
            )
        return None
