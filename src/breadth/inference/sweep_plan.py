"""What a sweep measures: plain draws for votes of every width, and thinking forced to several budgets, on the same questions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from breadth.base.checks import require
from breadth.base.errors import SettingsError
from breadth.inference.policy import Policy
from breadth.inference.strategies.budget_forcing import ANSWER_TOKENS, BudgetForcing
from breadth.inference.strategies.single import Single
from breadth.inference.strategy import Strategy
from breadth.inference.thinking import Thinking

PLAIN_ARM = "as it comes"
"""Name of the arm whose draws are left as the model writes them."""
BUDGET_MULTIPLES = (0.5, 1.0, 2.0, 4.0)
"""Budgets tried unless told otherwise, in multiples of what the model writes by itself: one that cuts, and up to four
times as much.
"""
DEFAULT_WIDTHS = (1, 2, 4, 8)
"""Widths tried unless told otherwise."""


@dataclass(frozen=True)
class Arm:
    """One way to draw a sample, measured on every question."""

    name: str
    """What it is called in the report."""
    strategy: Strategy
    """How one sample is drawn."""
    draws: int
    """Samples of each question."""
    budget: int | None = None
    """Thinking tokens it is forced to; None leaves thinking to the model."""

    def __post_init__(self) -> None:
        require(self, "draws", self.draws >= 1, "at least one sample")
        require(self, "budget", self.budget is None or self.budget >= 1, "at least one token")


@dataclass(frozen=True)
class SweepPlan:
    """All of a sweep but its questions; the first arm is the plain one."""

    policy: Policy
    """How to draw and read; its strategy is not used."""
    arms: tuple[Arm, ...]
    """What is measured."""
    widths: tuple[int, ...] = DEFAULT_WIDTHS
    """Votes looked at, all made from the plain arm's samples."""
    questions: int = 0
    """Questions asked, the first of the random order."""
    seed: int = 0
    """Root of every seed."""
    notes: tuple[str, ...] = ()
    """What could not be measured, and why."""

    def __post_init__(self) -> None:
        require(self, "arms", bool(self.arms) and self.arms[0].budget is None, "a plain arm first")
        require(self, "widths", bool(self.widths) and min(self.widths) >= 1, "widths of at least one draw")
        require(self, "widths", max(self.widths) <= self.arms[0].draws, "widths up to the number of plain samples")

    @property
    def serial(self) -> tuple[Arm, ...]:
        """The arms whose thinking is forced, smallest budget first."""
        return tuple(sorted((arm for arm in self.arms if arm.budget is not None), key=lambda arm: arm.budget or 0))

    @property
    def samples_each(self) -> int:
        """Samples of one question over all arms."""
        return sum(arm.draws for arm in self.arms)


def plain_arm(widths: Iterable[int]) -> Arm:
    """Return the arm that is left alone: as many samples as the widest vote takes."""
    return Arm(PLAIN_ARM, Single(), max(widths))


def forced_arms(budgets: Iterable[int], thinking: Thinking, draws: int) -> tuple[Arm, ...]:
    """Return an arm for each budget: thinking of exactly so many tokens (arXiv 2506.04210), cut or extended as it takes."""
    return tuple(
        Arm(
            f"think {budget:,}", BudgetForcing(cues=0, minimum=budget, maximum=budget, thinking=thinking), draws, budget
        )
        for budget in sorted(set(budgets))
    )


def check_budgets(budgets: Iterable[int], longest: int) -> tuple[int, ...]:
    """Return budgets given by a user in rising order; refuse those that leave no room for the answer."""
    wanted, room = tuple(sorted(set(budgets))), _room(longest)
    bad = [budget for budget in wanted if not 1 <= budget <= room]
    if bad:
        raise SettingsError(
            f"A thinking budget of {bad[0]:,} tokens was asked for; completions have at most {longest:,}, some of them"
            " for the answer.",
            f"Give budgets from 1 to {room:,}, or raise --max-tokens.",
        )
    return wanted


def usual_budgets(natural: float, longest: int) -> tuple[int, ...]:
    """Return the budgets to try where a model writes ``natural`` tokens by itself: powers of two near half to four times that."""
    room = _room(longest)
    near = {2 ** max(3, round(math.log2(max(1.0, natural * multiple)))) for multiple in BUDGET_MULTIPLES}
    return tuple(sorted(budget for budget in near if budget <= room)) or (room,)


def _room(longest: int) -> int:
    """Return the most thinking that leaves room for the answer."""
    return max(1, longest - min(ANSWER_TOKENS, longest // 2))
