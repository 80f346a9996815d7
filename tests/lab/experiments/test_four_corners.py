"""The four corners over seeds, done for real on a tiny scale."""

from __future__ import annotations

from pathlib import Path

from breadth.lab.demo.plan import Plan
from breadth.lab.experiments.four_corners import FourCorners
from breadth.lab.trials.experiment import bench_of
from breadth.lab.trials.folder import done
from breadth.lab.trials.runner import run_trials
from breadth.report.sections import Table, Verdict

SMALL = FourCorners(
    plan=Plan(
        steps=2,
        prompts=2,
        group=2,
        trained=8,
        longest=40,
        problems=3,
        samples=4,
        votes=4,
        budgets=(4, 8),
        budget_samples=1,
        thinking=24,
        repeats=1,
    ),
    others=(30, 12),
)


def test_both_arms_at_every_seed_become_one_table(tmp_path: Path, memorised_folder: Path) -> None:
    bench = bench_of(memorised_folder, 2)
    trials = SMALL.trials(bench)
    assert [trial.name for trial in trials] == ["base", "plain/seed-0", "protected/seed-0", "plain/seed-1", "protected/seed-1"]
    assert run_trials(trials[:3], tmp_path, memorised_folder, 2) == []
    found = done(trials, tmp_path)
    page = SMALL.page(found, bench)
    tables = {one.title: one for one in page.sections if isinstance(one, Table)}
    assert [row[0] for row in tables["The policies on held-out problems"].rows] == ["base", "plain GRPO", "protected"]
    assert [row[0] for row in tables["At other budgets"].rows] == ["12", "24", "30"]
    assert "What should show" in tables
    assert [fact.value for fact in page.provenance] == [bench.weights, 1]
    (verdict,) = SMALL.page(found[:2], bench).sections
    assert isinstance(verdict, Verdict)
    assert verdict.headline == "At no seed have both arms ended."
