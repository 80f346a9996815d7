"""Frames: room for labels, axes with their numbers."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from breadth.report.chartframe import NARROW, WIDE, Canvas, axis_x, axis_y, frame_for
from breadth.report.sections import Axis, Curve, Event, Series


def curve(count: int = 1, **settings: object) -> Curve:
    series = [Series(f"line {index}", [0, 100], [0.0, 0.5]) for index in range(count)]
    return Curve("c", series, Axis("step"), Axis("score", "nats"), **settings)  # type: ignore[arg-type]  # keywords of Curve


def places(source: str, name: str) -> list[tuple[float, str]]:
    return [(float(x), text) for x, text in re.findall(rf'<text x="([-\d.]+)"[^>]*class="{name}">([^<]*)<', source)]


@pytest.mark.parametrize("canvas", [WIDE, NARROW], ids=lambda canvas: canvas.name)
def test_values_stand_between_the_edges(canvas: Canvas) -> None:
    frame = frame_for(curve(), canvas)
    assert frame.x(0) == frame.left
    assert frame.x(100) == frame.right
    assert frame.y(0) == frame.bottom
    # The highest value, 0.5, leaves 4% of its range as room: it stands at 1/1.04 of the height.
    assert frame.y(0.5) == pytest.approx(frame.bottom - (frame.bottom - frame.top) / 1.04)
    assert 0 < frame.left < frame.right < canvas.width
    assert 0 < frame.top < frame.bottom < canvas.height


def test_names_of_lines_take_their_room_while_they_fit() -> None:
    # The plot is 310 - 46 - 30 = 234 pixels high: 15 names of 15 pixels fit, 16 do not.
    assert frame_for(curve(15), WIDE).right < WIDE.width - 50
    assert frame_for(curve(16), WIDE).right == WIDE.width - 10


def test_events_push_the_plot_down() -> None:
    assert frame_for(curve(events=[Event(1, "e")]), WIDE).top == frame_for(curve(), WIDE).top + 15


@pytest.mark.parametrize("canvas", [WIDE, NARROW], ids=lambda canvas: canvas.name)
def test_axes_show_round_numbers(canvas: Canvas) -> None:
    frame = frame_for(curve(), canvas)
    up = "".join(part.source() for part in axis_y(frame, Axis("score", "nats")))
    across = "".join(part.source() for part in axis_x(frame, Axis("step"), canvas))
    assert [text for _, text in places(up, "tick")] == ["0.0", "0.2", "0.4"]
    assert "score (nats)" in up
    shown = [text for _, text in places(across, "tick")]
    assert shown[0] == "0"
    assert "100" in shown
    assert ">step<" in across


def test_labels_that_would_touch_are_left_out() -> None:
    crowded = Curve("c", [Series("s", [1e6, 9e6], [1, 2])], Axis("tokens"), Axis("y"))
    frame = frame_for(crowded, NARROW)
    shown = places("".join(part.source() for part in axis_x(frame, crowded.x, NARROW)), "tick")
    assert len(shown) >= 2
    assert all(right - left > 6.9 * 9 for (left, _), (right, _) in pairwise(shown))


def test_minus_signs_are_typeset() -> None:
    low = Curve("c", [Series("s", [0, 1], [-2, 2])], Axis("step"), Axis("y"))
    assert ">−2<" in "".join(part.source() for part in axis_y(frame_for(low, WIDE), low.y))
