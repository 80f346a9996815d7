"""Line charts with bands as inline SVG: the same curve for a wide and for a narrow screen, so that labels stay readable."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from breadth.report.chartframe import CHARACTER, LINE, Canvas, Frame, axis_x, axis_y, frame_for
from breadth.report.markup import Element, element, shorten
from breadth.report.numerals import cell_text, number
from breadth.report.outline import Point, axis_label, band_stretches, course, estimates, is_empty, letter, stretches
from breadth.report.plaintext import one_line, shortened
from breadth.report.scales import drawable
from breadth.report.sections import Curve, Series
from breadth.report.shapes import marker
from breadth.report.style import line_style

_MARKED_POINTS = 40
"""A line with more points gets markers at some of them only."""
_DENSE_POINTS = 200
"""A line with more points is drawn thinner, so that noise does not become a blot."""


def line_chart(curve: Curve, canvas: Canvas, key: str) -> Element:
    """Draw the curve on the canvas; ``key`` makes the ids of its title and description unique on the page."""
    frame = frame_for(curve, canvas)
    names = (f"{key}-{canvas.name}-title", f"{key}-{canvas.name}-desc")
    return element(
        "svg",
        element("title", one_line(curve.title), id=names[0]),
        element("desc", describe(curve), id=names[1]),
        *axis_y(frame, curve.y),
        *axis_x(frame, curve.x, canvas),
        *_events(curve, frame),
        *([_nothing(frame)] if is_empty(curve) else _lines(curve, frame, canvas)),
        class_=f"chart {canvas.name}",
        viewBox=f"0 0 {shorten(canvas.width)} {shorten(canvas.height)}",
        role="img",
        aria_labelledby=" ".join(names),
    )


def describe(curve: Curve) -> str:
    """Say in words what the chart shows, for those who cannot see it."""
    lines = [f"{_name(one, curve)}: {course(one, curve.x, curve.y)}." for one in curve.series]
    return " ".join([f"{axis_label(curve.y)} against {axis_label(curve.x)}.", *lines])


def _events(curve: Curve, frame: Frame) -> list[Element]:
    """Draw a hairline at every event, with its letter above where there is room."""
    drawn: list[Element] = []
    last = -CHARACTER
    for index, event in enumerate(curve.events):
        if drawable(event.x):
            x, flag = frame.x(event.x), letter(index)
            drawn.append(element("path", d=f"M{shorten(x)} {shorten(frame.top - 4)}V{shorten(frame.bottom)}", class_="event"))
            if abs(x - last) >= CHARACTER * (len(flag) + 1):
                drawn.append(element("text", flag, x=x, y=frame.top - 8, text_anchor="middle", class_="flag"))
                last = x
    return drawn


def _lines(curve: Curve, frame: Frame, canvas: Canvas) -> list[Element]:
    bands = [part for index, one in enumerate(curve.series) for part in _band(one, index, frame)]
    lines = [part for index, one in enumerate(curve.series) for part in _line(one, index, frame)]
    marks = [part for index in range(len(curve.series)) for part in _marks(curve, index, frame)]
    return [*bands, *lines, *marks, *_names(curve, frame, canvas)]


def _band(series: Series, index: int, frame: Frame) -> list[Element]:
    """Fill the band and draw its edges; a point that stands alone gets a bar with two ends instead."""
    fill, edges, bars = "", "", ""
    for run in band_stretches(series):
        upper = _thinned([(frame.x(x), frame.y(high)) for x, _, high in run], frame)
        lower = _thinned([(frame.x(x), frame.y(low)) for x, low, _ in run], frame)
        if len(run) == 1:
            bars += _polyline(upper + lower) + "".join(_polyline([(x - 4, y), (x + 4, y)]) for x, y in upper + lower)
        else:
            fill += _polyline(upper + lower[::-1]) + "z"
            edges += _polyline(upper) + _polyline(lower)
    color = line_style(index).color
    return [element("path", d=d, class_=f"{look} {color}") for look, d in (("band", fill), ("edge", edges), ("bar", bars)) if d]


def _line(series: Series, index: int, frame: Frame) -> list[Element]:
    style = line_style(index)
    runs = [[(frame.x(x), frame.y(y)) for x, y in run] for run in stretches(series) if len(run) > 1]
    d = "".join(_polyline(_thinned(run, frame)) for run in runs)
    dense = " dense" if len(series.x) > _DENSE_POINTS else ""
    return [element("path", d=d, class_=f"line {style.color}{dense}", stroke_dasharray=style.dash or None)] if d else []


def _marks(curve: Curve, index: int, frame: Frame) -> list[Element]:
    """Mark every point of a short line, some of a long one, and every point that stands alone between two gaps."""
    series, style = curve.series[index], line_style(index)
    alone = {run[0] for run in stretches(series) if len(run) == 1}
    kept = [(x, y, cell) for (x, cell), y in zip(estimates(series), series.y, strict=True) if drawable(x) and drawable(y)]
    stride = 1 if len(kept) <= _MARKED_POINTS else len(kept) // 7
    first = (stride // 2 + index * stride // 5) % stride
    chosen = [item for place, item in enumerate(kept) if place % stride == first or item[:2] in alone]
    where = f"{_name(series, curve)}, {one_line(curve.x.label)}"
    return [
        marker(style, frame.x(x), frame.y(y), f"{where} {number(x, curve.x.unit)}: {cell_text(cell, curve.y.unit)}")
        for x, y, cell in chosen
    ]


def _names(curve: Curve, frame: Frame, canvas: Canvas) -> list[Element]:
    """Write each line's name beside its end, pushed apart where they would overlap; too many are left to the legend."""
    ends = {index: frame.y(runs[-1][-1][1]) for index, one in enumerate(curve.series) if (runs := stretches(one))}
    if not frame.holds_labels(len(curve.series)):
        return []
    order = sorted(ends, key=lambda index: ends[index])
    heights = _pushed_apart([ends[index] for index in order], frame.top, frame.bottom)
    return [
        element("text", shortened(curve.series[index].name, canvas.label_room), x=frame.right + 8, y=y + 4, class_=f"name {color}")
        for index, y in zip(order, heights, strict=True)
        for color in [line_style(index).color]
    ]


def _pushed_apart(heights: Sequence[float], top: float, bottom: float) -> list[float]:
    """Move sorted heights as little as needed to stand one line apart between top and bottom."""
    down: list[float] = []
    for y in heights:
        down.append(max(y, down[-1] + LINE if down else top))
    up: list[float] = []
    for y in reversed(down):
        up.append(min(y, up[-1] - LINE if up else bottom))
    return up[::-1]


def _thinned(points: Sequence[Point], frame: Frame) -> list[Point]:
    """Keep first, lowest, highest and last of each pixel column: the same picture from far fewer points."""
    if len(points) <= 2 * (frame.right - frame.left):
        return list(points)
    edges = [0, *(i for i, (a, b) in enumerate(pairwise(points), 1) if int(a[0]) != int(b[0])), len(points)]
    kept: list[Point] = []
    for start, end in pairwise(edges):
        column = range(start, end)
        corners = {start, end - 1, min(column, key=lambda i: points[i][1]), max(column, key=lambda i: points[i][1])}
        kept += [points[i] for i in sorted(corners)]
    return kept


def _polyline(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{shorten(x)} {shorten(y)}" for x, y in points)


def _nothing(frame: Frame) -> Element:
    x, y = (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2
    return element("text", "no values to draw", x=x, y=y, text_anchor="middle", class_="nothing")


def _name(series: Series, curve: Curve) -> str:
    return one_line(series.name) or one_line(curve.y.label)
