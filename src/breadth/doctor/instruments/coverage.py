"""pass@k and maj@k of the rollouts, at the start of the run and now: what drawing more, and voting, would buy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from breadth.doctor.windows import Window
from breadth.measure.coverage import all_solved, chart_ks, none_solved, pass_at_k
from breadth.measure.intervals import Interval, curve_intervals
from breadth.measure.vote_counting import maj_at_k_by_problem
from breadth.report.cells import Cell, Missing
from breadth.report.sections import Axis, Column, Curve, Section, Series, Table

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
SILENT = "Under group-relative advantages a group that is all right or all wrong teaches nothing."


def coverage(windows: Sequence[Window]) -> Sequence[Section]:
    """Return the two curves for each window, and a table with the numbers a reader quotes."""
    graded = [window for window in windows if window.graded]
    sizes = [_common_size(window) for window in graded]
    if not graded or min(sizes) < 2:
        return []
    most = min(sizes)
    rows = [_row(window, most) for window in graded]
    lines = [line for window in graded for line in _lines(window, most)]
    spans = "".join(f"{window.when} = {window.name}; " for window in graded)
    note = (
        f"{spans}groups of {most} samples; unbiased pass@k, exact maj@k with ties shared; intervals from resampling"
        " problems."
    )
    columns = [
        Column("rollouts of"),
        Column("problems"),
        Column("pass@1"),
        Column(f"pass@{most}"),
        Column(f"maj@{most}"),
    ]
    silent = [Column("rollouts of"), Column("no sample right", "%"), Column("all right", "%")]
    chart = Curve("pass@k and maj@k", lines, Axis("samples drawn (k)"), Axis("solved"), log_x=True, note=note)
    taught = Table("Groups without a signal", silent, [_silent(window, most) for window in graded], note=SILENT)
    return [Table("Coverage", columns, rows), chart, taught]


def _common_size(window: Window) -> int:
    """Return the commonest group size; groups of other sizes are left out of the curves."""
    sizes = np.unique(window.samples.groups, return_counts=True)[1]
    return int(np.bincount(sizes).argmax())


def _full(window: Window, size: int) -> tuple[npt.NDArray[np.bool_], Integers]:
    """Return which rollouts belong to groups of at least ``size``, and the problem of each such group."""
    _, first, inverse, counts = np.unique(
        window.samples.groups, return_index=True, return_inverse=True, return_counts=True
    )
    enough = counts >= size
    return enough[inverse], window.samples.problems[first][enough]


def _counts(window: Window, size: int) -> tuple[Integers, Integers, Integers]:
    """Return problem, samples drawn and samples right of each full group."""
    keep, problems = _full(window, size)
    _, inverse = np.unique(window.samples.groups[keep], return_inverse=True)
    drawn = np.bincount(inverse)
    right = np.bincount(inverse, window.samples.right[keep]).astype(np.int64)
    return problems, drawn.astype(np.int64), right


def _by_problem(problems: Integers, values: Floats) -> tuple[Interval, ...]:
    """Average groups of one problem first: its groups at several steps are not independent."""
    _, inverse, counts = np.unique(problems, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, inverse, values)
    return curve_intervals(sums / counts[:, None], bounds=(0.0, 1.0))


def _pass_curve(window: Window, most: int, ks: Integers) -> tuple[Interval, ...]:
    problems, drawn, right = _counts(window, most)
    return _by_problem(problems, pass_at_k(drawn, right, ks))


def _vote_curve(window: Window, most: int, ks: Integers) -> tuple[Interval, ...] | None:
    keep, problems = _full(window, most)
    if not (window.classes[keep] >= 0).any():
        return None
    return _by_problem(
        problems, maj_at_k_by_problem(window.samples.groups[keep], window.classes[keep], window.samples.right[keep], ks)
    )


def _lines(window: Window, most: int) -> list[Series]:
    ks = np.array(chart_ks(most), dtype=np.int64)
    curves = {"pass@k": _pass_curve(window, most, ks), "maj@k": _vote_curve(window, most, ks)}
    return [
        Series(
            f"{name}, {window.when}",
            ks.tolist(),
            [p.value for p in curve],
            [p.low for p in curve],
            [p.high for p in curve],
        )
        for name, curve in curves.items()
        if curve is not None
    ]


def _row(window: Window, most: int) -> list[Cell]:
    problems, _, _ = _counts(window, most)
    ends = np.array([1, most])
    single, many = _pass_curve(window, most, ends)
    vote = _vote_curve(window, most, ends)
    voted = vote[1] if vote else Missing("no answer could be read from the texts")
    return [window.name, len(np.unique(problems)), single, many, voted]


def _silent(window: Window, most: int) -> list[Cell]:
    _, drawn, right = _counts(window, most)
    return [window.name, none_solved(drawn, right), all_solved(drawn, right)]
