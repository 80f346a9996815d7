"""Token exports: per-token columns, problems named by their prompts' tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.prime_rl.tokens import read_token_export
from breadth.runs.ingest import import_files
from breadth.runs.reader import Run
from breadth.runs.records import Remark, RolloutBatch
from breadth.runs.schema import EntropyKind


def export(**changes: Any) -> dict[str, Any]:
    """Return a sequence of a prompt of two tokens and a completion of three, the second a tool's."""
    row = {
        "schema_version": 1,
        "step": 4,
        "rank": 0,
        "micro_step": 1,
        "micro_sequence_idx": 0,
        "export_sequence_idx": 5,
        "env_name": "sums",
        "token_ids": [11, 12, 13, 14, 15],
        "position_ids": [0, 1, 2, 3, 4],
        "loss_mask": [False, False, True, False, True],
        "advantages": [0.0, 0.0, 0.5, 0.0, 0.5],
        "inference_logprobs": [0.0, 0.0, -1.0, 0.0, -2.0],
        "trainer_logprobs": [-9.0, -9.0, -1.5, -9.0, -2.5],
        "entropy": [9.0, 9.0, 0.25, 9.0, None],
        "mismatch_kl": [0.0] * 5,
        "importance_ratio": [1.0] * 5,
    }
    return {**row, **changes}


def write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "token_exports/step_4/rank_0.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rows(folder: Path, exported: list[dict[str, Any]]) -> list[dict[str, Any]]:
    records = read_token_export(write(folder, exported))
    return [row for record in records if isinstance(record, RolloutBatch) for row in record.table.to_pylist()]


def test_columns_start_at_the_first_trained_token(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, [export()])
    assert {name: row[name] for name in ("token_ids", "mask", "advantages", "old_logprobs", "logprobs", "entropy")} == {
        "token_ids": [13, 14, 15],
        "mask": [True, False, True],
        "advantages": [0.5, 0.0, 0.5],
        "old_logprobs": [-1.0, 0.0, -2.0],
        "logprobs": [-1.5, -9.0, -2.5],
        "entropy": [0.25, 9.0, None],
    }
    assert (row["step"], row["origin"], row["tokens"], row["advantage"]) == (4, "sums", 2, 0.5)
    assert json.loads(row["extra"]) == {"export_sequence_idx": 5, "micro_sequence_idx": 0, "micro_step": 1, "rank": 0}


def test_samples_of_one_prompt_share_their_problem(tmp_path: Path) -> None:
    same, other, elsewhere = (
        export(token_ids=[11, 12, 99, 98, 97]),
        export(token_ids=[11, 13, 13, 14, 15]),
        export(env_name="words"),
    )
    names = [row["problem"] for row in rows(tmp_path, [export(), same, other, elsewhere])]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert names[0].startswith("sums/")


def test_advantages_that_differ_by_token_give_no_common_one(tmp_path: Path) -> None:
    assert rows(tmp_path, [export(advantages=[0.0, 0.0, 0.5, 0.0, -0.5])])[0]["advantage"] is None


@pytest.mark.parametrize("changes", [{"loss_mask": [False] * 5}, {"entropy": [0.5]}, {"token_ids": None}, {"loss_mask": "text"}])
def test_rows_that_cannot_be_lined_up_are_counted(tmp_path: Path, changes: dict[str, Any]) -> None:
    records = list(read_token_export(write(tmp_path, [export(**changes), export()])))
    assert [len(record.table) for record in records if isinstance(record, RolloutBatch)] == [1]
    assert [record.problem for record in records if isinstance(record, Remark)] == [
        "1 rows hold no trained token, or lists of unequal length; left out."
    ]


def test_the_entropy_of_tokens_carries_its_kind(tmp_path: Path) -> None:
    import_files([write(tmp_path, [export()])], tmp_path / "run")
    assert Run.open(tmp_path / "run").header.entropies == {"entropy": EntropyKind("exact", None, "token-mean", "response")}
