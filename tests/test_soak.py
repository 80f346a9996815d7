"""What a soak of the proxy concludes from what it read."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tools.soak", reason="tools/ is not part of this installation")
from tools.soak import Reading, judge_memory, name_failures


def measured(minutes: float, megabytes: list[float]) -> dict[str, Any]:
    seconds = [60 * minutes * number / len(megabytes) for number in range(len(megabytes))]
    readings = [Reading(time, int(1e6 * level), 9, 1, 1) for time, level in zip(seconds, megabytes, strict=True)]
    good = {"objects": {"flat": True}, "nothing_leaked": True, "ledger": {"exact": True}}
    return {"minutes": minutes, "memory": judge_memory(readings)} | good


def test_too_short_a_run_shows_neither_growth_nor_its_absence() -> None:
    result = measured(5.0, [70.0, 71.0, 72.0, 73.0])
    assert result["memory"]["flat"] is None
    assert name_failures(result) == []
    (failure,) = name_failures(result | {"minutes": 60.0})
    assert "not shown to be flat" in failure


def test_a_long_run_is_flat_or_grows() -> None:
    wave = [0.1, -0.2, 0.3, -0.1, 0.0, -0.3, 0.2]
    flat = measured(60.0, [80 + wave[number % 7] for number in range(200)])
    grown = measured(60.0, [80 + number / 10 + wave[number % 7] for number in range(200)])
    assert (flat["memory"]["flat"], grown["memory"]["flat"]) == (True, False)
    assert name_failures(flat) == []
    assert len(name_failures(grown)) == 1


def test_what_is_left_over_is_named_however_short_the_run() -> None:
    result = measured(1.0, [70.0] * 3)
    assert len(name_failures(result | {"nothing_leaked": False, "ledger": {"exact": False}})) == 2
