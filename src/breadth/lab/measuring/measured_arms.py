"""Several arms at several seeds against their controls: the numbers, their intervals over seeds and over problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from breadth.lab.measuring.looks import Look
from breadth.lab.measuring.seeds import over_seeds
from breadth.lab.trials.experiment import Done
from breadth.measure.intervals import Bounds, Interval, mean_interval

SHARE: Bounds = (0.0, 1.0)
Floats = NDArray[np.float64]
Measure = Callable[[Look], Floats]
"""A value for each problem."""


@dataclass(frozen=True)
class MeasuredArm:
    """The looks at one arm."""

    looks: Mapping[int, Sequence[Look]]
    """Seed -> its looks, the last one at the end of the course."""

    @cached_property
    def last(self) -> dict[int, Look]:
        """Seed -> the look at its end."""
        return {seed: max(looks, key=lambda look: look.step) for seed, looks in self.looks.items()}

    def over_seeds(self, measure: Measure, bounds: Bounds = SHARE) -> Interval:
        """Return the mean over problems and seeds, with the interval over seeds."""
        return over_seeds([float(np.mean(measure(look))) for look in self.last.values()], bounds=bounds)

    def over_problems(self, measure: Measure, bounds: Bounds = SHARE) -> Interval:
        """Return the same mean with the interval over problems."""
        return mean_interval(np.mean([measure(look) for look in self.last.values()], axis=0), bounds=bounds)

    def number(self, of: Callable[[Look], float], bounds: Bounds) -> Interval:
        """Return a number that a look has no value for each problem of, with the interval over seeds; NaN where a look has none."""
        values = np.array([of(look) for look in self.last.values()])
        return (
            over_seeds(values, bounds=bounds)
            if np.isfinite(values).all()
            else Interval(float("nan"), *bounds, 0.95, "undefined")
        )

    def paired(self, other: MeasuredArm) -> list[tuple[Look, Look]]:
        """Return the last looks of both arms at each seed that both have."""
        return [(look, other.last[seed]) for seed, look in self.last.items() if seed in other.last]

    def gain_over_seeds(self, other: MeasuredArm, measure: Measure) -> Interval | None:
        """Return how much more it is than in the other arm, paired by seed, with the interval over seeds; None without a common seed."""
        gains = [float(np.mean(measure(own) - measure(their))) for own, their in self.paired(other)]
        return over_seeds(gains, bounds=(-1.0, 1.0)) if gains else None

    def gain_over_problems(self, other: MeasuredArm, measure: Measure) -> Interval | None:
        """Return the same with the interval over problems."""
        gains = [measure(own) - measure(their) for own, their in self.paired(other)]
        return mean_interval(np.mean(gains, axis=0), bounds=(-1.0, 1.0)) if gains else None


def measured_arms(done: Sequence[Done]) -> dict[str, MeasuredArm]:
    """Sort what trials called ``arm/seed-N`` found by arm and seed."""
    found: dict[str, dict[int, list[Look]]] = {}
    for one in done:
        arm, _, seed = one.trial.name.partition("/seed-")
        if seed:
            found.setdefault(arm, {})[int(seed)] = [Look.from_row(row) for row in one.result["looks"]]
    return {arm: MeasuredArm(looks) for arm, looks in found.items()}
