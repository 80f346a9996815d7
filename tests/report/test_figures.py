"""Line charts: what is drawn is what was given."""

from __future__ import annotations

import math
import random
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.report.chartframe import NARROW, WIDE, Canvas, frame_for
from breadth.report.figures import describe, line_chart
from breadth.report.sections import Axis, Curve, Event, Series

NAN = math.nan
STEP, SCORE = Axis("step"), Axis("score")
CANVASES = pytest.mark.parametrize("canvas", [WIDE, NARROW], ids=lambda canvas: canvas.name)


def paths(source: str, look: str) -> list[str]:
    return re.findall(rf'<path d="([^"]*)" class="{look} [^"]*"', source)


def texts(source: str, look: str) -> list[str]:
    return re.findall(rf'<text[^>]*class="{look}[^"]*">([^<]*)<', source)


@CANVASES
def test_a_line_goes_through_its_points(canvas: Canvas) -> None:
    curve = Curve("c", [Series("s", [0, 5, 10], [0.0, 1.0, 0.5])], STEP, SCORE)
    frame = frame_for(curve, canvas)
    (line,) = paths(line_chart(curve, canvas, "s1").source(), "line")
    drawn = [tuple(map(float, point.split())) for point in line[1:].split("L")]
    expected = [(frame.x(x), frame.y(y)) for x, y in zip(curve.series[0].x, curve.series[0].y, strict=True)]
    assert drawn == [pytest.approx(point, abs=0.01) for point in expected]


@CANVASES
def test_a_gap_is_a_gap(canvas: Canvas) -> None:
    ys = [0.1, 0.2, NAN, 0.4, 0.5, NAN, 0.7]
    source = line_chart(
        Curve("c", [Series("s", range(7), ys, [y - 0.1 for y in ys], [y + 0.1 for y in ys])], STEP, SCORE), canvas, "s1"
    ).source()
    assert [line.count("M") for line in paths(source, "line")] == [2]
    assert [fill.count("z") for fill in paths(source, "band")] == [2]
    # The last point stands alone: a marker and a bar with two ends.
    assert [bar.count("M") for bar in paths(source, "bar")] == [3]
    assert source.count('class="marker') == 5


@CANVASES
@pytest.mark.parametrize("series", [[], [Series("s", [], [])], [Series("s", [1, 2], [NAN, math.inf])]], ids=["none", "empty", "not finite"])
def test_nothing_to_draw_is_said(series: list[Series], canvas: Canvas) -> None:
    source = line_chart(Curve("c", series, STEP, SCORE), canvas, "s1").source()
    assert texts(source, "nothing") == ["no values to draw"]
    assert texts(source, "tick") == []


@CANVASES
def test_one_point(canvas: Canvas) -> None:
    source = line_chart(Curve("c", [Series("s", [5], [0.3], [0.2], [0.4])], STEP, SCORE), canvas, "s1").source()
    assert "<title>s, step 5: 0.30 (0.20 to 0.40)</title>" in source
    assert paths(source, "line") == []
    assert len(paths(source, "bar")) == 1
    assert texts(source, "tick")[-1] == "5"


def test_events_are_lettered() -> None:
    curve = Curve(
        "c",
        [Series("s", [0, 100], [0, 1])],
        STEP,
        SCORE,
        events=[Event(20, "one"), Event(80, "two"), Event(81, "too near"), Event(NAN, "nowhere")],
    )
    source = line_chart(curve, WIDE, "s1").source()
    assert texts(source, "flag") == ["a", "b"]
    assert source.count('class="event"') == 3


@CANVASES
def test_names_stand_apart_beside_the_ends(canvas: Canvas) -> None:
    curve = Curve(
        "c", [Series(name, [0, 1], [0, y]) for name, y in (("high", 1.0), ("also high", 0.99), ("low", 0.0), ("lower", -0.01))], STEP, SCORE
    )
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" class="name (series-\d)">([^<]*)<', line_chart(curve, canvas, "s1").source())
    assert [name for *_, name in found] == ["high", "also high", "low", "lower"]
    heights = [float(y) for _, y, *_ in found]
    assert all(below - above >= 14.99 for above, below in pairwise(heights))
    frame = frame_for(curve, canvas)
    assert frame.top <= min(heights)
    assert max(heights) <= frame.bottom + 4


def test_lines_differ_in_dash_and_marker() -> None:
    source = line_chart(Curve("c", [Series(str(i), [0, 1], [i, i]) for i in range(3)], STEP, SCORE), WIDE, "s1").source()
    assert re.findall(r'class="line (series-\d)"(?: stroke-dasharray="([^"]*)")?', source) == [
        ("series-1", ""),
        ("series-2", "6 3"),
        ("series-3", "1.5 3"),
    ]


@CANVASES
def test_a_long_log_stays_small_and_keeps_its_extremes(canvas: Canvas) -> None:
    noise = random.Random(0)
    ys = [noise.gauss(0, 1) for _ in range(50_000)]
    ys[31_234], ys[777] = 9.0, -9.0
    curve = Curve("c", [Series("s", range(50_000), ys)], STEP, SCORE)
    source = line_chart(curve, canvas, "s1").source()
    frame = frame_for(curve, canvas)
    (line,) = paths(source, "line")
    heights = [float(point.split()[1]) for point in line[1:].split("L")]
    assert len(heights) <= 4 * (frame.right - frame.left + 1)
    assert min(heights) == pytest.approx(frame.y(9), abs=0.01)
    assert max(heights) == pytest.approx(frame.y(-9), abs=0.01)
    assert len(source) < 60_000
    assert 'class="line series-1 dense"' in source


def test_the_chart_is_described_in_words() -> None:
    curve = Curve("title", [Series("s", [0, 300], [0.62, 0.41])], STEP, Axis("entropy", "nats"))
    assert describe(curve) == "entropy (nats) against step. s: 0.62 nats at 0, 0.41 nats at 300."
    source = line_chart(curve, WIDE, "s1").source()
    assert 'role="img" aria-labelledby="s1-wide-title s1-wide-desc"' in source
    assert '<title id="s1-wide-title">title</title>' in source


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(), st.floats(), st.floats(), st.floats()), max_size=12), st.sampled_from([WIDE, NARROW]))
def test_any_numbers_can_be_drawn(points: list[tuple[float, float, float, float]], canvas: Canvas) -> None:
    x, y, low, high = ([point[place] for point in points] for place in range(4))
    source = line_chart(Curve("c", [Series("s", x, y, low, high)], STEP, SCORE, events=[Event(v, "e") for v in x]), canvas, "s1").source()
    for path in re.findall(r' d="([^"]*)"', source):
        assert re.fullmatch(r"[MLHVhvlamz\d. -]*", path)
    for line in paths(source, "(?:line|edge)"):
        corners = [tuple(map(float, point.split())) for point in re.split("[ML]", line) if point]
        assert all(-1 <= across <= canvas.width + 1 and -1 <= down <= canvas.height + 1 for across, down in corners)
