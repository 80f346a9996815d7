"""Where a log was put together: restarts, other files, steps that are missing; and how a metric differs on the two sides."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from breadth.measure.change_points import SHORTEST_SIDE, ChangePoint, change_points
from breadth.measure.intervals import Interval
from breadth.measure.linear_fit import robust_slope
from breadth.runs.reader import Run, Series

Floats = npt.NDArray[np.float64]
_AT_ONCE = 0.75
# Share of a jump that the first point behind a seam must have made: that point was drawn by the checkpoint's own
# policy, before any update.


@dataclass(frozen=True)
class Seam:
    """A step from which on the log comes from another start of the run or from another file, or before which steps are missing."""

    step: int
    """First step behind it."""
    before: float
    """Median of the metric's last points before it."""
    times: Interval
    """What the metric is multiplied by there, beyond what its trend explains."""
    p_value: float
    """How often noise would show such a jump somewhere in the series."""
    hole: int
    """Steps that are missing before it; 0 at a restart."""
    stride: int
    """Steps from one point to the next, as a rule."""
    twice: int
    """Steps that both sides logged."""
    apart: float | None
    """Median of the later value over the earlier one at those steps; None where there are none."""

    @property
    def first_is_untrained(self) -> bool:
        """Whether no update lies between the checkpoint and the first point behind the seam."""
        return not self.hole and self.stride <= 1


def seams(run: Run, name: str) -> tuple[int, ...]:
    """Return the steps at which the values of a metric begin to come from another start or file; none where that is so all the time."""
    order = [order for order, _ in _newest(run, name).values()]
    steps = list(_newest(run, name))
    found = tuple(step for step, before, here in zip(steps[1:], order, order[1:], strict=False) if before != here)
    # More seams than jumps could be told apart are rows printed twice, not restarts.
    return found if len(found) * 2 * SHORTEST_SIDE <= len(steps) else ()


def holes(series: Series) -> dict[int, int]:
    """Return the steps before which others are missing, with how many: more than one point where points come at even distances."""
    ahead = np.diff(series.steps)
    usual = float(np.median(ahead)) if len(ahead) else 0.0
    return {int(series.steps[place + 1]): int(ahead[place] - usual) for place in np.flatnonzero(ahead > 2 * usual)}


def jump_at_seam(run: Run, series: Series) -> Seam | None:
    """Return the largest jump of a positive metric that stands exactly at a seam and was made at once; None where there is none.

    Judged on the logarithm. No update lies between a checkpoint and the first point behind a restart, so a policy
    cannot have changed there. Over a hole it can; there a jump counts that is more than twice what the series' slope
    makes of the missing steps.
    """
    steps, values = series.steps[series.values > 0], series.values[series.values > 0]
    places = holes(series) | dict.fromkeys(seams(run, series.name), 0)
    if not places or len(steps) < 2 * SHORTEST_SIDE:
        return None
    logs = Series(series.name, steps, np.log(values))
    jumps = change_points(steps, logs.values).jumps
    found = [
        (step, one)
        for step, hole in places.items()
        for one in jumps
        if _made_there(logs, step, one) and (not hole or abs(one.size.value) > 2 * _pace(logs, step) * hole)
    ]
    if not found:
        return None
    step, jump = max(found, key=lambda one: (places[one[0]] == 0, abs(one[1].size.value)))
    twice = _logged_twice(run, series.name)
    return Seam(
        step,
        float(np.median(values[steps < step][-SHORTEST_SIDE:])),
        factor(jump.size),
        jump.p_value,
        places[step],
        int(np.median(np.diff(steps))),
        len(twice),
        float(np.median(twice)) if len(twice) else None,
    )


def jumps_near(series: Series, step: int) -> bool:
    """Say whether a metric jumps within a few points of a step."""
    if len(series) < 2 * SHORTEST_SIDE:
        return False
    place = int(np.searchsorted(series.steps, step))
    jumps = change_points(series.steps, series.values).jumps
    return any(abs(int(np.searchsorted(series.steps, one.step)) - place) <= SHORTEST_SIDE // 2 for one in jumps)


def joined(series: Series, seam: Seam) -> Floats:
    """Return the values with what lies behind a seam scaled so that the level goes on where it was."""
    return np.where(series.steps < seam.step, series.values, series.values / seam.times.value)


def _made_there(logs: Series, step: int, jump: ChangePoint) -> bool:
    """Say whether a jump stands at a step, give or take a point that noise moves it by, and the first point has made most of it."""
    place = int(np.searchsorted(logs.steps, step))
    if abs(place - int(np.searchsorted(logs.steps, jump.step))) > 1 or not 0 < place < len(logs):
        return False
    made = float(logs.values[place] - np.median(logs.values[max(place - 3, 0) : place]))
    return made / jump.size.value >= _AT_ONCE


def factor(logs: Interval) -> Interval:
    """Return the factor that a difference of logarithms is."""
    return Interval(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high), logs.level, logs.method)


def _pace(logs: Series, step: int) -> float:
    """Return the larger change a step on either side; infinite where one of them is too short to tell."""
    sides = [logs.steps < step, logs.steps >= step]
    slopes = [robust_slope(logs.steps[side], logs.values[side]).interval().value for side in sides]
    return max(math.inf if math.isnan(slope) else abs(slope) for slope in slopes)


def _newest(run: Run, name: str) -> dict[int, tuple[tuple[int, int], float]]:
    """Return for each step where its value comes from (file, start) and the value, in order of steps, as `gather` chooses."""
    found: dict[int, tuple[tuple[int, int], float]] = {}
    for order, step, value in _rows(run, name):
        if step not in found or order >= found[step][0]:
            found[step] = (order, value)
    return dict(sorted(found.items()))


def _logged_twice(run: Run, name: str) -> Floats:
    """Return the newest over the next older value at the steps that two starts have logged."""
    newest, ratios = _newest(run, name), []
    older: dict[int, tuple[tuple[int, int], float]] = {}
    for order, step, value in _rows(run, name):
        if order < newest[step][0] and (step not in older or order >= older[step][0]):
            older[step] = (order, value)
    ratios = [newest[step][1] / value for step, (_, value) in older.items() if value > 0]
    return np.array(ratios, dtype=np.float64)


def _rows(run: Run, name: str) -> list[tuple[tuple[int, int], int, float]]:
    points = (point for point in run.points if point.split == "train" and np.isfinite(point.values.get(name, np.nan)))
    return [((point.source, point.attempt), point.step, point.values[name]) for point in points]
