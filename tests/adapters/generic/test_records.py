"""Foreign tables of rollouts: problems, steps, grades, what is assumed and told."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.generic.importer import IMPORTER
from breadth.adapters.generic.layout import layout_of
from breadth.adapters.generic.records import (
    MOST,
    RUNS,
    MetricTable,
    RolloutTable,
    Several,
    refuse_summaries,
    stacked,
    unix_time,
)
from breadth.base.errors import UnknownFormatError
from breadth.runs.schema import MetricRow, Remark, RolloutBatch
from breadth.runs.writer import problem_id


def test_one_run_passes_and_a_second_is_refused() -> None:
    several = Several(["Run", "step"], RUNS, Path("table.csv"))
    several.add([{"Run": "a", "step": 1}, {"Run": None, "step": 2}, {"step": 3}])
    several.refuse_several()
    assert several.found == ""
    several.add([{"Run": "b"}])
    with pytest.raises(UnknownFormatError, match=r"rows of several runs \('Run': a, b"):
        several.refuse_several()


def test_columns_of_another_kind_are_not_looked_at() -> None:
    several = Several(["seed"], RUNS, Path("table.csv"))
    several.add([{"seed": 1}, {"seed": 2}])
    assert several.found == ""


def test_summaries_are_refused() -> None:
    refuse_summaries(["question_id", "answer"], Path("votes.csv"))
    with pytest.raises(UnknownFormatError, match="one row for many samples"):
        refuse_summaries(["question_id", "Num_Votes"], Path("votes.csv"))


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_the_runs_of_a_table_can_be_read_one_by_one(tmp_path: Path, form: str) -> None:
    rows = [{"step": step // 2, "run": "ab"[step % 2], "entropy": step / 10} for step in range(8)]
    path = tmp_path / f"both.{form}"
    lines = (
        [json.dumps(row) for row in rows]
        if form == "jsonl"
        else ["step,run,entropy", *(",".join(map(str, row.values())) for row in rows)]
    )
    path.write_text("\n".join(lines) + "\n")
    kind = IMPORTER.recognises(path, path.read_bytes())
    assert kind is not None
    with pytest.raises(UnknownFormatError, match="several runs"):
        list(IMPORTER.read(path, kind))
    apart = IMPORTER.apart(path, kind)
    assert list(apart) == ["a", "b"]
    found = [record.values["entropy"] for record in apart["b"].read(path, kind) if isinstance(record, MetricRow)]
    assert found == [0.1, 0.3, 0.5, 0.7]


def test_one_run_and_too_many_are_not_read_apart() -> None:
    assert stacked([[(1, {"run": "a"}), (2, {"run": "a"})]])[1] == []
    assert stacked([[(row, {"run": row}) for row in range(MOST + 1)]])[1] == []
    assert stacked([[(row, {"run": row}) for row in range(MOST)]])[1] == [str(row) for row in range(MOST)]
    assert stacked([[(1, {"step": 1})]]) == ("", [])


PATH = Path("table.csv")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


def metric_table(
    rows: list[dict[str, Any]], mapping: dict[str, str] | None = None
) -> tuple[list[MetricRow], list[str]]:
    columns = dict.fromkeys(name for row in rows for name in row)
    made = MetricTable(layout_of(columns, mapping or {}, "metrics"), columns, PATH)
    found = [record for record in made.records(list(enumerate(rows, 1))) if isinstance(record, MetricRow)]
    return found, [remark.problem for remark in made.remarks()]


def test_weights_and_biases_history() -> None:
    rows = [
        {
            "_step": "0",
            "_timestamp": "1700000000.5",
            "_runtime": "3",
            "train/global_step": "10",
            "train/reward": "0.25",
            "eval/reward": None,
        },
        {
            "_step": "1",
            "_timestamp": "1700000001.5",
            "_runtime": "4",
            "train/global_step": "10",
            "train/reward": None,
            "eval/reward": "0.5",
        },
    ]
    found, remarks = metric_table(rows)
    assert found == [
        MetricRow({"_step": 0.0, "_runtime": 3.0, "train/reward": 0.25}, 10, 1700000000.5),
        MetricRow({"_step": 1.0, "_runtime": 4.0}, 10, 1700000001.5),
        MetricRow({"reward": 0.5}, 10, 1700000001.5, "eval"),
    ]
    assert remarks == []


def test_an_exported_chart_loses_its_runs_name_and_its_band() -> None:
    found, _ = metric_table(
        [
            {
                "Step": "5",
                "lr-3 - train/reward": "0.5",
                "lr-3 - train/reward__MIN": "0.4",
                "lr-3 - train/reward__MAX": "0.6",
            }
        ]
    )
    assert found == [MetricRow({"train/reward": 0.5}, 5)]


def test_a_chart_of_several_runs_is_refused() -> None:
    with pytest.raises(UnknownFormatError, match=r"several runs \(a, b"):
        metric_table([{"Step": 1, "a - reward": 0.5, "b - reward": 0.6}])


@pytest.mark.parametrize("column", ["run", "run_id", "model"])
def test_stacked_runs_are_refused_and_one_is_not(column: str) -> None:
    found, remarks = metric_table([{column: "a", "step": 1, "reward": 0.5}, {column: "a", "step": 2, "reward": 0.5}])
    assert [dict(row.values) for row in found] == [{"reward": 0.5}, {"reward": 0.5}]
    assert remarks == []
    with pytest.raises(UnknownFormatError, match="several runs"):
        metric_table([{column: "a", "step": 1, "reward": 0.5}, {column: "b", "step": 1, "reward": 0.5}])


def test_a_mapping_renames_and_a_lookalike_steps_aside() -> None:
    found, _ = metric_table([{"it": 3, "score": 0.5, "reward": 9.0}], {"step": "it", "reward": "score"})
    assert found == [MetricRow({"reward": 0.5, "raw/reward": 9.0}, 3)]


def test_without_a_step_column_rows_are_numbered_later() -> None:
    assert metric_table([{"score": 0.5}], {"reward": "score"})[0] == [MetricRow({"reward": 0.5}, None)]


def test_rows_without_their_step_are_left_out_and_told() -> None:
    found, remarks = metric_table(
        [{"step": 1, "a": 1}, {"step": None, "a": 2}, {"step": "x", "a": 3}, {"step": -1, "a": 4}]
    )
    assert [row.step for row in found] == [1]
    assert remarks == ["3 rows have no step under 'step'; left out."]


def test_text_is_told_once_for_each_column_and_nan_is_kept() -> None:
    found, remarks = metric_table([{"step": 1, "a": "text", "b": "NaN"}, {"step": 2, "a": "more", "b": "inf"}])
    assert math.isnan(found[0].values["b"])
    assert found[1].values == {"b": math.inf}
    assert remarks == ["'a' is 'text', not a number, in 2 rows; left out there."]


def test_a_split_column_tells_evaluation_apart() -> None:
    found, _ = metric_table(
        [
            {"step": 1, "split": "train", "reward": 0.1},
            {"step": 1, "split": "Validation", "reward": 0.2},
            {"step": 2, "reward": 0.3},
        ]
    )
    assert [(row.step, row.split, dict(row.values)) for row in found] == [
        (1, "train", {"reward": 0.1}),
        (1, "eval", {"reward": 0.2}),
        (2, "train", {"reward": 0.3}),
    ]


def test_a_column_of_seconds_since_the_start_stays_a_metric() -> None:
    assert metric_table([{"step": 1, "time": 12.5, "reward": 0.5}])[0] == [MetricRow({"time": 12.5, "reward": 0.5}, 1)]


def test_columns_that_come_later_are_metrics_too() -> None:
    made = MetricTable(layout_of(["step", "a"], {}, "metrics"), ["step", "a"], PATH)
    assert list(made.records([(1, {"step": 1, "b": 2.0})])) == [MetricRow({"b": 2.0}, 1)]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (NOON, NOON),
        (str(NOON), NOON),
        ("2026-03-01T12:00:00", NOON),
        ("2026-03-01T13:00:00+01:00", NOON),
        ("2026-03-01 12:00:00Z", NOON),
        (datetime(2026, 3, 1, 12), NOON),
        (datetime(2026, 3, 1, 12, tzinfo=UTC), NOON),
        (12.5, None),
        (math.nan, None),
        (None, None),
        ("soon", None),
        ([], None),
        ("1e400", None),
    ],
)
def test_moments(value: Any, seconds: float | None) -> None:
    assert unix_time(value) == seconds


ROLLOUT_PATH = Path("table.jsonl")


def rollout_table(
    rows: list[dict[str, Any]], mapping: dict[str, str] | None = None
) -> tuple[list[RolloutBatch], list[str]]:
    batch = list(enumerate(rows, 1))
    columns = dict.fromkeys(name for row in rows for name in row)
    made = RolloutTable(layout_of(columns, mapping or {}, "rollouts"), batch, ROLLOUT_PATH)
    records = list(made.records(batch))
    odd = [record.problem for record in (*records, *made.remarks()) if isinstance(record, Remark)]
    return [record for record in records if isinstance(record, RolloutBatch)], odd


def only(rows: list[dict[str, Any]], mapping: dict[str, str] | None = None) -> list[dict[str, Any]]:
    (batch,), _ = rollout_table(rows, mapping)
    found: list[dict[str, Any]] = batch.table.to_pylist()
    return found


VOTE: dict[str, Any] = {
    "question_id": 7,
    "sample_index": 3,
    "answer": "18",
    "correct": True,
    "n_tokens": 107,
    "confidence": 0.5,
}


def test_a_vote_is_a_rollout_of_one_evaluation() -> None:
    (batch,), remarks = rollout_table([VOTE])
    assert batch.split == "eval"
    assert batch.table.to_pylist() == [
        {
            "problem": "7",
            "answer": "18",
            "correct": True,
            "tokens": 107,
            "sample": 3,
            "step": 0,
            "extra": '{"confidence":0.5}',
        }
    ]
    assert remarks == ["rows carry no step; they were taken as one evaluation, at step 0."]


def test_prompts_name_problems_and_answers_are_read() -> None:
    rows = [{"step": step, "prompt": "2+2?", "completion": r"so \boxed{4}", "reward": 1.0} for step in (1, 2)]
    (batch,), remarks = rollout_table(rows)
    assert batch.split == "train"
    found = batch.table.to_pylist()
    assert [row["step"] for row in found] == [1, 2]
    assert {row["problem"] for row in found} == {problem_id("2+2?")}
    assert {row["answer"] for row in found} == {"4"}
    assert remarks == []


def test_truth_as_text_counts_only_where_truth_is_meant() -> None:
    rows = [
        {"question_id": "1", "answer": "No", "is_correct": "False"},
        {"question_id": "2", "answer": "true", "is_correct": "yes"},
    ]
    assert [(row["answer"], row["correct"]) for row in only(rows)] == [("No", False), ("true", True)]


def test_nan_for_missing_is_null_but_a_reward_may_be_nan() -> None:
    whole = {"question_id": "1", "answer": "4", "n_tokens": 9.0, "reward": 0.5, "correct": 1}
    first, second = only(
        [whole, {**whole, "answer": math.nan, "n_tokens": math.nan, "reward": math.nan, "correct": math.nan}]
    )
    assert (first["answer"], first["tokens"], first["correct"]) == ("4", 9, True)
    assert (second["answer"], second["tokens"], second["correct"]) == (None, None, None)
    assert math.isnan(second["reward"])


def test_a_split_column_parts_the_rows() -> None:
    batches, _ = rollout_table([{**VOTE, "split": "train"}, {**VOTE, "split": "test"}, VOTE])
    assert [(batch.split, len(batch.table)) for batch in batches] == [("train", 1), ("eval", 2)]
    assert "split" not in json.loads(batches[0].table.column("extra").to_pylist()[0])


def test_rows_without_problem_or_step_are_kept_and_told() -> None:
    rows: list[dict[str, Any]] = [
        {"step": 5, "prompt": None, "response": "a"},
        {"step": "x", "prompt": "p", "response": "b"},
    ]
    (batch,), remarks = rollout_table(rows)
    assert batch.table.select(["step", "problem"]).to_pylist() == [
        {"step": 5, "problem": "unknown"},
        {"step": 0, "problem": problem_id("p")},
    ]
    assert remarks == [
        "1 rows have no step under 'step'; they were put at step 0.",
        "1 rows do not say which problem they are about; they share the problem 'unknown'.",
    ]


def test_a_missing_id_falls_back_on_the_prompt() -> None:
    rows: list[dict[str, Any]] = [
        {"question_id": "q1", "prompt": "p", "answer": "1"},
        {"question_id": None, "prompt": "p", "answer": "2"},
    ]
    assert [row["problem"] for row in only(rows)] == ["q1", problem_id("p")]


def test_a_batch_without_any_prompt_still_has_problems() -> None:
    made = RolloutTable(
        layout_of(["prompt", "response"], {}, "rollouts"), [(1, {"prompt": "p", "response": "r"})], ROLLOUT_PATH
    )
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
    _, remarks = rollout_table([{**VOTE, "model": "a"}, {**VOTE, "model": "b"}])
    assert (
        remarks[-1]
        == "samples of several models stand side by side ('model': a, b, ...): they are no draws from one policy."
    )
    with pytest.raises(UnknownFormatError, match="several runs"):
        rollout_table([{**VOTE, "step": 1, "run_id": "a"}, {**VOTE, "step": 1, "run_id": "b"}])


def test_summaries_of_rollouts_are_refused() -> None:
    with pytest.raises(UnknownFormatError, match="'num_votes'"):
        rollout_table([{**VOTE, "num_votes": 512}])


def test_a_mapping_of_everything() -> None:
    rows = [{"it": 4, "q": "7", "text": "x", "final": "18", "ok": 1, "fmt": 0.5, "step": 9}]
    mapping = {
        "step": "it",
        "problem": "q",
        "completion": "text",
        "answer": "final",
        "correct": "ok",
        "reward/format": "fmt",
    }
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
    (batch,), remarks = rollout_table([VOTE, {**VOTE, "n_tokens": "many", "correct": 0.5}])
    assert batch.table.column("tokens").to_pylist() == [107, None]
    assert batch.table.column("correct").to_pylist() == [True, None]
    assert sum("left empty there" in remark for remark in remarks) == 2
