"""Tests of reading TRL's completions files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.trl.completions import completion_text, has_completions, read_completions
from breadth.base.errors import BreadthError, BrokenFileError
from breadth.runs import parquet as parquet_reader
from breadth.runs.schema import Record, Remark, RolloutBatch
from breadth.runs.writer import problem_id


def write(folder: Path, columns: dict[str, Any], step: int = 10) -> Path:
    path = folder / "completions" / f"completions_{step:05d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = len(columns["prompt"])
    pq.write_table(pa.table({"step": [step] * rows, **columns}), path)
    return path


def columns_of(records: list[Record]) -> dict[str, list[Any]]:
    tables = [record.table for record in records if isinstance(record, RolloutBatch)]
    found: dict[str, list[Any]] = pa.concat_tables(tables, promote_options="default").to_pydict()
    return found


def said(records: list[Record]) -> list[str]:
    return [record.problem for record in records if isinstance(record, Remark)]


PLAIN = {
    "prompt": ["p", "p", "q", "q"],
    "completion": [r"\boxed{1}", r"\boxed{2}", "", "x"],
    "right": [1.0, 0.0, 1.0, None],
    "advantage": [0.7, -0.7, 0.0, 0.0],
}


def test_one_reward_function_is_the_reward(tmp_path: Path) -> None:
    records = list(read_completions(write(tmp_path, PLAIN)))
    assert said(records) == []
    assert columns_of(records) == {
        "step": [10] * 4,
        "prompt": ["p", "p", "q", "q"],
        "completion": [r"\boxed{1}", r"\boxed{2}", "", "x"],
        "advantage": [0.7, -0.7, 0.0, 0.0],
        "reward/right": [1.0, 0.0, 1.0, None],
        "problem": [problem_id("p")] * 2 + [problem_id("q")] * 2,
        "answer": ["1", "2", None, None],
        "sample": [0, 1, 0, 1],
        "reward": [1.0, 0.0, 1.0, None],
        "group": ["10-0", "10-0", "10-1", "10-1"],
    }


def test_several_reward_functions_are_added_up_with_a_remark(tmp_path: Path) -> None:
    records = list(read_completions(write(tmp_path, {**PLAIN, "form": [0.5, None, -0.5, None]})))
    assert columns_of(records)["reward"] == [1.5, 0.0, 0.5, None]
    assert said(records) == [
        "TRL stores no total reward and the weights of right, form are unknown; the reward is their plain sum."
    ]


def test_known_weights_are_used(tmp_path: Path) -> None:
    (tmp_path / "grpo_config.json").write_text(json.dumps({"reward_weights": [2.0, 0.5]}))
    records = list(read_completions(write(tmp_path, {**PLAIN, "form": [0.5, None, -0.5, None]})))
    # 2*1 + 0.5*0.5 = 2.25; 2*0; 2*1 - 0.5*0.5 = 1.75; nothing applies
    assert columns_of(records)["reward"] == [2.25, 0.0, 1.75, None]
    assert said(records) == []


@pytest.mark.parametrize(("logged", "known"), [(1.25, True), (1.2500001, True), (1.5, False), (math.nan, False)])
def test_the_log_tells_whether_all_weights_are_one(tmp_path: Path, logged: float, known: bool) -> None:
    rows = [{"rewards/right/mean": 1.0, "rewards/form/mean": 0.25, "reward": 1.25, "step": 5}]
    rows.append({"rewards/right/mean": 1.0, "rewards/form/mean": 0.25, "reward": logged, "step": 10})
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    records = list(read_completions(write(tmp_path, {**PLAIN, "form": [0.5, None, -0.5, None]})))
    assert columns_of(records)["reward"] == [1.5, 0.0, 0.5, None]
    assert (said(records) == []) is known


def test_the_log_tells_reward_functions_from_other_numbers(tmp_path: Path) -> None:
    rows = [{"rewards/right/mean": 0.5, "step": 10}, {"eval_reward": 1, "step": 20}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    extra = {**PLAIN, "temperature": [0.1, 0.2, 0.3, 0.4]}
    records = list(read_completions(write(tmp_path, extra)))
    found = columns_of(records)
    assert found["reward"] == [1.0, 0.0, 1.0, None]
    assert [json.loads(text) for text in found["extra"]] == [{"temperature": value} for value in (0.1, 0.2, 0.3, 0.4)]
    assert [record.split for record in records if isinstance(record, RolloutBatch)] == ["train"]
    (held_out,) = (
        record for record in read_completions(write(tmp_path, extra, 20)) if isinstance(record, RolloutBatch)
    )
    assert held_out.split == "eval"


def test_columns_that_reward_functions_log_under_our_names(tmp_path: Path) -> None:
    extra = {
        **PLAIN,
        "solution": ["1", "1", "3", "3"],
        "answer": ["one", "two", None, None],
        "correct": [True, False, None, None],
        "tokens": [3, 4, 1, 1],
        "token_ids": [[1, 2, 3], [1, 2, 3, 4], [1], [1]],
    }
    found = columns_of(list(read_completions(write(tmp_path, extra))))
    assert found["reference"] == ["1", "1", "3", "3"]
    assert {name: found[name] for name in ("answer", "correct", "tokens", "token_ids")} == {
        name: extra[name] for name in ("answer", "correct", "tokens", "token_ids")
    }


def test_chats_become_text(tmp_path: Path) -> None:
    chat = {
        "prompt": [[{"role": "system", "content": "think"}, {"role": "user", "content": "1+1?"}]],
        "completion": [[{"role": "assistant", "content": r"\boxed{2}"}]],
        "right": [1.0],
        "advantage": [0.0],
    }
    found = columns_of(list(read_completions(write(tmp_path, chat))))
    assert found["prompt"] == ["system: think\nuser: 1+1?"]
    assert found["completion"] == [r"\boxed{2}"]
    assert found["answer"] == ["2"]
    turns = [{"role": "assistant", "content": "call"}, {"role": "tool", "content": "4"}]
    assert completion_text(turns) == turns
    assert completion_text([{"role": "assistant", "content": None}]) == ""
    assert completion_text(None) is None


def test_groups_go_on_across_batches_and_equal_prompts_apart_are_two_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_reader, "PARQUET_BATCH_ROWS", 3)
    prompts = ["p", "p", "p", "p", "q", "q", "p", "p"]
    records = list(read_completions(write(tmp_path, {"prompt": prompts, "completion": ["x"] * 8, "right": [1.0] * 8})))
    assert [len(record.table) for record in records if isinstance(record, RolloutBatch)] == [3, 3, 2]
    found = columns_of(records)
    assert found["group"] == ["10-0"] * 4 + ["10-1"] * 2 + ["10-2"] * 2
    assert found["sample"] == [0, 1, 2, 3, 0, 1, 0, 1]


def test_nan_and_infinite_rewards_stay(tmp_path: Path) -> None:
    rewards = [math.nan, math.inf, -math.inf, 1.0]
    found = columns_of(list(read_completions(write(tmp_path, {**PLAIN, "right": rewards}))))["reward"]
    assert math.isnan(found[0])
    assert found[1:] == rewards[1:]


def test_without_reward_columns_there_is_no_reward(tmp_path: Path) -> None:
    found = columns_of(
        list(read_completions(write(tmp_path, {"prompt": ["p"], "completion": [None], "advantage": [0.0]})))
    )
    assert "reward" not in found
    assert found["answer"] == [None]


def test_wrong_types_and_missing_steps(tmp_path: Path) -> None:
    path = tmp_path / "completions_1.parquet"
    pq.write_table(
        pa.table({"step": [None, "two"], "prompt": [b"p", b"\xff"], "completion": [1, 2], "right": [1.0, 2.0]}), path
    )
    records = list(read_completions(path))
    found = columns_of(records)
    assert (found["step"], found["prompt"], found["completion"]) == ([1, 1], ["p", "\ufffd"], ["1", "2"])
    assert said(records) == [
        "'step' is 'two', not int64, in 1 rows; left empty there.",
        "2 rows carry no step; taken as step 1.",
    ]


def test_only_completions_files_are_claimed(tmp_path: Path) -> None:
    assert has_completions(write(tmp_path, PLAIN))
    pq.write_table(pa.table({"step": [1], "text": ["x"]}), tmp_path / "other.parquet")
    assert not has_completions(tmp_path / "other.parquet")
    (tmp_path / "completions_00001.parquet").write_bytes(b"PAR1 cut off")
    assert has_completions(tmp_path / "completions_00001.parquet")
    with pytest.raises(BrokenFileError, match="not readable Parquet"):
        list(read_completions(tmp_path / "completions_00001.parquet"))


def test_damage_behind_a_whole_footer_gets_the_same_advice(tmp_path: Path) -> None:
    path = tmp_path / "completions_00001.parquet"
    pq.write_table(pa.table({"step": [1], "prompt": ["x"], "completion": ["y" * 5000]}), path, compression="zstd")
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * 40 + whole[44:])
    with pytest.raises(BrokenFileError, match="TRL was stopped while writing it"):
        list(read_completions(path))


def test_a_damaged_column_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "completions_00001.parquet"
    pq.write_table(pa.table({"step": [1], "prompt": ["x"], "completion": ["x"]}), path)
    path.write_bytes(path.read_bytes().replace(b"completion", b"\xff" * 10))
    assert has_completions(path)
    with pytest.raises(BrokenFileError, match="not readable Parquet"):
        list(read_completions(path))


def test_a_file_without_prompts_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"step": [1], "completion": ["x"]}), tmp_path / "completions_00001.parquet")
    with pytest.raises(BrokenFileError, match="has no column 'prompt'"):
        list(read_completions(tmp_path / "completions_00001.parquet"))


def test_memory_stays_flat(tmp_path: Path) -> None:
    rows = 20_000
    path = tmp_path / "completions_00001.parquet"
    pq.write_table(
        pa.table(
            {"step": [1] * rows, "prompt": ["p"] * rows, "completion": ["word " * 200] * rows, "right": [1.0] * rows}
        ),
        path,
    )
    before = pa.total_allocated_bytes()
    most = 0
    for record in read_completions(path):
        assert isinstance(record, RolloutBatch)
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 12 << 20, "20 MB of text must not be in memory at once"


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_damaged_files_raise_only_our_errors(tmp_path_factory: pytest.TempPathFactory, place: int, junk: bytes) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    path = write(folder, PLAIN)
    whole = path.read_bytes()
    start = place % len(whole)
    path.write_bytes(whole[:start] + junk + whole[start + len(junk) :])
    try:
        rows = [record for record in read_completions(path) if isinstance(record, RolloutBatch)]
    except BreadthError:
        return
    assert all(record.table.validate(full=True) is None for record in rows)
