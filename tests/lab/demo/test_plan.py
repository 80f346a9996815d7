"""The demo's settings: what is refused, and that the arms differ in their chain alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from breadth.base import settings
from breadth.base.errors import SettingsError
from breadth.lab.demo.plan import FAST_DEMO, FULL_DEMO, DemoPlan


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"samples": 4, "votes": 8},
        {"budgets": (8,)},
        {"budgets": (8, 8)},
        {"budgets": (16, 8)},
        {"repeats": 0},
        {"seed": -1},
    ],
)
def test_what_cannot_be_run_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        DemoPlan(**wrong)


def test_ks_are_powers_of_two_with_the_votes_and_the_samples() -> None:
    assert DemoPlan(samples=64, votes=8).ks == (1, 2, 4, 8, 16, 32, 64)
    assert DemoPlan(samples=12, votes=5).ks == (1, 2, 4, 5, 8, 12)
    assert DemoPlan(samples=1, votes=1).ks == (1,)


def test_the_arms_differ_in_their_chain_alone() -> None:
    plain, protected = FULL_DEMO.grpo_run("plain"), FULL_DEMO.grpo_run("protected")
    assert plain.chain != protected.chain
    assert replace(plain, chain=protected.chain) == protected
    assert (plain.steps, plain.learning_rate, plain.seed) == (FULL_DEMO.steps, FULL_DEMO.learning_rate, FULL_DEMO.seed)


@pytest.mark.parametrize("plan", [FULL_DEMO, FAST_DEMO])
def test_a_long_thought_is_one_of_several_times_what_a_reply_takes(plan: DemoPlan) -> None:
    assert plan.thinking <= plan.budgets[-1]
    assert settings.loads(DemoPlan, settings.dumps(plan)) == plan
