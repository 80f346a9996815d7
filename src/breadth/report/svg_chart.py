"""Line charts with bands as SVG: inline for wide and narrow screens, or side by side as one picture file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from breadth.base.system import write_text_file
from breadth.report.cells import format_cell, format_number, typeset_minus
from breadth.report.layout import (
    Axes,
    Point,
    axis_label,
    band_segments,
    choose_axes,
    describe_ends,
    is_drawable,
    is_empty,
    letter_label,
    line_segments,
    series_cells,
    tick_labels,
)
from breadth.report.markup import Element, element, format_coordinate
from breadth.report.plaintext import one_line, truncate
from breadth.report.sections import Axis, Curve, Series
from breadth.report.shapes import marker
from breadth.report.style import line_style
from breadth.report.stylesheet import chart_styles

CHARACTER_WIDTH = 6.9
"""Pixels of one character of a label at the chart's font size; a little generous, as fonts differ."""
LINE_HEIGHT = 15.0
"""Pixels of one line of labels."""
_BOLD = 1.12
"""How much wider bold letters are."""


@dataclass(frozen=True)
class Canvas:
    """The size a chart is drawn for."""

    name: str
    """``wide`` or ``narrow``; the style sheet shows one of the two."""
    width: float
    """Pixels across at natural size."""
    height: float
    """Pixels down."""
    x_ticks: int
    """At most about so many ticks on x."""
    y_ticks: int
    """At most about so many ticks on y."""
    label_room: int
    """Characters of a line's name that fit next to its end."""


WIDE = Canvas("wide", 720, 310, 9, 5, 22)
"""For desktop screens and paper."""
NARROW = Canvas("narrow", 326, 256, 4, 4, 10)
"""For phones: fewer ticks, shorter labels, the same letter size."""


@dataclass(frozen=True)
class Frame:
    """Maps values to pixels of a canvas."""

    axes: Axes
    """Scales and ticks."""
    left: float
    """Pixel of the y axis."""
    right: float
    """Pixel of the last x."""
    top: float
    """Pixel of the highest y."""
    bottom: float
    """Pixel of the x axis."""

    def x(self, value: float) -> float:
        """Return the pixel of a position."""
        return self.left + self.axes.x.position(value) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.bottom - self.axes.y.position(value) * (self.bottom - self.top)

    def holds_labels(self, count: int) -> bool:
        """Whether so many names fit in a column next to the ends of the lines."""
        return count * LINE_HEIGHT <= self.bottom - self.top


def fit_frame(curve: Curve, canvas: Canvas) -> Frame:
    """Return the frame of the plot, with room for axis labels, event flags and line names."""
    both = choose_axes(curve, canvas.x_ticks, canvas.y_ticks)
    left = 12 + CHARACTER_WIDTH * max(map(len, tick_labels(both.y_ticks, curve.y)), default=0)
    top = 30 + (LINE_HEIGHT if curve.events else 0)
    whole = Frame(both, left, canvas.width - 10, top, canvas.height - 46)
    if not whole.holds_labels(len(curve.series)):
        return whole
    longest = max((len(truncate(series.name, canvas.label_room)) for series in curve.series), default=0)
    room = 8 + _BOLD * CHARACTER_WIDTH * longest if longest else 0
    return Frame(both, left, whole.right - room, top, whole.bottom)


def draw_y_axis(frame: Frame, axis: Axis) -> list[Element]:
    """Draw the grid with its numbers, and the axis' name above it: horizontal text is easier to read than vertical."""
    texts = tick_labels(frame.axes.y_ticks, axis)
    places = [frame.y(tick) for tick in frame.axes.y_ticks]
    grid = "".join(
        f"M{format_coordinate(frame.left)} {format_coordinate(y)}H{format_coordinate(frame.right)}" for y in places
    )
    labels = [
        element("text", typeset_minus(text), x=frame.left - 8, y=y + 4, text_anchor="end", class_="tick")
        for text, y in zip(texts, places, strict=True)
    ]
    name = element("text", axis_label(axis), x=0, y=13, class_="axis")
    return [element("path", d=grid or None, class_="grid"), name, *labels]


def draw_x_axis(frame: Frame, axis: Axis, canvas: Canvas) -> list[Element]:
    """Draw the base line with its ticks, and the axis' name below it."""
    texts = tick_labels(frame.axes.x_ticks, axis)
    places = [frame.x(tick) for tick in frame.axes.x_ticks]
    ticks = "".join(f"M{format_coordinate(x)} {format_coordinate(frame.bottom)}v5" for x in places)
    line = element(
        "path",
        d=f"M{format_coordinate(frame.left)} {format_coordinate(frame.bottom)}H{format_coordinate(frame.right)}{ticks}",
        class_="base",
    )
    labels = [
        element("text", typeset_minus(text), x=x, y=frame.bottom + 20, text_anchor="middle", class_="tick")
        for x, text in drop_overlapping_labels(places, texts, canvas)
    ]
    middle = (frame.left + frame.right) / 2
    return [
        line,
        *labels,
        element("text", axis_label(axis), x=middle, y=canvas.height - 6, text_anchor="middle", class_="axis"),
    ]


def drop_overlapping_labels(places: Sequence[float], texts: Sequence[str], canvas: Canvas) -> list[tuple[float, str]]:
    """Drop labels that would overlap their left neighbour or leave the canvas."""
    kept: list[tuple[float, str]] = []
    edge = 0.0
    for place, text in zip(places, texts, strict=True):
        half = CHARACTER_WIDTH * len(text) / 2
        if place - half >= edge and place + half <= canvas.width:
            kept.append((place, text))
            edge = place + half + CHARACTER_WIDTH
    return kept


_MARKED_POINTS = 40
"""A line with more points gets markers at some of them only."""
_DENSE_POINTS = 200
"""A line with more points is drawn thinner, so that noise does not become a blot."""


def draw_line_chart(curve: Curve, canvas: Canvas, key: str) -> Element:
    """Draw the curve on the canvas; ``key`` makes the ids of its title and description unique on the page."""
    frame = fit_frame(curve, canvas)
    names = (f"{key}-{canvas.name}-title", f"{key}-{canvas.name}-desc")
    return element(
        "svg",
        element("title", one_line(curve.title), id=names[0]),
        element("desc", describe_curve(curve), id=names[1]),
        *draw_y_axis(frame, curve.y),
        *draw_x_axis(frame, curve.x, canvas),
        *draw_events(curve, frame),
        *([draw_empty_note(frame)] if is_empty(curve) else draw_lines(curve, frame, canvas)),
        class_=f"chart {canvas.name}",
        viewBox=f"0 0 {format_coordinate(canvas.width)} {format_coordinate(canvas.height)}",
        role="img",
        aria_labelledby=" ".join(names),
    )


def describe_curve(curve: Curve) -> str:
    """Describe the chart in words, for readers who cannot see it."""
    lines = [f"{series_name(series, curve)}: {describe_ends(series, curve.x, curve.y)}." for series in curve.series]
    return " ".join([f"{axis_label(curve.y)} against {axis_label(curve.x)}.", *lines])


def draw_events(curve: Curve, frame: Frame) -> list[Element]:
    """Draw a hairline at every event, with its letter above where there is room."""
    drawn: list[Element] = []
    last = -CHARACTER_WIDTH
    for index, event in enumerate(curve.events):
        if is_drawable(event.x):
            x, flag = frame.x(event.x), letter_label(index)
            drawn.append(
                element(
                    "path",
                    d=f"M{format_coordinate(x)} {format_coordinate(frame.top - 4)}V{format_coordinate(frame.bottom)}",
                    class_="event",
                )
            )
            if abs(x - last) >= CHARACTER_WIDTH * (len(flag) + 1):
                drawn.append(element("text", flag, x=x, y=frame.top - 8, text_anchor="middle", class_="flag"))
                last = x
    return drawn


def draw_lines(curve: Curve, frame: Frame, canvas: Canvas) -> list[Element]:
    """Draw bands, lines, markers and names, in this order."""
    bands = [part for index, series in enumerate(curve.series) for part in draw_band(series, index, frame)]
    lines = [part for index, series in enumerate(curve.series) for part in draw_line(series, index, frame)]
    marks = [part for index in range(len(curve.series)) for part in draw_markers(curve, index, frame)]
    return [*bands, *lines, *marks, *draw_names(curve, frame, canvas)]


def draw_band(series: Series, index: int, frame: Frame) -> list[Element]:
    """Fill the band and draw its edges; a single point gets a bar with two ends instead."""
    fill, edges, bars = "", "", ""
    for run in band_segments(series):
        upper = thin_points([(frame.x(x), frame.y(high)) for x, _, high in run], frame)
        lower = thin_points([(frame.x(x), frame.y(low)) for x, low, _ in run], frame)
        if len(run) == 1:
            bars += polyline(upper + lower) + "".join(polyline([(x - 4, y), (x + 4, y)]) for x, y in upper + lower)
        else:
            fill += polyline(upper + lower[::-1]) + "z"
            edges += polyline(upper) + polyline(lower)
    color = line_style(index).color
    return [
        element("path", d=d, class_=f"{look} {color}")
        for look, d in (("band", fill), ("edge", edges), ("bar", bars))
        if d
    ]


def draw_line(series: Series, index: int, frame: Frame) -> list[Element]:
    """Draw a line, in segments where it has gaps."""
    style = line_style(index)
    runs = [[(frame.x(x), frame.y(y)) for x, y in run] for run in line_segments(series) if len(run) > 1]
    d = "".join(polyline(thin_points(run, frame)) for run in runs)
    dense = " dense" if len(series.x) > _DENSE_POINTS else ""
    return [element("path", d=d, class_=f"line {style.color}{dense}", stroke_dasharray=style.dash or None)] if d else []


def draw_markers(curve: Curve, index: int, frame: Frame) -> list[Element]:
    """Mark every point of a short line, some of a long one, and every single point between two gaps."""
    series, style = curve.series[index], line_style(index)
    alone = {run[0] for run in line_segments(series) if len(run) == 1}
    kept = [
        (x, y, cell)
        for (x, cell), y in zip(series_cells(series), series.y, strict=True)
        if is_drawable(x) and is_drawable(y)
    ]
    stride = 1 if len(kept) <= _MARKED_POINTS else len(kept) // 7
    first = (stride // 2 + index * stride // 5) % stride
    chosen = [item for place, item in enumerate(kept) if place % stride == first or item[:2] in alone]
    where = f"{series_name(series, curve)}, {one_line(curve.x.label)}"
    return [
        marker(
            style,
            frame.x(x),
            frame.y(y),
            f"{where} {format_number(x, curve.x.unit)}: {format_cell(cell, curve.y.unit)}",
        )
        for x, y, cell in chosen
    ]


def draw_names(curve: Curve, frame: Frame, canvas: Canvas) -> list[Element]:
    """Write each line's name next to its end, spaced so they do not overlap; too many are left to the legend."""
    ends = {
        index: frame.y(runs[-1][-1][1]) for index, series in enumerate(curve.series) if (runs := line_segments(series))
    }
    if not frame.holds_labels(len(curve.series)):
        return []
    order = sorted(ends, key=lambda index: ends[index])
    heights = space_heights([ends[index] for index in order], frame.top, frame.bottom)
    return [
        element(
            "text",
            truncate(curve.series[index].name, canvas.label_room),
            x=frame.right + 8,
            y=y + 4,
            class_=f"name {color}",
        )
        for index, y in zip(order, heights, strict=True)
        for color in [line_style(index).color]
    ]


def space_heights(heights: Sequence[float], top: float, bottom: float) -> list[float]:
    """Move sorted heights as little as needed to be one line apart between top and bottom."""
    down: list[float] = []
    for y in heights:
        down.append(max(y, down[-1] + LINE_HEIGHT if down else top))
    up: list[float] = []
    for y in reversed(down):
        up.append(min(y, up[-1] - LINE_HEIGHT if up else bottom))
    return up[::-1]


def thin_points(points: Sequence[Point], frame: Frame) -> list[Point]:
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


def polyline(points: Sequence[Point]) -> str:
    """Return path data through the points."""
    return "M" + "L".join(f"{format_coordinate(x)} {format_coordinate(y)}" for x, y in points)


def draw_empty_note(frame: Frame) -> Element:
    """Write that there are no values to draw."""
    x, y = (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2
    return element("text", "no values to draw", x=x, y=y, text_anchor="middle", class_="nothing")


def series_name(series: Series, curve: Curve) -> str:
    """Return the name of a line, or of the y axis if it has none."""
    return one_line(series.name) or one_line(curve.y.label)


PANEL = Canvas("panel", 470, 290, 6, 5, 16)
"""Size of one chart."""
_MARGIN, _GAP, _HEADING = 14.0, 34.0, 34.0
_NAMESPACE = "http://www.w3.org/2000/svg"
_STYLE = f"""
.sheet {{ fill: var(--paper); }}
.heading {{ fill: var(--ink); font-size: 16px; font-weight: 600; }}
text {{ font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", Arial, sans-serif; }}
.chart.panel {{ width: {PANEL.width:g}px; height: {PANEL.height:g}px; }}
"""


def render_picture(curves: Sequence[Curve]) -> str:
    """Return the curves side by side as one SVG document; every text in it is escaped."""
    width = 2 * _MARGIN + len(curves) * PANEL.width + max(0, len(curves) - 1) * _GAP
    height = 2 * _MARGIN + _HEADING + PANEL.height
    drawn = element(
        "svg",
        element("title", "; ".join(one_line(curve.title) for curve in curves)),
        element("style", chart_styles() + _STYLE),
        element("path", d=f"M0 0H{format_coordinate(width)}V{format_coordinate(height)}H0z", class_="sheet"),
        *(part for place, curve in enumerate(curves) for part in draw_panel(curve, place)),
        viewBox=f"0 0 {format_coordinate(width)} {format_coordinate(height)}",
        width=width,
        height=height,
        role="img",
    )
    return drawn.source().replace("<svg ", f'<svg xmlns="{_NAMESPACE}" ', 1) + "\n"


def save_picture(curves: Sequence[Curve], path: Path) -> None:
    """Write the picture to a file, whole or not at all."""
    write_text_file(path, render_picture(curves))


def draw_panel(curve: Curve, place: int) -> list[Element]:
    """Draw one chart of a picture with its heading."""
    left = _MARGIN + place * (PANEL.width + _GAP)
    chart = draw_line_chart(curve, PANEL, f"panel-{place + 1}")
    heading = element("text", one_line(curve.title), x=left, y=_MARGIN + 14, class_="heading")
    size = {
        "width": format_coordinate(PANEL.width),
        "height": format_coordinate(PANEL.height),
    }  # some browsers use these, others the style
    return [
        heading,
        Element(
            chart.tag,
            chart.children,
            {**chart.attributes, **size, "x": format_coordinate(left), "y": format_coordinate(_MARGIN + _HEADING)},
        ),
    ]
