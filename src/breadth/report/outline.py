"""The parts of a curve that can be drawn: unbroken stretches, bands, what had to be left out, and all of it in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from breadth.report.cells import Cell
from breadth.report.numerals import PERCENT, cell_text, number, shared_decimals
from breadth.report.plaintext import counted, one_line
from breadth.report.scales import Scale, drawable, position_scale, value_scale
from breadth.report.sections import Axis, Curve, Series

Point: TypeAlias = tuple[float, float]
"""x and y."""

_Item = TypeVar("_Item", bound=tuple[float, ...])


@dataclass(frozen=True)
class Estimate:
    """A point of a series with its band, for writing it as text."""

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


def axes(curve: Curve, x_most: int, y_most: int) -> Axes:
    """Choose limits that hold every line, band and event, and at most about so many ticks."""
    xs = [x for one in curve.series for line in stretches(one) for x, _ in line]
    xs += [x for one in curve.series for band in band_stretches(one) for x, _, _ in band]
    ys = [value for one in curve.series for values in (one.y, one.low, one.high) for value in values]
    places = xs + [event.x for event in curve.events]
    x, x_ticks = position_scale(places, x_most, log=curve.log_x)
    y, y_ticks = value_scale(ys, y_most)
    # Numbers on an axis that holds nothing would be made up.
    return Axes(x, y, x_ticks if any(map(drawable, places)) else (), y_ticks if any(map(drawable, ys)) else ())


def is_empty(curve: Curve) -> bool:
    """Tell whether no point of any series can be drawn."""
    return not any(stretches(one) for one in curve.series)


def stretches(series: Series) -> list[list[Point]]:
    """Return the unbroken stretches of a line; a NaN or infinity ends one."""
    points = zip(series.x, series.y, strict=True)
    return [list(run) for run in _runs(points, lambda point: all(map(drawable, point)))]


def band_stretches(series: Series) -> list[list[tuple[float, float, float]]]:
    """Return the unbroken stretches of a band as x, low, high."""
    corners = zip(series.x, series.low, series.high, strict=True) if series.low else ()
    return [list(run) for run in _runs(corners, lambda corner: all(map(drawable, corner)))]


def estimates(series: Series) -> Iterator[tuple[float, Cell]]:
    """Yield every x with its value, as an interval where the series has a band."""
    for index, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        yield x, Estimate(y, series.low[index], series.high[index]) if series.low else y


def left_out(curve: Curve) -> str:
    """Say how many points are gaps or cannot be drawn; empty when all are there."""
    values = [y if math.isfinite(x) else x for one in curve.series for x, y in zip(one.x, one.y, strict=True)]
    gaps = sum(map(math.isnan, values))
    endless = sum(not drawable(value) for value in values) - gaps
    parts = [f"{counted(gaps, 'point')} without a value, shown as gaps"] if gaps else []
    parts += [f"{counted(endless, 'point')} infinite or too large to draw"] if endless else []
    return "; ".join(parts) + "." if parts else ""


def course(series: Series, x: Axis, y: Axis) -> str:
    """Say where a line starts and ends, e.g. ``0.62 at 0, 0.41 (0.38 to 0.47) at 300``."""
    known = [pair for pair, value in zip(estimates(series), series.y, strict=True) if drawable(value) and drawable(pair[0])]
    if not known:
        return "no values"
    ends = known[:1] if len(known) == 1 else [known[0], known[-1]]
    return ", ".join(f"{cell_text(cell, y.unit)} at {number(place, x.unit)}" for place, cell in ends)


def axis_label(axis: Axis) -> str:
    """Write an axis with its unit, e.g. ``entropy (nats)``."""
    return one_line(f"{axis.label} ({axis.unit})" if axis.unit else axis.label)


def tick_texts(ticks: Sequence[float], axis: Axis) -> list[str]:
    """Write ticks with the same number of decimals, as many as name each tick exactly, without their unit."""
    decimals = shared_decimals(ticks, axis.unit)
    if decimals is not None:
        decimals = next((more for more in range(decimals, 12) if _exact(ticks, axis.unit, more)), decimals)
    return [number(tick, axis.unit, decimals, bare=True) for tick in ticks]


def _exact(ticks: Sequence[float], unit: str, decimals: int) -> bool:
    shown = [tick * 100 if unit == PERCENT else tick for tick in ticks]
    return all(math.isclose(round(tick, decimals), tick, rel_tol=1e-9, abs_tol=1e-12) for tick in shown)


def letter(index: int) -> str:
    """Return a, b, ..., z, aa, ab, ...: the flag of an event or a footnote."""
    head, tail = divmod(index, 26)
    return (letter(head - 1) if head else "") + chr(ord("a") + tail)


def _runs(items: Iterable[_Item], keep: Callable[[_Item], bool]) -> Iterator[list[_Item]]:
    run: list[_Item] = []
    for item in items:
        if keep(item):
            run.append(item)
        elif run:
            yield run
            run = []
    if run:
        yield run
