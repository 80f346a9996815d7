"""How much reasonings say of their prompts: mutual information and retrieval from cross-scored log-probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from breadth.base.errors import MeasureError
from breadth.measure.intervals import UNBOUNDED, Interval, resample
from breadth.measure.validate import FloatArray, IntArray, as_finite, as_integers


@dataclass(frozen=True)
class PromptInformation:
    """What a set of reasonings says of the prompts they were written for."""

    mutual_information: Interval
    """Mean of own minus marginal log-probability, in nats: 0 where every prompt would give the same reasonings."""
    limit: float
    """The most it can be: the logarithm of the number of prompts."""
    retrieval: Interval
    """Share of reasonings that are likeliest under their own prompt."""
    chance: float
    """That share by chance."""
    conditional_entropy: Interval
    """Minus the mean own log-probability: how much reasonings of one prompt differ, which says nothing of the rest."""
    prompts: int
    """Prompts that were scored."""
    traces: int
    """Reasonings that were scored."""


def information_per_trace(scores: ArrayLike, own: ArrayLike) -> FloatArray:
    """Return each reasoning's log-probability under its own prompt minus that under the mixture of all prompts.

    ``scores[i, j]`` is the log-probability of reasoning i given prompt j (per token, so that long reasonings count like
    short ones) and ``own[i]`` the number of its own prompt. The mixture weighs prompts equally: logsumexp over them
    minus ln N. The mean over reasonings is at most ln N. For whole sequences scored by the policy that wrote them it is
    the estimate of RAGEN-2 (arXiv 2604.06268); for any other scorer, and per token, it is a lower bound of the mutual
    information (InfoNCE, arXiv 1807.03748). A sample's value may lie a little below zero.
    """
    table, prompts = check_scores(scores, own)
    top = table.max(axis=1, keepdims=True)
    marginal = top[:, 0] + np.log(np.exp(table - top).mean(axis=1))
    return np.asarray(table[np.arange(len(table)), prompts] - marginal)


def retrieval_per_trace(scores: ArrayLike, own: ArrayLike) -> FloatArray:
    """Return 1 for each reasoning that is likeliest under its own prompt, else 0; prompts that tie share the 1."""
    table, prompts = check_scores(scores, own)
    best = table == table.max(axis=1, keepdims=True)
    return np.asarray(best[np.arange(len(table)), prompts] / best.sum(axis=1))


def prompt_information(scores: ArrayLike, own: ArrayLike, *, level: float = 0.95, seed: int = 0) -> PromptInformation:
    """Measure how much reasonings say of their prompts, with intervals from resampling whole prompts.

    For the arguments see `information_per_trace`. The prompts that reasonings are compared with stay the same in every
    resample, so the intervals hold for these prompts. Misleads where prompts of the set are nearly the same: they
    cannot be distinguished, by any policy.
    """
    table, prompts = check_scores(scores, own)
    columns = {
        "information": information_per_trace(table, prompts),
        "found": retrieval_per_trace(table, prompts),
        "surprise": -table[np.arange(len(table)), prompts],
        "traces": np.ones(len(table)),
    }
    found = resample(columns, prompts, level=level, seed=seed)
    limit = math.log(table.shape[1])
    return PromptInformation(
        cap_interval(found.ratio("information", "traces", (0.0, limit)), limit),
        limit,
        found.ratio("found", "traces", (0.0, 1.0)),
        1 / table.shape[1],
        found.ratio("surprise", "traces", UNBOUNDED),
        table.shape[1],
        len(table),
    )


def cap_interval(interval: Interval, limit: float) -> Interval:
    """Keep an interval below what is possible, and around its value."""
    return replace(interval, low=min(interval.low, interval.value), high=max(min(interval.high, limit), interval.value))


def check_scores(scores: ArrayLike, own: ArrayLike) -> tuple[FloatArray, IntArray]:
    """Refuse scores that are no table of reasonings by prompts, and prompts that are not in it."""
    table, prompts = as_finite(scores, "scores", ndim=2), as_integers(own, "own")
    if table.shape[1] < 2:
        raise MeasureError("There is one prompt.", "Score the reasonings under two prompts or more.")
    if prompts.shape != (len(table),) or prompts.min() < 0 or prompts.max() >= table.shape[1]:
        raise MeasureError(
            f"own has shape {prompts.shape} and numbers up to {prompts.max() if prompts.size else 'none'};"
            f" the scores are of {len(table)} reasonings under {table.shape[1]} prompts.",
            "Give the number of its own prompt, from 0, for each reasoning.",
        )
    return table, prompts
