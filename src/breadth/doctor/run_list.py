"""Several runs as a list, and the numbers of runs by name for scripts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from breadth.base.errors import redact_address
from breadth.doctor.evidence.record import Window, clip_to_range, rollout_windows
from breadth.doctor.overview import count_rollouts, trainer_switches
from breadth.doctor.pictures import METRIC_UNITS
from breadth.measure.trends import trend
from breadth.report.cells import Cell
from breadth.report.jsonable import to_jsonable
from breadth.report.sections import Column, Listing, Page, Table
from breadth.runs.names import METRIC_NAMES
from breadth.runs.reader import Run
from breadth.runs.schema import Remark

SHOW_SCHEMA = 1
"""Version of what ``breadth show --json`` prints; grows when a key changes meaning or is removed."""
LISTED_METRICS = ("reward", "entropy", "length")
"""Metrics of the list."""
LIST_COLUMNS = ("trainer", "steps", *LISTED_METRICS, "train rollouts", "eval rollouts")
"""Columns of the list behind name and number; one that no run fills is left out."""


def run_list_page(runs: Sequence[Run], paths: Sequence[str | Path]) -> Page:
    """Return one line per run, and how to show one of them."""
    lines = [describe_run(run) for run in runs]
    names = [name for name in LIST_COLUMNS if any(name in line for line in lines)]
    rows: list[list[Cell]] = [
        [run.name, number, *(line.get(name, "-") for name in names)]
        for number, (run, line) in enumerate(zip(runs, lines, strict=True), 1)
    ]
    command = shlex.join(["breadth", "show", *(redact_address(str(path)) for path in paths), "--run", runs[0].name])
    columns = [Column(name) for name in ("run", "number", *names)]
    return Page(
        f"{len(runs)} runs",
        [
            Table("Runs", columns, rows, "Metrics as they are now, with 95% intervals; - is not logged."),
            Listing("Show one of them", command, "--run takes a name or a number of the list."),
        ],
        subtitle="Each is a run of its own: nothing is pooled",
    )


def describe_run(run: Run) -> dict[str, Cell]:
    """Return what a list says of one run, by column; without what it did not log."""
    steps = [point.step for point in run.points]
    cells: dict[str, Cell] = {"trainer": run.header.trainer} if run.header.trainer else {}
    if steps:
        cells["steps"] = f"{min(steps):,} to {max(steps):,}"
    for name in LISTED_METRICS:
        found = run.series(name)
        if len(found.finite):
            cells[name] = clip_to_range(name, trend(found.steps, found.values).end)
    return cells | {f"{split} rollouts": counts["count"] for split, counts in count_rollouts(run).items()}


def runs_to_json(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the numbers of runs by name, as ``breadth show --json`` prints them."""
    return {"schema": SHOW_SCHEMA, "runs": [run_to_json(run) for run in runs]}


def run_to_json(run: Run) -> dict[str, Any]:
    """Return the numbers of one run by name."""
    steps = sorted({point.step for point in run.points})
    known = {split: [name for name in METRIC_NAMES if name in run.metric_names(split)] for split in ("train", "eval")}
    return {
        "name": to_jsonable(run.name),
        "files": [to_jsonable(file) for file in run.header.files or (redact_address(str(run.folder)),)],
        "trainer": to_jsonable(run.header.trainer) or None,
        "steps": {"first": steps[0], "last": steps[-1], "logged": len(steps)} if steps else None,
        "starts": run.attempts,
        "metrics": {name: metric_to_json(run, name, "train") for name in known["train"]},
        "eval_metrics": {name: metric_to_json(run, name, "eval") for name in known["eval"]},
        "other_metrics": [to_jsonable(name) for name in run.metric_names() if name not in known["train"]],
        "rollouts": rollouts_to_json(run) if run.rollout_files else None,
        "switch_on": {name: to_jsonable(setting) for name, setting in trainer_switches(run).items()},
        "remarks": [remark_to_json(remark) for remark in (*run.header.remarks, *run.broken)],
    }


def metric_to_json(run: Run, name: str, split: str) -> dict[str, Any]:
    """Return start, end and direction of one metric."""
    series = run.series(name, split)
    found = trend(series.steps, series.values)
    return {
        "logged_as": to_jsonable(run.header.names.get(name, name)),
        "unit": METRIC_UNITS.get(name),
        "points": found.points,
        "start": to_jsonable(clip_to_range(name, found.start)),
        "now": to_jsonable(clip_to_range(name, found.end)),
        "direction": found.verdict,
        "reason": found.reason,
        "p_value": to_jsonable(found.p_value),
    }


def rollouts_to_json(run: Run) -> dict[str, Any]:
    """Return how many rollouts there are, and what those at the start and now solve; held-out ones apart."""
    return {
        split: {**counts, "windows": {window.when: window_to_json(window) for window in rollout_windows(run, split)}}
        for split, counts in count_rollouts(run).items()
    }


def window_to_json(window: Window) -> Mapping[str, Any]:
    """Return pass@k, maj@k and different answers of some steps; null where they cannot be measured."""
    import numpy as np

    from breadth.doctor.rollout_instruments import common_group_size, group_counts, pass_curve, vote_curve
    from breadth.measure.diversity import split_by_solved

    size = common_group_size(window)
    ks = np.unique([1, size])
    problems = len(np.unique(group_counts(window, size)[0]))
    votes = vote_curve(window, size, ks) if window.is_graded else None
    right = np.where(np.isnan(window.samples.correct), 0.0, window.samples.correct).astype(bool)
    answers = split_by_solved(window.samples.groups, window.classes, right, problems=window.samples.problems).every
    return {
        "first_step": window.first,
        "last_step": window.last,
        "problems": problems,
        "samples_per_problem": size,
        "pass_at_1": to_jsonable(pass_curve(window, size, ks)[0]) if window.is_graded else None,
        "pass_at_k": to_jsonable(pass_curve(window, size, ks)[-1]) if window.is_graded else None,
        "maj_at_k": to_jsonable(votes[-1]) if votes is not None else None,
        "distinct_answers": to_jsonable(answers.distinct) if answers.groups and (window.classes >= 0).any() else None,
    }


def remark_to_json(remark: Remark) -> dict[str, Any]:
    """Return a remark on the input."""
    text = {"file": remark.file, "problem": remark.problem, "remedy": remark.remedy}
    return {name: to_jsonable(value) for name, value in text.items()} | {"row": remark.row}
