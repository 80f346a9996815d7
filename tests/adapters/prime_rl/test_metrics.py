"""prime-rl's metrics: two writers in one file, today's names and the older ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from breadth.adapters.prime_rl.metrics import read_metrics
from breadth.runs.ingest import import_files
from breadth.runs.reader import Run
from breadth.runs.records import MetricRow

TIME = 1.7e9


def write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "metrics.jsonl"
    path.write_text("".join(json.dumps({"time": TIME + place, **row}) + "\n" for place, row in enumerate(rows)), encoding="utf-8")
    return path


def imported(folder: Path, rows: list[dict[str, Any]]) -> Run:
    import_files([write(folder, rows)], folder / "run")
    return Run.open(folder / "run")


def trainer(step: int) -> list[dict[str, Any]]:
    return [
        {"step": step, "perf/mfu": 40.0},
        {"step": step, "optim/lr": 1e-6, "optim/grad_norm": 0.5},
        {"step": step, "entropy/all/mean": 1.0 / step, "entropy/sums/mean": 9.0, "mismatch_kl/all/mean": 0.001, "loss/mean": -0.1},
        {"step": step, "time/step": 30.0, "time/forward_backward": 20.0},
    ]


def orchestrator(step: int) -> list[dict[str, Any]]:
    row = {
        "step": float(step),
        "train/sums/all/agent/reward/mean": 9.0,
        "train/agg/all/agent/reward/mean": 0.1 * step,
        "train/agg/effective/agent/reward/mean": 0.2 * step,
        "train/agg/effective/num_output_tokens/mean": 100.0 + step,
        "train/agg/effective/agent/is_truncated/mean": 0.25,
        "time/step": 7.0,
        "time/wait_for_policy": 1.0,
    }
    return [row]


def test_trainer_and_orchestrator_are_joined_by_step(tmp_path: Path) -> None:
    rows = orchestrator(1) + orchestrator(2)
    for step in range(1, 5):
        rows += trainer(step) + orchestrator(step + 2)
    run = imported(tmp_path, rows)
    assert run.attempts == 1
    assert [point.step for point in run.points] == [1, 2, 3, 4, 5, 6]
    assert run.series("entropy").values.tolist() == [1.0, 1 / 2, 1 / 3, 1 / 4]
    assert run.series("reward").steps.tolist() == [1, 2, 3, 4, 5, 6]
    # The orchestrator is ahead at the end, so two steps have its clock only.
    assert [remark.problem for remark in run.header.remarks] == [
        "seconds_per_step is time/step in some rows and orchestrator/time/step in others."
    ]


def test_todays_names_become_ours(tmp_path: Path) -> None:
    run = imported(tmp_path, orchestrator(1) + trainer(1))
    values = {
        name: run.series(name).values.tolist()[0] for name in ("reward", "length", "truncated", "entropy", "mismatch", "grad_norm", "loss")
    }
    assert values == {"reward": 0.2, "length": 101.0, "truncated": 0.25, "entropy": 1.0, "mismatch": 0.001, "grad_norm": 0.5, "loss": -0.1}
    assert run.series("seconds_per_step").values.tolist() == [30.0]  # the trainer's, though the orchestrator logs its own


def test_older_names_become_ours(tmp_path: Path) -> None:
    row = {"step": 5, "reward/all/mean": 0.5, "seq_len/all/mean": 80.0, "is_truncated/all/mean": 0.1, "entropy/all/mean": 0.3}
    run = imported(tmp_path, [row])
    values = {name: run.series(name).values.tolist() for name in ("reward", "length", "truncated", "entropy")}
    assert values == {"reward": [0.5], "length": [80.0], "truncated": [0.1], "entropy": [0.3]}


def test_evaluations_of_one_step_are_one_eval_row(tmp_path: Path) -> None:
    rows = [
        *trainer(1),
        {"step": 1, "eval/aime/effective/agent/reward/mean": 0.5, "eval/aime/effective/agent/pass@8": 0.75},
        {"step": 1, "eval/sums/effective/agent/reward/mean": 0.9},
    ]
    found = [row for row in read_metrics(write(tmp_path, rows)) if isinstance(row, MetricRow) and row.split == "eval"]
    assert [(row.step, dict(row.values)) for row in found] == [
        (1, {"aime/effective/agent/reward/mean": 0.5, "aime/effective/agent/pass@8": 0.75, "sums/effective/agent/reward/mean": 0.9})
    ]
    assert imported(tmp_path, rows).attempts == 1


def test_a_restart_is_seen_and_the_newer_values_count(tmp_path: Path) -> None:
    rows = [row for step in (1, 2, 3) for row in trainer(step)]
    again = [{**row, **({"entropy/all/mean": 7.0} if "entropy/all/mean" in row else {})} for step in (2, 3) for row in trainer(step)]
    run = imported(tmp_path, rows + again)
    assert run.attempts == 2
    assert run.series("entropy").values.tolist() == [1.0, 7.0, 7.0]


def test_gauges_logged_many_times_a_step_are_no_restart(tmp_path: Path) -> None:
    rows = [{"step": 1, "dispatcher/inflight/train": float(place)} for place in range(5)] + trainer(1)
    run = imported(tmp_path, rows)
    assert run.attempts == 1
    assert run.series("dispatcher/inflight/train").values.tolist() == [4.0]
