"""Tests of reading trainer states and log histories."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.trl import history
from breadth.adapters.trl.history import load_history, output_folder, read_history
from breadth.base.errors import BrokenFileError
from breadth.runs.records import MetricRow, Remark, SeenSettings


def log_row(step: int, **more: Any) -> dict[str, Any]:
    return {"loss": 0.5 / step, "reward": step / 10, "entropy": 1.0, "epoch": step / 100, "step": step, **more}


def state(rows: list[Any], **more: Any) -> dict[str, Any]:
    steps = [row["step"] for row in rows if isinstance(row, dict) and "step" in row]
    return {"best_metric": None, "epoch": 1.0, "global_step": max(steps, default=0), "log_history": rows, "logging_steps": 5, **more}


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, sort_keys=True))
    return path


def test_rows_settings_and_evaluations(tmp_path: Path) -> None:
    rows = [log_row(5), log_row(10), {"eval_loss": 0.1, "eval_reward": 0.7, "epoch": 0.1, "step": 10}]
    path = write(tmp_path / "trainer_state.json", state(rows, max_steps=100, args={"temperature": 0.7}, trial_params=None))
    assert list(read_history(path)) == [
        SeenSettings({"logging_steps": 5, "max_steps": 100, "temperature": 0.7}),
        MetricRow({"loss": 0.1, "reward": 0.5, "entropy": 1.0, "epoch": 0.05}, 5),
        MetricRow({"loss": 0.05, "reward": 1.0, "entropy": 1.0, "epoch": 0.1}, 10),
        MetricRow({"loss": 0.1, "reward": 0.7, "epoch": 0.1}, 10, split="eval"),
    ]


def test_a_bare_list_of_rows(tmp_path: Path) -> None:
    assert list(read_history(write(tmp_path / "log.json", [log_row(1)]))) == [
        MetricRow({"loss": 0.5, "reward": 0.1, "entropy": 1.0, "epoch": 0.01}, 1)
    ]


def test_nan_infinity_null_and_huge_numbers_stay(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(
        b'\xef\xbb\xbf[{"reward": NaN, "loss": -Infinity, "kl": null, "grad_norm": 1e400, "num_tokens": 1' + b"0" * 400 + b', "step": 1}]'
    )
    (row,) = read_history(path)
    assert isinstance(row, MetricRow)
    assert math.isnan(row.values["reward"])
    assert math.isnan(row.values["kl"])
    assert row.values["loss"] == -math.inf
    assert row.values["grad_norm"] == row.values["num_tokens"] == math.inf


def test_wrong_types_are_remarked_and_rows_that_are_none_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "log.json", [{"reward": [1], "loss": 2, "step": "x"}, 7, "text", None])
    row, remark = read_history(path)
    assert row == MetricRow({"loss": 2.0}, None)
    assert isinstance(remark, Remark)
    assert "'reward' is [1], not a number" in remark.problem


@pytest.mark.parametrize("end", [400, 395, 300, 200])
def test_of_a_half_written_state_the_whole_rows_are_read(tmp_path: Path, end: int) -> None:
    whole = json.dumps(state([log_row(step) for step in (5, 10, 15, 20)]), indent=2)
    path = tmp_path / "trainer_state.json"
    path.write_text(whole[:end])
    *rows, remark = read_history(path)
    wanted = whole[:end].count("}")
    assert [row.step for row in rows if isinstance(row, MetricRow)] == [5, 10, 15, 20][:wanted]
    assert wanted > 0
    assert isinstance(remark, Remark)
    assert f"the {wanted} log rows before it were read" in remark.problem


@pytest.mark.parametrize("text", ["", "{", "[1, 2", '{"log_history": 3}', '{"a": 1}', "7", "[" * 100_000, '{"log_history": [{"a": ' * 3])
def test_what_is_no_history_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(text)
    with pytest.raises(BrokenFileError) as caught:
        list(read_history(path))
    assert "not a whole JSON document" in caught.value.problem


def test_a_folder_in_place_of_the_file_and_an_oversized_one_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trainer_state.json").mkdir()
    with pytest.raises(BrokenFileError, match="cannot be read"):
        load_history(tmp_path / "trainer_state.json")
    monkeypatch.setattr(history, "LARGEST", 10)
    with pytest.raises(BrokenFileError, match="TensorBoard"):
        load_history(write(tmp_path / "big.json", [log_row(1)]))


def test_the_output_folder_of_each_kind_of_file() -> None:
    folder = Path("out")
    assert output_folder(folder / "checkpoint-10" / "trainer_state.json") == folder
    assert output_folder(folder / "completions" / "completions_00001.parquet") == folder
    assert output_folder(folder / "train.log") == folder


@pytest.mark.parametrize("depth", [60, 400, 990])
def test_values_nested_beyond_reason_are_survived(tmp_path: Path, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    path = tmp_path / "trainer_state.json"
    path.write_text(f'{{"args": {{"a": {nested}, "b": 1}}, "log_history": [{{"loss": {nested}, "reward": 1, "step": 1}}]}}')
    row, remark = read_history(path)
    assert row == MetricRow({"reward": 1.0}, 1)
    assert isinstance(remark, Remark)


def test_an_evaluated_run_with_completions_is_remarked(tmp_path: Path) -> None:
    path = write(tmp_path / "checkpoint-3" / "trainer_state.json", state([log_row(3), {"eval_reward": 0.5, "step": 3}]))
    assert not any(isinstance(record, Remark) for record in read_history(path))
    (tmp_path / "completions").mkdir()
    (remark,) = (record for record in read_history(path) if isinstance(record, Remark))
    assert "evaluated at 1 steps" in remark.problem
