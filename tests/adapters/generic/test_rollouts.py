"""Foreign tables of rollouts: problems, steps, grades, what is assumed and told."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.generic.layout import layout_of
from breadth.adapters.generic.rollouts import RolloutTable
from breadth.base.errors import UnknownFormatError
from breadth.runs.problems import problem_id
from breadth.runs.records import Remark, RolloutBatch

PATH = Path("table.jsonl")


def table(rows: list[dict[str, Any]], mapping: dict[str, str] | None = None) -> tuple[list[RolloutBatch], list[str]]:
    batch = list(enumerate(rows, 1))
    columns = dict.fromkeys(name for row in rows for name in row)
    made = RolloutTable(layout_of(columns, mapping or {}, "rollouts"), batch, PATH)
    records = list(made.records(batch))
    odd = [record.problem for record in (*records, *made.remarks()) if isinstance(record, Remark)]
    return [record for record in records if isinstance(record, RolloutBatch)], odd


def only(rows: list[dict[str, Any]], mapping: dict[str, str] | None = None) -> list[dict[str, Any]]:
    (batch,), _ = table(rows, mapping)
    found: list[dict[str, Any]] = batch.table.to_pylist()
    return found


VOTE: dict[str, Any] = {"question_id": 7, "sample_index": 3, "answer": "18", "correct": True, "n_tokens": 107, "confidence": 0.5}


def test_a_vote_is_a_rollout_of_one_evaluation() -> None:
    (batch,), remarks = table([VOTE])
    assert batch.split == "eval"
    assert batch.table.to_pylist() == [
        {"problem": "7", "answer": "18", "correct": True, "tokens": 107, "sample": 3, "step": 0, "extra": '{"confidence":0.5}'}
    ]
    assert remarks == ["rows carry no step; they were taken as one evaluation, at step 0."]


def test_prompts_name_problems_and_answers_are_read() -> None:
    rows = [{"step": step, "prompt": "2+2?", "completion": r"so \boxed{4}", "reward": 1.0} for step in (1, 2)]
    (batch,), remarks = table(rows)
    assert batch.split == "train"
    found = batch.table.to_pylist()
    assert [row["step"] for row in found] == [1, 2]
    assert {row["problem"] for row in found} == {problem_id("2+2?")}
    assert {row["answer"] for row in found} == {"4"}
    assert remarks == []


def test_truth_as_text_counts_only_where_truth_is_meant() -> None:
    rows = [{"question_id": "1", "answer": "No", "is_correct": "False"}, {"question_id": "2", "answer": "true", "is_correct": "yes"}]
    assert [(row["answer"], row["correct"]) for row in only(rows)] == [("No", False), ("true", True)]


def test_nan_for_missing_is_null_but_a_reward_may_be_nan() -> None:
    whole = {"question_id": "1", "answer": "4", "n_tokens": 9.0, "reward": 0.5, "correct": 1}
    first, second = only([whole, {**whole, "answer": math.nan, "n_tokens": math.nan, "reward": math.nan, "correct": math.nan}])
    assert (first["answer"], first["tokens"], first["correct"]) == ("4", 9, True)
    assert (second["answer"], second["tokens"], second["correct"]) == (None, None, None)
    assert math.isnan(second["reward"])


def test_a_split_column_parts_the_rows() -> None:
    batches, _ = table([{**VOTE, "split": "train"}, {**VOTE, "split": "test"}, VOTE])
    assert [(batch.split, len(batch.table)) for batch in batches] == [("train", 1), ("eval", 2)]
    assert "split" not in json.loads(batches[0].table.column("extra").to_pylist()[0])


def test_rows_without_problem_or_step_are_kept_and_told() -> None:
    rows: list[dict[str, Any]] = [{"step": 5, "prompt": None, "response": "a"}, {"step": "x", "prompt": "p", "response": "b"}]
    (batch,), remarks = table(rows)
    assert batch.table.select(["step", "problem"]).to_pylist() == [
        {"step": 5, "problem": "unknown"},
        {"step": 0, "problem": problem_id("p")},
    ]
    assert remarks == [
        "1 rows have no step under 'step'; they were put at step 0.",
        "1 rows do not say which problem they are about; they share the problem 'unknown'.",
    ]


def test_a_missing_id_falls_back_on_the_prompt() -> None:
    rows: list[dict[str, Any]] = [{"question_id": "q1", "prompt": "p", "answer": "1"}, {"question_id": None, "prompt": "p", "answer": "2"}]
    assert [row["problem"] for row in only(rows)] == ["q1", problem_id("p")]


def test_a_batch_without_any_prompt_still_has_problems() -> None:
    made = RolloutTable(layout_of(["prompt", "response"], {}, "rollouts"), [(1, {"prompt": "p", "response": "r"})], PATH)
    (batch,) = made.records([(2, {"response": "later"})])
    assert isinstance(batch, RolloutBatch)
    assert batch.table.column("problem").to_pylist() == ["unknown"]


def test_a_mean_entropy_is_kept_and_not_taken_for_tokens() -> None:
    (row,) = only([{**VOTE, "entropy": 0.4}])
    assert "entropy" not in row
    assert json.loads(row["extra"])["entropy"] == 0.4
    (row,) = only([{**VOTE, "entropy": [0.5, 0.25]}])
    assert row["entropy"] == [0.5, 0.25]


def test_several_models_are_told_and_several_runs_refused() -> None:
    _, remarks = table([{**VOTE, "model": "a"}, {**VOTE, "model": "b"}])
    assert remarks[-1] == "samples of several models stand side by side ('model': a, b, ...): they are no draws from one policy."
    with pytest.raises(UnknownFormatError, match="several runs"):
        table([{**VOTE, "step": 1, "run_id": "a"}, {**VOTE, "step": 1, "run_id": "b"}])


def test_summaries_are_refused() -> None:
    with pytest.raises(UnknownFormatError, match="'num_votes'"):
        table([{**VOTE, "num_votes": 512}])


def test_a_mapping_of_everything() -> None:
    rows = [{"it": 4, "q": "7", "text": "x", "final": "18", "ok": 1, "fmt": 0.5, "step": 9}]
    mapping = {"step": "it", "problem": "q", "completion": "text", "answer": "final", "correct": "ok", "reward/format": "fmt"}
    (row,) = only(rows, mapping)
    assert row == {
        "step": 4,
        "problem": "7",
        "completion": "x",
        "answer": "18",
        "correct": True,
        "reward/format": 0.5,
        "sample": 0,
        "extra": '{"step":9}',
    }


def test_wrong_types_are_left_empty_and_told() -> None:
    (batch,), remarks = table([VOTE, {**VOTE, "n_tokens": "many", "correct": 0.5}])
    assert batch.table.column("tokens").to_pylist() == [107, None]
    assert batch.table.column("correct").to_pylist() == [True, None]
    assert sum("left empty there" in remark for remark in remarks) == 2
