"""Votes and budgets from elsewhere reach the checks of inference, from a file named to the doctor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import breadth
from breadth.doctor.collect import collect_evidence
from breadth.doctor.diagnosis import RunDiagnosis, diagnose_run
from breadth.measure.intervals import Interval


def diagnoses(path: Path, folder: Path) -> dict[str, RunDiagnosis]:
    found = collect_evidence([path], folder / "work")
    return {case.name: diagnose_run(case) for case in found.cases}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sweep_rows(column: str) -> list[dict[str, Any]]:
    """Thirty questions: ten are right at 500 tokens only, two at 8,000 only, 18 at both."""
    right = {500: range(2, 30), 8000: [*range(2), *range(12, 30)]}
    return [
        {"question_id": n, column: budget, "answer": str(int(n in right[budget])), "correct": n in right[budget]}
        for budget in right
        for n in range(30)
    ]


@pytest.mark.parametrize("column", ["budget", "max_tokens"])
def test_a_proven_fall_over_budgets_is_over_thinking(tmp_path: Path, column: str) -> None:
    (found,) = diagnoses(write(tmp_path / "sweep.jsonl", sweep_rows(column)), tmp_path).values()
    finding = next(finding for finding in found.findings if finding.name == "over-thinking")
    assert "accuracy falls from 93% at 500 thinking tokens to 67% at 8,000" in finding.headline


def test_a_column_of_ones_own_is_named_as_the_budget(tmp_path: Path) -> None:
    path = write(tmp_path / "sweep.jsonl", sweep_rows("decile"))
    apart = breadth.diagnose(path)
    assert len(apart.document["checked"]) == 2
    assert not any(finding.name == "over-thinking" for finding in apart.findings)
    found = breadth.diagnose(path, columns={"budget": "decile"})
    assert [finding.name for finding in found.findings if finding.name == "over-thinking"] == ["over-thinking"]


def test_grades_without_answers_still_show_over_thinking(tmp_path: Path) -> None:
    rows = [{name: value for name, value in row.items() if name != "answer"} for row in sweep_rows("budget")]
    (found,) = diagnoses(write(tmp_path / "sweep.jsonl", rows), tmp_path).values()
    assert [finding.name for finding in found.findings] == ["over-thinking"]
    missing = {lack.name: lack for lack in found.cannot_tell}
    assert missing["bottleneck"].switch_on == "--map answer=COLUMN"


def test_votes_of_real_models_are_examined(fixtures: Path, tmp_path: Path) -> None:
    found = diagnoses(fixtures / "votes" / "consol_o3mini_high_aime24_vote40.parquet", tmp_path)
    (diagnosis,) = found.values()
    assert {"over-sampling", "bottleneck"} <= {finding.name for finding in diagnosis.findings}
    facts = {fact.name: fact for finding in diagnosis.findings for fact in finding.evidence}
    # The README of the votes: mean accuracy 0.88, every question solved by one of 40 samples.
    assert facts["score now"].value == pytest.approx(0.88, abs=5e-4)
    out_of_reach = facts["training or more samples: out of reach of 40 samples"].value
    assert isinstance(out_of_reach, Interval)
    assert out_of_reach.value == 0.0


def test_models_in_one_file_are_judged_apart(fixtures: Path, tmp_path: Path) -> None:
    found = diagnoses(fixtures / "votes" / "openai_gsm_4models.parquet", tmp_path)
    models = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
    assert list(found) == [f"openai_gsm_4models, model={model}" for model in models]
    # One sample a question: no vote, and nothing is claimed of one.
    assert all(not diagnosis.findings for diagnosis in found.values())
