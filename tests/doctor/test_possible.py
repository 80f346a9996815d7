"""An interval ends where the metric does."""

from __future__ import annotations

import pytest

from breadth.doctor.possible import possible
from breadth.measure.intervals import Interval


@pytest.mark.parametrize(
    ("name", "given", "cut"),
    [
        ("starved_groups", (0.875, 0.78, 1.047), (0.875, 0.78, 1.0)),
        ("truncated", (0.01, -0.02, 0.04), (0.01, 0.0, 0.04)),
        ("entropy", (0.1, -0.1, 2.0), (0.1, 0.0, 2.0)),
        ("reward", (-0.5, -1.5, 0.5), (-0.5, -1.5, 0.5)),
        ("starved_groups", (87.5, 80.0, 95.0), (87.5, 80.0, 95.0)),  # in percent: no share, and nothing is cut
    ],
)
def test_it_is_cut_to_what_can_be(
    name: str, given: tuple[float, float, float], cut: tuple[float, float, float]
) -> None:
    found = possible(name, Interval(*given, 0.95, "by hand"))
    assert (found.value, found.low, found.high) == cut
    assert found.method == "by hand"
