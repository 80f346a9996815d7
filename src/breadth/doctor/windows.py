"""The start and the end of a run's rollouts, read once and shared by the instruments that compare them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from breadth.measure.answers import answer_classes
from breadth.measure.intervals import Interval
from breadth.runs.outcomes import Samples, rollout_steps, samples
from breadth.runs.reader import Run

SHARE = 8
"""A window is this fraction of the steps: the eighth that the trends of metrics compare too."""


@dataclass(frozen=True)
class Window:
    """Rollouts of neighbouring steps."""

    name: str
    """How a reader calls it: ``steps 1 to 20``."""
    when: str
    """Where in the run it stands: ``start``, ``now``, or ``all`` when there is only one."""
    first: int
    """First step."""
    last: int
    """Last step."""
    samples: Samples
    """The rollouts."""
    split: str = "train"
    """Whether they are of training or held-out problems."""

    @cached_property
    def classes(self) -> npt.NDArray[np.int64]:
        """Answer class of each rollout, -1 where no answer could be read."""
        return answer_classes(self.samples.answers)

    @cached_property
    def graded(self) -> bool:
        """Whether every rollout is known to be right or wrong."""
        return bool(len(self.samples)) and not bool(np.isnan(self.samples.right).any())


def windows(run: Run, split: str = "train") -> tuple[Window, ...]:
    """Return the first and the last eighth of the steps with rollouts; one window when there are too few steps for two.

    A run without rollouts of training, such as one that `solve` recorded, is read by its held-out ones.
    """
    steps = rollout_steps(run, split)
    if not len(steps):
        split = "eval"
        steps = rollout_steps(run, split)
    if not len(steps):
        return ()
    size = max(1, len(steps) // SHARE)
    parts = [steps] if len(steps) < 2 else [steps[:size], steps[-size:]]
    places = ("all",) if len(parts) == 1 else ("start", "now")
    return tuple(_window(run, part, when, split) for part, when in zip(parts, places, strict=True))


def _window(run: Run, steps: npt.NDArray[np.int64], when: str, split: str) -> Window:
    first, last = int(steps[0]), int(steps[-1])
    name = f"step {first}" if first == last else f"steps {first} to {last}"
    return Window(name, when, first, last, samples(run, first, last, split), split)


BOUNDS = {
    **dict.fromkeys(
        ("starved_groups", "truncated", *(f"clip_fraction{end}" for end in ("", "_low", "_high", "_dual"))), (0.0, 1.0)
    ),
    **dict.fromkeys(("entropy", "reward_std", "length", "length_min", "length_max", "grad_norm"), (0.0, math.inf)),
}
"""Lowest and highest, where they are limited."""


def clip_to_range(name: str, interval: Interval) -> Interval:
    """Cut an interval to what the metric can be; one around a value that it cannot be (percent for a share) is left as it is."""
    low, high = BOUNDS.get(name, (-math.inf, math.inf))
    if not low <= interval.value <= high:
        return interval
    return replace(interval, low=max(interval.low, low), high=min(interval.high, high))
