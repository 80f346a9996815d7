"""Files of episodes and results: which step and split they count in, what is odd about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.prime_rl.rollouts import read_episodes, read_results, split_of, step_of
from breadth.runs.records import Remark, RolloutBatch


def episode(kind: str = "train", step: int = 3, **trace: Any) -> dict[str, Any]:
    nodes = [
        {"parent": None, "message": {"role": "user", "content": "2+2?"}},
        {"parent": 0, "message": {"role": "assistant", "content": "4"}, "sampled": True},
    ]
    made = {"agent": {"name": "agent"}, "nodes": nodes, "rewards": {"right": {"score": 1.0}}, **trace}
    work = {"type": kind, "step": step}
    return {"id": "e", "env": {"id": "sums"}, "task": {"data": {"idx": 1}}, "run": {"type": "train", "work": work}, "traces": [made]}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("path", "step", "split"),
    [
        ("run/rollouts/step_12/train/all/traces.jsonl", 12, "train"),
        ("run/rollouts/step_12/eval/effective/traces.jsonl", 12, "eval"),
        ("step_1/run/rollouts/step_7/train/all/traces.jsonl", 7, "train"),
        ("outputs/evals/train/run/traces.jsonl", None, None),
        ("traces.jsonl", None, None),
    ],
)
def test_folders_say_step_and_split(path: str, step: int | None, split: str | None) -> None:
    assert (step_of(Path(path)), split_of(Path(path))) == (step, split)


def test_the_folder_knows_better_than_the_record(tmp_path: Path) -> None:
    path = write(tmp_path / "rollouts/step_12/train/all/traces.jsonl", [episode("eval", 10)])
    (batch,) = read_episodes(path)
    assert isinstance(batch, RolloutBatch)
    assert (batch.split, batch.table.column("step").to_pylist()) == ("train", [12])
    assert batch.table.column("reward/right").to_pylist() == [1.0]


def test_a_file_on_its_own_goes_by_its_records(tmp_path: Path) -> None:
    path = write(tmp_path / "traces.jsonl", [episode("train", 10), episode("eval", 11)])
    batches = [batch for batch in read_episodes(path) if isinstance(batch, RolloutBatch)]
    assert [(batch.split, batch.table.column("step").to_pylist()) for batch in batches] == [("train", [10]), ("eval", [11])]


def test_an_evaluation_of_verifiers_has_no_step(tmp_path: Path) -> None:
    (batch,) = read_episodes(write(tmp_path / "traces.jsonl", [{**episode(), "run": None}]))
    assert isinstance(batch, RolloutBatch)
    assert (batch.split, batch.table.column("step").to_pylist()) == ("eval", [0])


def test_results_are_held_out_and_answers_are_read(tmp_path: Path) -> None:
    rows = [{"example_id": n, "prompt": "2+2?", "completion": rf"\boxed{{{n}}}", "answer": "4", "reward": float(n == 4)} for n in (3, 4)]
    (batch,) = read_results(write(tmp_path / "results.jsonl", rows))
    assert isinstance(batch, RolloutBatch)
    assert batch.split == "eval"
    assert batch.table.select(["problem", "answer", "reference", "reward", "step"]).to_pylist() == [
        {"problem": "3", "answer": "3", "reference": "4", "reward": 0.0, "step": 0},
        {"problem": "4", "answer": "4", "reference": "4", "reward": 1.0, "step": 0},
    ]


def test_episodes_without_a_rollout_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "traces.jsonl", [episode(), {**episode(), "traces": []}])
    assert [record.problem for record in read_episodes(path) if isinstance(record, Remark)] == [
        "1 records hold no rollout of a trained agent (failed before the first turn, or judges only)."
    ]
