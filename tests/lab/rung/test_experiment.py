"""The experiment for real on a tiny model: trained, measured, answered both ways, taken up again; its trials and its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from breadth.lab.rung.experiment import BOTH_WAYS, BREADTH, SecondRung
from breadth.lab.rung.plan import RungPlan
from breadth.lab.rung.training import RUN, TRAINED
from breadth.lab.trials.experiment import Bench
from breadth.lab.trials.folder import FOUND, done
from breadth.lab.trials.results import finish
from breadth.lab.trials.runner import Failure, run_trials
from breadth.report.sections import Severity, Table, Verdict
from breadth.runs.reader import Run


def test_the_longest_trials_come_first() -> None:
    rung = SecondRung()
    trials = rung.trials(Bench(2, weights="abc"))
    assert [trial.name for trial in trials] == [
        "protected/seed-0",
        "plain/seed-0",
        "protected/seed-1",
        "plain/seed-1",
        "base",
    ]
    assert [trial.settings["plan"]["seed"] for trial in trials] == [0, 0, 1, 1, 0]
    assert {trial.settings["weights"] for trial in trials} == {"abc"}
    assert trials[0].settings["plan"]["steps"] == rung.plan.steps


def test_everything_once_and_again_from_what_is_there(plan: RungPlan, base: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra 'train' is not installed")
    rung, bench = SecondRung(plan=plan), Bench(1, base, "abc")
    trials = rung.trials(bench)
    assert run_trials(trials, tmp_path, base, 2) == []
    found = done(trials, tmp_path)
    assert len(found) == 3
    page = rung.page(found, bench)
    tables = {one.title: one for one in page.sections if isinstance(one, Table)}
    assert [row[0] for row in tables["The policies on held-out sums"].rows] == ["base", "plain GRPO", "protected"]
    assert "What should show" in tables
    rows = Run.open(tmp_path / "plain" / "seed-0" / RUN).query(
        "SELECT split, step, count(*) AS n FROM rollouts GROUP BY ALL ORDER BY ALL"
    )
    # Two generations of two problems x four replies, and four replies to each of three held-out problems at the end.
    assert [tuple(row.values()) for row in rows.to_pylist()] == [("eval", 2, 12), ("train", 1, 8), ("train", 2, 8)]

    place = tmp_path / "plain" / "seed-0"
    kept = {name: (place / name).stat().st_mtime_ns for name in (BREADTH, TRAINED)}
    before = json.loads((place / FOUND).read_text())["result"]
    (place / FOUND).unlink()
    (place / BOTH_WAYS).unlink()  # as if it had been killed there
    assert run_trials(trials, tmp_path, base, 1) == []
    assert json.loads((place / FOUND).read_text())["result"] == before
    assert {name: (place / name).stat().st_mtime_ns for name in kept} == kept


def test_a_page_without_any_arm() -> None:
    (verdict,) = SecondRung().page([], Bench(1, weights="abc")).sections
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.CANNOT_TELL


def test_the_command_and_what_failed(tmp_path: Path) -> None:
    rung, bench = SecondRung(), Bench(1, weights="abc")
    trials = rung.trials(bench)
    page = finish(
        rung,
        bench,
        tmp_path,
        [Failure(trials[0], "no memory", tmp_path / "log.txt")],
        "breadth lab smollm2 M --seeds 1",
    )
    written = json.loads((tmp_path / "results.json").read_text())
    assert list(written) == ["experiment", "statement", "command", "base", "seeds", "trials", "page"]
    assert (written["experiment"], written["command"], written["base"]) == (
        "smollm2",
        "breadth lab smollm2 M --seeds 1",
        "abc",
    )
    assert [(row["name"], row["state"], row["reason"]) for row in written["trials"]] == [
        ("protected/seed-0", "failed", "no memory"),
        ("plain/seed-0", "not run", None),
        ("base", "not run", None),
    ]
    assert written["page"]["title"] == page.title
