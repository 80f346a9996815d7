"""What each part of a reward adds to its rise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.signs.shares import parts

T = np.linspace(0, 1, 64)
RIGHT, FORM = "rewards/accuracy/mean", "rewards/format/mean"


def test_weights_are_read_from_a_log_that_adds_up(make: Any, around: Any) -> None:
    right, form = around(0.2 + 0.4 * T, 0.02), around(0.5 + 0.2 * T, 0.02, 1)
    found = {one.name: one for one in parts(make(**{"reward": 2 * right - 0.5 * form, RIGHT: right, FORM: form}))}
    assert found["accuracy"].weight == pytest.approx(2)
    assert found["format"].weight == pytest.approx(-0.5)
    assert found["accuracy"].counts
    assert not found["format"].counts
    shares = [one.share for one in found.values()]
    assert shares[0] is not None
    assert shares[1] is not None
    # 2 x 0.4 and -0.5 x 0.2 of 0.7.
    assert shares == pytest.approx([8 / 7, -1 / 7], abs=0.1)


def test_weights_that_do_not_add_up_are_not_guessed(make: Any, around: Any) -> None:
    series = {"reward": around(T**2, 0.05), RIGHT: around(0 * T, 0.1, 1), FORM: around(0 * T, 0.1, 2)}
    assert [one.share for one in parts(make(**series))] == [None, None]


def test_parts_that_still_rise_are_told_from_those_that_are_done(make: Any, around: Any) -> None:
    right, form = around(0.2 + 0.4 * T, 0.01), around(1 - np.exp(-12 * T), 0.01, 1)
    found = {one.name: one.still_rises for one in parts(make(**{"reward": right + form, RIGHT: right, FORM: form}))}
    assert found == {"accuracy": True, "format": False}


def test_grades_are_a_part_unless_the_reward_is_nothing_else(make: Any) -> None:
    rows = {
        step: {
            "problem": list("abcd"),
            "correct": [True, False] * 2,
            "reward": [1.0 + step, 0.5 + step, 1.0 + step, 0.5 + step],
        }
        for step in range(1, 13)
    }
    series = np.arange(1.0, 13.0) + 0.75
    (part,) = parts(make(reward=series, rollouts=rows))
    assert part.name == "the share of right rollouts"
    assert part.counts
    assert part.weight == pytest.approx(0.5)
    assert part.share == pytest.approx(0)
    assert parts(make(reward=series, rollouts=rows, levels=(0.0, 1.0))) == ()
    assert parts(make(entropy=series)) == ()
