"""What each arm's samples look like: how far answers spread, how often they change within a trace, how many cannot be read."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from breadth.measure.answer_extraction import stated_answers
from breadth.measure.diversity import group_diversity
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.oscillation import stated_in, trace_oscillations
from breadth.tuning.evidence import ArmEvidence, Evidence


@dataclass(frozen=True)
class Traits:
    """One arm in figures; intervals resample questions."""

    name: str
    """The arm."""
    budget: int | None
    """Thinking tokens it is forced to."""
    score: Interval
    """Mean score of one sample."""
    tokens: float
    """Mean tokens written for one sample."""
    entropy: Interval | None
    """Entropy of the answers to a question in nats, at the same number of samples in all arms; None from single samples, or where
    nothing could be read."""
    samples: int
    """That number of samples."""
    changing: Interval
    """Share of traces that state one answer and then another."""
    lost: int
    """Times a right answer was given up for another one within a trace."""
    found: int
    """Times a wrong answer was given up for the right one."""
    unread: Interval
    """Share of samples without a readable answer."""
    truncated: float
    """Share of samples cut at the length cap."""


def arm_traits(evidence: Evidence) -> tuple[Traits, ...]:
    """Describe the plain arm and every forced one."""
    common = min(arm.classes.shape[1] for arm in evidence.arms)
    return tuple(_traits(arm, evidence, common) for arm in (evidence.plain, *evidence.serial))


def _traits(arm: ArmEvidence, evidence: Evidence, common: int) -> Traits:
    changing, lost, found = _oscillation(arm, evidence.truths)
    return Traits(
        arm.arm.name,
        arm.arm.budget,
        _share(arm.worth),
        float(arm.tokens.mean()),
        _entropy(arm.classes[:, :common]),
        common,
        changing,
        lost,
        found,
        _share((arm.classes < 0).astype(np.float64)),
        float(arm.truncated.mean()),
    )


def _share(table: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Interval:
    return mean_interval(table.mean(axis=1), bounds=(0.0, 1.0))


def _entropy(classes: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Interval | None:
    samples = classes.shape[1]
    rows = np.repeat(np.arange(len(classes)), samples)
    entropies = group_diversity(rows, classes.ravel()).entropy
    known = entropies[np.isfinite(entropies)]
    return mean_interval(known, bounds=(0.0, math.log(samples) + 0.5)) if samples > 1 and known.size else None


def _oscillation(arm: ArmEvidence, truths: tuple[str, ...]) -> tuple[Interval, int, int]:
    samples = arm.classes.shape[1]
    changed = np.zeros(len(arm.texts))
    lost = found = 0
    if any(stated_answers(text) for text in arm.texts):
        traced = trace_oscillations(stated_in(arm.texts, [truth for truth in truths for _ in range(samples)]))
        changed[traced.traces.astype(np.int64)] = traced.changes > 0
        lost, found = int(traced.lost.sum()), int(traced.found.sum())
    return _share(changed.reshape(-1, samples)), lost, found
