"""What of a curve can be drawn, and what is said about it."""

from __future__ import annotations

import math

import pytest

from breadth.report.cells import is_interval
from breadth.report.outline import axes, axis_label, band_stretches, course, estimates, is_empty, left_out, letter, stretches, tick_texts
from breadth.report.sections import Axis, Curve, Event, Series

NAN, INF = math.nan, math.inf
GAPPY = Series("s", [0, 1, 2, 3, 4], [0.1, NAN, 0.3, 0.4, INF], [0, 0, 0.2, NAN, 0], [1, 1, 0.5, 0.6, 1])
STEP, SCORE = Axis("step"), Axis("score", "%")


def test_a_gap_ends_a_stretch() -> None:
    assert stretches(GAPPY) == [[(0, 0.1)], [(2, 0.3), (3, 0.4)]]
    assert band_stretches(GAPPY) == [[(0, 0, 1), (1, 0, 1), (2, 0.2, 0.5)], [(4, 0, 1)]]
    assert band_stretches(Series("s", [1], [1])) == []


def test_what_is_left_out_is_counted() -> None:
    curve = Curve("c", [GAPPY, Series("t", [0, NAN], [1, 1])], STEP, SCORE)
    assert left_out(curve) == "2 points without a value, shown as gaps; 1 point infinite or too large to draw."
    assert left_out(Curve("c", [Series("t", [0], [1])], STEP, SCORE)) == ""


def test_the_course_of_a_line_in_words() -> None:
    assert course(GAPPY, STEP, SCORE) == "10% (0% to 100%) at 0, 40% (NaN to 60%) at 3"
    assert course(Series("s", [0, 300], [0.62, 0.41]), STEP, SCORE) == "62% at 0, 41% at 300"
    assert course(Series("s", [7], [0.5], [0.45], [0.55]), Axis("k", "tokens"), Axis("y")) == "0.50 (0.45 to 0.55) at 7 tokens"
    assert course(Series("s", [1], [NAN]), STEP, SCORE) == "no values"


def test_points_carry_their_band() -> None:
    (_, first), *_rest = estimates(GAPPY)
    assert is_interval(first)
    assert (first.value, first.low, first.high) == (0.1, 0, 1)
    assert list(estimates(Series("s", [1], [0.5]))) == [(1, 0.5)]


def test_axes_hold_lines_bands_and_events() -> None:
    both = axes(Curve("c", [Series("s", [10, 20], [5, 6], [4, 5], [6, 9])], STEP, SCORE, events=[Event(30, "later")]), 9, 5)
    assert (both.x.low, both.x.high) == (10, 30)
    assert both.y.low == 0
    assert both.y.high == pytest.approx(9.2)


def test_an_axis_that_holds_nothing_has_no_numbers() -> None:
    empty = Curve("c", [Series("s", [1, 2], [NAN, NAN])], STEP, SCORE)
    assert is_empty(empty)
    assert is_empty(Curve("c", [], STEP, SCORE))
    assert axes(empty, 9, 5).x_ticks == axes(empty, 9, 5).y_ticks == ()


def test_labels() -> None:
    assert axis_label(Axis("entropy", "nats")) == "entropy (nats)"
    assert axis_label(Axis("step\n")) == "step"
    assert tick_texts([0.0, 0.25, 0.5], Axis("share", "%")) == ["0", "25", "50"]
    assert tick_texts([0.0, 0.5, 1.0], Axis("y")) == ["0.0", "0.5", "1.0"]
    assert tick_texts([15.95, 16.0, 16.05], Axis("tokens")) == ["15.95", "16.00", "16.05"]
    assert tick_texts([16.25, 16.5, 16.75], Axis("tokens")) == ["16.25", "16.50", "16.75"]
    assert [letter(index) for index in (0, 25, 26, 27, 701, 702)] == ["a", "z", "aa", "ab", "zz", "aaa"]
