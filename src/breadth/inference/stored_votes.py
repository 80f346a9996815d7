"""Stored votes as arrays: which answer each candidate gave, its grade, and the random orders in which to replay them.

`Paths` holds many votes at once, draw by draw, as stop rules see them. `StoredVotes` holds the votes of every question,
`ReplayOrders` the same votes in random orders with the answer of the vote after each draw.
"""

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
"""Number of largest counts kept after each draw: the Dirichlet rule uses five."""
_MAX_TABLE_SIZE = 1 << 20
# Up to this many possible combinations are looked up in a table (8 MB), more are sorted.


@dataclass(frozen=True, eq=False)
class Paths:
    """Recorded votes in the order of the replay: one row per path, one column per draw."""

    classes: NDArray[np.int32]
    """Class of each vote (0, 1, ... within its row), -1 where no answer could be read: not a vote, but a draw."""

    @classmethod
    def from_counts(cls, top_counts: NDArray[np.int32], total: NDArray[np.int32]) -> Paths:
        """Return paths given only by their five largest counts (last axis) and totals, for rules that need no more."""
        paths = cls(np.full(total.shape, -1, dtype=np.int32))
        paths.__dict__.update(top_counts=top_counts, total=total)
        return paths

    @property
    def width(self) -> int:
        """Columns of a table with one for each class."""
        return int(self.classes.max(initial=0)) + 1

    @cached_property
    def earlier(self) -> NDArray[np.int32]:
        """Earlier votes for the same answer as each vote; 0 where no answer could be read."""
        rows = np.arange(len(self.classes))
        counts = np.zeros((len(rows), self.width), dtype=np.int32)
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
        top_counts = np.zeros((*self.classes.shape, TOP_COUNTS), dtype=np.int32)
        for draw, label in self.iterate_draws():
            # Of equal counts the first in rank grows, so the order stays; a count below the top five changes nothing.
            same = top == self.earlier[:, draw, None]
            grows = (label >= 0) & same.any(axis=1)
            top[rows[grows], same.argmax(axis=1)[grows]] += 1
            top_counts[:, draw] = top
        return top_counts

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
        """Yield the draws in order: the index of the draw, and the class of every path's vote."""
        for draw in range(self.classes.shape[1]):
            yield draw, self.classes[:, draw]


def map_combinations(function: Callable[..., Any], *columns: NDArray[np.int32]) -> NDArray[Any]:
    """Apply a function of whole numbers from 0 up elementwise; it is called once per combination that occurs."""
    combinations, place = unique_combinations(*columns)
    values = np.array([function(*numbers) for numbers in combinations.tolist()])
    return values[place] if len(values) else np.zeros(place.shape, dtype=np.bool_)


def unique_combinations(*columns: NDArray[np.int32]) -> tuple[IntArray, IntArray]:
    """Return the combinations of whole numbers from 0 up that occur, one per row, and the row of each element."""
    sizes = [int(column.max(initial=0)) + 1 for column in columns]
    codes = np.zeros(columns[0].shape, dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        codes = codes * size + column
    distinct, place = unique_codes(codes, int(np.prod(sizes, dtype=np.float64)))
    parts = []
    for size in reversed(sizes):
        distinct, part = np.divmod(distinct, size)
        parts.append(part)
    return np.stack(parts[::-1], axis=1), place


def unique_codes(codes: IntArray, possible: int) -> tuple[IntArray, IntArray]:
    """Return the distinct codes, ascending, and the index of each code among them."""
    if possible > _MAX_TABLE_SIZE:
        distinct, place = np.unique(codes, return_inverse=True)
        return distinct, place.reshape(codes.shape)
    present = np.zeros(possible, dtype=np.bool_)
    present[codes] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[codes]


Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, eq=False)
class StoredVotes:
    """The votes of every question: one row per question, one column per stored candidate; short rows are padded."""

    classes: NDArray[np.int32]
    """Class of each candidate's answer (0, 1, ... within its question); -1 where unreadable, and in the padding."""
    sizes: IntArray
    """Number of candidates per question."""
    right: FloatArray
    """Share of correct candidates with the same answer: 0 or 1 where grades agree with the keys; NaN where unknown."""
    tokens: FloatArray
    """Output tokens of each candidate."""
    questions: tuple[str, ...]
    """Id of each question."""

    @classmethod
    def from_candidates(
        cls,
        candidates: Mapping[str, Sequence[Candidate]],
        truths: Mapping[str, str] | None = None,
        correct: Mapping[str, Sequence[bool]] | None = None,
    ) -> StoredVotes:
        """Read candidates; grades come from the key of the true answer or from one flag per candidate."""
        width = max(map(len, candidates.values()), default=0)
        classes = np.full((len(candidates), width), -1, dtype=np.int32)
        tokens, flags = np.zeros(classes.shape), np.full(classes.shape, np.nan)
        for row, (question, drawn) in enumerate(candidates.items()):
            known: dict[str, int] = {}
            classes[row, : len(drawn)] = [
                -1 if candidate.key is None else known.setdefault(candidate.key, len(known)) for candidate in drawn
            ]
            tokens[row, : len(drawn)] = [candidate.tokens for candidate in drawn]
            flags[row, : len(drawn)] = grade_candidates(question, drawn, truths, correct)
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
        """Read arrays with one row per question and one column per candidate; missing ones are unknown (tokens: 0)."""
        labels = np.asarray(classes, dtype=np.int32)
        if labels.ndim != 2 or not labels.size or labels.min() < -1:
            raise MeasureError(
                "Stored votes need one row per question and one column per candidate, classes from -1 up; got"
                f" {labels.shape}.",
                "Give at least one question with one candidate.",
            )
        count = np.full(len(labels), labels.shape[1]) if sizes is None else np.asarray(sizes, dtype=np.int64)
        if count.min() < 1:
            raise MeasureError(f"{np.count_nonzero(count < 1)} questions have no stored candidates.", "Leave them out.")
        flags = np.full(labels.shape, np.nan) if correct is None else np.asarray(correct, dtype=np.float64)
        token_counts = np.zeros(labels.shape) if tokens is None else np.asarray(tokens, dtype=np.float64)
        names = tuple(map(str, range(len(labels)))) if questions is None else tuple(questions)
        if not labels.shape == flags.shape == token_counts.shape or not len(labels) == len(count) == len(names):
            raise MeasureError(
                f"Classes are {labels.shape}, correct {flags.shape}, tokens {token_counts.shape}, questions"
                f" {len(names)}.",
                "Give equal shapes.",
            )
        return cls(labels, count, mean_grade_by_class(labels, flags), token_counts, names)

    @cached_property
    def counts(self) -> IntArray:
        """Votes per class: (questions, classes)."""
        width = int(self.classes.max(initial=0)) + 1
        codes = (np.arange(len(self.classes))[:, None] * width + self.classes)[self.classes >= 0]
        return np.bincount(codes, minlength=len(self.classes) * width).reshape(-1, width)

    @cached_property
    def modal(self) -> BoolArray:
        """Whether each candidate's answer is a mode of all votes on its question."""
        most = self.counts.max(axis=1, keepdims=True)
        own = np.take_along_axis(self.counts, np.maximum(self.classes, 0).astype(np.int64), axis=1)
        return np.asarray((self.classes >= 0) & (own == most))

    def orders(self, repeats: int, seed: int = 0) -> IntArray:
        """Return random orders of each question's candidates, padding last: (questions, repeats, candidates)."""
        chances = np.random.default_rng(seed).random((len(self.classes), repeats, self.classes.shape[1]))
        chances[np.broadcast_to(np.arange(self.classes.shape[1]) >= self.sizes[:, None, None], chances.shape)] = np.inf
        return np.argsort(chances, axis=2, kind="stable")

    def subset(self, rows: ArrayLike) -> StoredVotes:
        """Return the votes of some questions."""
        chosen = np.arange(len(self.classes))[np.asarray(rows)]
        names = tuple(self.questions[row] for row in chosen.tolist())
        return StoredVotes(self.classes[chosen], self.sizes[chosen], self.right[chosen], self.tokens[chosen], names)


@dataclass(frozen=True, eq=False)
class ReplayOrders:
    """Stored votes in random orders, with the answer of the vote after each draw; one row per path."""

    votes: StoredVotes
    """The stored votes."""
    orders: IntArray
    """Orders of the candidates: (questions, repeats, candidates)."""

    @cached_property
    def paths(self) -> Paths:
        """The votes as stop rules see them."""
        return Paths(self.reorder(self.votes.classes))

    @cached_property
    def uniforms(self) -> FloatArray:
        """Uniform number of each path (`task_uniform`): its question's, with the number of the repeat as seed."""
        repeats = range(self.orders.shape[1])
        return np.array([task_uniform(question, repeat) for question in self.votes.questions for repeat in repeats])

    @cached_property
    def sizes(self) -> IntArray:
        """Number of draws on each path."""
        return np.repeat(self.votes.sizes, self.orders.shape[1])

    @cached_property
    def cumulative_tokens(self) -> FloatArray:
        """Output tokens up to each draw."""
        return np.asarray(np.cumsum(self.reorder(self.votes.tokens), axis=1))

    @cached_property
    def agreement(self) -> FloatArray:
        """Share of the leading answers after each draw that are a mode of all stored votes; 1 without any vote."""
        silent = (self.votes.counts.sum(axis=1) == 0).astype(np.float64)
        return self.mean_of_leaders(
            self.reorder(self.votes.modal.astype(np.float64)), np.repeat(silent, self.orders.shape[1])
        )

    @cached_property
    def correct(self) -> FloatArray:
        """Share of the leading answers after each draw that are right; 0 without an answer, NaN without grades."""
        none = np.where(np.isnan(self.votes.right[:, 0]), np.nan, 0.0)
        return self.mean_of_leaders(self.reorder(self.votes.right), np.repeat(none, self.orders.shape[1]))

    def reorder(self, table: NDArray[Scalar]) -> NDArray[Scalar]:
        """Return a table of (questions, candidates) as (paths, draws)."""
        rows = np.arange(len(table))[:, None, None]
        return np.asarray(table[rows, self.orders].reshape(-1, table.shape[1]))

    def mean_of_leaders(self, values: FloatArray, before: FloatArray) -> FloatArray:
        """Return the mean value of the answers that lead after each draw; ``before`` counts before the first vote."""
        along = np.empty(values.shape)
        leading, tied, sums = (np.zeros(len(values)) for _ in range(3))
        for draw, label in self.paths.iterate_draws():
            votes = np.where(label >= 0, self.paths.earlier[:, draw] + 1, -1)
            ahead, level = votes > leading, votes == leading
            own = np.where(ahead | level, values[:, draw], 0.0)
            tied, sums = np.where(ahead, 1, tied + level), np.where(ahead, own, sums + own)
            leading = np.maximum(leading, votes)
            along[:, draw] = np.where(tied > 0, sums / np.maximum(tied, 1), before)
        return along


def grade_candidates(
    question: str,
    drawn: Sequence[Candidate],
    truths: Mapping[str, str] | None,
    correct: Mapping[str, Sequence[bool]] | None,
) -> list[float]:
    """Return 1 or 0 for each candidate of a question, NaN without grades; refuse grades that do not fit."""
    if correct is not None:
        if len(correct.get(question, ())) != len(drawn):
            raise MeasureError(
                f"Question {question!r} has {len(drawn)} candidates and {len(correct.get(question, ()))} grades.",
                "Give one grade per candidate.",
            )
        return [float(flag) for flag in correct[question]]
    if truths is None:
        return [np.nan] * len(drawn)
    if question not in truths:
        raise MeasureError(
            f"Question {question!r} has no true answer.", "Give the key of each question's answer, or none at all."
        )
    return [float(candidate.key == truths[question]) for candidate in drawn]


def mean_grade_by_class(labels: NDArray[np.int32], flags: FloatArray) -> FloatArray:
    """Return for every candidate the mean grade of its class."""
    width = int(labels.max(initial=0)) + 2
    codes = np.arange(len(labels))[:, None] * width + labels + 1
    members = np.maximum(np.bincount(codes.ravel()), 1)
    return np.asarray(
        (np.bincount(codes.ravel(), np.nan_to_num(flags).ravel()) / members)[codes]
        + np.where(np.isnan(flags), np.nan, 0.0)
    )
