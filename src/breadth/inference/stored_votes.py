"""Many votes at once, draw by draw, as arrays: what stop rules look at when stored votes are replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from breadth.base.errors import MeasureError
from breadth.inference.records import Candidate
from breadth.inference.stopping.rule import task_uniform
from breadth.measure.validate import BoolArray, FloatArray, IntArray

TOP_COUNTS = 5
"""Largest counts kept at each draw: the Dirichlet rule looks at five."""
_TABLE = 1 << 20
# Combinations of up to this many possible values are looked up in a table (8 MB), others are sorted.


@dataclass(frozen=True, eq=False)
class Paths:
    """Recorded votes in the order they are replayed: one row a path, one column a draw."""

    classes: NDArray[np.int32]
    """Class of each vote (0, 1, ... within its row), -1 where no answer could be read: not a vote, but a draw."""

    @classmethod
    def from_counts(cls, top_counts: NDArray[np.int32], total: NDArray[np.int32]) -> Paths:
        """Return standings given by their five largest counts (last axis) and totals alone, for rules that look at nothing else."""
        paths = cls(np.full(total.shape, -1, dtype=np.int32))
        paths.__dict__.update(top_counts=top_counts, total=total)
        return paths

    @cached_property
    def earlier(self) -> NDArray[np.int32]:
        """Votes that each vote's answer had before it; 0 where no answer could be read."""
        rows = np.arange(len(self.classes))
        counts = np.zeros((len(rows), max(int(self.classes.max(initial=-1)) + 1, 1)), dtype=np.int32)
        earlier = np.zeros_like(self.classes)
        for draw, label in self.iterate_draws():
            voting = label >= 0
            owners, labels = rows[voting], label[voting]
            earlier[owners, draw] = counts[owners, labels]
            counts[owners, labels] += 1
        return earlier

    @cached_property
    def top_counts(self) -> NDArray[np.int32]:
        """The five largest counts after each draw, most first: (paths, draws, 5)."""
        rows = np.arange(len(self.classes))
        top = np.zeros((len(rows), TOP_COUNTS), dtype=np.int32)
        ranked = np.zeros((*self.classes.shape, TOP_COUNTS), dtype=np.int32)
        for draw, label in self.iterate_draws():
            # Of equal counts the first in rank grows, so the order stays; a count below the five kept leaves them as
            # they are.
            same = top == self.earlier[:, draw, None]
            grows = (label >= 0) & same.any(axis=1)
            top[rows[grows], same.argmax(axis=1)[grows]] += 1
            ranked[:, draw] = top
        return ranked

    @property
    def leader(self) -> NDArray[np.int32]:
        """Votes of the leading answer after each draw."""
        return self.top_counts[:, :, 0]

    @property
    def runner_up(self) -> NDArray[np.int32]:
        """Votes of the second answer after each draw."""
        return self.top_counts[:, :, 1]

    @cached_property
    def total(self) -> NDArray[np.int32]:
        """All votes after each draw."""
        total: NDArray[np.int32] = np.cumsum(self.classes >= 0, axis=1, dtype=np.int32)
        return total

    @cached_property
    def rest(self) -> NDArray[np.int32]:
        """Votes of all but the first two after each draw."""
        return self.total - self.leader - self.runner_up

    def iterate_draws(self) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Go through the draws in order: the number of the draw, the class of every path's vote."""
        for draw in range(self.classes.shape[1]):
            yield draw, self.classes[:, draw]


def map_combinations(worth: Callable[..., Any], *columns: NDArray[np.int32]) -> NDArray[Any]:
    """Return a function of whole numbers from 0 up, elementwise; worked out once for each combination that occurs."""
    combinations, place = unique_combinations(*columns)
    values = np.array([worth(*numbers) for numbers in combinations.tolist()])
    return values[place] if len(values) else np.zeros(place.shape, dtype=np.bool_)


def unique_combinations(*columns: NDArray[np.int32]) -> tuple[IntArray, IntArray]:
    """Return the combinations of whole numbers from 0 up that occur, one a row, and the place of each element's among them."""
    sizes = [int(column.max(initial=0)) + 1 for column in columns]
    codes = np.zeros(columns[0].shape, dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        codes = codes * size + column
    distinct, place = _distinct(codes, int(np.prod(sizes, dtype=np.float64)))
    parts = []
    for size in reversed(sizes):
        distinct, part = np.divmod(distinct, size)
        parts.append(part)
    return np.stack(parts[::-1], axis=1), place


def _distinct(codes: IntArray, possible: int) -> tuple[IntArray, IntArray]:
    """Return the distinct codes, ascending, and the place of each code among them."""
    if possible > _TABLE:
        distinct, place = np.unique(codes, return_inverse=True)
        return distinct, place.reshape(codes.shape)
    present = np.zeros(possible, dtype=np.bool_)
    present[codes] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[codes]


Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False)
class StoredVotes:
    """One row a question, one column a stored candidate; rows with fewer candidates than others are padded."""

    classes: NDArray[np.int32]
    """Class of each candidate's answer (0, 1, ... within its question); -1 where none could be read, and in the
    padding.
    """
    sizes: IntArray
    """Candidates of each question."""
    right: FloatArray
    """Share of correct candidates among those of the same answer: 0 or 1 where grading agrees with the keys; NaN where
    unknown.
    """
    tokens: FloatArray
    """Tokens each candidate wrote."""
    questions: tuple[str, ...]
    """Id of each question."""

    @classmethod
    def from_candidates(
        cls,
        candidates: Mapping[str, Sequence[Candidate]],
        truths: Mapping[str, str] | None = None,
        correct: Mapping[str, Sequence[bool]] | None = None,
    ) -> StoredVotes:
        """Read candidates; what is right is known by the key of the true answer or by a flag for each candidate."""
        width = max(map(len, candidates.values()), default=0)
        classes = np.full((len(candidates), width), -1, dtype=np.int32)
        tokens, flags = np.zeros(classes.shape), np.full(classes.shape, np.nan)
        for row, (question, drawn) in enumerate(candidates.items()):
            known: dict[str, int] = {}
            classes[row, : len(drawn)] = [
                -1 if one.key is None else known.setdefault(one.key, len(known)) for one in drawn
            ]
            tokens[row, : len(drawn)] = [one.tokens for one in drawn]
            flags[row, : len(drawn)] = _flags(question, drawn, truths, correct)
        return cls.from_classes(
            classes, correct=flags, tokens=tokens, sizes=[*map(len, candidates.values())], questions=[*candidates]
        )

    @classmethod
    def from_classes(
        cls,
        classes: ArrayLike,
        *,
        correct: ArrayLike | None = None,
        tokens: ArrayLike | None = None,
        sizes: ArrayLike | None = None,
        questions: Sequence[str] | None = None,
    ) -> StoredVotes:
        """Read plain arrays, one row a question and one column a candidate; what is not given is unknown (tokens: 0)."""
        labels = np.asarray(classes, dtype=np.int32)
        if labels.ndim != 2 or not labels.size or labels.min() < -1:
            raise MeasureError(
                "Stored votes need one row a question and one column a candidate, classes from -1 up; got"
                f" {labels.shape}.",
                "Give at least one question with one candidate.",
            )
        count = np.full(len(labels), labels.shape[1]) if sizes is None else np.asarray(sizes, dtype=np.int64)
        if count.min() < 1:
            raise MeasureError(f"{np.count_nonzero(count < 1)} questions have no stored candidates.", "Leave them out.")
        flags = np.full(labels.shape, np.nan) if correct is None else np.asarray(correct, dtype=np.float64)
        spent = np.zeros(labels.shape) if tokens is None else np.asarray(tokens, dtype=np.float64)
        names = tuple(map(str, range(len(labels)))) if questions is None else tuple(questions)
        if not labels.shape == flags.shape == spent.shape or not len(labels) == len(count) == len(names):
            raise MeasureError(
                f"Classes are {labels.shape}, correct {flags.shape}, tokens {spent.shape}, questions {len(names)}.",
                "Give equal shapes.",
            )
        return cls(labels, count, _class_worth(labels, flags), spent, names)

    @cached_property
    def counts(self) -> IntArray:
        """Votes of each class: (questions, classes)."""
        width = int(self.classes.max(initial=0)) + 1
        codes = (np.arange(len(self.classes))[:, None] * width + self.classes)[self.classes >= 0]
        return np.bincount(codes, minlength=len(self.classes) * width).reshape(-1, width)

    @cached_property
    def modal(self) -> BoolArray:
        """Whether each candidate gave a most frequent answer of its question: a mode of all its votes."""
        most = self.counts.max(axis=1, keepdims=True)
        own = np.take_along_axis(self.counts, np.maximum(self.classes, 0).astype(np.int64), axis=1)
        return np.asarray((self.classes >= 0) & (own == most))

    def orders(self, repeats: int, seed: int = 0) -> IntArray:
        """Return random orders of each question's candidates, padding last: (questions, repeats, candidates)."""
        chances = np.random.default_rng(seed).random((len(self.classes), repeats, self.classes.shape[1]))
        chances[np.broadcast_to(np.arange(self.classes.shape[1]) >= self.sizes[:, None, None], chances.shape)] = np.inf
        return np.argsort(chances, axis=2, kind="stable")

    def subset(self, rows: ArrayLike) -> StoredVotes:
        """Return some of the questions."""
        chosen = np.arange(len(self.classes))[np.asarray(rows)]
        names = tuple(self.questions[row] for row in chosen.tolist())
        return StoredVotes(self.classes[chosen], self.sizes[chosen], self.right[chosen], self.tokens[chosen], names)


@dataclass(frozen=True, eq=False)
class ReplayOrders:
    """Stored votes in the order they are drawn again, with what the vote would answer after each draw; one row a path."""

    votes: StoredVotes
    """What was stored."""
    orders: IntArray
    """Orders of the candidates: (questions, repeats, candidates)."""

    @cached_property
    def paths(self) -> Paths:
        """The votes as stop rules see them."""
        return Paths(self.reorder(self.votes.classes))

    @cached_property
    def uniforms(self) -> FloatArray:
        """The coin of each path: its question's, with the number of the repeat as seed."""
        repeats = range(self.orders.shape[1])
        return np.array([task_uniform(question, repeat) for question in self.votes.questions for repeat in repeats])

    @cached_property
    def sizes(self) -> IntArray:
        """Draws there are on each path."""
        return np.repeat(self.votes.sizes, self.orders.shape[1])

    @cached_property
    def cumulative_tokens(self) -> FloatArray:
        """Tokens written up to each draw."""
        return np.asarray(np.cumsum(self.reorder(self.votes.tokens), axis=1))

    @cached_property
    def agreement(self) -> FloatArray:
        """Share of the leading answers after each draw that are a mode of all stored votes; with no vote anywhere, 1."""
        silent = (self.votes.counts.sum(axis=1) == 0).astype(np.float64)
        return self._leaders_worth(
            self.reorder(self.votes.modal.astype(np.float64)), np.repeat(silent, self.orders.shape[1])
        )

    @cached_property
    def correct(self) -> FloatArray:
        """Share of the leading answers after each draw that are right; no answer is not.

        NaN where nothing says what is right.
        """
        none = np.where(np.isnan(self.votes.right[:, 0]), np.nan, 0.0)
        return self._leaders_worth(self.reorder(self.votes.right), np.repeat(none, self.orders.shape[1]))

    def reorder(self, table: NDArray[Scalar]) -> NDArray[Scalar]:
        """Return a table of (questions, candidates) as (paths, draws)."""
        rows = np.arange(len(table))[:, None, None]
        return np.asarray(table[rows, self.orders].reshape(-1, table.shape[1]))

    def _leaders_worth(self, worth: FloatArray, without: FloatArray) -> FloatArray:
        """Carry along how many answers lead and what they are worth together; ``without`` counts before the first vote."""
        along = np.empty(worth.shape)
        leading, tied, sums = (np.zeros(len(worth)) for _ in range(3))
        for draw, label in self.paths.iterate_draws():
            votes = np.where(label >= 0, self.paths.earlier[:, draw] + 1, -1)
            ahead, level = votes > leading, votes == leading
            own = np.where(ahead | level, worth[:, draw], 0.0)
            tied, sums = np.where(ahead, 1, tied + level), np.where(ahead, own, sums + own)
            leading = np.maximum(leading, votes)
            along[:, draw] = np.where(tied > 0, sums / np.maximum(tied, 1), without)
        return along


def _flags(
    question: str,
    drawn: Sequence[Candidate],
    truths: Mapping[str, str] | None,
    correct: Mapping[str, Sequence[bool]] | None,
) -> list[float]:
    if correct is not None:
        if len(correct.get(question, ())) != len(drawn):
            raise MeasureError(
                f"Question {question!r} has {len(drawn)} candidates and {len(correct.get(question, ()))} grades.",
                "Give one grade a candidate.",
            )
        return [float(flag) for flag in correct[question]]
    if truths is None:
        return [np.nan] * len(drawn)
    if question not in truths:
        raise MeasureError(
            f"Question {question!r} has no true answer.", "Give the key of each question's answer, or none at all."
        )
    return [float(one.key == truths[question]) for one in drawn]


def _class_worth(labels: NDArray[np.int32], flags: FloatArray) -> FloatArray:
    """Give every candidate the mean grade of its class."""
    width = int(labels.max(initial=0)) + 2
    codes = np.arange(len(labels))[:, None] * width + labels + 1
    members = np.maximum(np.bincount(codes.ravel()), 1)
    return np.asarray(
        (np.bincount(codes.ravel(), np.nan_to_num(flags).ravel()) / members)[codes]
        + np.where(np.isnan(flags), np.nan, 0.0)
    )
