"""The operator's ceilings."""

from __future__ import annotations

import pytest

from breadth.base.errors import SettingsError
from breadth.inference.budget import Budget
from breadth.runtime.proxy.limits import Limits, tightest


def test_the_tightest_of_several_budgets_holds_ceiling_by_ceiling() -> None:
    mine, theirs = Budget(calls=8, output_tokens=100), Budget(calls=5, seconds=2.0)
    assert tightest(mine, theirs) == Budget(calls=5, output_tokens=100, seconds=2.0)
    assert tightest(mine, Limits(draws=4, seconds=1.5).budget) == Budget(calls=4, output_tokens=100, seconds=1.5)
    assert tightest() == Budget()


def test_a_ceiling_of_nothing_is_still_a_ceiling() -> None:
    assert tightest(Budget(calls=0), Budget(calls=3)).calls == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"body": 0},
        {"clients": 0},
        {"draws": 0},
        {"seconds": 0.0},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"heartbeat": 0.0},
        {"drain": -1.0},
    ],
)
def test_limits_that_make_no_sense_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Limits(**wrong)  # type: ignore[arg-type] # wrong on purpose
