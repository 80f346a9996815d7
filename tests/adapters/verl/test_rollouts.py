"""Tests of reading verl's dumps."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from breadth.adapters.verl.rollouts import read_rollouts, split_of
from breadth.runs.lines import BLOCK
from breadth.runs.problems import problem_id
from breadth.runs.records import Record, Remark, RolloutBatch


def row(**more: Any) -> dict[str, Any]:
    return {"input": "user: 1+1?", "output": "so \\boxed{2}", "gts": "2", "score": 1.0, "step": 3, **more}


def read(folder: Path, rows: list[Any], name: str = "3.jsonl") -> list[Record]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(one) if not isinstance(one, str) else one for one in rows) + "\n")
    return list(read_rollouts(path))


def columns_of(records: list[Record]) -> dict[str, list[Any]]:
    tables = [record.table for record in records if isinstance(record, RolloutBatch)]
    found: dict[str, list[Any]] = pa.concat_tables(tables, promote_options="default").to_pydict()
    return found


def said(records: list[Record]) -> list[tuple[int | None, str]]:
    return [(record.row, record.problem) for record in records if isinstance(record, Remark)]


def test_plain_rows(tmp_path: Path) -> None:
    records = read(tmp_path, [row(), row(output="no", score=0)])
    assert said(records) == []
    assert columns_of(records) == {
        "prompt": ["user: 1+1?"] * 2,
        "completion": ["so \\boxed{2}", "no"],
        "reference": ["2", "2"],
        "reward": [1.0, 0.0],
        "step": [3, 3],
        "problem": [problem_id("user: 1+1?")] * 2,
        "answer": ["2", None],
        "sample": [0, 1],
    }


def test_groups_come_from_the_uid(tmp_path: Path) -> None:
    records = read(
        tmp_path, [row(uid="a_b_0_0"), row(uid="a_b_1_0"), row(uid="a_b_1_1"), row(uid="odd"), row(uid=None), row(uid="x_y\ud800_z")]
    )
    found = columns_of(records)
    assert found["group"] == ["a_b", "a_b", "a_b", "odd", None, "x_y?_z"]
    assert found["sample"] == [0, 1, 1, 3, 4, 5]
    assert "extra" not in found
    assert said(records) == [(None, "1 rows are further outputs of one rollout (their uid does not end in _0); each is kept as a row.")]


def test_reward_extras(tmp_path: Path) -> None:
    records = read(
        tmp_path,
        [
            row(acc=True, pred="2", format_score=0.5, reward=1.0, request_id="r1", data_source="gsm8k", score_text="good"),
            row(acc=0, pred="[INVALID]", format_score=None, reward=1.0, request_id="r2", data_source="gsm8k", score_text="bad"),
        ],
    )
    found = columns_of(records)
    assert found["correct"] == [True, False]
    assert found["answer"] == ["2", None]
    assert found["origin"] == ["gsm8k"] * 2
    assert found["reward/format_score"] == [0.5, None]
    assert [json.loads(text) for text in found["extra"]] == [
        {"request_id": "r1", "score_text": "good"},
        {"request_id": "r2", "score_text": "bad"},
    ]
    assert "reward/reward" not in found, "it repeats the score"


def test_a_reward_extra_that_is_not_the_score_is_a_component(tmp_path: Path) -> None:
    assert columns_of(read(tmp_path, [row(reward=0.25)]))["reward/reward"] == [0.25]


def test_a_graded_accuracy_is_no_right_or_wrong(tmp_path: Path) -> None:
    found = columns_of(read(tmp_path, [row(acc=0.5), row(acc=1.0), row(acc="x"), row(acc=0)]))
    assert found["correct"] == [None, True, None, False]
    assert [json.loads(text) for text in found["extra"]] == [{"acc": 0.5}, {"acc": 1.0}, {"acc": "x"}, {"acc": 0}]


def test_odd_scores(tmp_path: Path) -> None:
    rows = [
        row(score={"score": 0.5, "acc": 1}),
        row(score=None),
        row(score="0.25"),
        row(score=[1]),
        '{"input":"a","output":"b","score":NaN,"step":3}',
    ]
    rows += ['{"input":"a","output":"b","score":-Infinity,"step":3}', row(score=True), row(score=10**400)]
    records = read(tmp_path, rows)
    found = columns_of(records)
    assert [value for value in found["reward"] if value is None or not math.isnan(value)] == [0.5, None, 0.25, None, -math.inf, 1.0, None]
    assert math.isnan(found["reward"][4])
    assert json.loads(found["extra"][0]) == {"score_table": {"score": 0.5, "acc": 1}}
    assert said(records) == [(4, "'score' is [1], not double, in 2 rows; left empty there.")]


def test_the_step_comes_from_the_name_where_rows_have_none(tmp_path: Path) -> None:
    bare = {"input": "a", "output": "b", "score": 1.0}
    records = read(tmp_path, [bare, bare], "12.jsonl")
    assert columns_of(records)["step"] == [12, 12]
    assert said(records) == [(1, "2 rows carry no step; taken as step 12, from the file's name.")]
    records = read(tmp_path, [row(), row(step=None), row(step=-4), row(step="x"), row(step=2.0)], "5.jsonl")
    assert columns_of(records)["step"] == [3, 5, 5, 5, 2]
    assert said(records)[-1] == (1, "3 rows carry no step; taken as step 5, from the file's name.")


def test_mixed_schemas_and_damaged_rows(tmp_path: Path) -> None:
    rows = [row(), {"step": 1, "data": {}}, "{broken", "", "7", row(uid="g_0_0", extra_key=[1]), '{"input": "half']
    records = read(tmp_path, rows)
    found = columns_of(records)
    assert found["group"] == [None, "g"]
    assert found["extra"] == [None, '{"extra_key":[1]}']
    assert [number for number, _ in said(records)] == [3, 5, 7, 2]
    assert said(records)[-1] == (2, "1 rows have no 'input' or no 'output'; left out.")


def test_text_of_every_kind(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "1+1?"}]
    path = tmp_path / "3.jsonl"
    lines = [
        b"\xef\xbb\xbf" + json.dumps(row(input=chat, gts=[2, "two"])).encode() + b"\r",
        b'{"input":"caf\xe9","output":"\\ud800","gts":null,"score":1,"step":3}',
    ]
    path.write_bytes(b"\n".join(lines))
    found = columns_of(list(read_rollouts(path)))
    assert found["prompt"] == ["user: 1+1?", "caf\ufffd"]
    assert found["reference"] == ['[2,"two"]', None]
    assert found["completion"] == ["so \\boxed{2}", "?"]


@pytest.mark.parametrize(
    ("folder", "split"),
    [
        ("validation", "eval"),
        ("out/val-gsm8k", "eval"),
        ("val_generations/run1", "eval"),
        ("exp_validation_data", "eval"),
        ("Eval", "eval"),
        ("rollouts", "train"),
        ("value_model", "train"),
        ("retrieval", "train"),
        ("val/project/rollouts", "train"),
        ("my-val/rollouts", "train"),
    ],
)
def test_validation_is_known_by_the_folders_name(tmp_path: Path, folder: str, split: str) -> None:
    assert split_of(tmp_path / folder / "1.jsonl") == split
    (batch,) = read(tmp_path / folder, [row()], "1.jsonl")
    assert isinstance(batch, RolloutBatch)
    assert batch.split == split


def test_a_long_file_comes_in_blocks_and_places_go_on(tmp_path: Path) -> None:
    count = 3 * BLOCK // 1000
    path = tmp_path / "1.jsonl"
    with path.open("w") as file:
        for place in range(count):
            file.write(json.dumps(row(output="x" * 1000, input=str(place // 8))) + "\n")
    batches = [record for record in read_rollouts(path) if isinstance(record, RolloutBatch)]
    assert len(batches) >= 3
    assert max(batch.table.nbytes for batch in batches) < 2 * BLOCK
    assert columns_of(list(batches))["sample"] == list(range(count))


def test_a_line_of_100_megabytes_is_left_out_with_a_remark(tmp_path: Path) -> None:
    path = tmp_path / "1.jsonl"
    with path.open("wb") as file:
        file.write(json.dumps(row()).encode() + b'\n{"input": "')
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b'", "output": ""}\n' + json.dumps(row()).encode() + b"\n" + json.dumps(row(score=0)).encode() + b"\n")
    records = list(read_rollouts(path))
    assert columns_of(records)["reward"] == [1.0, 1.0, 0.0]
    assert columns_of(records)["sample"] == [0, 2, 3]
    ((number, problem),) = said(records)
    assert number == 2
    assert problem.startswith("a single row of 105 MB was left out")


@pytest.mark.parametrize("depth", [60, 400, 990])
def test_values_nested_beyond_reason_are_survived(tmp_path: Path, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    line = ", ".join(f'"{key}": {nested}' for key in ("input", "output", "gts", "score", "reward", "acc", "pred", "uid", "step", "other"))
    records = read(tmp_path, [f"{{{line}}}", row()])
    assert columns_of(records)["reward"] == [None, 1.0]
