"""The four corners over seeds, done for real on a tiny scale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from breadth.lab.demo.plan import DemoPlan
from breadth.lab.demo.run import plan_problems
from breadth.lab.experiments.four_corners import CONFIRMATION, CORNERS, FourCorners
from breadth.lab.reasoner import load_reasoner
from breadth.lab.trials.experiment import list_finished, load_setup
from breadth.lab.trials.runner import run_trials
from breadth.report.sections import Table, Verdict


@pytest.fixture
def small(tiny_plan: DemoPlan) -> FourCorners:
    return FourCorners(plan=replace(tiny_plan, thinking=24), extra_budgets=(30, 12))


def test_both_arms_at_every_seed_become_one_table(small: FourCorners, tmp_path: Path, memorised_folder: Path) -> None:
    bench = load_setup(memorised_folder, 2)
    trials = small.trials(bench)
    assert [trial.name for trial in trials] == [
        "base",
        "plain/seed-0",
        "protected/seed-0",
        "plain/seed-1",
        "protected/seed-1",
    ]
    assert run_trials(trials[:3], tmp_path, memorised_folder, 2) == []
    found = list_finished(trials, tmp_path)
    page = small.page(found, bench)
    tables = {one.title: one for one in page.sections if isinstance(one, Table)}
    assert [row[0] for row in tables["The policies on held-out problems"].rows] == ["base", "plain GRPO", "protected"]
    assert [row[0] for row in tables["At other budgets"].rows] == ["12", "24", "30"]
    assert "What should show" in tables
    assert [fact.value for fact in page.provenance] == [bench.weights, "0", f"1 to {small.plan.problems}"]
    (verdict,) = small.page(found[:2], bench).sections
    assert isinstance(verdict, Verdict)
    assert verdict.headline == "At no seed have both arms ended."


def test_the_confirmation_shares_neither_seeds_nor_problems_with_the_corners() -> None:
    bench = load_setup(None, 5)
    names = [{trial.name for trial in one.trials(bench)} - {"base"} for one in (CORNERS, CONFIRMATION)]
    assert names[0].isdisjoint(names[1])
    assert sorted(names[1])[:2] == ["plain/seed-5", "plain/seed-6"]
    reasoner = load_reasoner()
    asked = [plan_problems(one.plan, reasoner) for one in (CORNERS, CONFIRMATION)]
    assert [len(set(one)) for one in asked] == [200, 400]
    assert set(asked[0]).isdisjoint(asked[1])
    assert replace(CONFIRMATION.plan, problems=200, skipped=0) == CORNERS.plan
