"""The plan of a sweep: plain samples for votes of every width, and thinking forced to several budgets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from breadth.base.errors import SettingsError, require
from breadth.inference.policy import Policy
from breadth.inference.strategies.budget_forcing import ANSWER_TOKENS, BudgetForcing
from breadth.inference.strategies.single import Single
from breadth.inference.strategy import Strategy
from breadth.inference.thinking import Thinking

PLAIN_ARM = "as it comes"
"""Name of the arm whose samples are left as the model writes them."""
BUDGET_MULTIPLES = (0.5, 1.0, 2.0, 4.0)
"""Default budgets in multiples of the model's natural length: one that cuts, and up to four times as much."""
DEFAULT_WIDTHS = (1, 2, 4, 8)
"""Default widths of the votes."""


@dataclass(frozen=True)
class Arm:
    """One way to sample, measured on every question."""

    name: str
    """Name in the report."""
    strategy: Strategy
    """Strategy that draws one sample."""
    draws: int
    """Samples per question."""
    budget: int | None = None
    """Thinking tokens to force; None leaves thinking to the model."""

    def __post_init__(self) -> None:
        require(self, "draws", self.draws >= 1, "at least one sample")
        require(self, "budget", self.budget is None or self.budget >= 1, "at least one token")


@dataclass(frozen=True)
class SweepPlan:
    """Everything about a sweep except its questions; the first arm is the plain one."""

    policy: Policy
    """How to sample and read answers; its strategy is not used."""
    arms: tuple[Arm, ...]
    """Arms to measure."""
    widths: tuple[int, ...] = DEFAULT_WIDTHS
    """Widths of the votes, all made from the plain arm's samples."""
    questions: int = 0
    """Number of questions, the first in random order."""
    seed: int = 0
    """Random seed."""
    notes: tuple[str, ...] = ()
    """What could not be measured, and why."""

    def __post_init__(self) -> None:
        require(self, "arms", bool(self.arms) and self.arms[0].budget is None, "a plain arm first")
        require(self, "widths", bool(self.widths) and min(self.widths) >= 1, "widths of at least one sample")
        require(self, "widths", max(self.widths) <= self.arms[0].draws, "widths up to the number of plain samples")

    @property
    def serial(self) -> tuple[Arm, ...]:
        """The arms whose thinking is forced, smallest budget first."""
        return tuple(sorted((arm for arm in self.arms if arm.budget is not None), key=lambda arm: arm.budget or 0))

    @property
    def samples_each(self) -> int:
        """Samples per question over all arms."""
        return sum(arm.draws for arm in self.arms)


def plain_arm(widths: Iterable[int]) -> Arm:
    """Return the plain arm: as many samples as the widest vote takes."""
    return Arm(PLAIN_ARM, Single(), max(widths))


def forced_arms(budgets: Iterable[int], thinking: Thinking, draws: int) -> tuple[Arm, ...]:
    """Return an arm per budget: thinking is cut or extended to exactly so many tokens (arXiv 2506.04210)."""
    return tuple(
        Arm(
            f"think {budget:,}", BudgetForcing(cues=0, minimum=budget, maximum=budget, thinking=thinking), draws, budget
        )
        for budget in sorted(set(budgets))
    )


def check_budgets(budgets: Iterable[int], longest: int) -> tuple[int, ...]:
    """Return a user's budgets in rising order; refuse those that leave no room for the answer."""
    wanted, room = tuple(sorted(set(budgets))), max_thinking_tokens(longest)
    bad = [budget for budget in wanted if not 1 <= budget <= room]
    if bad:
        raise SettingsError(
            f"A thinking budget of {bad[0]:,} tokens was asked for; completions have at most {longest:,}, some of them"
            " for the answer.",
            f"Give budgets from 1 to {room:,}, or raise --max-tokens.",
        )
    return wanted


def usual_budgets(natural: float, longest: int) -> tuple[int, ...]:
    """Return default budgets for a model that writes ``natural`` tokens: powers of two near half to four times that."""
    room = max_thinking_tokens(longest)
    near = {2 ** max(3, round(math.log2(max(1.0, natural * multiple)))) for multiple in BUDGET_MULTIPLES}
    return tuple(sorted(budget for budget in near if budget <= room)) or (room,)


def max_thinking_tokens(longest: int) -> int:
    """Return the most thinking that leaves room for the answer."""
    return max(1, longest - min(ANSWER_TOKENS, longest // 2))
