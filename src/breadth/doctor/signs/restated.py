"""Answers that change inside traces, arm by arm: what is given up, what is found, and how it grows with the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from breadth.base.errors import MeasureError
from breadth.doctor.evidence import Evidence
from breadth.doctor.signs.spending import policy_in_use, spending
from breadth.doctor.signs.sweeps import Written, written
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.oscillation import stated_in, trace_oscillations
from breadth.measure.paired_tests import paired_difference
from breadth.tuning.evidence import Floats


@dataclass(frozen=True, eq=False)
class Restated:
    """What becomes of the answers that one arm's traces state."""

    name: str
    """The arm."""
    budget: int | None
    """Thinking tokens it is forced to."""
    used: bool
    """Whether the policy in use draws so."""
    traces: int
    """Traces looked at."""
    lost: int
    """Times a right answer was given up."""
    found: int
    """Times it was found."""
    given_up: Interval
    """Lost less found, a trace: what the first stated answer scores above the last."""
    p_value: float
    """Chance of so much more being lost than found, if either were as likely."""
    changing: Interval
    """Share of traces that change their answer."""
    changed: Floats
    """The same by question."""
    score: float
    """Share of traces whose last stated answer is right."""


def restated(evidence: Evidence) -> tuple[Restated, ...]:
    """Follow the stated answers of every arm whose texts state any."""
    policy = policy_in_use(evidence)
    spent = None if policy is None else spending(policy, 1.0)
    budget = None if spent is None else spent.budget
    return tuple(one for arm in written(evidence) if (one := _followed(arm, used=arm.budget == budget)) is not None)


def rise(arms: Sequence[Restated]) -> tuple[Interval, float]:
    """Return how the share of changing traces grows with each doubling of the budget, and the chance of that without any growth."""
    doublings = np.log2([arm.budget or 1 for arm in arms])
    centred = doublings - doublings.mean()
    slopes = np.column_stack([arm.changed for arm in arms]) @ centred / float(centred @ centred)
    reach = 1 / float(np.abs(centred).max())
    return mean_interval(slopes, bounds=(-reach, reach)), _one_sided(slopes)


def _followed(arm: Written, *, used: bool) -> Restated | None:
    try:
        traced = trace_oscillations(stated_in(arm.texts, arm.truths))
    except MeasureError:
        return None
    where = traced.traces.astype(np.int64)
    lost, changed, right = (np.zeros(len(arm.texts)) for _ in range(3))
    lost[where], changed[where], right[where] = traced.lost - traced.found, traced.changes > 0, traced.final_right
    _, owner, each = np.unique(arm.owners, return_inverse=True, return_counts=True)
    given_up, share = (np.bincount(owner, values) / each for values in (lost, changed))
    return Restated(
        arm.name,
        arm.budget,
        used,
        len(arm.texts),
        int(traced.lost.sum()),
        int(traced.found.sum()),
        mean_interval(given_up, bounds=(-1.0, 1.0)),
        _one_sided(given_up),
        mean_interval(share, bounds=(0.0, 1.0)),
        share,
        float(right.mean()),
    )


def _one_sided(values: Floats) -> float:
    """Return the chance of so large a mean if signs were as likely either way; 1 where the mean is not above zero."""
    return paired_difference(values, np.zeros(len(values))).p_value / 2 if values.mean() > 0 else 1.0
