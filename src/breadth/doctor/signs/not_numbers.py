"""Where a run logged NaN or infinity in the place of a number: a stretch is a run that broke, one alone an overflow that passed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from breadth.doctor.evidence import FEWEST, Evidence
from breadth.runs.reader import Series

VITAL = ("loss", "grad_norm", "entropy", "reward")
"""Metrics that every step has: where they are no numbers, the step was none."""


@dataclass(frozen=True)
class Stretch:
    """Steps in a row at which a metric is no number."""

    name: str
    """Our name of the metric."""
    first: int
    """Its first step."""
    last: int
    """Its last step."""
    points: int
    """Points of the log inside it."""
    to_the_end: bool
    """Whether no number comes after it."""


def stretches(evidence: Evidence) -> list[Stretch]:
    """Return the longest stretch of each vital metric, of eight points or more: those that reach to the end first, then the longest."""
    if evidence.run is None:
        return []
    found = [one for name in VITAL for one in _longest(evidence.run.series(name)) if one.points >= FEWEST]
    return sorted(found, key=lambda one: (not one.to_the_end, -one.points))


def _longest(series: Series) -> Iterator[Stretch]:
    """Yield the stretch at the end, or else the longest; nothing where no number was ever logged: from that, nothing can be told."""
    odd = ~np.isfinite(series.values)
    if not odd.any() or odd.all():
        return
    edges = np.flatnonzero(np.diff(np.concatenate([[False], odd, [False]]).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    place = len(begins) - 1 if odd[-1] and ends[-1] - begins[-1] >= FEWEST else int(np.argmax(ends - begins))
    begin, end = int(begins[place]), int(ends[place])
    yield Stretch(series.name, int(series.steps[begin]), int(series.steps[end - 1]), end - begin, end == len(odd))
