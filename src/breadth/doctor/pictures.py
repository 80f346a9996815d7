"""Pictures of a run: a metric over the steps, the held-out score, and the components of the reward."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.scores import component_name, logged_eval_score, printable, reward_components
from breadth.measure.change_points import ChangePoint, find_change_points
from breadth.report.sections import Axis, Curve, Event
from breadth.report.sections import Series as Line
from breadth.runs.names import metric_words
from breadth.runs.reader import MetricSeries, Run

METRIC_UNITS = {
    "entropy": "nats",
    "kl_reference": "nats",
    "kl_old": "nats",
    "length": "tokens",
    "length_min": "tokens",
    "length_max": "tokens",
}
"""Units of metrics that have one."""
MAX_CROSSINGS = 12
"""Times that a line may cross the range of its own values before means are drawn instead."""
MIN_WINDOW, MAX_WINDOWS = 5, 30
"""Points of a mean at least, and about how many means are drawn."""
MIN_JUMP_SHARE = 0.1
"""Smallest jump that is marked, as a share of the metric's range."""
MAX_COMPONENTS = 4
"""Components of the reward that are drawn: those that moved most."""


def metric_curves(run: Run, names: Sequence[str]) -> list[Curve]:
    """Return metrics over the steps with their jumps; those that are constant or hardly logged are left out."""
    return [curve for name in names if (curve := metric_curve(run, name)) is not None]


def metric_curve(run: Run, name: str) -> Curve | None:
    """Return one metric over the steps with its jumps; None where it is constant or hardly logged."""
    series = run.series(name)
    if not is_worth_drawing(series):
        return None  # for a constant the table is enough
    logged = run.header.names.get(name, name)
    title = metric_words(name).removeprefix("the ")
    return draw_series(
        title[0].upper() + title[1:], metric_label(name), series, Axis(logged, METRIC_UNITS.get(name, ""))
    )


def draw_held_out_score(evidence: Evidence) -> Curve | None:
    """Return the held-out score over the steps; None where it was hardly logged."""
    series = logged_eval_score(evidence)
    if series is None or not is_worth_drawing(series):
        return None
    return draw_series("Held-out score", "held-out score", series, Axis(series.name))


def draw_components(evidence: Evidence) -> Curve | None:
    """Return the components of the reward that moved most over the steps; None where there are fewer than two."""
    drawn = [series for series in reward_components(evidence) if len(series.finite) > 1]
    drawn = sorted(drawn, key=lambda series: -float(np.ptp(series.finite.values)))[:MAX_COMPONENTS]
    if len(drawn) < 2:
        return None
    window = max(count_points_to_average(series) for series in drawn)
    lines = []
    for series in drawn:
        line = average_points(printable(component_name(series.name)), series, window)
        lines.append(Line(line.name, line.x, line.y))  # bands of several lines would hide each other
    note = f"Mean of every {window} points." if window > 1 else ""
    return Curve("Components of the reward", lines, Axis("step"), Axis("reward"), note=note)


def is_worth_drawing(series: MetricSeries) -> bool:
    """Say whether a series has a course."""
    return len(series.finite) > 1 and float(np.ptp(series.finite.values)) > 0


def draw_series(title: str, label: str, series: MetricSeries, axis: Axis) -> Curve:
    """Draw a series with its jumps, a scribble as means; the axis has the name it was logged under."""
    events = [Event(jump.step, f"jump from {jump.before:.3g} to {jump.after:.3g}") for jump in visible_jumps(series)]
    notes = [] if axis.label.replace("_", " ") == label else [f"Logged as {axis.label}."]
    window = count_points_to_average(series)
    if window > 1:
        notes.append(f"Mean of every {window} points.")
    return Curve(
        title,
        [average_points(label, series, window)],
        Axis("step"),
        axis,
        events=events,
        band="four in five points",
        note=" ".join(notes),
    )


def count_points_to_average(series: MetricSeries) -> int:
    """Return how many points to average for each one drawn; 1 where a line through all points can be read.

    A line that crosses its own range too often is a scribble that hides the course.
    """
    values = series.finite.values
    way, width = float(np.abs(np.diff(values)).sum()), float(np.ptp(values))
    return 1 if way <= MAX_CROSSINGS * width else max(MIN_WINDOW, round(len(series) / MAX_WINDOWS))


def average_points(label: str, series: MetricSeries, window: int) -> Line:
    """Return the means of consecutive points, with a band that holds four in five of them; NaN alone leaves a gap."""
    if window == 1:
        return Line(label, series.steps.tolist(), series.values.tolist())
    count = max(1, len(series) // window)
    steps = [float(piece.mean()) for piece in np.array_split(series.steps, count)]
    low, mean, high = [], [], []
    for piece in np.array_split(series.values, count):
        values = piece[np.isfinite(piece)] if np.isfinite(piece).any() else np.array([np.nan])
        low.append(float(np.quantile(values, 0.1)))
        mean.append(float(values.mean()))
        high.append(float(np.quantile(values, 0.9)))
    return Line(label, steps, mean, low, high)


def visible_jumps(series: MetricSeries) -> list[ChangePoint]:
    """Return at most three jumps that are large enough to see."""
    min_size = MIN_JUMP_SHARE * float(np.ptp(series.finite.values))
    jumps = find_change_points(series.steps, series.values).jumps
    return [jump for jump in jumps if abs(jump.after - jump.before) >= min_size][:3]


def metric_label(name: str) -> str:
    """Return a metric's name with spaces."""
    return name.replace("_", " ")
