"""Spends add up, prices are for a million tokens, ceilings are never negative."""

from __future__ import annotations

import pytest

from breadth.base.errors import SettingsError
from breadth.base.settings import dumps, loads
from breadth.inference.budget import Budget, Prices, Spend


def test_spends_add_up_field_by_field() -> None:
    assert Spend(1, 2, 3, 4, 5.0, 6.0) + Spend(10, 20, 30, 40, 50.0, 60.0) == Spend(11, 22, 33, 44, 55.0, 66.0)
    assert Spend(calls=1) + Spend() == Spend(calls=1)


def test_cached_tokens_have_their_own_price() -> None:
    spend = Spend(input_tokens=3_000_000, cached_tokens=1_000_000, output_tokens=500_000)
    assert Prices(input=1.0, cached=0.25, output=4.0).cost_of(spend) == pytest.approx(2.0 + 0.25 + 2.0)


@pytest.mark.parametrize("name", ["calls", "input_tokens", "output_tokens", "seconds", "money"])
def test_a_negative_ceiling_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        Budget(**{name: -1})


def test_a_budget_survives_toml() -> None:
    budget = Budget(output_tokens=1000, seconds=2.5)
    assert loads(Budget, dumps(budget)) == budget
