"""Arms over seeds and problems, paired with their control."""

from __future__ import annotations

import math

import pytest

from breadth.lab.measuring.looks import Look
from breadth.lab.measuring.measured_arms import MeasuredArm, measured_arms
from breadth.lab.trials.experiment import Done, Trial


def look(*answers: list[int], step: int = 4, planning: float = 0.5) -> Look:
    """Every right answer is 1."""
    return Look(step, [1] * len(answers), answers, 1.0, planning, 0.2, 1.0, 9.0, {}, {})


def done(name: str, *looks: Look) -> Done:
    return Done(Trial(name, "m:w"), {"looks": [one.to_row() for one in looks]}, 1.0)


RIGHT, WRONG, HALF = [1, 1], [0, 0], [1, 0]
FOUND = measured_arms(
    [
        done("base", look(RIGHT, RIGHT, step=0)),
        done("arm/seed-0", look(WRONG, WRONG, step=2), look(RIGHT, HALF)),
        done("arm/seed-1", look(RIGHT, RIGHT)),
        done("control/seed-0", look(HALF, WRONG)),
        done("control/seed-1", look(HALF, HALF)),
        done("control/seed-2", look(WRONG, WRONG)),
    ]
)
ARM, CONTROL = FOUND["arm"], FOUND["control"]


def test_what_has_no_seed_is_no_arm() -> None:
    assert FOUND.keys() == {"arm", "control"}


def test_only_the_last_look_counts_for_the_end() -> None:
    assert {seed: one.step for seed, one in ARM.last.items()} == {0: 4, 1: 4}


def test_means_and_intervals_by_hand() -> None:
    # Seeds 0 and 1 have 0.75 and 1: mean 0.875, standard error 0.125, t(1) = 12.7062.
    found = ARM.over_seeds(lambda one: one.passed(1))
    assert (found.value, found.low, found.high) == pytest.approx((0.875, 0, 1))
    # Problems have (1 + 1) / 2 and (0.5 + 1) / 2.
    assert ARM.over_problems(lambda one: one.passed(1)).value == pytest.approx(0.875)


def test_gains_are_paired_by_seed() -> None:
    # Seed 0: 0.75 - 0.25, seed 1: 1 - 0.5; seed 2 has no partner. No spread: the interval is a point.
    gain = ARM.gain_over_seeds(CONTROL, lambda one: one.passed(1))
    assert gain is not None
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.5, 0.5, 0.5))
    over_problems = ARM.gain_over_problems(CONTROL, lambda one: one.passed(1))
    assert over_problems is not None
    assert over_problems.value == pytest.approx(0.5)  # 0.5 and 0.5 on the two problems


def test_arms_without_a_common_seed_are_not_compared() -> None:
    other = MeasuredArm({7: [look(RIGHT, RIGHT)]})
    assert ARM.gain_over_seeds(other, lambda one: one.passed(1)) is None
    assert ARM.gain_over_problems(other, lambda one: one.passed(1)) is None


def test_a_number_that_a_look_lacks_is_undefined() -> None:
    arm = MeasuredArm({0: [look(RIGHT)], 1: [look(RIGHT, planning=math.nan)]})
    assert math.isnan(arm.number(lambda one: one.planning, (0.0, math.inf)).value)
    assert ARM.number(lambda one: one.planning, (0.0, math.inf)).value == 0.5
