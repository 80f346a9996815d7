"""Layout: scales and ticks, stretches of lines, shades of tokens, cells of tables."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.measure.intervals import Interval
from breadth.report.cells import Missing, is_interval
from breadth.report.layout import (
    Scale,
    Shading,
    axis_label,
    band_segments,
    choose_axes,
    choose_shading,
    describe_ends,
    describe_gaps,
    describe_shading,
    drawable_range,
    format_fact,
    group_by_kind,
    is_drawable,
    is_empty,
    lay_out_table,
    letter_label,
    line_segments,
    position_scale,
    series_cells,
    tick_labels,
    token_label,
    value_scale,
)
from breadth.report.sections import Axis, Column, Curve, Event, Fact, Series, Table, Token, Trace
from breadth.report.style import SHADES


def test_places() -> None:
    assert Scale(10, 20).position(15) == 0.5
    assert Scale(1, 64, log=True).position(8) == pytest.approx(0.5)
    assert Scale(0, 1).position(2) == 2


def test_limits_make_room_for_a_single_value_and_for_none() -> None:
    assert drawable_range([math.nan, 3, math.inf, 1]) == (1, 3)
    assert drawable_range([5, 5]) == (4.5, 5.5)
    assert drawable_range([0.0, 0.0]) == (0, 1)
    assert drawable_range([]) == drawable_range([math.nan]) == (0, 1)


def test_values_near_zero_start_at_zero() -> None:
    scale, ticks = value_scale([0.28, 0.86], 5)
    # 0.28 is below half of 0.86; room above: 0.04 * 0.58. Rough step 0.883 / 5 = 0.177, next round one 0.2.
    assert (scale.low, scale.high) == pytest.approx((0, 0.8832))
    assert ticks == (0, 0.2, 0.4, 0.6, 0.8)


def test_values_far_from_zero_keep_their_range() -> None:
    scale, ticks = value_scale([0.91, 0.95], 5)
    # Room on both sides: 0.04 * 0.04 = 0.0016. Rough step 0.0432 / 5 = 0.0086, next round one 0.01.
    assert (scale.low, scale.high) == pytest.approx((0.9084, 0.9516))
    assert ticks == (0.91, 0.92, 0.93, 0.94, 0.95)


def test_whole_positions_get_whole_ticks() -> None:
    assert position_scale([1, 2, 3, 4], 9, log=False)[1] == (1, 2, 3, 4)
    # Rough step 19 / 9 = 2.1; 2.5 is no whole number, so 5.
    assert position_scale([0, 7, 19], 9, log=False)[1] == (0, 5, 10, 15)
    assert position_scale([0.5, 3], 5, log=False)[1] == (0.5, 1, 1.5, 2, 2.5, 3)


def test_powers_of_two_are_ticked_as_such() -> None:
    assert position_scale([1, 2, 8, 64], 9, log=True)[1] == (1, 2, 4, 8, 16, 32, 64)
    assert position_scale([1, 2, 8, 64], 4, log=True)[1] == (1, 4, 16, 64)


def test_other_ratios_are_ticked_by_decades() -> None:
    assert position_scale([100, 300, 32768], 9, log=True)[1] == (100, 1000, 10000)
    assert position_scale([3, 30], 9, log=True)[1] == (5, 10, 20)
    assert position_scale([3], 9, log=True)[0] == Scale(1.5, 6, log=True)


def test_what_cannot_be_drawn() -> None:
    assert [is_drawable(value) for value in (0.0, -1e149, 1e200, math.nan, math.inf)] == [
        True,
        True,
        False,
        False,
        False,
    ]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=8), st.integers(2, 10))
def test_ticks_stand_inside_the_scale_and_are_few(values: list[float], most: int) -> None:
    for scale, ticks in (value_scale(values, most), position_scale(values, most, log=False)):
        assert scale.low < scale.high
        assert len(ticks) <= most + 2
        assert list(ticks) == sorted(set(ticks))
        assert all(-1e-6 <= scale.position(tick) <= 1 + 1e-6 for tick in ticks)
        assert all(-1e-9 <= scale.position(value) <= 1 + 1e-9 for value in values if is_drawable(value))


@given(st.lists(st.floats(1e-100, 1e100), max_size=8), st.integers(2, 10))
def test_logarithmic_ticks_too(values: list[float], most: int) -> None:
    scale, ticks = position_scale(values, most, log=True)
    assert 0 < scale.low < scale.high
    assert 0 < len(ticks) <= most + 1
    assert all(-1e-6 <= scale.position(tick) <= 1 + 1e-6 for tick in ticks)


NAN, INF = math.nan, math.inf
GAPPY = Series("s", [0, 1, 2, 3, 4], [0.1, NAN, 0.3, 0.4, INF], [0, 0, 0.2, NAN, 0], [1, 1, 0.5, 0.6, 1])
STEP, SCORE = Axis("step"), Axis("score", "%")


def test_a_gap_ends_a_stretch() -> None:
    assert line_segments(GAPPY) == [[(0, 0.1)], [(2, 0.3), (3, 0.4)]]
    assert band_segments(GAPPY) == [[(0, 0, 1), (1, 0, 1), (2, 0.2, 0.5)], [(4, 0, 1)]]
    assert band_segments(Series("s", [1], [1])) == []


def test_what_is_left_out_is_counted() -> None:
    curve = Curve("c", [GAPPY, Series("t", [0, NAN], [1, 1])], STEP, SCORE)
    assert describe_gaps(curve) == "2 points without a value, shown as gaps; 1 point infinite or too large to draw."
    assert describe_gaps(Curve("c", [Series("t", [0], [1])], STEP, SCORE)) == ""


def test_the_course_of_a_line_in_words() -> None:
    assert describe_ends(GAPPY, STEP, SCORE) == "10% (0% to 100%) at 0, 40% (NaN to 60%) at 3"
    assert describe_ends(Series("s", [0, 300], [0.62, 0.41]), STEP, SCORE) == "62% at 0, 41% at 300"
    assert (
        describe_ends(Series("s", [7], [0.5], [0.45], [0.55]), Axis("k", "tokens"), Axis("y"))
        == "0.50 (0.45 to 0.55) at 7 tokens"
    )
    assert describe_ends(Series("s", [1], [NAN]), STEP, SCORE) == "no values"


def test_points_carry_their_band() -> None:
    (_, first), *_rest = series_cells(GAPPY)
    assert is_interval(first)
    assert (first.value, first.low, first.high) == (0.1, 0, 1)
    assert list(series_cells(Series("s", [1], [0.5]))) == [(1, 0.5)]


def test_axes_hold_lines_bands_and_events() -> None:
    both = choose_axes(
        Curve("c", [Series("s", [10, 20], [5, 6], [4, 5], [6, 9])], STEP, SCORE, events=[Event(30, "later")]), 9, 5
    )
    assert (both.x.low, both.x.high) == (10, 30)
    assert both.y.low == 0
    assert both.y.high == pytest.approx(9.2)


def test_an_axis_that_holds_nothing_has_no_numbers() -> None:
    empty = Curve("c", [Series("s", [1, 2], [NAN, NAN])], STEP, SCORE)
    assert is_empty(empty)
    assert is_empty(Curve("c", [], STEP, SCORE))
    assert choose_axes(empty, 9, 5).x_ticks == choose_axes(empty, 9, 5).y_ticks == ()


def test_labels() -> None:
    assert axis_label(Axis("entropy", "nats")) == "entropy (nats)"
    assert axis_label(Axis("step\n")) == "step"
    assert tick_labels([0.0, 0.25, 0.5], Axis("share", "%")) == ["0", "25", "50"]
    assert tick_labels([0.0, 0.5, 1.0], Axis("y")) == ["0.0", "0.5", "1.0"]
    assert tick_labels([15.95, 16.0, 16.05], Axis("tokens")) == ["15.95", "16.00", "16.05"]
    assert tick_labels([16.25, 16.5, 16.75], Axis("tokens")) == ["16.25", "16.50", "16.75"]
    assert [letter_label(index) for index in (0, 25, 26, 27, 701, 702)] == ["a", "z", "aa", "ab", "zz", "aaa"]


def trace(*values: float | None) -> Trace:
    return Trace("t", [Token("x", value) for value in values], unit="nats")


def test_steps_are_even() -> None:
    steps = Shading(0.0, 6.0)
    assert [steps.level(value) for value in (0.0, 0.99, 1.0, 3.5, 5.0, 6.0)] == [0, 0, 1, 3, 5, 5]
    assert steps.edges() == (1, 2, 3, 4, 5)


def test_numbers_outside_and_none() -> None:
    steps = Shading(0.0, 6.0)
    assert [steps.level(value) for value in (None, math.nan, -math.inf, math.inf, 99.0)] == [0, 0, 0, 5, 5]


def test_one_extreme_token_does_not_wash_out_the_rest() -> None:
    # 98% of 100 values is the 98th: 0.98. The outlier 50 is left out of the scale and gets the strongest mark.
    steps = choose_shading(trace(*(index / 100 for index in range(1, 100)), 50.0))
    assert steps == Shading(0.01, 0.98)
    assert steps.level(50.0) == SHADES


def test_a_lone_different_token_is_still_marked() -> None:
    assert choose_shading(trace(*([0.0] * 99), 1.0)) == Shading(0.0, 1.0)


def test_nothing_to_mark() -> None:
    assert choose_shading(trace(None, math.nan, math.inf)) is None
    equal = choose_shading(trace(0.3, 0.3))
    assert equal is not None
    assert equal.level(0.3) == 0
    assert describe_shading(trace(0.3, 0.3), equal) == "Every entropy is 0.3 nats; nothing is marked."
    assert describe_shading(trace(None), None) == "No token has a number (entropy)."


def test_what_a_token_says() -> None:
    assert token_label(trace(1.234), Token("x", 1.234)) == "entropy 1.23 nats"
    assert token_label(trace(), Token("x", math.nan)) == "entropy NaN"
    assert token_label(trace(), Token("x")) == ""


def test_neighbours_of_one_kind() -> None:
    tokens = [Token("a"), Token("b", kind="answer"), Token("c", kind="answer"), Token("d")]
    assert [(kind, [token.text for token in run]) for kind, run in group_by_kind(tokens)] == [
        ("", ["a"]),
        ("answer", ["b", "c"]),
        ("", ["d"]),
    ]


@given(st.lists(st.floats(-1e9, 1e9), min_size=2), st.floats(-1e9, 1e9))
def test_a_larger_number_is_never_marked_less(values: list[float], more: float) -> None:
    steps = choose_shading(trace(*values))
    assert steps is not None
    levels = [steps.level(value) for value in sorted([*values, more])]
    assert levels == sorted(levels)
    assert set(levels) <= set(range(SHADES + 1))


def test_percentages() -> None:
    shares = Trace("t", [Token("x", 0.25)], measure="confidence", unit="%")
    assert token_label(shares, shares.tokens[0]) == "confidence 25%"
    assert choose_shading(shares) == Shading(0.25, 0.25)


LATE = Missing("not logged at this step")
TABLE = Table(
    "t",
    [Column("run"), Column("score", "%"), Column("entropy", "nats"), Column("kept"), Column("id", align="right")],
    [
        ["a", Interval(0.28, 0.25, 0.312, 0.95, "wilson"), 4.82, True, "x1"],
        ["b", LATE, 3.9, False, None],
        ["c", Interval(0.69, 0.652, 0.725), Missing("another reason"), None, LATE],
    ],
)


def test_units_stand_in_the_headings_and_digits_line_up() -> None:
    known = lay_out_table(TABLE)
    assert known.headings == ("run", "score (%)", "entropy (nats)", "kept", "id")
    # Half widths 3.1 and 3.65 percent: tenths and ones; the finer decides for both.
    assert [[entry.text for entry in row] for row in known.rows] == [
        ["a", "28.0 (25.0 to 31.2)", "4.82", "yes", "x1"],
        ["b", "n/a", "3.90", "no", "n/a"],
        ["c", "69.0 (65.2 to 72.5)", "n/a", "n/a", "n/a"],
    ]


def test_numbers_stand_right_and_words_left_unless_told() -> None:
    assert lay_out_table(TABLE).right == (False, True, True, False, True)
    assert lay_out_table(Table("t", [Column("a"), Column("b", align="left")], [[None, 1.0]])).right == (False, False)


def test_each_reason_is_one_footnote() -> None:
    known = lay_out_table(TABLE)
    assert known.footnotes == (("a", "not logged at this step"), ("b", "another reason"))
    assert [[entry.footnote for entry in row] for row in known.rows] == [
        [""] * 5,
        ["", "a", "", "", ""],
        ["", "", "b", "", "a"],
    ]


def test_intervals_say_where_they_come_from() -> None:
    known = lay_out_table(TABLE)
    assert known.rows[0][1].origin == "95% interval, wilson"
    assert [entry.numeric for entry in known.rows[0]] == [False, True, True, False, False]


def test_given_decimals_are_kept() -> None:
    known = lay_out_table(Table("t", [Column("a", decimals=1)], [[0.123], [4]]))
    assert [row[0].text for row in known.rows] == ["0.1", "4"]


def test_no_rows() -> None:
    known = lay_out_table(Table("t", [Column("a"), Column("b")], []))
    assert (known.rows, known.right, known.footnotes) == ((), (False, False), ())


def test_a_missing_fact_gives_its_reason() -> None:
    assert format_fact(Fact("log-probs", Missing("not in\nthe log"))) == "n/a: not in the log"
    assert format_fact(Fact("share", 0.25, "%")) == "25%"
    assert format_fact(Fact("nothing", None)) == "n/a"
