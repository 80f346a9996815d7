"""Samples from elsewhere are a sweep: budgets are arms, plain samples are votes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from breadth.runs.importing import import_files
from breadth.runs.reader import Run
from breadth.tuning.evidence import SweepEvidence, read_evidence
from breadth.tuning.result import analyze_sweep


def read(folder: Path, rows: list[dict[str, Any]]) -> SweepEvidence:
    return read_evidence(imported(folder, rows))


def imported(folder: Path, rows: list[dict[str, Any]]) -> Run:
    path = folder / "samples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_files([path], folder / "run")
    return Run.open(folder / "run")


def row(question: str, answer: str | None, right: bool | None, **others: Any) -> dict[str, Any]:
    return {"question_id": question, "answer": answer, "correct": right, **others}


def test_budgets_are_arms_and_the_largest_is_the_plain_one(tmp_path: Path) -> None:
    rows = [
        row("q", "4", True, max_tokens=500, n_tokens=400),
        row("q", "5", False, max_tokens=8000, n_tokens=3000),
        row("q", "4", True, max_tokens=8000, n_tokens=5000),
        row("r", None, None, max_tokens=500, n_tokens=500),
        row("r", "1", True, max_tokens=8000, n_tokens=1000),
        row("r", "1", True, max_tokens=8000, n_tokens=1000),
        row("s", "1", True, max_tokens=500, n_tokens=10),  # not asked at 8,000
    ]
    evidence = read(tmp_path, rows)
    assert (evidence.questions, evidence.left_out, evidence.labelled) == (("q", "r"), 1, True)
    assert [arm.arm.budget for arm in evidence.serial] == [500, 8000]
    assert evidence.plain is evidence.serial[1]
    assert [arm.arm.name for arm in evidence.all_arms] == ["budget 8,000", "budget 500"]
    # A sample without a grade and without an answer is wrong, where others have grades.
    assert evidence.serial[0].scores.tolist() == [[1.0], [0.0]]
    assert evidence.plain.scores.tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert evidence.plain.tokens.tolist() == [[3000.0, 5000.0], [1000.0, 1000.0]]
    assert evidence.plan.widths == (1, 2)
    assert evidence.cost_unit == "tokens"


def test_samples_without_a_budget_are_the_plain_arm(tmp_path: Path) -> None:
    rows = [row("q", "4", True, thinking_budget=0), row("q", "5", False), row("q", "4", True), row("q", "6", False)]
    evidence = read(tmp_path, rows)
    assert evidence.plain.arm.budget is None
    assert evidence.plain.scores.tolist() == [[0.0, 1.0, 0.0]]
    assert [arm.arm.name for arm in evidence.serial] == ["budget 0"]
    assert evidence.plan.widths == (1, 2, 3)
    assert evidence.cost_unit == "samples"
    assert evidence.plain.tokens.tolist() == [[1.0, 1.0, 1.0]]


def test_without_grades_the_majority_counts_and_confidences_are_kept(tmp_path: Path) -> None:
    rows = [
        {"question_id": "q", "answer": answer, "confidence": sure}
        for answer, sure in (("1", 0.5), ("1", None), ("2", 1))
    ]
    evidence = read(tmp_path, rows)
    assert not evidence.labelled
    assert evidence.plain.scores.tolist() == [[1.0, 1.0, 0.0]]
    np.testing.assert_array_equal(evidence.plain.confidences, [[0.5, np.nan, 1.0]])


def test_a_fall_over_budgets_is_tested(tmp_path: Path) -> None:
    # Of 30 questions, ten are right at 500 tokens only, two at 8,000 only: 30 less 2 and 30 less 10 of 30.
    right = {500: range(2, 30), 8000: [*range(2), *range(12, 30)]}
    rows = [
        row(f"q{n}", "1" if n in right[budget] else "2", n in right[budget], budget=budget, n_tokens=budget)
        for budget in right
        for n in range(30)
    ]
    hump = analyze_sweep(imported(tmp_path, rows)).hump
    assert hump is not None
    assert hump.accuracies == pytest.approx((28 / 30, 20 / 30))
    # One side of the sign test over twelve differing questions: (1 + 12 + 66) / 4096.
    assert hump.p_value == pytest.approx(79 / 4096, abs=1e-9)
    assert hump.is_positive
