"""Answer shapes of past questions: distributions over answers with their weights, fitted from stored votes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from breadth.base import settings
from breadth.base.errors import MeasureError, require
from breadth.measure.validate import FloatArray

CONCENTRATIONS: tuple[float, ...] = tuple(float(value) for value in np.geomspace(0.03, 30, 10))
"""Concentrations of the Chinese-restaurant processes for questions unlike those of a library: 1 to 100 answers."""
_MIN_SHARE = 1e-12
# Share of answers beyond those of a shape: a question with more answers than a shape is unlikely, not impossible.


def shape_likelihoods(counts: Sequence[Sequence[int]], shares: FloatArray) -> FloatArray:
    """Return (questions, shapes): the likelihood of each question's votes, up to a factor per row.

    Counts are matched to shares by size, in all ways where shares are equal. The first two are also swapped, because in
    a close race the more frequent answer is often behind. Other swaps are far less likely and would cost a factorial.
    """
    width = max(shares.shape[1], max(map(len, counts)))
    votes = np.zeros((len(counts), width))
    for row, vector in enumerate(counts):
        votes[row, : len(vector)] = sorted(vector, reverse=True)
    falling = np.zeros((len(shares), width))
    falling[:, : shares.shape[1]] = -np.sort(-shares, axis=1)
    logs = np.log(np.maximum(falling, _MIN_SHARE))
    swaps = np.where(falling[:, 0] > falling[:, 1], (votes[:, :1] - votes[:, 1:2]) * (logs[:, 1] - logs[:, 0]), -np.inf)
    answers = np.count_nonzero(votes, axis=1)
    return scale_rows(votes @ logs.T + np.log1p(np.exp(swaps)) + log_assignments(falling)[:, answers].T)


def log_assignments(falling: FloatArray) -> FloatArray:
    """Return (shapes, answers): the log number of ways to match that many answers to a shape's shares by size."""
    ways = np.zeros((len(falling), falling.shape[1] + 1))
    for row, shares in enumerate(falling):
        alike = np.searchsorted(-shares, -shares, side="right") - np.arange(len(shares))
        ways[row, 1:] = np.cumsum(np.log(np.where(shares > 0, alike, 1)))
    return ways


def novelty_likelihoods(counts: Sequence[Sequence[int]]) -> FloatArray:
    """Return (questions, concentrations): each question's likelihood under each Chinese-restaurant process.

    Up to a factor per row.
    With concentration c and votes n_1 .. n_k of n in all: c^k (n_1 - 1)! ... (n_k - 1)! / (c (c + 1) ... (c + n - 1)).
    """
    grid = np.array(CONCENTRATIONS)
    rows = [
        len(vector) * np.log(grid) - np.log(grid + np.arange(sum(vector))[:, None]).sum(axis=0) for vector in counts
    ]
    return scale_rows(np.array(rows))


def scale_rows(logs: FloatArray) -> FloatArray:
    """Exponentiate log-likelihoods, each row relative to its largest."""
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))


RARE_ANSWERS = 12
"""Number of rare answers that share what a shape's shares lack to one."""
MAX_SHAPES = 64
"""Most shapes in a library: the maximum-likelihood mixture of 1,300 questions has about so many of any weight."""
MAX_COUNT_VECTORS = 400
"""Most distinct vote counts that become candidate shapes; more are thinned evenly."""
UNSEEN_VOTES = (0.05, 0.5, 2.0)
"""Votes added for unseen answers, one candidate shape each: the likelihood decides how much is still unseen."""
EM_STEPS = 200
"""EM steps of the fit; weights move by less than 1e-3 after them."""


@dataclass(frozen=True)
class ShapeLibrary:
    """Answer shapes of past questions: how often their first, second, ... answer is given.

    With an empty library, rules that need one fall back and say so.
    """

    shapes: tuple[tuple[float, ...], ...] = ()
    """Shares of a question's answers, largest first; what they lack to 1 is spread over twelve rare answers."""
    weights: tuple[float, ...] = ()
    """Share of questions of each shape."""
    novelty: tuple[float, ...] = ()
    """For questions unlike any of these: weight of each concentration of a Chinese-restaurant process (0.03 to 30)."""
    questions: int = 0
    """Questions it was fitted from; the next one is unlike them with chance 1 / (questions + 1)."""

    def __post_init__(self) -> None:
        require(self, "weights", len(self.weights) == len(self.shapes), "one weight per shape")
        require(self, "weights", all(weight > 0 for weight in self.weights), "weights above 0")
        require(
            self,
            "shapes",
            all(is_shape(shape) for shape in self.shapes),
            "shares above 0, largest first, with a sum of at most 1",
        )
        grid = len(self.novelty) == len(CONCENTRATIONS) and sum(self.novelty) > 0 <= min(self.novelty)
        require(self, "novelty", grid or not self.novelty, f"{len(CONCENTRATIONS)} weights from 0 up, or none")
        require(self, "questions", self.questions >= 0, "a number of questions")

    def __hash__(self) -> int:
        # Rules look up caches by their library at every vote: hashing all shapes each time would be slow.
        return hash((self.questions, self.weights))

    @property
    def empty(self) -> bool:
        """Whether it has no shapes."""
        return not self.shapes

    @classmethod
    def fit(cls, counts: Iterable[Sequence[int]]) -> ShapeLibrary:
        """Fit a library to stored votes: for each question the votes that each of its answers got, in any order.

        Candidate shapes are the questions' own shares, with 0.05, 0.5 or 2 votes added for unseen answers. Their
        weights are the nonparametric maximum-likelihood mixture, fitted by EM (Kiefer and Wolfowitz 1956); a question
        is scored with its counts matched to the shares by size, and with the first two swapped. That removes the
        sampling noise in the shares of 40 votes and leaves few shapes; the 64 heaviest are kept. Forty votes per
        question and fifty questions make a useful library; with fewer questions the part for unlike questions weighs
        more. Questions without a vote are left out.
        """
        votes = Counter(tuple(sorted((int(n) for n in row if n > 0), reverse=True)) for row in counts)
        votes.pop((), None)
        if not votes:
            raise MeasureError(
                "There is no question with a vote to fit shapes to.",
                "Give the votes of each answer, question by question.",
            )
        vectors, repeats = sorted(votes), np.array([votes[vector] for vector in sorted(votes)], dtype=np.float64)
        thinned = [
            vectors[place]
            for place in np.unique(np.linspace(0, len(vectors) - 1, MAX_COUNT_VECTORS).round().astype(int)).tolist()
        ]
        shapes = sorted({smooth_shares(vector, unseen) for vector in thinned for unseen in UNSEEN_VOTES})
        width = max(map(len, shapes))
        padded = [add_rare_answers(shape + (0.0,) * (width - len(shape))) for shape in shapes]
        likelihoods = shape_likelihoods(vectors, np.array(padded))
        heaviest = np.sort(np.argsort(-fit_mixture(likelihoods, repeats), kind="stable")[:MAX_SHAPES])
        # Fitted again, so questions of dropped shapes go to the shapes most like them.
        weights = fit_mixture(likelihoods[:, heaviest], repeats)
        kept = [
            (shapes[place], float(weight))
            for place, weight in zip(heaviest.tolist(), weights, strict=True)
            if weight > 1e-6
        ]
        novelty = fit_mixture(novelty_likelihoods(vectors), repeats, spare=0.1)
        return cls(
            tuple(shape for shape, _ in kept),
            tuple(round(weight, 8) for _, weight in kept),
            tuple(round(float(weight), 8) for weight in novelty),
            int(repeats.sum()),
        )

    @classmethod
    def load(cls, path: Path) -> ShapeLibrary:
        """Read a library from its TOML file."""
        return settings.load(cls, path)

    def dump(self, path: Path) -> None:
        """Write the library to a TOML file, whole or not at all."""
        settings.dump(self, path)


def add_rare_answers(shape: Sequence[float]) -> FloatArray:
    """Return the shares of all answers of a shape: its own, then the rare ones (0 each where nothing is left)."""
    left = max(0.0, 1.0 - sum(shape))
    return np.array([*shape, *[left / RARE_ANSWERS if left > 1e-9 else 0.0] * RARE_ANSWERS])


def is_shape(shape: Sequence[float]) -> bool:
    """Return whether shares are positive, falling, and add up to at most 1."""
    falling = all(first >= second for first, second in pairwise(shape))
    return bool(shape) and falling and shape[-1] > 0 and sum(shape) <= 1 + 1e-6


def smooth_shares(counts: Sequence[int], unseen: float) -> tuple[float, ...]:
    """Return the shares of counted answers with some votes added for unseen ones."""
    return tuple(round(count / (sum(counts) + unseen), 8) for count in counts)


def fit_mixture(likelihoods: FloatArray, repeats: FloatArray, spare: float = 0.0) -> FloatArray:
    """Return the maximum-likelihood weights of components (columns), questions (rows) counting ``repeats`` times."""
    weights = np.ones(likelihoods.shape[1])
    for _ in range(EM_STEPS):
        shares = likelihoods * weights
        shares *= (repeats / shares.sum(axis=1))[:, None]
        weights = shares.sum(axis=0) + spare
        weights /= weights.sum()
    return weights
