"""Groups without a right answer, counted and bounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.doctor.signs.hardness import bounded, counted
from breadth.measure.intervals import Interval
from breadth.runs.outcomes import Outcomes


def outcomes(steps: Any, problems: Any, drawn: Any, right: Any) -> Outcomes:
    """Return groups from plain lists."""
    return Outcomes(
        *(
            np.array(one, dtype=kind)
            for one, kind in ((steps, np.int64), (problems, object), (drawn, np.int64), (right, np.int64))
        )
    )


def test_the_second_half_is_counted_and_single_rollouts_are_not() -> None:
    steps = [step for step in range(1, 17) for _ in range(3)]
    problems = ["a", "b", "c"] * 16
    drawn, right = [4, 4, 1] * 16, [0, 2, 0] * 16
    right[24:] = [0, 0, 0, 0, 1, 0] * 4  # steps 9 to 16: groups of 4 with 0, 0 and 0, 1 right in turn
    found = counted(outcomes(steps, problems, drawn, right))
    assert found is not None
    assert found.groups == 16
    assert found.share.value == pytest.approx((1 + 0.5) / 2)  # a: all, b: every other one
    assert found.start is not None
    assert found.start.value == pytest.approx(0.5)
    assert found.chance == pytest.approx(1 / 16)
    assert found.group == 4
    # 1 - 0.5^(1/4) = 0.1591 of the rollouts must be right for half of the groups to have one.
    assert found.missing(0.5) == pytest.approx(0.15910 - 0.0625, abs=1e-5)


def test_the_rise_is_counted_in_whole_problems() -> None:
    # 12 problems, groups of 4 at steps 1 and 2: one right of four then; two of four now in every second problem, so 25
    # % to 50 %, +0.125.
    problems = [f"p{place}" for place in range(12)]
    found = counted(outcomes([1] * 12 + [2] * 12, problems * 2, [4] * 24, [1] * 12 + [1, 2] * 6))
    assert found is not None
    assert found.rise is not None
    assert found.rise.value == pytest.approx(0.125)
    assert 0 < found.rise.low < 0.125 < found.rise.high < 0.25
    once = counted(outcomes([1] * 12, problems, [4] * 12, [0] * 12))
    assert once is not None
    assert once.rise is None


def test_nothing_to_count_is_none() -> None:
    assert counted(None) is None
    assert counted(outcomes([], [], [], [])) is None
    assert counted(outcomes([1, 2], ["a", "b"], [1, 1], [0, 0])) is None


def test_the_bound_by_hand() -> None:
    found = bounded(Interval(0.1, 0.05, 0.2), (0.0, 1.0), 8)
    assert (found.share.value, found.share.low, found.share.high) == pytest.approx(
        (0.43047, 0.16777, 0.66342), abs=1e-5
    )
    assert found.groups == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(2, 16))
@settings(max_examples=60)
def test_problems_that_differ_only_make_it_worse(chances: list[float], group: int) -> None:
    mean = float(np.mean(chances))
    true = float(np.mean([(1 - chance) ** group for chance in chances]))
    assert bounded(Interval(mean, mean, mean), (0.0, 1.0), group).share.value <= true + 1e-9
