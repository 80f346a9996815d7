"""Answers that change inside one trace: how often, to and from right, where, and what stopping earlier would keep.

Past the optimum a trace moves between candidate answers instead of settling; accuracy hides it, because as many traces
may lose the right answer as find it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from breadth.base.errors import MeasureError
from breadth.measure.answers import answer_classes, stated_answers
from breadth.measure.intervals import Interval, resample, wilson
from breadth.measure.validate import (
    BoolArray,
    FloatArray,
    IntArray,
    as_answer_classes,
    as_booleans,
    as_finite,
    check_same_length,
)


@dataclass(frozen=True, eq=False, init=False)
class Restatements:
    """Answers stated within traces: four columns, one row a statement, in any order."""

    traces: NDArray[Any]
    """The trace of each statement."""
    positions: FloatArray
    """Where in the trace: a step number, or a share of its length. No two statements of a trace may share one."""
    classes: IntArray
    """Answer classes, -1 for no parsable answer: such a step is not right, and it is no other answer."""
    correct: BoolArray
    """Whether the answer is right."""

    def __init__(self, traces: ArrayLike, positions: ArrayLike, classes: ArrayLike, correct: ArrayLike) -> None:
        columns = {
            "traces": np.asarray(traces),
            "positions": as_finite(positions, "positions"),
            "classes": as_answer_classes(classes),
            "correct": as_booleans(correct, "correct"),
        }
        check_same_length(**columns)
        for name, column in columns.items():
            object.__setattr__(self, name, column)

    def order(self) -> IntArray:
        """Return the row numbers in order of trace and position."""
        order = np.lexsort((self.positions, np.unique(self.traces, return_inverse=True)[1]))
        traces, positions = self.traces[order], self.positions[order]
        if ((traces[1:] == traces[:-1]) & (positions[1:] == positions[:-1])).any():
            raise MeasureError(
                "A trace states two answers at one position, so their order is unknown.",
                "Keep one row per trace and step.",
            )
        return order


@dataclass(frozen=True, eq=False)
class NeighbourPairs:
    """Every statement that is followed by another in its trace, with what the next one is.

    Arrays have one entry a pair.
    """

    rows: IntArray
    """The earlier statement's row."""
    before: BoolArray
    """Whether the earlier one is right."""
    after: BoolArray
    """Whether the later one is right."""
    wrong_to_other: BoolArray
    """Whether both are wrong and state different answers."""

    @property
    def right_to_wrong(self) -> BoolArray:
        """Right, then not."""
        return self.before & ~self.after

    @property
    def wrong_to_right(self) -> BoolArray:
        """Not right, then right."""
        return ~self.before & self.after

    @property
    def stays_right(self) -> BoolArray:
        """Right and right."""
        return self.before & self.after

    @property
    def stays_wrong(self) -> BoolArray:
        """Wrong and wrong without a new answer."""
        return ~self.before & ~self.after & ~self.wrong_to_other

    @property
    def changes(self) -> BoolArray:
        """Whether the stated answer changed."""
        return self.right_to_wrong | self.wrong_to_right | self.wrong_to_other


def neighbour_pairs(statements: Restatements) -> NeighbourPairs:
    """Pair each statement with the next one of its trace."""
    order = statements.order()
    earlier = np.flatnonzero(statements.traces[order][1:] == statements.traces[order][:-1])
    here, there = order[earlier], order[earlier + 1]
    before, after = statements.correct[here], statements.correct[there]
    left, right = statements.classes[here], statements.classes[there]
    return NeighbourPairs(here, before, after, ~before & ~after & (left >= 0) & (right >= 0) & (left != right))


def extract_restatements(texts: Sequence[str], truths: Sequence[str]) -> Restatements:
    """Find every answer stated in each text, where (as a share of the text's length), and whether it equals the truth.

    The trace of a statement is its text's number. Texts that state nothing have no rows; if none states anything that
    is an error. Only statements in boxes, tags and phrases are seen, not answers that the text merely leans to.
    """
    if len(texts) != len(truths):
        raise MeasureError(
            f"Got {len(texts)} texts and {len(truths)} right answers.", "Give one right answer per text."
        )
    stated_by_text = [stated_answers(text) for text in texts]
    if not any(stated_by_text):
        raise MeasureError(
            f"None of the {len(texts)} texts states an answer.",
            "Ask for answers in a box, a tag or as 'The answer is ...'.",
        )
    traces = np.repeat(np.arange(len(texts)), [len(statements) for statements in stated_by_text])
    positions = [
        place / len(text) for text, statements in zip(texts, stated_by_text, strict=True) for place, _ in statements
    ]
    classes = answer_classes([*(answer for statements in stated_by_text for _, answer in statements), *truths])
    stated, right = classes[: len(traces)], classes[len(traces) :][traces]
    return Restatements(traces, positions, stated, (stated == right) & (stated >= 0))


@dataclass(frozen=True, eq=False)
class TraceOscillations:
    """What became of the answer in each trace, one entry a trace. The five kinds of pairs sum to ``statements - 1``."""

    traces: NDArray[Any]
    """Trace ids, sorted."""
    statements: IntArray
    """How often an answer was stated."""
    first_right: IntArray
    """The statement (1 is the first) that was right first; 0 if none was."""
    final_right: BoolArray
    """Whether the last statement is right."""
    right_to_wrong: IntArray
    """Pairs of neighbours right, then not."""
    wrong_to_right: IntArray
    """Pairs not right, then right."""
    wrong_to_other: IntArray
    """Pairs of two different wrong answers."""
    stays_right: IntArray
    """Pairs right and right."""
    stays_wrong: IntArray
    """Pairs wrong and wrong without a new answer."""

    @property
    def ever_right(self) -> BoolArray:
        """Whether some statement was right: what a perfect stopping rule would score."""
        return self.first_right > 0

    @property
    def changes(self) -> IntArray:
        """How often the stated answer changed."""
        return self.right_to_wrong + self.wrong_to_right + self.wrong_to_other

    @property
    def oracle_stop(self) -> IntArray:
        """The statement at which an oracle would stop: the first right one, or at once if there is none."""
        return np.maximum(self.first_right, 1)

    @property
    def flip_matrix(self) -> IntArray:
        """Pairs over all traces: rows right and wrong before, columns right and wrong after."""
        wrong = self.wrong_to_other.sum() + self.stays_wrong.sum()
        return np.array([[self.stays_right.sum(), self.right_to_wrong.sum()], [self.wrong_to_right.sum(), wrong]])


@dataclass(frozen=True)
class OscillationPoint:
    """What happens next to the answers stated in one place."""

    at: float
    """The step, or the middle of the stretch, of the earlier statement of each pair."""
    pairs: int
    """Statements there that are followed by another."""
    right: int
    """How many of them are right."""
    right_to_wrong: int
    """Right ones followed by a statement that is not."""
    wrong_to_right: int
    """Others followed by a right one."""
    wrong_to_other: int
    """Wrong answers followed by another wrong answer."""
    loss: Interval
    """Hazard of losing a right answer: ``right_to_wrong / right``."""
    repair: Interval
    """Chance to repair a wrong one: ``wrong_to_right / (pairs - right)``."""
    change: Interval
    """Chance that the answer changes at all."""


def trace_oscillations(statements: Restatements) -> TraceOscillations:
    """Follow the answer through each trace."""
    ids, trace = np.unique(statements.traces, return_inverse=True)
    order, length = statements.order(), np.bincount(trace)
    last = np.cumsum(length) - 1
    number = np.empty(len(trace), dtype=np.int64)
    number[order] = np.arange(1, len(trace) + 1) - (last - length + 1)[trace[order]]
    first = length + 1
    np.minimum.at(first, trace[statements.correct], number[statements.correct])
    pairs = neighbour_pairs(statements)

    def per_trace(which: BoolArray) -> IntArray:
        return np.bincount(trace[pairs.rows[which]], minlength=len(ids))

    return TraceOscillations(
        traces=ids,
        statements=length,
        first_right=np.where(first > length, 0, first),
        final_right=statements.correct[order[last]],
        right_to_wrong=per_trace(pairs.right_to_wrong),
        wrong_to_right=per_trace(pairs.wrong_to_right),
        wrong_to_other=per_trace(pairs.wrong_to_other),
        stays_right=per_trace(pairs.stays_right),
        stays_wrong=per_trace(pairs.stays_wrong),
    )


def oscillation_by_step(
    statements: Restatements, *, problems: ArrayLike | None = None, level: float = 0.95, seed: int = 0
) -> tuple[OscillationPoint, ...]:
    """Return what happens after each step, for traces asked again at the same steps.

    ``loss`` is the hazard of losing a right answer. Empty for traces of one statement each. Where ``right_to_wrong``
    exceeds ``wrong_to_right`` from some step on, thinking is past its optimum. Intervals are Wilson's, one pair per
    trace; where traces share problems (samples, temperatures) they are not independent: give ``problems``, the problem
    of each row, and whole problems are resampled.
    """
    return _hazard_curve(statements, statements.positions, problems, level, seed)


def oscillation_by_position(
    statements: Restatements, *, bins: int = 10, problems: ArrayLike | None = None, level: float = 0.95, seed: int = 0
) -> tuple[OscillationPoint, ...]:
    """Return what happens after answers in each stretch of the trace; positions are shares of its length.

    ``bins`` equal stretches of [0, 1]; those with no pair are left out. One trace has many pairs, so intervals come
    from resampling traces, or problems when ``problems`` names that of each row. Long traces state more and weigh more.
    """
    if bins < 1 or statements.positions.min() < 0 or statements.positions.max() > 1:
        raise MeasureError(
            f"Positions run from {statements.positions.min():g} to {statements.positions.max():g}, for {bins} bins;"
            " need shares in [0, 1].",
            "Divide each position by the length of its trace, or use oscillation_by_step.",
        )
    middle = (np.minimum(np.floor(statements.positions * bins), bins - 1) + 0.5) / bins
    return _hazard_curve(statements, middle, statements.traces if problems is None else problems, level, seed)


def _hazard_curve(
    statements: Restatements, at: FloatArray, clusters: ArrayLike | None, level: float, seed: int
) -> tuple[OscillationPoint, ...]:
    pairs = neighbour_pairs(statements)
    if not len(pairs.rows):
        return ()
    owners = None if clusters is None else np.asarray(clusters)
    if owners is not None:
        check_same_length(traces=statements.traces, problems=owners)
    flags = {
        "pairs": np.ones(len(pairs.rows), dtype=np.bool_),
        "right": pairs.before,
        "wrong": ~pairs.before,
        "right to wrong": pairs.right_to_wrong,
        "wrong to right": pairs.wrong_to_right,
        "wrong to other": pairs.wrong_to_other,
        "changed": pairs.changes,
    }
    places = at[pairs.rows]
    order = np.argsort(places, kind="stable")
    points = []
    for which in np.split(order, np.flatnonzero(np.diff(places[order])) + 1):
        here = None if owners is None else owners[pairs.rows[which]]
        points.append(
            _hazard_point(
                float(places[which[0]]), {name: flag[which] for name, flag in flags.items()}, here, level, seed
            )
        )
    return tuple(points)


def _hazard_point(
    at: float, columns: dict[str, BoolArray], clusters: NDArray[Any] | None, level: float, seed: int
) -> OscillationPoint:
    counts = {name: int(column.sum()) for name, column in columns.items()}
    resamples = None if clusters is None else resample(columns, clusters, level=level, seed=seed)

    def share(part: str, whole: str) -> Interval:
        if resamples is None:
            return wilson(counts[part], counts[whole], level=level)
        return resamples.ratio(part, whole, (0.0, 1.0))

    return OscillationPoint(
        at=at,
        pairs=counts["pairs"],
        right=counts["right"],
        right_to_wrong=counts["right to wrong"],
        wrong_to_right=counts["wrong to right"],
        wrong_to_other=counts["wrong to other"],
        loss=share("right to wrong", "right"),
        repair=share("wrong to right", "wrong"),
        change=share("changed", "pairs"),
    )
