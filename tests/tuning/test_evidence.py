"""Evidence from a sweep's folder: complete questions only, classes over all arms, agreement without labels."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from breadth.base.errors import MeasureError, NotARunError
from breadth.base.settings import to_table
from breadth.inference.policy import Policy
from breadth.inference.records import Prices
from breadth.inference.sweep_plan import SweepPlan, forced_arms, plain_arm
from breadth.inference.thinking import UNMARKED_THINKING
from breadth.runs.importing import import_files
from breadth.runs.reader import Run
from breadth.runs.schema import Header, to_toml_value
from breadth.runs.writer import RunWriter
from breadth.tuning.evidence import SweepEvidence, arm_traits, read_evidence
from breadth.tuning.result import analyze_sweep

Swept = Callable[..., Path]
Answers = dict[str, tuple[list[str | None], list[str | None]]]


def written(folder: Path, answers: Answers, references: dict[str, str | None], questions: int | None = None) -> Run:
    """Write a sweep by hand: for each question its plain answers and those of one forced budget."""
    plain, forced = (len(given) for given in next(iter(answers.values())))
    arms = (plain_arm((1, plain)), *forced_arms([8], UNMARKED_THINKING, forced))
    plan = SweepPlan(Policy(prices=Prices(1.0, 0.5, 2.0)), arms, (1, plain), questions or len(answers))
    writer = RunWriter(folder, Header(name="sweep", config=to_toml_value({"plan": to_table(plan)})))
    for step in (0, 1):
        rows = [(name, place, given) for name, parts in answers.items() for place, given in enumerate(parts[step])]
        writer.rollouts(columns(rows, references), step, split="eval")
    names = list(references)
    writer.problems({"problem": names, "prompt": names, "reference": list(references.values())})
    return Run.open(folder)


def columns(rows: list[tuple[str, int, str | None]], references: dict[str, str | None]) -> dict[str, list[Any]]:
    extra = {"input_tokens": 30, "cached_tokens": 10, "seconds": 0.5, "confidence": None}
    return {
        "problem": [name for name, _, _ in rows],
        "sample": [place for _, place, _ in rows],
        "completion": [f"It is {given}" for _, _, given in rows],
        "answer": [given for _, _, given in rows],
        "correct": [None if references[name] in (None, "?") else given == references[name] for name, _, given in rows],
        "tokens": [20 for _ in rows],
        "truncated": [given is None for _, _, given in rows],
        "extra": [orjson.dumps(extra).decode() for _ in rows],
    }


def test_labelled_answers_are_worth_their_grade(tmp_path: Path) -> None:
    run = written(
        tmp_path / "run", {"a": (["1", "2", None], ["2"]), "b": (["5", "5", "5"], ["6"])}, {"a": "2", "b": "5"}
    )
    evidence = read_evidence(run)
    assert evidence.labelled
    assert evidence.score_name == "accuracy"
    np.testing.assert_array_equal(evidence.plain.scores, [[0, 1, 0], [1, 1, 1]])
    np.testing.assert_array_equal(evidence.serial[0].scores, [[1], [0]])
    # Classes are shared by the arms: the forced 2 of question a is the class of the plain 2.
    np.testing.assert_array_equal(evidence.plain.classes, [[0, 1, -1], [0, 0, 0]])
    np.testing.assert_array_equal(evidence.serial[0].classes, [[1], [1]])
    # 20 fresh tokens at 1, 10 cached at 0.5, 20 written at 2, a million each.
    assert evidence.plain.money[0, 0] == pytest.approx((20 + 5 + 40) / 1e6)
    assert evidence.plain.truncated.tolist() == [[False, False, True], [False, False, False]]
    assert np.isnan(evidence.plain.confidences).all()


def test_without_labels_the_pooled_majority_counts_each_arm_the_same(tmp_path: Path) -> None:
    answers: Answers = {
        "a": (["1", "1", "2"], ["2"]),  # 2/3 for 1, 1/3 + 1 for 2
        "b": (["3", "3", "3"], ["4"]),  # one each: a tie
        "c": ([None, None, None], [None]),
    }
    evidence = read_evidence(written(tmp_path / "run", answers, dict.fromkeys("abc")))
    assert not evidence.labelled
    assert evidence.score_name == "agreement"
    np.testing.assert_array_equal(evidence.plain.scores, [[0, 0, 1], [0.5, 0.5, 0.5], [0, 0, 0]])
    np.testing.assert_array_equal(evidence.serial[0].scores, [[1], [0.5], [0]])
    assert evidence.truths[0] == "2"
    assert evidence.truths[2] == ""


def test_references_that_nothing_can_be_graded_by_are_no_labels(tmp_path: Path) -> None:
    evidence = read_evidence(written(tmp_path / "run", {"a": (["1", "1", "2"], ["1"])}, {"a": "?"}))
    assert not evidence.labelled
    assert evidence.truths == ("1",)
    np.testing.assert_array_equal(evidence.plain.scores, [[1, 1, 0]])


def test_questions_without_all_samples_are_left_out(tmp_path: Path) -> None:
    run = written(tmp_path / "run", {"a": (["1", "2"], ["2"]), "b": (["1"], ["2"])}, {"a": "1", "b": "1"}, questions=4)
    evidence = read_evidence(run)
    assert evidence.questions == ("a",)
    assert evidence.left_out == 3


def test_a_folder_without_a_whole_question_is_an_error(tmp_path: Path) -> None:
    run = written(tmp_path / "run", {"a": (["1", "2"], ["2"])}, {"a": "1"})
    for path in run.rollout_files[:1]:
        path.unlink()
    with pytest.raises(MeasureError, match="no question with all its samples"):
        read_evidence(Run.open(run.folder))


def test_other_folders_are_refused(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run", Header(name="training"))
    with pytest.raises(NotARunError, match="not of a sweep"):
        read_evidence(Run.open(tmp_path / "run"))


def test_a_real_sweep_reads_as_it_was_drawn(swept: Swept) -> None:
    evidence = read_evidence(Run.open(swept(lambda _: 1.0, 5, budgets=(64,), draws=2)))
    assert len(evidence.questions) == 5
    assert evidence.plain.scores.shape == (5, 8)
    assert evidence.plain.scores.all()
    assert set(evidence.plain.tokens.ravel()) == {36}
    assert set(evidence.serial[0].tokens.ravel()) == {68}
    assert evidence.serial[0].arm.budget == 64


Made = Callable[..., SweepEvidence]


def test_entropy_is_taken_at_the_same_number_of_samples_everywhere(made: Made) -> None:
    # Forced arms have one sample here, so no arm has an entropy.
    assert all(traits.entropy is None for traits in arm_traits(made([[0, 1], [0, 0]], {8: [[0], [1]]})))
    (plain,) = arm_traits(made([[0, 1], [0, 0]]))
    # One question of two different answers in two samples: ln 2 + 1/4 (Miller-Madow); the other 0.
    assert plain.entropy is not None
    assert plain.entropy.value == pytest.approx((math.log(2) + 0.25) / 2)
    assert plain.samples == 2


def test_changes_of_the_answer_are_counted_to_and_from_the_right_one(made: Made) -> None:
    texts = [
        "The answer is 0. Wait. The answer is 5.",  # lost
        "The answer is 0.",
        "The answer is 3. Wait. The answer is 4. Wait. The answer is 0.",  # moved, then found
        "I cannot say.",
    ]
    (plain,) = arm_traits(made([[1, 0], [0, -1]], texts=texts))
    assert plain.changing.value == pytest.approx(0.5)
    assert (plain.lost, plain.found) == (1, 1)
    assert plain.unread.value == pytest.approx(0.25)
    assert plain.score.value == pytest.approx(0.5)
    assert plain.tokens == 10


def test_traces_that_state_nothing_change_nothing(made: Made) -> None:
    (plain,) = arm_traits(made([[-1, -1], [-1, -1]]))
    assert plain.changing.value == 0
    assert plain.entropy is None
    assert plain.unread.value == 1


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
