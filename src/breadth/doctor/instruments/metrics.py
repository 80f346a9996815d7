"""Logged metrics against the run's own start: levels with intervals, direction, and curves of the ones that matter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from breadth.doctor.windows import clip_to_range
from breadth.measure.change_points import ChangePoint, change_points
from breadth.measure.trends import trend
from breadth.report.cells import Cell
from breadth.report.sections import Axis, Column, Curve, Event, Section, Table
from breadth.report.sections import Series as Line
from breadth.runs.names import METRICS
from breadth.runs.reader import Run, Series

DRAWN = ("entropy", "reward", "starved_groups", "truncated", "length", "kl_reference")
"""Metrics shown as curves; the others are in the table."""
QUIET = ("learning_rate", "epoch", "tokens_seen", "seconds_per_step", "loss")
"""Schedules and bookkeeping: their trend says nothing about breadth."""
UNITS = {
    "entropy": "nats",
    "kl_reference": "nats",
    "kl_old": "nats",
    "length": "tokens",
    "length_min": "tokens",
    "length_max": "tokens",
}

SMALLEST_JUMP = 0.1
"""Jumps smaller than this share of the whole range are not marked."""


def metrics(run: Run) -> Sequence[Section]:
    """Return a table of every metric we know by name, then curves of the telling ones."""
    names = [name for name in METRICS if name in run.metric_names() and name not in QUIET]
    if not names:
        return []
    return [_table(run, names), *curves(run, [name for name in DRAWN if name in names])]


def curves(run: Run, names: Sequence[str]) -> list[Curve]:
    """Draw metrics over the steps with their jumps; one that is constant, or was hardly logged, is left out."""
    drawn = [_curve(run, name) for name in names]
    return [curve for curve in drawn if curve is not None]


def _table(run: Run, names: Sequence[str]) -> Table:
    columns = [Column("metric"), Column("start"), Column("now"), Column("direction")]
    rows: list[list[Cell]] = []
    for name in names:
        series = run.series(name)
        found = trend(series.steps, series.values)
        unit = f" ({UNITS[name]})" if name in UNITS else ""
        rows.append([spoken(name) + unit, clip_to_range(name, found.start), clip_to_range(name, found.end), found.verdict])
    return Table(
        "Metrics",
        columns,
        rows,
        note="Start and now are medians of the first and last eighth of the run, with 95% intervals.",
    )


def _curve(run: Run, name: str) -> Curve | None:
    series = run.series(name)
    if len(series.finite) < 2 or np.ptp(series.finite.values) == 0:
        return None  # the table says all there is to say of a constant
    events = [Event(jump.step, f"jump from {jump.before:.3g} to {jump.after:.3g}") for jump in _jumps(series)]
    lines = [Line(spoken(name), series.steps.tolist(), series.values.tolist())]
    return Curve(
        name.replace("_", " ").capitalize(),
        lines,
        Axis("step"),
        Axis(name, UNITS.get(name, "")),
        events=events,
        note=_note(run, name),
    )


def _jumps(series: Series) -> list[ChangePoint]:
    """Return at most three jumps that a reader can see: a blip in an otherwise constant series is none."""
    visible = SMALLEST_JUMP * float(np.ptp(series.finite.values))
    found = change_points(series.steps, series.values).jumps
    return [one for one in found if abs(one.after - one.before) >= visible][:3]


def spoken(name: str) -> str:
    """Return a metric's name as prose has it."""
    return name.replace("_", " ")


def _note(run: Run, name: str) -> str:
    theirs = run.header.names.get(name, name)
    return f"Logged as {theirs}." if theirs != name else ""
