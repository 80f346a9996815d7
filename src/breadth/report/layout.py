"""What all renderers share: scales and ticks, segments of lines, shades of tokens, cells of tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias, TypeVar

from breadth.report.cells import (
    PERCENT,
    Cell,
    Missing,
    format_cell,
    format_number,
    interval_origin,
    is_number,
    shared_decimals,
)
from breadth.report.plaintext import one_line, pluralize
from breadth.report.sections import Axis, Column, Curve, Fact, Series, Table, Token, Trace
from breadth.report.style import SHADES

MAX_DRAWABLE = 1e150
"""Larger values are not drawable: their differences and squares overflow."""
MIN_DRAWABLE = 1e-150
"""Smaller values are drawn as zero, for the same reason."""


@dataclass(frozen=True)
class Scale:
    """Maps values between two limits to positions between 0 and 1."""

    low: float
    """Value at position 0."""
    high: float
    """Value at position 1."""
    log: bool = False
    """Space by ratio instead of by difference."""

    def position(self, value: float) -> float:
        """Return the position of a value; outside 0 to 1 if the value is outside the limits."""
        if not self.log:
            return (value - self.low) / (self.high - self.low)
        low, high, here = map(math.log, (self.low, self.high, value))
        return (here - low) / (high - low)


def is_drawable(value: float) -> bool:
    """Whether a value fits on an axis: finite, and not so large that arithmetic overflows."""
    return math.isfinite(value) and abs(value) < MAX_DRAWABLE


def drawable_range(values: Iterable[float]) -> tuple[float, float]:
    """Return the smallest and largest drawable value, with room around a single one; 0 to 1 for none or zero."""
    kept = [value for value in values if is_drawable(value)]
    largest = max(map(abs, kept), default=0.0)
    if largest < MIN_DRAWABLE:
        return 0.0, 1.0
    low, high = min(kept), max(kept)
    return (low, high) if high - low > largest * 1e-9 else (low - 0.1 * largest, high + 0.1 * largest)


def value_scale(values: Iterable[float], most: int) -> tuple[Scale, tuple[float, ...]]:
    """Return a scale with a little room around the data, from zero where that is near, and ticks at round numbers."""
    low, high = drawable_range(values)
    room = 0.04 * (high - low)
    low = 0.0 if 0 <= low < 0.5 * high else low - room  # near zero, a reader compares with zero
    return Scale(low, high + room), round_ticks(low, high + room, most)


def position_scale(values: Sequence[float], most: int, *, log: bool) -> tuple[Scale, tuple[float, ...]]:
    """Return a scale from the first to the last position, and ticks at round numbers between them."""
    if log:
        return log_scale([value for value in values if is_drawable(value) and value > 0], most)
    low, high = drawable_range(values)
    whole = all(float(value).is_integer() for value in values if is_drawable(value))
    return Scale(low, high), round_ticks(low, high, most, whole=whole)


def round_ticks(low: float, high: float, most: int, *, whole: bool = False) -> tuple[float, ...]:
    """Return the multiples of a round step between the limits; ``whole`` is for counts such as training steps."""
    step = round_step(max((high - low) / most, 1.0 if whole else 0.0), (1, 2, 5) if whole else (1, 2, 2.5, 5))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    decimals = max(0, 2 - math.floor(math.log10(step)))  # rounding removes the noise of ``index * step``
    values = (index * step for index in range(first, last + 1))
    return tuple(round(value, decimals) if decimals < 300 else value for value in values)


def round_step(rough: float, factors: Sequence[float]) -> float:
    """Return the smallest of the factors times a power of ten that is at least ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next((factor * power for factor in factors if rough <= factor * power * (1 + 1e-9)), 10 * power)


def log_scale(values: Sequence[float], most: int) -> tuple[Scale, tuple[float, ...]]:
    """Return a logarithmic scale over the positions, with ticks at powers of two or at decades."""
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    if high <= low * (1 + 1e-9):
        low, high = low / 2, high * 2
    candidates = (
        powers_between(2, low, high)
        if all(math.frexp(value)[0] == 0.5 for value in values)
        else decade_ticks(low, high, most)
    )
    stride = math.ceil(len(candidates) / most) if candidates else 1
    return Scale(low, high, log=True), tuple(candidates[::stride]) or (low, high)


def powers_between(base: int, low: float, high: float) -> list[float]:
    """Return the powers of a base between two limits."""
    first = math.ceil(math.log(low, base) - 1e-9)
    last = math.floor(math.log(high, base) + 1e-9)
    return [float(base) ** exponent for exponent in range(first, last + 1)]


def decade_ticks(low: float, high: float, most: int) -> list[float]:
    """Return 1, 2 and 5 times the powers of ten between the limits, or only the powers if they suffice."""
    whole = powers_between(10, low, high)
    if len(whole) >= min(3, most):
        return whole
    first = math.floor(math.log10(low)) - 1
    spread = [factor * 10.0**exponent for exponent in range(first, first + len(whole) + 4) for factor in (1, 2, 5)]
    return [value for value in spread if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]


Point: TypeAlias = tuple[float, float]
"""x and y."""

_Item = TypeVar("_Item", bound=tuple[float, ...])


@dataclass(frozen=True)
class Estimate:
    """A point of a series with its band, to be written as text."""

    value: float
    """The point."""
    low: float
    """Lower end of the band."""
    high: float
    """Upper end of the band."""


@dataclass(frozen=True)
class Axes:
    """Both scales of a chart with their ticks."""

    x: Scale
    """From left to right."""
    y: Scale
    """Upwards."""
    x_ticks: tuple[float, ...]
    """Round numbers on x."""
    y_ticks: tuple[float, ...]
    """Round numbers on y."""


def choose_axes(curve: Curve, x_most: int, y_most: int) -> Axes:
    """Choose limits that hold every line, band and event, with at most about so many ticks."""
    xs = [x for series in curve.series for line in line_segments(series) for x, _ in line]
    xs += [x for series in curve.series for band in band_segments(series) for x, _, _ in band]
    ys = [value for series in curve.series for values in (series.y, series.low, series.high) for value in values]
    places = xs + [event.x for event in curve.events]
    x, x_ticks = position_scale(places, x_most, log=curve.log_x)
    y, y_ticks = value_scale(ys, y_most)
    # Numbers on an axis that holds nothing would be made up.
    return Axes(x, y, x_ticks if any(map(is_drawable, places)) else (), y_ticks if any(map(is_drawable, ys)) else ())


def is_empty(curve: Curve) -> bool:
    """Whether no point of any series can be drawn."""
    return not any(line_segments(series) for series in curve.series)


def line_segments(series: Series) -> list[list[Point]]:
    """Return the unbroken segments of a line; a NaN or infinity ends one."""
    points = zip(series.x, series.y, strict=True)
    return [list(run) for run in split_runs(points, lambda point: all(map(is_drawable, point)))]


def band_segments(series: Series) -> list[list[tuple[float, float, float]]]:
    """Return the unbroken segments of a band as x, low, high."""
    corners = zip(series.x, series.low, series.high, strict=True) if series.low else ()
    return [list(run) for run in split_runs(corners, lambda corner: all(map(is_drawable, corner)))]


def series_cells(series: Series) -> Iterator[tuple[float, Cell]]:
    """Yield every x with its value, as an interval where the series has a band."""
    for index, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        yield x, Estimate(y, series.low[index], series.high[index]) if series.low else y


def describe_gaps(curve: Curve) -> str:
    """Describe how many points are gaps or cannot be drawn; empty if all are drawn."""
    values = [y if math.isfinite(x) else x for series in curve.series for x, y in zip(series.x, series.y, strict=True)]
    gaps = sum(map(math.isnan, values))
    endless = sum(not is_drawable(value) for value in values) - gaps
    parts = [f"{pluralize(gaps, 'point')} without a value, shown as gaps"] if gaps else []
    parts += [f"{pluralize(endless, 'point')} infinite or too large to draw"] if endless else []
    return "; ".join(parts) + "." if parts else ""


def describe_ends(series: Series, x: Axis, y: Axis) -> str:
    """Describe where a line starts and ends, e.g. ``0.62 at 0, 0.41 (0.38 to 0.47) at 300``."""
    known = [
        pair
        for pair, value in zip(series_cells(series), series.y, strict=True)
        if is_drawable(value) and is_drawable(pair[0])
    ]
    if not known:
        return "no values"
    ends = known[:1] if len(known) == 1 else [known[0], known[-1]]
    return ", ".join(f"{format_cell(cell, y.unit)} at {format_number(place, x.unit)}" for place, cell in ends)


def axis_label(axis: Axis) -> str:
    """Return the label of an axis with its unit, e.g. ``entropy (nats)``."""
    return one_line(f"{axis.label} ({axis.unit})" if axis.unit else axis.label)


def tick_labels(ticks: Sequence[float], axis: Axis) -> list[str]:
    """Format ticks with equal decimals, enough to write each exactly, without their unit."""
    decimals = shared_decimals(ticks, axis.unit)
    if decimals is not None:
        decimals = next((more for more in range(decimals, 12) if are_exact(ticks, axis.unit, more)), decimals)
    return [format_number(tick, axis.unit, decimals, bare=True) for tick in ticks]


def are_exact(ticks: Sequence[float], unit: str, decimals: int) -> bool:
    """Whether so many decimals write each tick exactly."""
    shown = [tick * 100 if unit == PERCENT else tick for tick in ticks]
    return all(math.isclose(round(tick, decimals), tick, rel_tol=1e-9, abs_tol=1e-12) for tick in shown)


def letter_label(index: int) -> str:
    """Return a, b, ..., z, aa, ab, ...: the label of an event or a footnote."""
    head, tail = divmod(index, 26)
    return (letter_label(head - 1) if head else "") + chr(ord("a") + tail)


def split_runs(items: Iterable[_Item], keep: Callable[[_Item], bool]) -> Iterator[list[_Item]]:
    """Yield the runs of neighbouring items that are kept."""
    run: list[_Item] = []
    for item in items:
        if keep(item):
            run.append(item)
        elif run:
            yield run
            run = []
    if run:
        yield run


@dataclass(frozen=True)
class Shading:
    """Even steps between two numbers; step 0 is not marked at all."""

    low: float
    """Smallest number of the trace."""
    high: float
    """Number above which the mark no longer grows."""

    def level(self, value: float | None) -> int:
        """Return the step of a number, 0 to ``SHADES``; 0 also for no number, or when all numbers are equal."""
        if value is None or math.isnan(value) or self.high <= self.low:
            return 0
        place = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return min(SHADES, int(place * (SHADES + 1)))

    def edges(self) -> tuple[float, ...]:
        """Return the smallest number of every step above 0."""
        step = (self.high - self.low) / (SHADES + 1)
        return tuple(self.low + step * index for index in range(1, SHADES + 1))


def choose_shading(trace: Trace) -> Shading | None:
    """Return the steps for a trace, or None if no token has a number.

    They end at the 98th percentile, so one extreme token does not wash out the others.
    """
    values = sorted(token.value for token in trace.tokens if token.value is not None and is_drawable(token.value))
    if not values:
        return None
    high = values[math.ceil(0.98 * len(values)) - 1]
    return Shading(values[0], high if high > values[0] else values[-1])


def token_label(trace: Trace, token: Token) -> str:
    """Return a token's number in words, e.g. ``entropy 1.23 nats``; empty when it has none."""
    return "" if token.value is None else f"{one_line(trace.measure)} {format_number(token.value, trace.unit)}"


def describe_shading(trace: Trace, steps: Shading | None) -> str:
    """Describe what the marks mean, or why there are none."""
    measure = one_line(trace.measure)
    if steps is None:
        return f"No token has a number ({measure})."
    if steps.high <= steps.low:
        return f"Every {measure} is {format_number(steps.low, trace.unit)}; nothing is marked."
    return f"The stronger the mark, the higher the {measure}."


def group_by_kind(tokens: Sequence[Token]) -> list[tuple[str, list[Token]]]:
    """Split tokens into neighbours of one kind, each with the kind's name."""
    return [(one_line(kind), list(run)) for kind, run in groupby(tokens, key=lambda token: token.kind)]


@dataclass(frozen=True)
class TableEntry:
    """One cell as text."""

    text: str
    """Text of the cell."""
    numeric: bool = False
    """Whether it is a number."""
    footnote: str = ""
    """Letter of the footnote with the reason why there is no value."""
    origin: str = ""
    """How its interval was made."""


@dataclass(frozen=True)
class TableLayout:
    """A table ready to draw."""

    headings: tuple[str, ...]
    """Column names with their units."""
    right: tuple[bool, ...]
    """Which columns are aligned right."""
    rows: tuple[tuple[TableEntry, ...], ...]
    """The cells."""
    footnotes: tuple[tuple[str, str], ...]
    """Letter and reason, in order of appearance."""


def lay_out_table(table: Table) -> TableLayout:
    """Choose the digits, alignment and footnotes of a table."""
    missing = [cell.reason for row in table.rows for cell in row if isinstance(cell, Missing)]
    reasons = {reason: letter_label(index) for index, reason in enumerate(dict.fromkeys(missing))}
    by_column = [(column, [row[index] for row in table.rows]) for index, column in enumerate(table.columns)]
    columns = [column_entries(column, cells, reasons) for column, cells in by_column]
    return TableLayout(
        headings=tuple(
            one_line(f"{column.name} ({column.unit})" if column.unit else column.name) for column in table.columns
        ),
        right=tuple(is_right_aligned(column, cells) for column, cells in by_column),
        rows=tuple(zip(*columns, strict=True)),
        footnotes=tuple((flag, one_line(reason)) for reason, flag in reasons.items()),
    )


def format_fact(fact: Fact) -> str:
    """Format the value of a fact; a missing one with its reason."""
    text = format_cell(fact.value, fact.unit)
    return f"{text}: {one_line(fact.value.reason)}" if isinstance(fact.value, Missing) else text


def column_entries(column: Column, cells: Sequence[Cell], reasons: dict[str, str]) -> list[TableEntry]:
    """Return the cells of a column as text, with shared decimals."""
    decimals = shared_decimals(cells, column.unit) if column.decimals is None else column.decimals
    return [
        TableEntry(
            format_cell(cell, column.unit, decimals, bare=True),
            is_number(cell),
            reasons[cell.reason] if isinstance(cell, Missing) else "",
            interval_origin(cell),
        )
        for cell in cells
    ]


def is_right_aligned(column: Column, cells: Sequence[Cell]) -> bool:
    """Whether a column is aligned right: as it says, or because it holds numbers."""
    if column.align != "auto":
        return column.align == "right"
    present = [cell for cell in cells if cell is not None and not isinstance(cell, Missing)]
    return bool(present) and all(map(is_number, present))
