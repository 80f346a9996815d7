"""Degeneration seen only across prompts or over a run: one answer for many problems, lengths that fall, caps that are hit.

The shapes are those of arXiv 2605.28388, where one item with a lax checker took the mean length from 510.7 to 45.7 tokens
in 58 steps, before accuracy moved. Definitions and gates are our proposal; no published formula was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from breadth.base.errors import MeasureError
from breadth.measure.answers import answer_key
from breadth.measure.finite import FloatArray, finite, same_length
from breadth.measure.tallies import tally

_SMOOTHING = 0.1
# Memory of about ten steps: short enough to catch a collapse of fifty, long enough for batch noise.
_START = 5
_RARE_CAP = 0.01


@dataclass(frozen=True)
class ModalAnswers:
    """Which answers are the commonest one of how many problems."""

    shares: Mapping[str, float]
    """Answer key -> share of the problems whose commonest answer it is; equally common answers split the problem."""
    problems: int
    """How many problems."""


@dataclass(frozen=True, eq=False)
class RunCollapse:
    """Lengths and hits of the length cap over a run, smoothed, relative to the run's own start (its first five steps)."""

    length_ratio: FloatArray
    """Smoothed mean length over the mean length at the start, one entry a step."""
    length_collapse: float | None
    """First step at which the ratio is below 0.5: halt and look at the newest data. None if there is none."""
    cap_ratio: FloatArray | None
    """Smoothed share of responses cut at the cap over that at the start (1 % where it was less). None when not logged."""
    cap_jump: float | None
    """First step at which that ratio is above 2; None if there is none."""


def modal_answers(problems: ArrayLike, answers: Sequence[str | None]) -> ModalAnswers:
    """Find each problem's commonest answer in a window of samples, and how many problems share it: one row a sample."""
    names: dict[str, int] = {}
    keys = [answer_key(answer) for answer in answers]
    classes = np.array([-1 if key is None else names.setdefault(key, len(names)) for key in keys], dtype=np.int64)
    counted = tally(problems, classes)
    most = np.zeros(len(counted.groups), dtype=np.int64)
    np.maximum.at(most, counted.owners, counted.counts)
    modal = counted.counts == most[counted.owners]
    weights = modal / np.maximum(counted.sums(modal), 1)[counted.owners]
    totals = np.bincount(counted.answers, weights, len(names))
    shares = {name: float(totals[label]) / len(counted.groups) for name, label in names.items() if totals[label] > 0}
    return ModalAnswers(shares, len(counted.groups))


def overused_answers(window: ModalAnswers, base: ModalAnswers, *, ratio: float = 3.0) -> dict[str, float]:
    """Return the answers that are commonest on more than ``ratio`` times as large a share of problems as with the base model.

    With how many times as large. An answer that the base model never favours counts as favoured once, so that a rare answer
    on one or two problems is no finding. Both windows should hold the same problems.
    """
    times = {answer: share / max(base.shares.get(answer, 0.0), 1 / base.problems) for answer, share in window.shares.items()}
    return {answer: value for answer, value in times.items() if value > ratio}


def run_collapse(steps: ArrayLike, mean_lengths: ArrayLike, cap_shares: ArrayLike | None = None) -> RunCollapse:
    """Watch mean response length and the share of responses cut at the cap over a run's steps, in order.

    Exponential means with weight 0.1 (a choice of ours) against the run's first five steps. A shorter answer is often a
    better one: a collapse of length is a reason to look, not a verdict. A changed cap or data mix moves both.
    """
    at, lengths = finite(steps, "steps"), finite(mean_lengths, "mean_lengths")
    same_length(steps=at, mean_lengths=lengths)
    if (np.diff(at) <= 0).any() or lengths.min() <= 0:
        raise MeasureError("Steps must rise and lengths must be positive.", "Sort by step, keep one row per step, and drop empty steps.")
    length_ratio = _smoothed(lengths) / lengths[:_START].mean()
    cap_ratio = None
    if cap_shares is not None:
        caps = finite(cap_shares, "cap_shares")
        same_length(steps=at, cap_shares=caps)
        cap_ratio = _smoothed(caps) / max(float(caps[:_START].mean()), _RARE_CAP)
    return RunCollapse(
        length_ratio=length_ratio,
        length_collapse=_first(at, length_ratio < 0.5),
        cap_ratio=cap_ratio,
        cap_jump=None if cap_ratio is None else _first(at, cap_ratio > 2),
    )


def _smoothed(values: FloatArray) -> FloatArray:
    """Exponential mean, started from the mean of the first steps so that one odd first batch does not linger."""
    level = float(values[:_START].mean())
    smooth = np.empty_like(values)
    for place, value in enumerate(values):
        level += _SMOOTHING * (value - level)
        smooth[place] = level
    return smooth


def _first(steps: FloatArray, fires: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> float | None:
    return float(steps[fires.argmax()]) if fires.any() else None
