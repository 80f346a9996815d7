"""Degeneration across prompts and over a run, on windows and series worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from breadth.base.errors import MeasureError
from breadth.measure.answers import answer_key
from breadth.measure.collapse import ModalAnswers, modal_answers, overused_answers, run_collapse


def test_modal_answers_by_hand() -> None:
    # a: 1/2 twice (in two forms); b: 3 and 4 tie; c: nothing parsed; d: 3.
    problems = ["a", "a", "a", "b", "b", "c", "d"]
    answers = ["1/2", "0.5", "7", "3", "4", None, "3.0"]
    found = modal_answers(problems, answers)
    assert found.problems == 4
    assert found.shares == {answer_key("1/2"): 0.25, "3": pytest.approx(0.375), "4": pytest.approx(0.125)}


def test_overused_answers_by_hand() -> None:
    base = ModalAnswers({"0": 0.02, "1": 0.10, "2": 0.05}, problems=100)
    window = ModalAnswers({"0": 0.08, "1": 0.25, "5": 0.03, "6": 0.04}, problems=100)
    # 0: 4 times; 1: 2.5 times; 5 and 6 are never the base model's, so against one problem of 100: 3 and 4 times.
    assert overused_answers(window, base) == {"0": pytest.approx(4), "6": pytest.approx(4)}
    assert set(overused_answers(window, base, ratio=2)) == {"0", "1", "5", "6"}


def test_one_answer_for_everything_is_found_and_honest_spread_is_not() -> None:
    problems = np.repeat(np.arange(50), 4)
    honest = [str(problem) for problem in problems]
    zeros = ["0" if problem % 2 else str(problem) for problem in problems]
    base = modal_answers(problems, honest)
    assert overused_answers(modal_answers(problems, honest), base) == {}
    # 25 odd problems and problem 0 itself: 26 of 50 against 1 of 50.
    assert overused_answers(modal_answers(problems, zeros), base) == {"0": pytest.approx(26)}


def test_length_collapse_by_hand() -> None:
    # 500 for ten steps, then 100: m steps later the mean is 100 + 400 x 0.9^m, below 250 from m = 10 on (0.9^10 = 0.3487 < 0.375).
    found = run_collapse(np.arange(40), [500.0] * 10 + [100.0] * 30)
    assert found.length_ratio[9] == pytest.approx(1)
    assert found.length_ratio[19] == pytest.approx((100 + 400 * 0.9**10) / 500)
    assert found.length_collapse == 19
    assert found.cap_ratio is None
    assert found.cap_jump is None


def test_the_published_collapse_is_caught_before_it_ends() -> None:
    # 510.7 to 45.7 tokens in 58 steps, here at an even rate.
    found = run_collapse(np.arange(59), np.geomspace(510.7, 45.7, 59))
    assert found.length_collapse is not None
    assert found.length_collapse < 35


def test_steady_and_growing_lengths_do_not_fire() -> None:
    rng = np.random.default_rng(0)
    assert run_collapse(np.arange(200), rng.normal(500, 60, 200)).length_collapse is None
    assert run_collapse(np.arange(200), np.linspace(500, 4000, 200)).length_collapse is None


def test_cap_jump_by_hand() -> None:
    # 2 % at first, then 10 %: the mean passes twice 2 % when 10 - 8 x 0.9^m > 4, that is 0.9^m < 0.75: m = 3.
    found = run_collapse(np.arange(30) * 10, [500.0] * 30, [0.02] * 10 + [0.10] * 20)
    assert found.cap_jump == (10 + 3 - 1) * 10
    # From nothing: the start counts as 1 %, so a mean above 2 % is a jump: 3 (1 - 0.9^m) > 2 from m = 11 on.
    assert run_collapse(np.arange(30), [500.0] * 30, [0.0] * 10 + [0.03] * 20).cap_jump == 20
    assert run_collapse(np.arange(30), [500.0] * 30, [0.0] * 10 + [0.01] * 20).cap_jump is None


def test_one_odd_first_batch_is_no_collapse() -> None:
    assert run_collapse(np.arange(30), [1200.0] + [500.0] * 29).length_collapse is None


def test_bad_series_are_refused() -> None:
    with pytest.raises(MeasureError, match="must rise"):
        run_collapse([0, 0], [1.0, 1.0])
    with pytest.raises(MeasureError, match="must be positive"):
        run_collapse([0, 1], [0.0, 1.0])
    with pytest.raises(MeasureError, match="NaN"):
        run_collapse([0, 1], [np.nan, 1.0])
    with pytest.raises(MeasureError, match="Lengths differ"):
        run_collapse([0, 1], [1.0, 1.0], [0.1])
    with pytest.raises(MeasureError, match="equal length"):
        modal_answers(["a"], ["1", "2"])
