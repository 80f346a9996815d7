"""Defects of a log: jumps at restarts, gaps, two writers in one file, NaN, and entropies summed over a sequence."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.measure.change_points import MIN_SIDE_POINTS, ChangePoint, find_change_points
from breadth.measure.intervals import Interval, normal_quantile
from breadth.measure.trends import Trend, log_trend, robust_slope
from breadth.measure.validate import FloatArray, IntArray
from breadth.runs.outcomes import rollout_steps
from breadth.runs.reader import MetricSeries, Run

_AT_ONCE = 0.75
# Share of a jump that the first point after a restart must have made: that point comes from the checkpoint's own
# policy, before any update.


@dataclass(frozen=True)
class Discontinuity:
    """A step at which the log continues from another start or another file, or after missing steps."""

    step: int
    """First step after it."""
    before: float
    """Median of the metric's last points before it."""
    factor: Interval
    """Factor by which the metric changes there, beyond its trend."""
    p_value: float
    """Probability of such a jump somewhere in the series by noise alone."""
    missing: int
    """Steps that are missing before it; 0 at a restart."""
    stride: int
    """Usual number of steps between points."""
    logged_twice: int
    """Steps that both sides logged."""
    overlap_ratio: float | None
    """Median of the later over the earlier value at those steps; None where there are none."""

    @property
    def first_is_untrained(self) -> bool:
        """Whether no update lies between the checkpoint and the first point after it."""
        return not self.missing and self.stride <= 1


def restart_steps(run: Run, name: str) -> tuple[int, ...]:
    """Return the steps at which a metric's values start to come from another start or file.

    None are returned where that happens all the time.
    """
    order = [order for order, _ in newest_values(run, name).values()]
    steps = list(newest_values(run, name))
    found = tuple(step for step, before, here in zip(steps[1:], order, order[1:], strict=False) if before != here)
    # More restarts than jumps can be separated: rows printed twice, not restarts.
    return found if len(found) * 2 * MIN_SIDE_POINTS <= len(steps) else ()


def missing_steps(series: MetricSeries) -> dict[int, int]:
    """Return the steps that follow a gap, with its size: more than one point where points are evenly spaced."""
    ahead = np.diff(series.steps)
    usual = float(np.median(ahead)) if len(ahead) else 0.0
    return {int(series.steps[place + 1]): int(ahead[place] - usual) for place in np.flatnonzero(ahead > 2 * usual)}


def jump_at_restart(run: Run, series: MetricSeries) -> Discontinuity | None:
    """Return the largest jump of a positive metric exactly at a restart or gap; None where there is none.

    Tested on the logarithm. No update lies between a checkpoint and the first point after a restart, so the policy
    cannot have changed there. Over a gap it can: there a jump counts only if it is more than twice what the slope
    predicts for the missing steps.
    """
    steps, values = series.steps[series.values > 0], series.values[series.values > 0]
    places = missing_steps(series) | dict.fromkeys(restart_steps(run, series.name), 0)
    if not places or len(steps) < 2 * MIN_SIDE_POINTS:
        return None
    logs = MetricSeries(series.name, steps, np.log(values))
    jumps = find_change_points(steps, logs.values).jumps
    found = [
        (step, jump)
        for step, hole in places.items()
        for jump in jumps
        if is_made_at(logs, step, jump) and (not hole or abs(jump.size.value) > 2 * slope_around(logs, step) * hole)
    ]
    if not found:
        return None
    step, jump = max(found, key=lambda pair: (places[pair[0]] == 0, abs(pair[1].size.value)))
    twice = overlap_ratios(run, series.name)
    return Discontinuity(
        step,
        float(np.median(values[steps < step][-MIN_SIDE_POINTS:])),
        exponentiate(jump.size),
        jump.p_value,
        places[step],
        int(np.median(np.diff(steps))),
        len(twice),
        float(np.median(twice)) if len(twice) else None,
    )


def jumps_near(series: MetricSeries, step: int) -> bool:
    """Say whether a metric jumps within a few points of a step."""
    if len(series) < 2 * MIN_SIDE_POINTS:
        return False
    place = int(np.searchsorted(series.steps, step))
    jumps = find_change_points(series.steps, series.values).jumps
    return any(abs(int(np.searchsorted(series.steps, jump.step)) - place) <= MIN_SIDE_POINTS // 2 for jump in jumps)


def remove_jump(series: MetricSeries, discontinuity: Discontinuity) -> FloatArray:
    """Return the values with everything after a discontinuity scaled back to the level before it."""
    return np.where(series.steps < discontinuity.step, series.values, series.values / discontinuity.factor.value)


def is_made_at(logs: MetricSeries, step: int, jump: ChangePoint) -> bool:
    """Say whether a jump is at a step, within one point, and its first point makes most of it."""
    place = int(np.searchsorted(logs.steps, step))
    if abs(place - int(np.searchsorted(logs.steps, jump.step))) > 1 or not 0 < place < len(logs):
        return False
    made = float(logs.values[place] - np.median(logs.values[max(place - 3, 0) : place]))
    return made / jump.size.value >= _AT_ONCE


def exponentiate(logs: Interval) -> Interval:
    """Turn a difference of logarithms into a factor."""
    return Interval(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high), logs.level, logs.method)


def slope_around(logs: MetricSeries, step: int) -> float:
    """Return the steeper slope of the two sides; infinite where one is too short for a slope."""
    sides = [logs.steps < step, logs.steps >= step]
    slopes = [robust_slope(logs.steps[side], logs.values[side]).interval().value for side in sides]
    return max(math.inf if math.isnan(slope) else abs(slope) for slope in slopes)


def newest_values(run: Run, name: str) -> dict[int, tuple[tuple[int, int], float]]:
    """Return for each step the source (file, start) and value, in order of steps, newest source first."""
    found: dict[int, tuple[tuple[int, int], float]] = {}
    for order, step, value in logged_rows(run, name):
        if step not in found or order >= found[step][0]:
            found[step] = (order, value)
    return dict(sorted(found.items()))


def overlap_ratios(run: Run, name: str) -> FloatArray:
    """Return newest over next older value at the steps that two starts have logged."""
    newest, ratios = newest_values(run, name), []
    older: dict[int, tuple[tuple[int, int], float]] = {}
    for order, step, value in logged_rows(run, name):
        if order < newest[step][0] and (step not in older or order >= older[step][0]):
            older[step] = (order, value)
    ratios = [newest[step][1] / value for step, (_, value) in older.items() if value > 0]
    return np.array(ratios, dtype=np.float64)


def logged_rows(run: Run, name: str) -> list[tuple[tuple[int, int], int, float]]:
    """Return (file, start), step and value of each training point that logged a metric."""
    points = (point for point in run.points if point.split == "train" and np.isfinite(point.values.get(name, np.nan)))
    return [((point.source, point.attempt), point.step, point.values[name]) for point in points]


MIN_LEVEL_GAP = 4.0
"""Least ratio of the gap between a step's two values to the change between neighbouring steps, by medians.

Two samples of the same noise differ by 1.4 times as much, whatever its size (the mean distance of two normal samples
over that of neighbouring minima).
"""
MIN_RELATIVE_GAP = 0.1
"""Relative difference they must have at all: the relevant change of `breadth.measure.trends`."""


@dataclass(frozen=True)
class InterleavedWriters:
    """A metric with two values at the same steps."""

    steps: int
    """Steps that occur twice."""
    low: float
    """Median of the lower values."""
    high: float
    """Median of the higher ones."""


def find_interleaved_writers(run: Run, name: str) -> InterleavedWriters | None:
    """Return the two levels of a positive metric that two processes log into one file.

    None where steps occur once, or twice because a restart repeated them.
    """
    values: dict[int, list[float]] = defaultdict(list)
    starts: dict[int, set[int]] = defaultdict(set)
    for point in run.points:
        if (
            point.split == "train"
            and point.source == 0
            and np.isfinite(value := point.values.get(name, np.nan))
            and value > 0
        ):
            values[point.step].append(value)
            starts[point.step].add(point.attempt)
    pairs = np.log([(min(found), max(found)) for _, found in sorted(values.items()) if len(found) > 1])
    begun = {attempt for attempts in starts.values() for attempt in attempts}
    if len(pairs) < MIN_POINTS or len(pairs) * 2 < len(values) or len(begun) * 2 < len(pairs):
        return None
    between, along = np.median(pairs[:, 1] - pairs[:, 0]), np.median(np.abs(np.diff(pairs, axis=0)), axis=0).max()
    if between <= max(MIN_LEVEL_GAP * along, np.log1p(MIN_RELATIVE_GAP)):
        return None
    low, high = np.exp(np.median(pairs, axis=0))
    return InterleavedWriters(len(pairs), float(low), float(high))


ESSENTIAL_METRICS = ("loss", "grad_norm", "entropy", "reward", "kl_reference")
"""Metrics that every step has: where they are NaN, the step failed."""


@dataclass(frozen=True)
class NanRun:
    """Consecutive points at which a metric is NaN or infinite."""

    name: str
    """Our name of the metric."""
    first: int
    """Its first step."""
    last: int
    """Its last step."""
    points: int
    """Points of the log inside it."""
    to_the_end: bool
    """Whether no finite value follows."""


def nan_runs(evidence: Evidence) -> list[NanRun]:
    """Return the longest run of each essential metric, of eight points or more.

    Those that reach the end come first, then the longest. A long run is a broken run, a single point an overflow that
    passed.
    """
    if evidence.run is None:
        return []
    found = [
        nan_run
        for name in ESSENTIAL_METRICS
        for nan_run in longest_nan_run(evidence.run.series(name))
        if nan_run.points >= MIN_POINTS
    ]
    return sorted(found, key=lambda nan_run: (not nan_run.to_the_end, -nan_run.points))


def longest_nan_run(series: MetricSeries) -> Iterator[NanRun]:
    """Yield the run at the end, or else the longest; nothing where no finite value was ever logged."""
    odd = ~np.isfinite(series.values)
    if not odd.any() or odd.all():
        return
    edges = np.flatnonzero(np.diff(np.concatenate([[False], odd, [False]]).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    place = len(begins) - 1 if odd[-1] and ends[-1] - begins[-1] >= MIN_POINTS else int(np.argmax(ends - begins))
    begin, end = int(begins[place]), int(ends[place])
    yield NanRun(series.name, int(series.steps[begin]), int(series.steps[end - 1]), end - begin, end == len(odd))


_NEAR = 0.25
# How far from 1 the whole interval of the exponent may lie: a sum over a sequence has exactly 1; prompts with long
# and unsure
# answers make a mean over tokens grow with length too, but less than in proportion.


@dataclass(frozen=True)
class LengthScaling:
    """How logged entropy scales with the mean length of the same steps."""

    exponent: Interval
    """Exponent of entropy in length between steps: 1 for a sum over a sequence, near 0 for a mean over tokens."""
    trend: Trend
    """Trend of entropy over length."""

    @property
    def is_proportional(self) -> bool:
        """Whether entropy is surely in proportion to length."""
        return self.exponent.low > 1 - _NEAR and self.exponent.high < 1 + _NEAR


def length_scaling(evidence: Evidence) -> LengthScaling | None:
    """Compare entropy with the mean length; None with fewer than eight common steps, or a constant length.

    The exponent comes from differences of neighbouring steps, which remove a common trend such as a true collapse of
    both.
    """
    entropy, length = evidence.series("entropy"), evidence.series("length")
    if entropy is None or length is None:
        return None
    steps = np.intersect1d(entropy.steps, length.steps)
    above, below = entropy.values[np.isin(entropy.steps, steps)], length.values[np.isin(length.steps, steps)]
    good = (above > 0) & (below > 0)
    if good.sum() < MIN_POINTS:
        return None
    up, across = np.diff(np.log(above[good])), np.diff(np.log(below[good]))
    up, across = up - up.mean(), across - across.mean()
    power = float(across @ across)
    if power <= len(across) * 1e-18:
        return None
    slope = float(across @ up) / power
    left = up - slope * across
    reach = normal_quantile(0.95) * float(np.sqrt(left @ left / max(len(left) - 2, 1) / power))
    exponent = Interval(slope, slope - reach, slope + reach, 0.95, "least squares on differences of logarithms")
    return LengthScaling(exponent, log_trend(steps[good], above[good] / below[good]))


MAX_TOKEN_STEPS = 64
"""Steps that are read, spread over the run: enough for a trend, few enough that a million rollouts take seconds."""
MAX_TOKENS_READ = 50_000_000
"""Tokens that are read in all (200 MB). Steps are left out, never rollouts of a step: the logged mean is over all of
them."""
_COUNTED = """CASE WHEN mask IS NULL OR len(mask) <> len(entropy) THEN list_sum(entropy)
              ELSE list_inner_product(entropy, mask::FLOAT[]) END"""
_TOKENS = "CASE WHEN mask IS NULL OR len(mask) <> len(entropy) THEN len(entropy) ELSE list_sum(mask::FLOAT[]) END"


@dataclass(frozen=True, eq=False)
class TokenEntropy:
    """Token entropies of the rollouts, averaged two ways at each step that also has a logged value."""

    steps: IntArray
    """Steps."""
    logged: FloatArray
    """The trainer's logged value."""
    per_token: FloatArray
    """Mean over all tokens."""
    per_sequence: FloatArray
    """Mean over rollouts of their sums."""

    @property
    def trend(self) -> Trend:
        """Trend of the mean over tokens."""
        return log_trend(self.steps, self.per_token)

    @property
    def logged_ratio(self) -> Trend:
        """Trend of logged over token entropy: level where both agree, whatever the factor."""
        return log_trend(self.steps, self.logged / self.per_token)

    @property
    def is_sequence_sum(self) -> bool:
        """Whether the logged value is nearer to the sum over a sequence than to the mean over tokens."""
        to_sum, to_mean = (np.abs(np.log(self.logged / mean)) for mean in (self.per_sequence, self.per_token))
        return bool(np.median(to_sum) < np.median(to_mean))


def token_entropy(evidence: Evidence) -> TokenEntropy | None:
    """Read the token entropies at logged steps; None where fewer than eight steps have them."""
    run, logged = evidence.run, evidence.series("entropy")
    if run is None or logged is None or "entropy" not in run.columns:
        return None
    steps = np.intersect1d(rollout_steps(run), logged.steps)
    if len(steps) < MIN_POINTS:
        return None
    sql = "SELECT coalesce(sum(len(entropy)), 0)::BIGINT AS tokens FROM rollouts WHERE split = 'train' AND step = ?"
    most = min(
        MAX_TOKEN_STEPS,
        max(MIN_POINTS, MAX_TOKENS_READ // max(run.query(sql, int(steps[0]))["tokens"].to_pylist()[0], 1)),
    )
    if len(steps) > most:
        steps = steps[np.linspace(0, len(steps) - 1, most).round().astype(np.int64)]
    table = run.query(
        f"""SELECT step, sum({_COUNTED}) / sum({_TOKENS}) AS per_token, avg({_COUNTED}) AS per_sequence FROM rollouts
            WHERE split = 'train' AND len(entropy) > 0 AND step IN (SELECT unnest(?)) GROUP BY step ORDER BY step""",  # noqa: S608 - column names are ours
        steps.tolist(),
    )
    found = {name: table[name].to_numpy().astype(np.float64) for name in ("per_token", "per_sequence")}
    at = table["step"].to_numpy()
    values = logged.values[np.isin(logged.steps, at)]
    good = np.isfinite(found["per_token"]) & (found["per_token"] > 0) & (found["per_sequence"] > 0) & (values > 0)
    if good.sum() < MIN_POINTS:
        return None
    return TokenEntropy(at[good], values[good], found["per_token"][good], found["per_sequence"][good])
