"""Means over seeds, ranks with ties, running means."""

from __future__ import annotations

import math

import pytest

from breadth.base.errors import MeasureError
from breadth.lab.evaluation.seeds import seed_interval, seed_ranks, trailing_mean
from breadth.measure.intervals import Interval


def test_three_seeds_by_hand() -> None:
    # Mean 0.4, standard deviation 0.1, standard error 0.1 / sqrt(3) = 0.057735; t(2, 0.975) = 4.302653: reach 0.248414.
    found = seed_interval([0.3, 0.4, 0.5])
    assert (found.value, found.low, found.high) == pytest.approx((0.4, 0.151586, 0.648414), abs=1e-6)
    assert found.method == "Student's t over 3 seeds"


def test_two_seeds_are_cut_at_what_a_share_can_be() -> None:
    # Standard error 0.1, t(1, 0.975) = 12.7062: reach 1.27, beyond both ends.
    found = seed_interval([0.4, 0.6], bounds=(0.0, 1.0))
    assert (found.value, found.low, found.high) == (0.5, 0.0, 1.0)


def test_one_seed_tells_nothing_of_the_spread() -> None:
    assert seed_interval([0.25], bounds=(0.0, 1.0)) == Interval(0.25, 0.0, 1.0, 0.95, "one seed")
    assert seed_interval([2.0]).low == -math.inf


def test_no_seed_is_refused() -> None:
    with pytest.raises(MeasureError):
        seed_interval([])


def test_arms_that_overlap_share_places() -> None:
    arms = {
        "a": Interval(0.9, 0.8, 1.0),
        "b": Interval(0.7, 0.6, 0.85),
        "c": Interval(0.65, 0.5, 0.7),
        "d": Interval(0.1, 0.0, 0.2),
    }
    # a overlaps b and lies above c and d; b overlaps a and c; c lies below a and overlaps b; d lies below all.
    assert seed_ranks(arms) == {"a": "1-2", "b": "1-3", "c": "2-3", "d": "4"}


def test_running_means_by_hand() -> None:
    assert trailing_mean([1, 2, 6, 1], 2).tolist() == [1, 1.5, 4, 3.5]
    assert trailing_mean([1, 2, 6], 10).tolist() == [1, 1.5, 3]
    assert trailing_mean([], 3).tolist() == []
