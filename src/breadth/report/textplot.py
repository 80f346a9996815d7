"""Line charts in characters: lines in braille dots, bands shaded, a marker per line so colour is not needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from breadth.report.layout import (
    Axes,
    Point,
    band_segments,
    choose_axes,
    is_drawable,
    is_empty,
    letter_label,
    line_segments,
    tick_labels,
)
from breadth.report.sections import Axis, Curve, Series
from breadth.report.style import SHOWN_EVENTS, line_symbol

PLOT_HEIGHT = 12
"""Lines of the plot without its axis: enough to see a shape, few enough for one screen."""

PlotCell: TypeAlias = tuple[str, int | None]
"""A character, and which line of the chart it belongs to."""

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_SHADE = " ░▒"
_HAIRLINE = "┊"
_NEAR = 4
"""Columns a point needs for itself; with fewer, only some points get a marker."""


@dataclass
class Grid:
    """Characters being drawn on: dots of lines, depth of bands, and marks that cover both."""

    columns: int
    """Characters across."""
    rows: int
    """Characters down."""
    scales: Axes
    """Scales of both axes."""
    dots: dict[tuple[int, int], int] = field(default_factory=dict)
    """Row and column -> braille dots set there."""
    owners: dict[tuple[int, int], int] = field(default_factory=dict)
    """Row and column -> the line last drawn there."""
    depth: dict[tuple[int, int], int] = field(default_factory=dict)
    """Row and column -> how many bands cover it."""
    marks: dict[tuple[int, int], PlotCell] = field(default_factory=dict)
    """Row and column -> the character drawn over all others."""

    def place(self, point: Point) -> tuple[float, float]:
        """Return the dot column and dot row of a point."""
        return (
            self.scales.x.position(point[0]) * (2 * self.columns - 1),
            (1 - self.scales.y.position(point[1])) * (4 * self.rows - 1),
        )

    def cell(self, point: Point) -> tuple[int, int]:
        """Return the row and column of the character a point falls in."""
        across, down = self.place(point)
        return round(down) // 4, round(across) // 2


def plot_rows(curve: Curve, width: int, *, ascii_only: bool, height: int = PLOT_HEIGHT) -> list[list[PlotCell]]:
    """Draw the curve with both axes in at most ``width`` characters, and so many lines without the axis below."""
    scales = choose_axes(curve, max(2, width // 14), 4)
    texts = tick_labels(scales.y_ticks, curve.y)
    margin = max(map(len, texts), default=0)
    grid = Grid(max(8, width - margin - 2), height, scales)
    labels = {grid.cell((scales.x.low, tick))[0]: text for tick, text in zip(scales.y_ticks, texts, strict=True)}
    draw_on_grid(curve, grid, ascii_only=ascii_only)
    body = [
        [
            *plain_cells(f"{labels.get(row, ''):>{margin}} "),
            ("┤" if row in labels else "│", None),
            *(grid_character(grid, (row, column)) for column in range(grid.columns)),
        ]
        for row in range(height)
    ]
    return [*body, *([plain_cells(line) for line in axis_rows(grid, curve.x, margin)])]


def draw_on_grid(curve: Curve, grid: Grid, *, ascii_only: bool) -> None:
    """Draw bands, events, lines and markers onto the grid."""
    for series in curve.series:
        shade_band(series, grid)
    for index, event in enumerate(curve.events):
        if is_drawable(event.x):
            column = grid.cell((event.x, grid.scales.y.low))[1]
            grid.marks.update({(row, column): (_HAIRLINE, None) for row in range(1, grid.rows)})
            grid.marks.setdefault((0, column), (letter_label(index) if index < SHOWN_EVENTS else _HAIRLINE, None))
    for index, series in enumerate(curve.series):
        trace_line(series, index, grid)
        mark_points(
            series, (line_symbol(index, len(curve.series), ascii_only=ascii_only), index), grid, ascii_only=ascii_only
        )
    if is_empty(curve):
        text = "no values to draw"[: grid.columns]
        start = max(0, (grid.columns - len(text)) // 2)
        cells = {(grid.rows // 2, start + place): (character, None) for place, character in enumerate(text)}
        grid.marks.update(cells)


def shade_band(series: Series, grid: Grid) -> None:
    """Fill the band, one column of characters at a time, by drawing both edges and what lies between."""
    for run in band_segments(series):
        spans: dict[int, tuple[float, float]] = {}
        corners = [(grid.place((x, high)), grid.place((x, low))) for x, low, high in run]
        for (top, bottom), (next_top, next_bottom) in pairwise([*corners, corners[-1]]):
            for share in even_shares(top[0], next_top[0]):
                column = round(top[0] + share * (next_top[0] - top[0])) // 2
                upper = top[1] + share * (next_top[1] - top[1])
                lower = bottom[1] + share * (next_bottom[1] - bottom[1])
                before = spans.get(column, (upper, lower))
                spans[column] = (min(before[0], upper), max(before[1], lower))
        for column, (upper, lower) in spans.items():
            for row in range(round(upper) // 4, round(lower) // 4 + 1):
                grid.depth[row, column] = grid.depth.get((row, column), 0) + 1


def trace_line(series: Series, index: int, grid: Grid) -> None:
    """Set the dots of every segment of a line; a dot replaces an event's hairline."""
    for run in line_segments(series):
        places = [grid.place(point) for point in run]
        for start, end in pairwise([places[0], *places]):
            for across, down in line_dots(start, end):
                cell = (down // 4, across // 2)
                grid.dots[cell] = grid.dots.get(cell, 0) | _DOTS[down % 4][across % 2]
                grid.owners[cell] = index
                if grid.marks.get(cell, ("", None))[0] == _HAIRLINE:
                    del grid.marks[cell]


def mark_points(series: Series, mark: PlotCell, grid: Grid, *, ascii_only: bool) -> None:
    """Put the line's marker on its points: all if there is room, else some; in ASCII on every cell of the line."""
    points = [point for run in line_segments(series) for point in run]
    cells = (
        [cell for cell in grid.owners if grid.owners[cell] == mark[1]]
        if ascii_only
        else [grid.cell(point) for point in points]
    )
    roomy = len(points) * _NEAR <= grid.columns
    lonely = {grid.cell(run[0]) for run in line_segments(series) if len(run) == 1}
    if not (ascii_only or roomy):
        cells = [*lonely, *spread_cells(cells, mark[1] or 0)]
    grid.marks.update(dict.fromkeys(cells, mark))


def spread_cells(cells: Sequence[tuple[int, int]], index: int) -> list[tuple[int, int]]:
    """Choose about six cells along a line, at other places for every line."""
    stride = max(1, len(cells) // 6)
    return [*cells[(stride // 2 + index * stride // 4) % stride :: stride]]


def line_dots(start: tuple[float, float], end: tuple[float, float]) -> Iterator[tuple[int, int]]:
    """Yield the dots on the straight line between two points."""
    (across, down), wide, high = start, end[0] - start[0], end[1] - start[1]
    for share in even_shares(0.0, max(abs(wide), abs(high), 1.0)):
        yield round(across + share * wide), round(down + share * high)


def even_shares(start: float, end: float) -> list[float]:
    """Return evenly spaced shares from 0 to 1, one per step."""
    count = max(1, round(abs(end - start)))
    return [index / count for index in range(count + 1)]


def grid_character(grid: Grid, cell: tuple[int, int]) -> PlotCell:
    """Return the character of a cell: mark, dots or shade."""
    if cell in grid.marks:
        return grid.marks[cell]
    if cell in grid.dots:
        return chr(0x2800 + grid.dots[cell]), grid.owners[cell]
    return _SHADE[min(grid.depth.get(cell, 0), 2)], None


def axis_rows(grid: Grid, axis: Axis, margin: int) -> list[str]:
    """Return the x axis and its labels, without labels that would touch their left neighbour."""
    line, words = ["─"] * grid.columns, ""
    for tick, text in zip(grid.scales.x_ticks, tick_labels(grid.scales.x_ticks, axis), strict=True):
        column = grid.cell((tick, grid.scales.y.low))[1]
        line[column] = "┴"
        start = min(max(0, column - len(text) // 2), grid.columns - len(text))
        if start >= len(words) + (1 if words else 0):
            words = words.ljust(start) + text
    indent = " " * (margin + 1)
    return [f"{indent}└{''.join(line)}", f"{indent} {words}"]


def plain_cells(text: str) -> list[PlotCell]:
    """Return text as cells of no line."""
    return [(character, None) for character in text]
