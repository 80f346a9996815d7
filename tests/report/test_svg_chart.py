"""SVG charts: frames, lines, bands, gaps, names, and the picture that stands alone."""

from __future__ import annotations

import math
import random
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.report.sections import Axis, Curve, Event, Series
from breadth.report.svg_chart import (
    NARROW,
    PANEL,
    WIDE,
    Canvas,
    describe_curve,
    draw_line_chart,
    draw_x_axis,
    draw_y_axis,
    fit_frame,
    render_picture,
    save_picture,
)


def curve(count: int = 1, **settings: object) -> Curve:
    series = [Series(f"line {index}", [0, 100], [0.0, 0.5]) for index in range(count)]
    return Curve("c", series, Axis("step"), Axis("score", "nats"), **settings)  # type: ignore[arg-type]  # keywords of Curve


def places(source: str, name: str) -> list[tuple[float, str]]:
    return [(float(x), text) for x, text in re.findall(rf'<text x="([-\d.]+)"[^>]*class="{name}">([^<]*)<', source)]


@pytest.mark.parametrize("canvas", [WIDE, NARROW], ids=lambda canvas: canvas.name)
def test_values_stand_between_the_edges(canvas: Canvas) -> None:
    frame = fit_frame(curve(), canvas)
    assert frame.x(0) == frame.left
    assert frame.x(100) == frame.right
    assert frame.y(0) == frame.bottom
    # The highest value, 0.5, leaves 4% of its range as room: it stands at 1/1.04 of the height.
    assert frame.y(0.5) == pytest.approx(frame.bottom - (frame.bottom - frame.top) / 1.04)
    assert 0 < frame.left < frame.right < canvas.width
    assert 0 < frame.top < frame.bottom < canvas.height


def test_names_of_lines_take_their_room_while_they_fit() -> None:
    # The plot is 310 - 46 - 30 = 234 pixels high: 15 names of 15 pixels fit, 16 do not.
    assert fit_frame(curve(15), WIDE).right < WIDE.width - 50
    assert fit_frame(curve(16), WIDE).right == WIDE.width - 10


def test_events_push_the_plot_down() -> None:
    assert fit_frame(curve(events=[Event(1, "e")]), WIDE).top == fit_frame(curve(), WIDE).top + 15


@pytest.mark.parametrize("canvas", [WIDE, NARROW], ids=lambda canvas: canvas.name)
def test_axes_show_round_numbers(canvas: Canvas) -> None:
    frame = fit_frame(curve(), canvas)
    up = "".join(part.source() for part in draw_y_axis(frame, Axis("score", "nats")))
    across = "".join(part.source() for part in draw_x_axis(frame, Axis("step"), canvas))
    assert [text for _, text in places(up, "tick")] == ["0.0", "0.2", "0.4"]
    assert "score (nats)" in up
    shown = [text for _, text in places(across, "tick")]
    assert shown[0] == "0"
    assert "100" in shown
    assert ">step<" in across


def test_labels_that_would_touch_are_left_out() -> None:
    crowded = Curve("c", [Series("s", [1e6, 9e6], [1, 2])], Axis("tokens"), Axis("y"))
    frame = fit_frame(crowded, NARROW)
    shown = places("".join(part.source() for part in draw_x_axis(frame, crowded.x, NARROW)), "tick")
    assert len(shown) >= 2
    assert all(right - left > 6.9 * 9 for (left, _), (right, _) in pairwise(shown))


def test_minus_signs_are_typeset() -> None:
    low = Curve("c", [Series("s", [0, 1], [-2, 2])], Axis("step"), Axis("y"))
    assert ">−2<" in "".join(part.source() for part in draw_y_axis(fit_frame(low, WIDE), low.y))


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
    frame = fit_frame(curve, canvas)
    (line,) = paths(draw_line_chart(curve, canvas, "s1").source(), "line")
    drawn = [tuple(map(float, point.split())) for point in line[1:].split("L")]
    expected = [(frame.x(x), frame.y(y)) for x, y in zip(curve.series[0].x, curve.series[0].y, strict=True)]
    assert drawn == [pytest.approx(point, abs=0.01) for point in expected]


@CANVASES
def test_a_gap_is_a_gap(canvas: Canvas) -> None:
    ys = [0.1, 0.2, NAN, 0.4, 0.5, NAN, 0.7]
    source = draw_line_chart(
        Curve("c", [Series("s", range(7), ys, [y - 0.1 for y in ys], [y + 0.1 for y in ys])], STEP, SCORE), canvas, "s1"
    ).source()
    assert [line.count("M") for line in paths(source, "line")] == [2]
    assert [fill.count("z") for fill in paths(source, "band")] == [2]
    # The last point stands alone: a marker and a bar with two ends.
    assert [bar.count("M") for bar in paths(source, "bar")] == [3]
    assert source.count('class="marker') == 5


@CANVASES
@pytest.mark.parametrize(
    "series", [[], [Series("s", [], [])], [Series("s", [1, 2], [NAN, math.inf])]], ids=["none", "empty", "not finite"]
)
def test_nothing_to_draw_is_said(series: list[Series], canvas: Canvas) -> None:
    source = draw_line_chart(Curve("c", series, STEP, SCORE), canvas, "s1").source()
    assert texts(source, "nothing") == ["no values to draw"]
    assert texts(source, "tick") == []


@CANVASES
def test_one_point(canvas: Canvas) -> None:
    source = draw_line_chart(Curve("c", [Series("s", [5], [0.3], [0.2], [0.4])], STEP, SCORE), canvas, "s1").source()
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
    source = draw_line_chart(curve, WIDE, "s1").source()
    assert texts(source, "flag") == ["a", "b"]
    assert source.count('class="event"') == 3


@CANVASES
def test_names_stand_apart_beside_the_ends(canvas: Canvas) -> None:
    curve = Curve(
        "c",
        [
            Series(name, [0, 1], [0, y])
            for name, y in (("high", 1.0), ("also high", 0.99), ("low", 0.0), ("lower", -0.01))
        ],
        STEP,
        SCORE,
    )
    found = re.findall(
        r'<text x="([\d.]+)" y="([\d.]+)" class="name (series-\d)">([^<]*)<',
        draw_line_chart(curve, canvas, "s1").source(),
    )
    assert [name for *_, name in found] == ["high", "also high", "low", "lower"]
    heights = [float(y) for _, y, *_ in found]
    assert all(below - above >= 14.99 for above, below in pairwise(heights))
    frame = fit_frame(curve, canvas)
    assert frame.top <= min(heights)
    assert max(heights) <= frame.bottom + 4


def test_lines_differ_in_dash_and_marker() -> None:
    source = draw_line_chart(
        Curve("c", [Series(str(i), [0, 1], [i, i]) for i in range(3)], STEP, SCORE), WIDE, "s1"
    ).source()
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
    source = draw_line_chart(curve, canvas, "s1").source()
    frame = fit_frame(curve, canvas)
    (line,) = paths(source, "line")
    heights = [float(point.split()[1]) for point in line[1:].split("L")]
    assert len(heights) <= 4 * (frame.right - frame.left + 1)
    assert min(heights) == pytest.approx(frame.y(9), abs=0.01)
    assert max(heights) == pytest.approx(frame.y(-9), abs=0.01)
    assert len(source) < 60_000
    assert 'class="line series-1 dense"' in source


def test_the_chart_is_described_in_words() -> None:
    curve = Curve("title", [Series("s", [0, 300], [0.62, 0.41])], STEP, Axis("entropy", "nats"))
    assert describe_curve(curve) == "entropy (nats) against step. s: 0.62 nats at 0, 0.41 nats at 300."
    source = draw_line_chart(curve, WIDE, "s1").source()
    assert 'role="img" aria-labelledby="s1-wide-title s1-wide-desc"' in source
    assert '<title id="s1-wide-title">title</title>' in source


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(), st.floats(), st.floats(), st.floats()), max_size=12),
    st.sampled_from([WIDE, NARROW]),
)
def test_any_numbers_can_be_drawn(points: list[tuple[float, float, float, float]], canvas: Canvas) -> None:
    x, y, low, high = ([point[place] for point in points] for place in range(4))
    source = draw_line_chart(
        Curve("c", [Series("s", x, y, low, high)], STEP, SCORE, events=[Event(v, "e") for v in x]), canvas, "s1"
    ).source()
    for path in re.findall(r' d="([^"]*)"', source):
        assert re.fullmatch(r"[MLHVhvlamz\d. -]*", path)
    for line in paths(source, "(?:line|edge)"):
        corners = [tuple(map(float, point.split())) for point in re.split("[ML]", line) if point]
        assert all(-1 <= across <= canvas.width + 1 and -1 <= down <= canvas.height + 1 for across, down in corners)


SVG = "{http://www.w3.org/2000/svg}"


def titled_curve(title: str) -> Curve:
    return Curve(title, [Series("base <b>", [1, 2, 4], [0.1, 0.4, 0.9])], Axis("k"), Axis("right", "%"), log_x=True)


def test_it_is_one_document_with_a_panel_a_curve() -> None:
    root = ElementTree.fromstring(render_picture([titled_curve("Before & after"), titled_curve("Then")]))  # noqa: S314 - our own text
    assert root.tag == f"{SVG}svg"
    panels = root.findall(f"{SVG}svg")
    assert [float(panel.attrib["x"]) for panel in panels] == [14.0, 14.0 + PANEL.width + 34.0]
    assert {(panel.attrib["width"], panel.attrib["height"]) for panel in panels} == {("470", "290")}
    assert [text.text for text in root.findall(f"{SVG}text")] == ["Before & after", "Then"]
    assert float(root.attrib["width"]) == 2 * 14 + 2 * PANEL.width + 34
    assert "base <b>" in {text.text for text in panels[0].iter(f"{SVG}text")}


def test_it_loads_nothing_and_is_dark_where_the_reader_is() -> None:
    source = render_picture([titled_curve("One")])
    assert "prefers-color-scheme: dark" in source
    assert source.count("http") == 1  # the namespace
    assert "<script" not in source


def test_it_is_written_whole(tmp_path: Path) -> None:
    save_picture([titled_curve("One")], tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_text(encoding="utf-8") == render_picture([titled_curve("One")])
