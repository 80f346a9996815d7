"""Answers stated several times within a trace, as columns, and the pairs of neighbouring statements in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from breadth.base.errors import MeasureError
from breadth.measure.answers import answer_classes, stated_answers
from breadth.measure.finite import BoolArray, FloatArray, finite, same_length, yes_or_no
from breadth.measure.tallies import Ints, class_column


@dataclass(frozen=True, eq=False, init=False)
class Restatements:
    """Answers stated within traces: four columns, one row a statement, in any order."""

    traces: NDArray[Any]
    """The trace of each statement."""
    positions: FloatArray
    """Where in the trace: a step number, or a share of its length. No two statements of a trace may share one."""
    classes: Ints
    """Answer classes, -1 for no parsable answer: such a step is not right, and it is no other answer."""
    correct: BoolArray
    """Whether the answer is right."""

    def __init__(self, traces: ArrayLike, positions: ArrayLike, classes: ArrayLike, correct: ArrayLike) -> None:
        columns = {
            "traces": np.asarray(traces),
            "positions": finite(positions, "positions"),
            "classes": class_column(classes),
            "correct": yes_or_no(correct, "correct"),
        }
        same_length(**columns)
        for name, column in columns.items():
            object.__setattr__(self, name, column)

    def order(self) -> Ints:
        """Return the row numbers in order of trace and position."""
        order = np.lexsort((self.positions, np.unique(self.traces, return_inverse=True)[1]))
        traces, positions = self.traces[order], self.positions[order]
        if ((traces[1:] == traces[:-1]) & (positions[1:] == positions[:-1])).any():
            raise MeasureError("A trace states two answers at one position, so their order is unknown.", "Keep one row per trace and step.")
        return order


@dataclass(frozen=True, eq=False)
class NeighbourPairs:
    """Every statement that is followed by another in its trace, with what the next one is. Arrays have one entry a pair."""

    rows: Ints
    """The earlier statement's row."""
    before: BoolArray
    """Whether the earlier one is right."""
    after: BoolArray
    """Whether the later one is right."""
    moved: BoolArray
    """Whether both are wrong and state different answers."""

    @property
    def lost(self) -> BoolArray:
        """Right, then not."""
        return self.before & ~self.after

    @property
    def found(self) -> BoolArray:
        """Not right, then right."""
        return ~self.before & self.after

    @property
    def kept_right(self) -> BoolArray:
        """Right and right."""
        return self.before & self.after

    @property
    def kept_wrong(self) -> BoolArray:
        """Wrong and wrong without a new answer."""
        return ~self.before & ~self.after & ~self.moved

    @property
    def changed(self) -> BoolArray:
        """Whether the stated answer changed: lost, found or moved."""
        return self.lost | self.found | self.moved


def neighbour_pairs(statements: Restatements) -> NeighbourPairs:
    """Pair each statement with the next one of its trace."""
    order = statements.order()
    earlier = np.flatnonzero(statements.traces[order][1:] == statements.traces[order][:-1])
    here, there = order[earlier], order[earlier + 1]
    before, after = statements.correct[here], statements.correct[there]
    left, right = statements.classes[here], statements.classes[there]
    return NeighbourPairs(here, before, after, ~before & ~after & (left >= 0) & (right >= 0) & (left != right))


def stated_in(texts: Sequence[str], truths: Sequence[str]) -> Restatements:
    """Find every answer stated in each text, where (as a share of the text's length), and whether it equals the truth.

    The trace of a statement is its text's number. Texts that state nothing have no rows; if none states anything that is
    an error. Only statements in boxes, tags and phrases are seen, not answers that the text merely leans to.
    """
    if len(texts) != len(truths):
        raise MeasureError(f"Got {len(texts)} texts and {len(truths)} right answers.", "Give one right answer per text.")
    found = [stated_answers(text) for text in texts]
    if not any(found):
        raise MeasureError(
            f"None of the {len(texts)} texts states an answer.", "Ask for answers in a box, a tag or as 'The answer is ...'."
        )
    traces = np.repeat(np.arange(len(texts)), [len(statements) for statements in found])
    positions = [place / len(text) for text, statements in zip(texts, found, strict=True) for place, _ in statements]
    classes = answer_classes([*(answer for statements in found for _, answer in statements), *truths])
    told, right = classes[: len(traces)], classes[len(traces) :][traces]
    return Restatements(traces, positions, told, (told == right) & (told >= 0))
