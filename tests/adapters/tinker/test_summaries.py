"""Tinker's rollout summaries as rollouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from breadth.adapters.tinker.summaries import read_summaries
from breadth.runs.ingest import import_files
from breadth.runs.reader import Run
from breadth.runs.records import Record, Remark, RolloutBatch


def turn(tokens: int, **metrics: float) -> dict[str, Any]:
    return {"step_idx": 0, "ob_len": 9, "ac_len": tokens, "reward": 0.0, "episode_done": True, "metrics": metrics, "logs": {}}


def summary(**changes: Any) -> dict[str, Any]:
    row = {
        "schema_version": 1,
        "split": "train",
        "iteration": 12,
        "group_idx": 7,
        "traj_idx": 2,
        "tags": ["maths", "hard"],
        "sampling_client_step": 12,
        "total_reward": 0.9,
        "final_reward": 0.0,
        "trajectory_metrics": {},
        "steps": [turn(30), turn(12, format=1.0, correct=1.0)],
        "final_ob_len": 60,
    }
    return {**row, **changes}


def read(folder: Path, rows: list[dict[str, Any]]) -> list[Record]:
    path = folder / "train_rollout_summaries.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return list(read_summaries(path))


def test_a_trajectory_becomes_a_rollout(tmp_path: Path) -> None:
    (batch,) = read(tmp_path, [summary()])
    assert isinstance(batch, RolloutBatch)
    assert batch.split == "train"
    (row,) = batch.table.to_pylist()
    extra = json.loads(row.pop("extra"))
    assert row == {
        "step": 12,
        "problem": "train/12/7",
        "group": "train/12/7",
        "sample": 2,
        "reward": 0.9,
        "correct": True,
        "tokens": 42,
        "origin": "maths, hard",
    }
    assert extra["final_reward"] == 0.0
    assert len(extra["steps"]) == 2


def test_an_evaluation_names_its_problems_across_steps(tmp_path: Path) -> None:
    rows = [summary(split="eval/aime", iteration=iteration, group_idx=3, traj_idx=sample) for iteration in (0, 20) for sample in (0, 1)]
    path = tmp_path / "eval_aime_rollout_summaries.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    imported = import_files([path], tmp_path / "run")
    assert (imported.rollouts, imported.problems) == (4, 1)
    found = Run.open(tmp_path / "run").query('SELECT step, split, problem, "group" FROM rollouts ORDER BY step, sample').to_pylist()
    assert found[0] == {"step": 0, "split": "eval", "problem": "eval/aime/3", "group": "eval/aime/0/3"}
    assert found[3] == {"step": 20, "split": "eval", "problem": "eval/aime/3", "group": "eval/aime/20/3"}


def test_splits_of_one_file_are_told_apart(tmp_path: Path) -> None:
    batches = read(tmp_path, [summary(), summary(split="test"), summary(traj_idx=3)])
    assert [(batch.split, len(batch.table)) for batch in batches if isinstance(batch, RolloutBatch)] == [("train", 2), ("eval", 1)]


def test_what_is_missing_stays_null(tmp_path: Path) -> None:
    (batch,) = read(tmp_path, [summary(steps=None, tags=None, total_reward=None, trajectory_metrics={"correct": 0.5})])
    assert isinstance(batch, RolloutBatch)
    row = batch.table.to_pylist()[0]
    assert (row["tokens"], row["origin"], row["reward"], row["correct"]) == (None, None, None, None)


def test_a_grade_of_the_group_counts_where_turns_have_none(tmp_path: Path) -> None:
    (batch,) = read(tmp_path, [summary(steps=[turn(5)], trajectory_metrics={"correct": 0.0})])
    assert isinstance(batch, RolloutBatch)
    assert batch.table.column("correct").to_pylist() == [False]


def test_a_newer_schema_is_read_with_a_remark(tmp_path: Path) -> None:
    records = read(tmp_path, [summary(schema_version=2)])
    assert [record.problem for record in records if isinstance(record, Remark)] == ["rows of schema version 2 were read as version 1."]
