"""Plans that cannot be run are refused."""

from __future__ import annotations

from typing import Any

import pytest

from breadth.base import settings
from breadth.base.errors import SettingsError
from breadth.lab.rung.plan import RungPlan


def test_the_ks() -> None:
    assert RungPlan(votes=8, samples=32).ks == (1, 8, 32)
    assert RungPlan(votes=1, samples=1).ks == (1,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"rate": 0.0},
        {"group": 1},
        {"parts": 3},
        {"votes": 33},
        {"problems": 0},
        {"trained": 200_000},
        {"seed": -1},
    ],
)
def test_what_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        RungPlan(**wrong)


def test_to_a_table_and_back() -> None:
    assert settings.from_table(RungPlan, settings.to_table(RungPlan(steps=7))) == RungPlan(steps=7)
