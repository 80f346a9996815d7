"""Plans of sweeps: budgets near what a model writes by itself, room for the answer, a table and back."""

from __future__ import annotations

import pytest

from breadth.base.errors import SettingsError
from breadth.base.settings import from_table, to_table
from breadth.inference.policy import Policy
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.single import Single
from breadth.inference.sweep_plan import Arm, SweepPlan, check_budgets, forced_arms, plain_arm, usual_budgets
from breadth.inference.thinking import UNMARKED_THINKING


def test_usual_budgets_are_powers_of_two_from_half_to_four_times_the_natural_length() -> None:
    # 1,000 tokens: 500, 1000, 2000, 4000 are nearest to 512, 1024, 2048, 4096.
    assert usual_budgets(1000, 16384) == (512, 1024, 2048, 4096)
    # 4096 would leave no room in 4096: 100 tokens are kept for the answer.
    assert usual_budgets(1000, 4096) == (512, 1024, 2048)
    assert usual_budgets(1, 4096) == (8,)
    assert usual_budgets(5000, 64) == (32,)


def test_a_budget_without_room_for_the_answer_is_refused() -> None:
    assert check_budgets([64, 32, 64], 1024) == (32, 64)
    with pytest.raises(SettingsError, match=r"budget of 1,000 tokens.*at most 1,024"):
        check_budgets([64, 1000], 1024)


def test_forced_arms_think_exactly_so_long() -> None:
    (arm,) = forced_arms([64, 64], UNMARKED_THINKING, 3)
    assert arm == Arm("think 64", BudgetForcing(0, 64, 64, UNMARKED_THINKING), 3, 64)


def test_a_plan_survives_a_table() -> None:
    arms = (plain_arm((1, 4)), *forced_arms([128, 64], UNMARKED_THINKING, 2))
    plan = SweepPlan(Policy(), arms, (1, 4), 10, notes=("a note",))
    assert from_table(SweepPlan, to_table(plan)) == plan
    assert [arm.budget for arm in plan.serial] == [64, 128]
    assert plan.samples_each == 4 + 2 * 2


@pytest.mark.parametrize(
    ("arms", "widths", "said"),
    [
        ((), (1,), "plain arm first"),
        (forced_arms([8], UNMARKED_THINKING, 1), (1,), "plain arm first"),
        ((Arm("x", Single(), 2),), (1, 4), "up to the number"),
        ((Arm("x", Single(), 2),), (), "at least one sample"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(arms: tuple[Arm, ...], widths: tuple[int, ...], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        SweepPlan(Policy(), arms, widths)
