"""Plots in characters, read back character by character."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.report.sections import Axis, Curve, Event, Series
from breadth.report.textplot import PLOT_HEIGHT, plot_rows

STEP, SCORE = Axis("step"), Axis("score")
NAN = math.nan


def drawn(curve: Curve, width: int = 40, *, ascii_only: bool = False) -> list[str]:
    return ["".join(character for character, _ in row) for row in plot_rows(curve, width, ascii_only=ascii_only)]


def plot_area(rows: list[str]) -> list[str]:
    edge = rows[0].index("│") if "│" in rows[0] else rows[0].index("┤")
    return [row[edge + 1 :] for row in rows[:PLOT_HEIGHT]]


def test_a_rising_line_rises() -> None:
    rows = drawn(Curve("c", [Series("s", range(100), range(100))], STEP, SCORE))
    area = plot_area(rows)
    first = [min((place for place, mark in enumerate(row) if mark != " "), default=-1) for row in area]
    shown = [place for place in first if place >= 0]
    assert shown == sorted(shown, reverse=True)
    assert len(shown) >= PLOT_HEIGHT - 1


def test_axes_carry_round_numbers() -> None:
    rows = drawn(Curve("c", [Series("s", [0, 100], [0.0, 1.0])], STEP, SCORE), 60)
    labels = [row.split("┤")[0].strip() for row in rows[:PLOT_HEIGHT] if "┤" in row]
    assert labels == ["1.0", "0.5", "0.0"]
    assert rows[PLOT_HEIGHT].strip().startswith("└┴")
    assert rows[PLOT_HEIGHT + 1].split() == ["0", "50", "100"]


def test_a_gap_is_a_gap() -> None:
    ys = [1.0] * 40 + [NAN] * 20 + [1.0] * 40
    area = plot_area(drawn(Curve("c", [Series("s", range(100), ys)], STEP, SCORE), 80))
    line = next(row for row in area if row.strip())
    columns = len(line)
    assert set(line[round(columns * 0.43) : round(columns * 0.57)]) == {" "}
    assert " " not in line[: round(columns * 0.37)]


def test_a_band_is_shaded_and_two_are_darker() -> None:
    one = Series("s", [0, 10], [0.5, 0.5], [0.2, 0.2], [0.8, 0.8])
    assert "░" in "".join(drawn(Curve("c", [one], STEP, SCORE)))
    both = "".join(drawn(Curve("c", [one, one], STEP, SCORE)))
    assert "▒" in both
    assert "░" not in both


def test_lines_are_told_apart_by_markers() -> None:
    series = [Series("a", range(100), [0.2] * 100), Series("b", range(100), [0.8] * 100)]
    rows = plot_rows(Curve("c", series, STEP, SCORE), 80, ascii_only=False)
    owners = {character: index for row in rows for character, index in row if index is not None and character in "●■"}
    assert owners == {"●": 0, "■": 1}


def test_few_points_are_all_marked() -> None:
    rows = drawn(Curve("c", [Series("s", [1, 2, 4, 8], [0.1, 0.4, 0.6, 0.7])], STEP, SCORE, log_x=True), 60)
    assert "".join(rows).count("●") == 4


def test_a_lonely_point_of_a_long_line_is_visible() -> None:
    ys = [0.5] * 50 + [NAN, 0.9, NAN] + [0.5] * 50
    rows = drawn(Curve("c", [Series("s", range(103), ys)], STEP, SCORE), 60)
    top = next(row for row in rows if "●" in row)
    assert top.count("●") == 1


def test_events_are_lettered_lines() -> None:
    curve = Curve(
        "c", [Series("s", range(100), [0.5] * 100)], STEP, SCORE, events=[Event(50, "half"), Event(math.inf, "never")]
    )
    area = plot_area(drawn(curve, 60))
    column = area[0].index("a")
    assert column == pytest.approx(len(area[0]) / 2, abs=1)
    assert [row[column] for row in area[1:3]] == ["┊", "┊"]


def test_empty_and_single() -> None:
    assert "no values to draw" in "\n".join(drawn(Curve("c", [], STEP, SCORE)))
    assert "no values to draw" in "\n".join(drawn(Curve("c", [Series("s", [1], [NAN])], STEP, SCORE)))
    assert "".join(drawn(Curve("c", [Series("s", [5], [0.3])], STEP, SCORE))).count("●") == 1


def test_ascii_draws_with_the_markers_alone() -> None:
    series = [Series("a", range(50), range(50)), Series("b", range(50), [10] * 50)]
    rows = drawn(Curve("c", series, STEP, SCORE), 60, ascii_only=True)
    marks = set("".join(plot_area(rows))) - {" "}
    assert marks == {"*", "#"}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(), st.floats(), st.floats(), st.floats()), max_size=10),
    st.integers(10, 160),
    st.booleans(),
)
def test_any_numbers_fit_the_width(
    points: list[tuple[float, float, float, float]], width: int, ascii_only: bool
) -> None:
    x, y, low, high = ([point[place] for point in points] for place in range(4))
    curve = Curve("c", [Series("s", x, y, low, high)], STEP, SCORE, events=[Event(value, "e") for value in x])
    rows = drawn(curve, width, ascii_only=ascii_only)
    assert len(rows) == PLOT_HEIGHT + 2
    margin = max(row.find("│") for row in rows[:PLOT_HEIGHT]) + 1
    assert all(len(row) <= max(width, margin + 8) for row in rows)
