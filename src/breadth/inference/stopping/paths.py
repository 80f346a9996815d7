"""Many votes at once, draw by draw, as arrays: what stop rules look at when stored votes are replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT = 5
"""Largest counts kept at each draw: the Dirichlet rule looks at five."""
_TABLE = 1 << 20
# Combinations of up to this many possible values are looked up in a table (8 MB), others are sorted.


@dataclass(frozen=True, eq=False)
class Paths:
    """Recorded votes in the order they are replayed: one row a path, one column a draw."""

    classes: NDArray[np.int32]
    """Class of each vote (0, 1, ... within its row), -1 where no answer could be read: not a vote, but a draw."""

    @classmethod
    def of_counts(cls, ranked: NDArray[np.int32], total: NDArray[np.int32]) -> Paths:
        """Return standings given by their five largest counts (last axis) and totals alone, for rules that look at nothing else."""
        paths = cls(np.full(total.shape, -1, dtype=np.int32))
        paths.__dict__.update(ranked=ranked, total=total)
        return paths

    @cached_property
    def earlier(self) -> NDArray[np.int32]:
        """Votes that each vote's answer had before it; 0 where no answer could be read."""
        rows = np.arange(len(self.classes))
        counts = np.zeros((len(rows), max(int(self.classes.max(initial=-1)) + 1, 1)), dtype=np.int32)
        earlier = np.zeros_like(self.classes)
        for draw, label in self.by_draw():
            voting = label >= 0
            owners, labels = rows[voting], label[voting]
            earlier[owners, draw] = counts[owners, labels]
            counts[owners, labels] += 1
        return earlier

    @cached_property
    def ranked(self) -> NDArray[np.int32]:
        """The five largest counts after each draw, most first: (paths, draws, 5)."""
        rows = np.arange(len(self.classes))
        top = np.zeros((len(rows), KEPT), dtype=np.int32)
        ranked = np.zeros((*self.classes.shape, KEPT), dtype=np.int32)
        for draw, label in self.by_draw():
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
        return self.ranked[:, :, 0]

    @property
    def runner_up(self) -> NDArray[np.int32]:
        """Votes of the second answer after each draw."""
        return self.ranked[:, :, 1]

    @cached_property
    def total(self) -> NDArray[np.int32]:
        """All votes after each draw."""
        total: NDArray[np.int32] = np.cumsum(self.classes >= 0, axis=1, dtype=np.int32)
        return total

    @cached_property
    def rest(self) -> NDArray[np.int32]:
        """Votes of all but the first two after each draw."""
        return self.total - self.leader - self.runner_up

    def by_draw(self) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Go through the draws in order: the number of the draw, the class of every path's vote."""
        for draw in range(self.classes.shape[1]):
            yield draw, self.classes[:, draw]


def looked_up(worth: Callable[..., Any], *columns: NDArray[np.int32]) -> NDArray[Any]:
    """Return a function of whole numbers from 0 up, elementwise; worked out once for each combination that occurs."""
    combinations, place = combined(*columns)
    values = np.array([worth(*numbers) for numbers in combinations.tolist()])
    return values[place] if len(values) else np.zeros(place.shape, dtype=np.bool_)


def combined(*columns: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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


def _distinct(codes: NDArray[np.int64], possible: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct codes, ascending, and the place of each code among them."""
    if possible > _TABLE:
        distinct, place = np.unique(codes, return_inverse=True)
        return distinct, place.reshape(codes.shape)
    present = np.zeros(possible, dtype=np.bool_)
    present[codes] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[codes]
