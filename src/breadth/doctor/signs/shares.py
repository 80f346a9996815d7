"""What a reward is made of, and how much of its rise each part explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from breadth.doctor.evidence import FEWEST, Evidence
from breadth.doctor.signs.scores import CORRECT, Moved, component_name, components, moved, right_by_step, worth_of_right
from breadth.measure.trends import trend
from breadth.runs.outcomes import outcomes
from breadth.runs.reader import Series

_ADDS_UP = 0.99
# Share of the reward's variance that weighted components must explain for the weights to be believed: what rounding in
# a log leaves.


@dataclass(frozen=True)
class Part:
    """One component of the reward, or the share of right rollouts where those are graded."""

    name: str
    """What it is called, safe to print."""
    moved: Moved
    """How far it has moved."""
    weight: float
    """What a unit of it adds to the reward; 1 where that is not known."""
    share: float | None
    """How much of the reward's rise it explains; None where weights are not known."""
    counts: bool
    """Whether it means that the answer is right."""
    still_rises: bool
    """Whether it has risen over the second half of the run too."""


def parts(evidence: Evidence) -> tuple[Part, ...]:
    """Return the components of the reward, and the grades of rollouts where the reward is more than those."""
    found, reward = components(evidence), evidence.series("reward")
    if reward is None:
        return ()
    gain = moved(reward, "").change.value
    weights = _weights(reward, found)
    made_of = [
        _part(one, None if weights is None else weight, gain)
        for one, weight in zip(found, weights or [1.0] * len(found), strict=True)
    ]
    graded = _graded(evidence, gain) if not any(one.counts for one in made_of) else None
    return (*made_of, *([] if graded is None else [graded]))


def _part(series: Series, weight: float | None, gain: float, *, name: str = "", counts: bool | None = None) -> Part:
    own = name or component_name(series.name)
    change = moved(series, f"steps {series.steps[0]:,} to {series.steps[-1]:,}")
    half = len(series) // 2
    later = trend(series.steps[half:], series.values[half:]).verdict if len(series) >= 2 * FEWEST else "cannot tell"
    means_right = CORRECT.search(own.casefold()) is not None if counts is None else counts
    share = None if weight is None or not gain else weight * change.change.value / gain
    return Part(_safe(own), change, 1.0 if weight is None else weight, share, means_right, later == "rising")


def _graded(evidence: Evidence, gain: float) -> Part | None:
    """Return the share of right rollouts as a part, unless the reward is nothing else."""
    run = evidence.run
    graded = None if run is None or len(run.header.reward_levels) == 2 else outcomes(run)
    right = None if graded is None else right_by_step(graded)
    if run is None or right is None or len(right) < FEWEST:
        return None
    return _part(right, worth_of_right(run), gain, name="the share of right rollouts", counts=True)


def _weights(reward: Series, found: Sequence[Series]) -> list[float] | None:
    """Read the weights from the log: the reward is a weighted sum at every step; None where it turns out to be none."""
    steps = reward.steps
    for one in found:
        steps = np.intersect1d(steps, one.steps)
    if not found or len(steps) < max(FEWEST, 2 * len(found)):
        return None
    columns = np.column_stack([_at(one, steps) for one in found])
    total = _at(reward, steps)
    weights = np.asarray(np.linalg.lstsq(columns, total, rcond=None)[0], dtype=np.float64)
    spread = float(np.sum((total - total.mean()) ** 2))
    missed = float(np.sum((total - columns @ weights) ** 2))
    return [float(weight) for weight in weights] if spread > 0 and missed <= (1 - _ADDS_UP) * spread else None


def _at(series: Series, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return series.values[np.isin(series.steps, steps)]


def _safe(name: str) -> str:
    """Keep a name from a log to one short printable line."""
    return "".join(sign if sign.isprintable() else "?" for sign in name)[:60]
