"""Tests of reading saved training arguments."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.trl import history
from breadth.adapters.trl.history import (
    ARGUMENTS_FILE,
    drop_older_copies,
    load_history,
    newest_history,
    output_folder,
    read_arguments,
    read_history,
    refuse_pickle,
    reward_weights,
    states_in,
)
from breadth.base.errors import BrokenFileError, UnsafeFileError
from breadth.runs.schema import LoggedConfig, MetricRow, Remark


def log_row(step: int, **more: Any) -> dict[str, Any]:
    return {"loss": 0.5 / step, "reward": step / 10, "entropy": 1.0, "epoch": step / 100, "step": step, **more}


def state(rows: list[Any], **more: Any) -> dict[str, Any]:
    steps = [row["step"] for row in rows if isinstance(row, dict) and "step" in row]
    return {
        "best_metric": None,
        "epoch": 1.0,
        "global_step": max(steps, default=0),
        "log_history": rows,
        "logging_steps": 5,
        **more,
    }


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, sort_keys=True))
    return path


def test_rows_settings_and_evaluations(tmp_path: Path) -> None:
    rows = [log_row(5), log_row(10), {"eval_loss": 0.1, "eval_reward": 0.7, "epoch": 0.1, "step": 10}]
    path = write(
        tmp_path / "trainer_state.json", state(rows, max_steps=100, args={"temperature": 0.7}, trial_params=None)
    )
    assert list(read_history(path)) == [
        LoggedConfig({"logging_steps": 5, "max_steps": 100, "temperature": 0.7}),
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
        b'\xef\xbb\xbf[{"reward": NaN, "loss": -Infinity, "kl": null, "grad_norm": 1e400, "num_tokens": 1'
        + b"0" * 400
        + b', "step": 1}]'
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


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2", '{"log_history": 3}', '{"a": 1}', "7", "[" * 100_000, '{"log_history": [{"a": ' * 3]
)
def test_what_is_no_history_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(text)
    with pytest.raises(BrokenFileError) as caught:
        list(read_history(path))
    assert "not a whole JSON document" in caught.value.problem


def test_a_folder_in_place_of_the_file_and_an_oversized_one_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trainer_state.json").mkdir()
    with pytest.raises(BrokenFileError, match="cannot be read"):
        load_history(tmp_path / "trainer_state.json")
    monkeypatch.setattr(history, "MAX_DOCUMENT_BYTES", 10)
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
    path.write_text(
        f'{{"args": {{"a": {nested}, "b": 1}}, "log_history": [{{"loss": {nested}, "reward": 1, "step": 1}}]}}'
    )
    row, remark = read_history(path)
    assert row == MetricRow({"reward": 1.0}, 1)
    assert isinstance(remark, Remark)


def test_an_evaluated_run_with_completions_is_remarked(tmp_path: Path) -> None:
    path = write(tmp_path / "checkpoint-3" / "trainer_state.json", state([log_row(3), {"eval_reward": 0.5, "step": 3}]))
    assert not any(isinstance(record, Remark) for record in read_history(path))
    (tmp_path / "completions").mkdir()
    (remark,) = (record for record in read_history(path) if isinstance(record, Remark))
    assert "evaluated at 1 steps" in remark.problem


def test_only_the_newest_copy_of_one_log_is_kept(tmp_path: Path) -> None:
    rows = [log_row(step) for step in (5, 10, 15)]
    rows[1]["grad_norm"] = math.nan
    paths = [
        write(tmp_path / f"checkpoint-{count * 5}" / "trainer_state.json", state(rows[:count])) for count in (1, 2, 3)
    ]
    other = write(tmp_path / "other" / "checkpoint-5" / "trainer_state.json", state([log_row(5, kl=0.1)]))
    console = tmp_path / "train.log"
    assert drop_older_copies([*paths, other, console]) == [paths[2], other, console]
    final = write(tmp_path / "trainer_state.json", state(rows))
    assert drop_older_copies([*paths, final]) == [final]


def test_states_of_a_run_started_afresh_all_stay(tmp_path: Path) -> None:
    old = write(tmp_path / "checkpoint-500" / "trainer_state.json", state([log_row(5), log_row(500)]))
    new = write(tmp_path / "checkpoint-100" / "trainer_state.json", state([log_row(5, reward=0.9), log_row(100)]))
    broken = tmp_path / "checkpoint-700" / "trainer_state.json"
    broken.parent.mkdir()
    broken.write_text("{")
    assert drop_older_copies([new, old, broken]) == [new, old, broken]


def test_the_newest_history_of_a_folder_passes_over_broken_ones(tmp_path: Path) -> None:
    assert newest_history(tmp_path) is None
    good = write(tmp_path / "checkpoint-9" / "trainer_state.json", state([log_row(9)]))
    bad = tmp_path / "checkpoint-10" / "trainer_state.json"
    bad.parent.mkdir()
    bad.write_text("{")
    assert states_in(tmp_path) == [good, bad]
    found = newest_history(tmp_path)
    assert found is not None
    assert [row["step"] for row in found.rows] == [9]


def test_a_state_nested_beyond_reason_stays(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text('{"log_history": [{"loss": ' + "[" * 990 + "]" * 990 + "}]}")
    assert drop_older_copies([path]) == [path]


def test_the_newest_history_is_read_again_when_the_file_has_changed(tmp_path: Path) -> None:
    write(tmp_path / "trainer_state.json", state([log_row(1)]))
    first = newest_history(tmp_path)
    assert newest_history(tmp_path) is first
    write(tmp_path / "trainer_state.json", state([log_row(1), log_row(2)]))
    second = newest_history(tmp_path)
    assert second is not None
    assert [row["step"] for row in second.rows] == [1, 2]


def test_saved_arguments_are_settings(tmp_path: Path) -> None:
    path = tmp_path / ARGUMENTS_FILE
    path.write_text(json.dumps({"temperature": 0.9, "num_generations": 8, "output_dir": "out"}))
    assert list(read_arguments(path)) == [LoggedConfig({"temperature": 0.9, "num_generations": 8, "output_dir": "out"})]


@pytest.mark.parametrize(
    ("text", "problem"),
    [("{", "is not JSON"), ("[1]", "contains no settings"), ('{"a":' * 200 + "1" + "}" * 200, "contains no settings")],
)
def test_broken_arguments_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / ARGUMENTS_FILE).write_text(text)
    with pytest.raises(BrokenFileError, match=problem):
        list(read_arguments(tmp_path / ARGUMENTS_FILE))


def test_the_pickle_is_refused_with_the_safe_way_named() -> None:
    with pytest.raises(UnsafeFileError) as caught:
        list(refuse_pickle(Path("training_args.bin")))
    assert "args.to_json_string()" in caught.value.remedy


@pytest.mark.parametrize(
    ("document", "weights"),
    [
        ('{"reward_weights": [1, 0.5]}', [1, 0.5]),
        ('{"reward_weights": null}', None),
        ('{"reward_weights": ["a"]}', None),
        ("{", None),
    ],
)
def test_weights_are_read_where_they_are_numbers(tmp_path: Path, document: str, weights: list[float] | None) -> None:
    (tmp_path / ARGUMENTS_FILE).write_text(document)
    assert reward_weights(tmp_path) == weights
    assert reward_weights(tmp_path / "absent") is None
