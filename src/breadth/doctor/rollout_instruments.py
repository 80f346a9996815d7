"""pass@k and maj@k of the rollouts, at the start of the run and now: what drawing more, and voting, would buy."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from breadth.doctor.evidence.record import MAX_TEXTS_PER_WINDOW, Window
from breadth.measure.answers import answer_key, stated_answers
from breadth.measure.degeneracy import Degeneracy, reference_computation, response_degeneracy
from breadth.measure.diversity import DiversityMeans, split_by_solved
from breadth.measure.intervals import Interval, curve_intervals, wilson
from breadth.measure.pass_at_k import chart_ks, pass_at_k, share_always_solved, share_never_solved
from breadth.measure.response_style import effective_formats, surface_format
from breadth.measure.validate import BoolArray, FloatArray, IntArray
from breadth.measure.vote_counting import maj_at_k_by_problem
from breadth.report.cells import Cell, Missing
from breadth.report.sections import Axis, Column, Curve, Group, Groups, Outcome, Section, Series, Table
from breadth.runs import outcomes
from breadth.runs.reader import Run

ZERO_VARIANCE_NOTE = "Under group-relative advantages a group that is all right or all wrong teaches nothing."


def coverage_sections(windows: Sequence[Window]) -> Sequence[Section]:
    """Return the two curves for each window, and a table with the numbers a reader quotes."""
    graded = [window for window in windows if window.is_graded]
    sizes = [common_group_size(window) for window in graded]
    if not graded or min(sizes) < 2:
        return []
    most = min(sizes)
    rows = [coverage_row(window, most) for window in graded]
    lines = [line for window in graded for line in coverage_lines(window, most)]
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
    taught = Table(
        "Groups without a signal", silent, [_silent(window, most) for window in graded], note=ZERO_VARIANCE_NOTE
    )
    return [Table("Coverage", columns, rows), chart, taught]


def common_group_size(window: Window) -> int:
    """Return the commonest group size; groups of other sizes are left out of the curves."""
    sizes = np.unique(window.samples.groups, return_counts=True)[1]
    return int(np.bincount(sizes).argmax())


def select_full_groups(window: Window, size: int) -> tuple[BoolArray, IntArray]:
    """Return which rollouts belong to groups of at least ``size``, and the problem of each such group."""
    _, first, inverse, counts = np.unique(
        window.samples.groups, return_index=True, return_inverse=True, return_counts=True
    )
    enough = counts >= size
    return enough[inverse], window.samples.problems[first][enough]


def group_counts(window: Window, size: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return problem, samples drawn and samples right of each full group."""
    keep, problems = select_full_groups(window, size)
    _, inverse = np.unique(window.samples.groups[keep], return_inverse=True)
    drawn = np.bincount(inverse)
    right = np.bincount(inverse, window.samples.correct[keep]).astype(np.int64)
    return problems, drawn.astype(np.int64), right


def problem_intervals(problems: IntArray, values: FloatArray) -> tuple[Interval, ...]:
    """Average groups of one problem first: its groups at several steps are not independent."""
    _, inverse, counts = np.unique(problems, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, inverse, values)
    return curve_intervals(sums / counts[:, None], bounds=(0.0, 1.0))


def pass_curve(window: Window, most: int, ks: IntArray) -> tuple[Interval, ...]:
    problems, drawn, right = group_counts(window, most)
    return problem_intervals(problems, pass_at_k(drawn, right, ks))


def vote_curve(window: Window, most: int, ks: IntArray) -> tuple[Interval, ...] | None:
    keep, problems = select_full_groups(window, most)
    if not (window.classes[keep] >= 0).any():
        return None
    return problem_intervals(
        problems,
        maj_at_k_by_problem(window.samples.groups[keep], window.classes[keep], window.samples.correct[keep], ks),
    )


def coverage_lines(window: Window, most: int) -> list[Series]:
    ks = np.array(chart_ks(most), dtype=np.int64)
    curves = {"pass@k": pass_curve(window, most, ks), "maj@k": vote_curve(window, most, ks)}
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


def coverage_row(window: Window, most: int) -> list[Cell]:
    problems, _, _ = group_counts(window, most)
    ends = np.array([1, most])
    single, many = pass_curve(window, most, ends)
    vote = vote_curve(window, most, ends)
    voted = vote[1] if vote else Missing("no answer could be read from the texts")
    return [window.name, len(np.unique(problems)), single, many, voted]


def _silent(window: Window, most: int) -> list[Cell]:
    _, drawn, right = group_counts(window, most)
    return [window.name, share_never_solved(drawn, right), share_always_solved(drawn, right)]


def diversity_table(windows: Sequence[Window]) -> Sequence[Section]:
    """Return one table: distinct and effective answers per group for each window, split by solved and unsolved."""
    readable = [window for window in windows if (window.classes >= 0).any()]
    rows = [row for window in readable for row in diversity_rows(window)]
    if not rows:
        return []
    columns = [
        Column("rollouts of"),
        Column("groups"),
        Column("number"),
        Column("distinct answers"),
        Column("effective answers"),
        Column("answers read", "%"),
    ]
    note = (
        "Per group, at equal sample sizes. Effective answers = exp(entropy), Miller-Madow; intervals from resampling"
        " problems."
    )
    return [Table("Different answers", columns, rows, note=note)]


def diversity_rows(window: Window) -> list[list[Cell]]:
    right = np.where(np.isnan(window.samples.correct), 0.0, window.samples.correct).astype(bool)
    split = split_by_solved(window.samples.groups, window.classes, right, problems=window.samples.problems)
    kinds = {"solved": split.solved, "unsolved": split.unsolved} if window.is_graded else {"all": split.every}
    return [diversity_row(window.name, kind, means) for kind, means in kinds.items()]


def diversity_row(window: str, kind: str, means: DiversityMeans) -> list[Cell]:
    if not means.groups:
        none = Missing(f"no {kind} group in these steps")
        return [window, kind, 0, none, none, none]
    return [window, kind, means.groups, means.distinct, means.effective, means.parse_rate]


def completion_table(run: Run, windows: Sequence[Window]) -> Sequence[Section]:
    """Return one table, a row for each window."""
    read = [
        (window, outcomes.sample_texts(run, window.first, window.last, MAX_TEXTS_PER_WINDOW, window.split))
        for window in windows
    ]
    read = [(window, found) for window, found in read if found]
    if not read:
        return []
    reference = reference_computation(read[0][1])
    rows = [completion_row(window, found, reference) for window, found in read]
    columns = [
        Column("rollouts of"),
        Column("read"),
        Column("degenerate", "%"),
        Column("what fires most"),
        Column("formats"),
        Column("change their answer", "%"),
    ]
    note = (
        "Degenerate = at least two detectors fire (loops, repetition, early or repeated answers, work skipped against"
        " the start). Formats = effective number of surface formats. Change their answer = state one answer, then"
        " another, in one text."
    )
    return [Table("Texts", columns, rows, note=note)]


def completion_row(window: Window, found: Sequence[str], reference: float) -> list[Cell]:
    checked = [response_degeneracy(text, reference=reference or None) for text in found]
    degenerate = wilson(sum(one.is_degenerate for one in checked), len(checked))
    formats = [surface_format(text) for text in found]
    shares = [formats.count(name) for name in dict.fromkeys(formats)]
    return [
        window.name,
        len(found),
        degenerate,
        top_detector(checked),
        effective_formats(shares),
        fmean(map(changes_answer, found)),
    ]


def top_detector(checked: Sequence[Degeneracy]) -> str:
    fired = [name for one in checked for name in one.detections]
    if not fired:
        return "nothing"
    most = max(dict.fromkeys(fired), key=fired.count)
    return f"{most} ({fired.count(most) / len(checked):.0%})"


def changes_answer(text: str) -> bool:
    stated = [answer_key(answer) for _, answer in stated_answers(text)]
    return len({answer for answer in stated if answer is not None}) > 1


def group_chart(windows: Sequence[Window]) -> Sequence[Section]:
    """Draw the groups of the last step that has rollouts."""
    if not windows or np.isnan(windows[-1].samples.correct).all():
        return []
    window = windows[-1]
    last = int(window.samples.steps.max())
    rows = np.flatnonzero(window.samples.steps == last)
    numbers = list(dict.fromkeys(window.samples.groups[rows].tolist()))
    pictures = [group_row(window, rows[window.samples.groups[rows] == number]) for number in numbers]
    pictures.sort(key=lambda picture: (_one_sided(picture), picture.name))
    return [
        Groups(
            f"Groups of step {last}",
            pictures,
            note="Each row is a problem, each mark a rollout; the most mixed groups first.",
        )
    ]


def _one_sided(picture: Group) -> float:
    """Return how far a group is from half right, half wrong."""
    return abs(picture.outcomes.count(Outcome.CORRECT) / len(picture.outcomes) - 0.5)


def group_row(window: Window, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Group:
    name = window.samples.names[int(window.samples.problems[rows[0]])]
    outcomes = sorted((rollout_outcome(window, int(row)) for row in rows), key=list(Outcome).index)
    return Group(name, outcomes)


def rollout_outcome(window: Window, row: int) -> Outcome:
    if window.samples.correct[row] == 1:
        return Outcome.CORRECT
    if window.samples.truncated[row]:
        return Outcome.TRUNCATED
    return Outcome.WRONG if window.classes[row] >= 0 else Outcome.UNPARSABLE
