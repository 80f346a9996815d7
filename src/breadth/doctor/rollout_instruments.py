"""Instruments on rollouts, at the start of the run and now.

pass@k and maj@k (what more samples, and voting, would gain), different answers on solved and unsolved problems, what
completions look like (loops, early answers, skipped work, formats, changed answers), and a chart of the newest groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from breadth.doctor.evidence.record import MAX_TEXTS_PER_WINDOW, Window
from breadth.measure.answers import answer_key, stated_answers
from breadth.measure.degeneracy import Degeneracy, reference_computation, response_degeneracy
from breadth.measure.diversity import split_by_solved
from breadth.measure.intervals import Interval, curve_intervals, wilson
from breadth.measure.pass_at_k import chart_ks, pass_at_k, share_always_solved, share_never_solved
from breadth.measure.response_style import effective_format_count, surface_format
from breadth.measure.validate import BoolArray, FloatArray, IntArray
from breadth.measure.vote_counting import maj_at_k_by_problem
from breadth.report.cells import Cell, Missing
from breadth.report.sections import Axis, Column, Curve, Group, Groups, Outcome, Section, Series, Table
from breadth.runs import outcomes
from breadth.runs.reader import Run

ZERO_VARIANCE_NOTE = "Under group-relative advantages a group that is all right or all wrong gives no gradient."


def coverage_sections(windows: Sequence[Window]) -> Sequence[Section]:
    """Return pass@k and maj@k of each window as a table and as curves, and the groups without a signal."""
    graded = [window for window in windows if window.is_graded]
    sizes = [common_group_size(window) for window in graded]
    if not graded or min(sizes) < 2:
        return []
    size = min(sizes)
    rows = [coverage_row(window, size) for window in graded]
    lines = [line for window in graded for line in coverage_lines(window, size)]
    spans = "".join(f"{window.when} = {window.name}; " for window in graded)
    note = (
        f"{spans}groups of {size} samples; unbiased pass@k, exact maj@k with ties shared; intervals from resampling"
        " problems."
    )
    columns = [
        Column("rollouts of"),
        Column("problems"),
        Column("pass@1"),
        Column(f"pass@{size}"),
        Column(f"maj@{size}"),
    ]
    zero_variance = [Column("rollouts of"), Column("no sample right", "%"), Column("all right", "%")]
    chart = Curve("pass@k and maj@k", lines, Axis("samples (k)"), Axis("solved"), log_x=True, note=note)
    shares: list[list[Cell]] = []
    for window in graded:
        _, sampled, right = group_counts(window, size)
        shares.append([window.name, share_never_solved(sampled, right), share_always_solved(sampled, right)])
    groups = Table("Groups without a signal", zero_variance, shares, note=ZERO_VARIANCE_NOTE)
    return [Table("Coverage", columns, rows), chart, groups]


def common_group_size(window: Window) -> int:
    """Return the most common group size; smaller groups are left out of the curves."""
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
    """Return problem, number of samples and number of right samples of each full group."""
    keep, problems = select_full_groups(window, size)
    _, inverse = np.unique(window.samples.groups[keep], return_inverse=True)
    sampled = np.bincount(inverse)
    right = np.bincount(inverse, window.samples.correct[keep]).astype(np.int64)
    return problems, sampled.astype(np.int64), right


def problem_intervals(problems: IntArray, values: FloatArray) -> tuple[Interval, ...]:
    """Return intervals over problems; groups of one problem are averaged first, since they are not independent."""
    _, inverse, counts = np.unique(problems, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, inverse, values)
    return curve_intervals(sums / counts[:, None], bounds=(0.0, 1.0))


def pass_curve(window: Window, size: int, ks: IntArray) -> tuple[Interval, ...]:
    """Return pass@k over problems, with intervals."""
    problems, sampled, right = group_counts(window, size)
    return problem_intervals(problems, pass_at_k(sampled, right, ks))


def vote_curve(window: Window, size: int, ks: IntArray) -> tuple[Interval, ...] | None:
    """Return maj@k over problems, with intervals; None where no answer could be parsed."""
    keep, problems = select_full_groups(window, size)
    if not (window.classes[keep] >= 0).any():
        return None
    return problem_intervals(
        problems,
        maj_at_k_by_problem(window.samples.groups[keep], window.classes[keep], window.samples.correct[keep], ks),
    )


def coverage_lines(window: Window, size: int) -> list[Series]:
    """Return the pass@k and maj@k curves of one window."""
    ks = np.array(chart_ks(size), dtype=np.int64)
    curves = {"pass@k": pass_curve(window, size, ks), "maj@k": vote_curve(window, size, ks)}
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


def coverage_row(window: Window, size: int) -> list[Cell]:
    """Return problems, pass@1, pass@k and maj@k of one window."""
    problems, _, _ = group_counts(window, size)
    ends = np.array([1, size])
    single, many = pass_curve(window, size, ends)
    vote = vote_curve(window, size, ends)
    voted = vote[1] if vote else Missing("no answer could be parsed from the texts")
    return [window.name, len(np.unique(problems)), single, many, voted]


def diversity_table(windows: Sequence[Window]) -> Sequence[Section]:
    """Return distinct and effective answers per group for each window, solved and unsolved groups separately."""
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
        Column("answers parsed", "%"),
    ]
    note = (
        "Per group, at equal sample sizes. Effective answers = exp(entropy), Miller-Madow; intervals from resampling"
        " problems."
    )
    return [Table("Different answers", columns, rows, note=note)]


def diversity_rows(window: Window) -> list[list[Cell]]:
    """Return the rows of one window: solved and unsolved groups, or all where it is not graded."""
    right = np.where(np.isnan(window.samples.correct), 0.0, window.samples.correct).astype(bool)
    split = split_by_solved(window.samples.groups, window.classes, right, problems=window.samples.problems)
    kinds = {"solved": split.solved, "unsolved": split.unsolved} if window.is_graded else {"all": split.every}
    rows: list[list[Cell]] = []
    for kind, means in kinds.items():
        if means.groups:
            rows.append([window.name, kind, means.groups, means.distinct, means.effective, means.parse_rate])
        else:
            none = Missing(f"no {kind} group in these steps")
            rows.append([window.name, kind, 0, none, none, none])
    return rows


def completion_table(run: Run, windows: Sequence[Window]) -> Sequence[Section]:
    """Return what the completions of each window look like, one row per window."""
    read = [
        (
            window,
            outcomes.sample_texts(run, window.first, window.last, MAX_TEXTS_PER_WINDOW, window.split, window.budget),
        )
        for window in windows
    ]
    read = [(window, texts) for window, texts in read if texts]
    if not read:
        return []
    reference = reference_computation(read[0][1])
    rows = [completion_row(window, texts, reference) for window, texts in read]
    columns = [
        Column("rollouts of"),
        Column("read"),
        Column("degenerate", "%"),
        Column("top detector"),
        Column("formats"),
        Column("change their answer", "%"),
    ]
    note = (
        "Degenerate = at least two detectors fire (loops, repetition, early or repeated answers, less work than at the"
        " start). Formats = effective number of surface formats. Change their answer = state one answer, then another,"
        " in one text."
    )
    return [Table("Texts", columns, rows, note=note)]


def completion_row(window: Window, texts: Sequence[str], reference: float) -> list[Cell]:
    """Return the degenerate share, top detector, formats and changed answers of one window."""
    checked = [response_degeneracy(text, reference=reference or None) for text in texts]
    degenerate = wilson(sum(result.is_degenerate for result in checked), len(checked))
    formats = [surface_format(text) for text in texts]
    shares = [formats.count(name) for name in dict.fromkeys(formats)]
    return [
        window.name,
        len(texts),
        degenerate,
        top_detector(checked),
        effective_format_count(shares),
        fmean(map(changes_answer, texts)),
    ]


def top_detector(checked: Sequence[Degeneracy]) -> str:
    """Return the detector that fires most often, with its share."""
    fired = [name for result in checked for name in result.detections]
    if not fired:
        return "nothing"
    top = max(dict.fromkeys(fired), key=fired.count)
    return f"{top} ({fired.count(top) / len(checked):.0%})"


def changes_answer(text: str) -> bool:
    """Say whether a text states one answer, then another."""
    stated = [answer_key(answer) for _, answer in stated_answers(text)]
    return len({answer for answer in stated if answer is not None}) > 1


def group_chart(windows: Sequence[Window]) -> Sequence[Section]:
    """Return the groups of the last step with rollouts, one row per problem, one mark per rollout."""
    if not windows or np.isnan(windows[-1].samples.correct).all():
        return []
    window = windows[-1]
    last = int(window.samples.steps.max())
    rows = np.flatnonzero(window.samples.steps == last)
    numbers = list(dict.fromkeys(window.samples.groups[rows].tolist()))
    charts = [group_row(window, rows[window.samples.groups[rows] == number]) for number in numbers]
    charts.sort(key=lambda chart: (one_sidedness(chart), chart.name))
    return [
        Groups(
            f"Groups of step {last}",
            charts,
            note="Each row is a problem, each mark a rollout; the most mixed groups first.",
        )
    ]


def one_sidedness(group: Group) -> float:
    """Return how far a group is from half right, half wrong."""
    return abs(group.outcomes.count(Outcome.CORRECT) / len(group.outcomes) - 0.5)


def group_row(window: Window, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Group:
    """Return the outcomes of one group."""
    name = window.samples.names[int(window.samples.problems[rows[0]])]
    outcomes = sorted((rollout_outcome(window, int(row)) for row in rows), key=list(Outcome).index)
    return Group(name, outcomes)


def rollout_outcome(window: Window, row: int) -> Outcome:
    """Return the outcome of one rollout."""
    if window.samples.correct[row] == 1:
        return Outcome.CORRECT
    if window.samples.truncated[row]:
        return Outcome.TRUNCATED
    return Outcome.WRONG if window.classes[row] >= 0 else Outcome.UNPARSABLE
