"""How much the metrics of real training runs move, measured on the logs of BREADTH_FIXTURES/training_logs.

A series is split into a smooth curve (a parabola over the run), a slow wander around it and a noise of single steps.
Entropy, length, divergence and gradient norm are taken on the logarithm, the reward in units of the spread of rewards
within a group, shares as they are. Noise is the spread of the differences of neighbours, over the root of two; wander
is the root of the residual's mean autocovariance at lags of two to five, in logs of 100 points or more. A repository
counts once, with the median of its logs: some hold 23 runs of one author. Quartiles are over repositories.

Recompute: BREADTH_FIXTURES=... python benchmarks/doctor_courses.py --measure
"""

from __future__ import annotations

import csv
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from breadth.doctor.collect import collect_evidence
from breadth.doctor.evidence.record import Evidence
from breadth.measure.validate import FloatArray

Quartiles = tuple[float, float, float]
MIN_LOG_POINTS = 30
"""Points below which a series is not measured."""
MIN_WANDER_POINTS = 100
"""Points below which a slow wander is not told from the curve: a parabola follows it."""
LOG_SCALE = frozenset({"entropy", "length", "kl_reference", "grad_norm"})
"""Metrics that are measured on the logarithm."""
METRICS = ("reward", "entropy", "length", "kl_reference", "grad_norm", "truncated", "zero_variance_groups")
SPIKE_SPREADS = 5.0
"""A spike is so many robust standard deviations away from the curve."""


@dataclass(frozen=True)
class Movement:
    """How one metric moves."""

    noise: Quartiles
    """Standard deviation of a single step around its neighbours."""
    wander: Quartiles
    """Standard deviation of the slow part around the smooth curve."""
    lag_one: Quartiles
    """Correlation of neighbours around the smooth curve."""
    spikes: float
    """Share of steps that are spikes, median."""
    change: Quartiles
    """Last eighth over first eighth (difference for the reward and for shares)."""
    logs: int
    """How many logs were measured."""
    repositories: int
    """Of how many repositories."""


MEASURED: Mapping[str, Movement] = {
    "reward": Movement((0.46, 0.81, 1.4), (0.042, 0.13, 0.14), (-0.061, 0.067, 0.12), 0.0, (0.25, 0.31, 2.7), 15, 9),
    "entropy": Movement((0.11, 0.2, 0.22), (0.041, 0.081, 0.12), (0.007, 0.026, 0.14), 0.0, (0.66, 0.78, 1.0), 29, 5),
    "length": Movement((0.028, 0.04, 0.25), (0.0, 0.014, 0.032), (-0.078, -0.0071, 0.15), 0.0, (0.99, 1.0, 1.1), 23, 9),
    "kl_reference": Movement((0.15, 0.16, 0.25), (0.056, 0.16, 0.21), (0.3, 0.6, 0.69), 0.0, (0.88, 2.3, 46.0), 14, 8),
    "grad_norm": Movement(
        (0.55, 0.65, 0.96), (0.0, 0.031, 0.098), (-0.017, 0.041, 0.059), 0.0, (0.65, 0.73, 0.99), 23, 9
    ),
    "truncated": Movement(
        (0.043, 0.062, 0.1), (0.0, 0.0002, 0.002), (-0.029, 0.017, 0.091), 0.017, (-0.0032, 0.0076, 0.028), 9, 6
    ),
    "zero_variance_groups": Movement(
        (0.11, 0.13, 0.22), (0.026, 0.05, 0.068), (-0.047, -0.017, 0.083), 0.0, (0.018, 0.05, 0.42), 7, 7
    ),
}
"""What `measure_logs` returned; the generator draws noise and wander between the quartiles."""


def measure_logs(folder: Path) -> dict[str, Movement]:
    """Measure every metric over all logs."""
    found: dict[str, dict[str, list[tuple[float, ...]]]] = {name: defaultdict(list) for name in METRICS}
    for repository, case in open_logs(folder):
        for name in METRICS:
            numbers = measure_series(case, name)
            if numbers is not None:
                found[name][repository].append(numbers)
    return {name: summarize(by_repository) for name, by_repository in found.items() if by_repository}


def open_logs(folder: Path) -> Iterator[tuple[str, Evidence]]:
    """Yield every log with its repository; of several runs in one log the last."""
    with (folder / "labels.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        with tempfile.TemporaryDirectory() as work_folder:
            *_, case = collect_evidence([folder / line["file"]], Path(work_folder)).cases
            yield line["repo"], case


def measure_series(case: Evidence, name: str) -> tuple[float, ...] | None:
    """Return noise, wander, lag-one correlation, share of spikes and change; None where too short or constant."""
    series = case.series(name)
    if series is None or len(series) < MIN_LOG_POINTS:
        return None
    values = np.asarray(series.values, dtype=float)
    if name in LOG_SCALE:
        if np.mean(values > 0) < 0.9:
            return None
        values = np.log(values[values > 0])
    unit = reward_spread(case) if name == "reward" else 1.0
    residual = values - smooth_curve(values)
    spread = float(np.std(residual))
    if unit is None or spread < 1e-9:
        return None
    noise = float(np.std(np.diff(values))) / np.sqrt(2)
    slow = float(np.mean([np.mean(residual[lag:] * residual[:-lag]) for lag in range(2, 6)]))
    wander = np.sqrt(max(0.0, slow)) / unit if len(values) >= MIN_WANDER_POINTS else np.nan
    lag_one = float(np.mean(residual[1:] * residual[:-1])) / spread**2
    robust = 1.4826 * float(np.median(np.abs(residual - np.median(residual))))
    spikes = float(np.mean(np.abs(residual) > SPIKE_SPREADS * robust)) if robust > 0 else 0.0
    eighth = max(3, len(values) // 8)
    change = float(np.mean(values[-eighth:]) - np.mean(values[:eighth])) / unit
    return noise / unit, wander, lag_one, spikes, np.exp(change) if name in LOG_SCALE else change


def reward_spread(case: Evidence) -> float | None:
    """Return the median spread of rewards within a group; None where it is not logged or zero."""
    series = case.series("reward_std")
    found = 0.0 if series is None else float(np.median(series.values))
    return found if found > 0 else None


def smooth_curve(values: FloatArray) -> FloatArray:
    """Fit a parabola."""
    places = np.linspace(-1, 1, len(values))
    return np.asarray(np.polynomial.Polynomial.fit(places, values, 2)(places))


def summarize(by_repository: Mapping[str, Sequence[tuple[float, ...]]]) -> Movement:
    """Return the quartiles over repositories, each with the median of its logs."""
    table = np.array([median_log(logs) for logs in by_repository.values()])
    low, middle, high = np.nanquantile(table, (0.25, 0.5, 0.75), axis=0)

    def quartiles(column: int) -> Quartiles:
        return round_figure(low[column]), round_figure(middle[column]), round_figure(high[column])

    return Movement(
        quartiles(0),
        quartiles(1),
        quartiles(2),
        round_figure(middle[3]),
        quartiles(4),
        sum(map(len, by_repository.values())),
        len(by_repository),
    )


def median_log(logs: Sequence[tuple[float, ...]]) -> FloatArray:
    """Return the median of every number over one repository's logs; NaN where none has it."""
    columns = np.array(logs).T
    return np.array([np.nan if np.isnan(column).all() else np.nanmedian(column) for column in columns])


def round_figure(number: float) -> float:
    """Round to two figures."""
    return float(f"{number:.2g}")
