"""Answers that change inside one trace: how often, to and from right, where, and what stopping earlier would have kept.

Past the optimum a trace moves between candidate answers instead of settling; accuracy hides it, because as many traces may
lose the right answer as find it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from breadth.base.errors import MeasureError
from breadth.measure.clustered import resample
from breadth.measure.finite import BoolArray, FloatArray, same_length
from breadth.measure.intervals import Interval, wilson
from breadth.measure.restatements import Restatements, neighbour_pairs
from breadth.measure.tallies import Ints


@dataclass(frozen=True, eq=False)
class TraceOscillations:
    """What became of the answer in each trace, one entry a trace. The five kinds of pairs sum to ``statements - 1``."""

    traces: NDArray[Any]
    """Trace ids, sorted."""
    statements: Ints
    """How often an answer was stated."""
    first_right: Ints
    """The statement (1 is the first) that was right first; 0 if none was."""
    final_right: BoolArray
    """Whether the last statement is right."""
    lost: Ints
    """Pairs of neighbours right, then not."""
    found: Ints
    """Pairs not right, then right."""
    moved: Ints
    """Pairs of two different wrong answers."""
    kept_right: Ints
    """Pairs right and right."""
    kept_wrong: Ints
    """Pairs wrong and wrong without a new answer."""

    @property
    def ever_right(self) -> BoolArray:
        """Whether some statement was right: what a perfect stopping rule would score."""
        return self.first_right > 0

    @property
    def changes(self) -> Ints:
        """How often the stated answer changed."""
        return self.lost + self.found + self.moved

    @property
    def oracle_stop(self) -> Ints:
        """The statement at which one who knows the truth would stop: the first right one, or at once if there is none."""
        return np.maximum(self.first_right, 1)

    @property
    def flip_matrix(self) -> Ints:
        """Pairs over all traces: rows right and wrong before, columns right and wrong after."""
        wrong = self.moved.sum() + self.kept_wrong.sum()
        return np.array([[self.kept_right.sum(), self.lost.sum()], [self.found.sum(), wrong]])


@dataclass(frozen=True)
class OscillationPoint:
    """What happens next to the answers stated in one place."""

    at: float
    """The step, or the middle of the stretch, of the earlier statement of each pair."""
    pairs: int
    """Statements there that are followed by another."""
    right: int
    """How many of them are right."""
    lost: int
    """Right ones followed by a statement that is not."""
    found: int
    """Others followed by a right one."""
    moved: int
    """Wrong answers followed by another wrong answer."""
    loss: Interval
    """Hazard of losing a right answer: ``lost / right``."""
    repair: Interval
    """Chance to mend a wrong one: ``found / (pairs - right)``."""
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

    def per_trace(which: BoolArray) -> Ints:
        return np.bincount(trace[pairs.rows[which]], minlength=len(ids))

    return TraceOscillations(
        traces=ids,
        statements=length,
        first_right=np.where(first > length, 0, first),
        final_right=statements.correct[order[last]],
        lost=per_trace(pairs.lost),
        found=per_trace(pairs.found),
        moved=per_trace(pairs.moved),
        kept_right=per_trace(pairs.kept_right),
        kept_wrong=per_trace(pairs.kept_wrong),
    )


def oscillation_by_step(
    statements: Restatements, *, problems: ArrayLike | None = None, level: float = 0.95, seed: int = 0
) -> tuple[OscillationPoint, ...]:
    """Return what happens after each step, for traces asked again at the same steps: ``loss`` is the hazard of losing a right answer.

    Empty for traces of one statement each. Where ``lost`` outruns ``found`` from some step on, thinking is past its optimum.
    Intervals are Wilson's, one pair per trace; where traces share problems (samples, temperatures) they are not
    independent: give ``problems``, the problem of each row, and whole problems are resampled.
    """
    return _curve(statements, statements.positions, problems, level, seed)


def oscillation_by_position(
    statements: Restatements, *, bins: int = 10, problems: ArrayLike | None = None, level: float = 0.95, seed: int = 0
) -> tuple[OscillationPoint, ...]:
    """Return what happens after answers stated in each stretch of the trace, for positions given as shares of its length.

    ``bins`` equal stretches of [0, 1]; those with no pair are left out. One trace has many pairs, so intervals come
    from resampling traces, or problems when ``problems`` names that of each row. Long traces state more and weigh more.
    """
    if bins < 1 or statements.positions.min() < 0 or statements.positions.max() > 1:
        raise MeasureError(
            f"Positions run from {statements.positions.min():g} to {statements.positions.max():g}, for {bins} bins; need shares in [0, 1].",
            "Divide each position by the length of its trace, or use oscillation_by_step.",
        )
    middle = (np.minimum(np.floor(statements.positions * bins), bins - 1) + 0.5) / bins
    return _curve(statements, middle, statements.traces if problems is None else problems, level, seed)


def _curve(statements: Restatements, at: FloatArray, clusters: ArrayLike | None, level: float, seed: int) -> tuple[OscillationPoint, ...]:
    pairs = neighbour_pairs(statements)
    if not len(pairs.rows):
        return ()
    owners = None if clusters is None else np.asarray(clusters)
    if owners is not None:
        same_length(traces=statements.traces, problems=owners)
    flags = {
        "pairs": np.ones(len(pairs.rows), dtype=np.bool_),
        "right": pairs.before,
        "wrong": ~pairs.before,
        "lost": pairs.lost,
        "found": pairs.found,
        "moved": pairs.moved,
        "changed": pairs.changed,
    }
    places = at[pairs.rows]
    order = np.argsort(places, kind="stable")
    points = []
    for which in np.split(order, np.flatnonzero(np.diff(places[order])) + 1):
        here = None if owners is None else owners[pairs.rows[which]]
        points.append(_point(float(places[which[0]]), {name: flag[which] for name, flag in flags.items()}, here, level, seed))
    return tuple(points)


def _point(at: float, columns: dict[str, BoolArray], clusters: NDArray[Any] | None, level: float, seed: int) -> OscillationPoint:
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
        lost=counts["lost"],
        found=counts["found"],
        moved=counts["moved"],
        loss=share("lost", "right"),
        repair=share("found", "wrong"),
        change=share("changed", "pairs"),
    )
