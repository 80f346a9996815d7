"""Tinker's metrics: real runs against their labels, the importers' contract, bad input."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.tinker import IMPORTER, read_summaries
from breadth.base.errors import BreadthError, BrokenFileError
from breadth.runs.importer import all_importers, recognise
from breadth.runs.importing import import_files
from breadth.runs.reader import Run
from breadth.runs.schema import EntropyKind, MetricRow, Record, Remark, RolloutBatch
from breadth.testing.importers import check_importer, check_records


def turn(tokens: int, **metrics: float) -> dict[str, Any]:
    return {
        "step_idx": 0,
        "ob_len": 9,
        "ac_len": tokens,
        "reward": 0.0,
        "episode_done": True,
        "metrics": metrics,
        "logs": {},
    }


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
    rows = [
        summary(split="eval/aime", iteration=iteration, group_idx=3, traj_idx=sample)
        for iteration in (0, 20)
        for sample in (0, 1)
    ]
    path = tmp_path / "eval_aime_rollout_summaries.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    imported = import_files([path], tmp_path / "run")
    assert (imported.rollouts, imported.problems) == (4, 1)
    found = (
        Run.open(tmp_path / "run")
        .query('SELECT step, split, problem, "group" FROM rollouts ORDER BY step, sample')
        .to_pylist()
    )
    assert found[0] == {"step": 0, "split": "eval", "problem": "eval/aime/3", "group": "eval/aime/0/3"}
    assert found[3] == {"step": 20, "split": "eval", "problem": "eval/aime/3", "group": "eval/aime/20/3"}


def test_splits_of_one_file_are_told_apart(tmp_path: Path) -> None:
    batches = read(tmp_path, [summary(), summary(split="test"), summary(traj_idx=3)])
    assert [(batch.split, len(batch.table)) for batch in batches if isinstance(batch, RolloutBatch)] == [
        ("train", 2),
        ("eval", 1),
    ]


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
    assert [record.problem for record in records if isinstance(record, Remark)] == [
        "rows of schema version 2 were read as version 1."
    ]


ROW = {
    "step": 3,
    "progress/batch": 3,
    "optim/lr": 1e-5,
    "progress/done_frac": 0.5,
    "env/maths/ac_tokens_per_turn": 10.0,
    "env/all/ac_tokens_per_turn": 80.0,
    "env/all/reward/total": 0.25,
    "env/all/by_group/frac_mixed": 0.75,
    "optim/entropy": 1.5,
    "optim/kl_sample_train_v1": 0.001,
    "optim/kl_sample_train_v2": 0.002,
    "test/env/all/reward/total": 0.5,
    "time/total": 12.0,
}
SUMMARY = {
    "schema_version": 1,
    "split": "train",
    "iteration": 0,
    "group_idx": 0,
    "traj_idx": 0,
    "tags": ["maths"],
    "total_reward": 1.0,
    "final_reward": 0.0,
    "trajectory_metrics": {},
    "steps": [
        {
            "step_idx": 0,
            "ob_len": 5,
            "ac_len": 7,
            "reward": 1.0,
            "episode_done": True,
            "metrics": {"correct": 1.0},
            "logs": {},
        }
    ],
    "final_ob_len": 12,
}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_metrics(path: Path) -> list[MetricRow]:
    return [record for record in IMPORTER.read(path, "metrics") if isinstance(record, MetricRow)]


def problems(path: Path) -> list[str]:
    return [record.problem for record in IMPORTER.read(path, "metrics") if isinstance(record, Remark)]


def test_contract(tmp_path: Path) -> None:
    metrics = write(tmp_path / "metrics.jsonl", [{**ROW, "step": step, "progress/batch": step} for step in range(4)])
    summaries = write(
        tmp_path / "train_rollout_summaries.jsonl", [{**SUMMARY, "traj_idx": place} for place in range(4)]
    )
    check_importer(IMPORTER, [metrics, summaries])


def test_a_row_of_the_cookbook(tmp_path: Path) -> None:
    import_files([write(tmp_path / "metrics.jsonl", [ROW])], tmp_path / "run")
    run = Run.open(tmp_path / "run")
    values = {
        name: run.series(name).values.tolist()
        for name in ("entropy", "reward", "length", "zero_variance_groups", "kl_old", "mismatch")
    }
    # The share of groups that teach nothing is 1 - 0.75; the length is that of all environments, not of the one logged
    # first.
    assert values == {
        "entropy": [1.5],
        "reward": [0.25],
        "length": [80.0],
        "zero_variance_groups": [0.25],
        "kl_old": [0.001],
        "mismatch": [0.002],
    }
    assert run.series("reward").steps.tolist() == [3]
    assert run.series("reward", "eval").values.tolist() == [0.5]
    assert run.header.entropies["entropy"] == EntropyKind("sampled", None, "token-mean", "response")


def test_an_entropy_of_somebody_elses_loop_has_no_known_kind(tmp_path: Path) -> None:
    row = {"progress/step": 0, "progress/done_frac": 0.1, "policy/entropy": 2.0, "reward/mean": 0.1, "step": 0}
    imported = import_files([write(tmp_path / "metrics.jsonl", [row])], tmp_path / "run")
    assert Run.open(tmp_path / "run").header.entropies["entropy"] == EntropyKind()
    assert any(
        "'policy/entropy'" in remark.problem and "within this run only" in remark.problem for remark in imported.remarks
    )


def test_rows_without_the_cookbooks_entropy_do_not_make_it_unknown(tmp_path: Path) -> None:
    rows = [ROW, {"step": 4, "progress/batch": 4, "test/entropy": 1.0}]
    import_files([write(tmp_path / "metrics.jsonl", rows)], tmp_path / "run")
    assert Run.open(tmp_path / "run").header.entropies["entropy"].estimator == "sampled"


def test_steps_by_other_names_and_the_clock(tmp_path: Path) -> None:
    rows = [
        {"progress/batch": 4, "optim/lr": 1.0, "timestamp": 1.7e9},
        {"training_client/step": 5, "optim/lr": 1.0},
        {"progress/done_frac": 1.0},
    ]
    found = read_metrics(write(tmp_path / "metrics.jsonl", rows))
    assert [(row.step, row.time) for row in found] == [(4, 1.7e9), (5, None), (None, None)]


def test_repeated_steps_are_restarts(tmp_path: Path) -> None:
    rows = [
        {"step": step, "progress/done_frac": 0.1, "reward/mean": float(place)}
        for place, step in enumerate([0, 0, 1, 2, 0, 1])
    ]
    import_files([write(tmp_path / "metrics.jsonl", rows)], tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert run.attempts == 3
    assert run.series("reward").values.tolist() == [4.0, 5.0, 3.0]


LABELS = "training_logs/labels.csv"


def test_every_real_run_against_its_label(fixtures: Path, tmp_path: Path) -> None:
    with (fixtures / LABELS).open(newline="", encoding="utf-8") as file:
        labels = [row for row in csv.DictReader(file) if row["file"].startswith("rohunagrawal__")]
    assert len(labels) == 20
    for label in labels:
        path = fixtures / "training_logs" / label["file"]
        assert recognise(path, all_importers()).importer is IMPORTER
        imported = import_files([path], tmp_path / label["file"])
        run = Run.open(tmp_path / label["file"])
        assert imported.metric_rows == int(label["rows"])
        assert run.points[-1].step == int(label["last_step"])
        assert label["fields"].split() == ["entropy", "reward"]
        for name in ("entropy", "reward"):
            series = [one.series(name) for one in run.all_runs]  # three of the logs hold two runs, one behind the other
            assert sum(len(one) + one.superseded for one in series) == int(label["rows"])
            assert all(math.isfinite(value) for one in series for value in one.values)
        assert run.header.entropies["entropy"].estimator == "unknown"
        assert run.broken == ()


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (b'{"step": 1, "progress/batch": 1, "reward/mean": NaN}', {"progress/batch": 1.0, "reward/mean": math.nan}),
        (
            b'{"step": 1, "progress/batch": 1, "reward/mean": -Infinity}',
            {"progress/batch": 1.0, "reward/mean": -math.inf},
        ),
        (b'{"step": 1, "progress/batch": 1, "reward/mean": 1e400}', {"progress/batch": 1.0, "reward/mean": math.inf}),
        (b'{"step": 1, "progress/batch": 1, "reward/mean": "0.5"}\r', {"progress/batch": 1.0, "reward/mean": 0.5}),
        (b'{"step": 1, "progress/batch": 1, "m\xff": 1}', {"progress/batch": 1.0, "m\ufffd": 1.0}),
        (b'\xef\xbb\xbf{"step": 1, "progress/batch": 1}', {"progress/batch": 1.0}),
        (b'{"step": 1, "progress/batch": 1, "n": 1' + b"0" * 400 + b"}", {"progress/batch": 1.0, "n": math.inf}),
    ],
)
def test_numbers_in_every_form(tmp_path: Path, line: bytes, values: dict[str, float]) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line)
    assert IMPORTER.recognises(path, line) == "metrics"
    (row,) = read_metrics(path)
    assert row.step == 1
    assert repr(dict(row.values)) == repr(values)


def test_what_is_no_number_is_told_once_for_each_name(tmp_path: Path) -> None:
    rows = [{"step": step, "progress/batch": step, "note": "text", "nested": {"a": 1}} for step in range(3)]
    path = write(tmp_path / "metrics.jsonl", rows)
    assert [row.values for row in read_metrics(path)] == [
        {"progress/batch": 0.0},
        {"progress/batch": 1.0},
        {"progress/batch": 2.0},
    ]
    assert len(problems(path)) == 2
    assert all("in 3 rows" in problem for problem in problems(path))


def test_a_half_written_last_row_and_noise_between(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(json.dumps(ROW).encode() + b"\n\nnoise\n[1, 2]\n" + json.dumps(ROW).encode()[:40])
    assert len(read_metrics(path)) == 2  # train and eval of the one whole row
    assert [record.row for record in IMPORTER.read(path, "metrics") if isinstance(record, Remark)] == [3, 4, 5]


def test_a_hundred_megabytes_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with path.open("wb") as file:
        file.write(
            json.dumps(ROW).encode()
            + b"\n"
            + b'{"step": 2, "text": "'
            + b"x" * (100 << 20)
            + b'"}\n'
            + json.dumps(ROW).encode()
        )
    assert [row.step for row in read_metrics(path)] == [3, 3, 3, 3]
    assert any("105 MB" in problem for problem in problems(path))


@pytest.mark.parametrize("kind", ["metrics", "rollout summaries"])
def test_rows_nested_beyond_reason_are_survived(tmp_path: Path, kind: str) -> None:
    row = ROW if kind == "metrics" else SUMMARY
    path = tmp_path / "metrics.jsonl"
    for depth in (990, 1020):
        deep = "[" * depth + "]" * depth
        path.write_text(
            "\n".join(json.dumps({**row, key: "DEEP"}).replace('"DEEP"', deep) for key in row), encoding="utf-8"
        )
        check_records(IMPORTER.read(path, kind))


def test_an_empty_file_and_a_folder_are_clear_errors(tmp_path: Path) -> None:
    empty = tmp_path / "metrics.jsonl"
    empty.touch()
    with pytest.raises(BreadthError, match="is empty"):
        import_files([empty], tmp_path / "run")
    with pytest.raises(BrokenFileError, match="is a folder"):
        list(IMPORTER.read(tmp_path, "metrics"))


@pytest.mark.parametrize(
    "foreign",
    [
        b'{"step": 1, "time": 1700000000.0, "optim/lr": 1e-5, "progress/total_tokens": 5}\n',
        b'{"step": 1, "data": {"optim/entropy": 1.0}}\n',
        b'{"step": 1, "reward": 0.5}\n',
        b'[{"progress/batch": 1}]',
        b"progress/batch,optim/entropy\n1,2\n",
    ],
)
def test_other_trainers_rows_are_not_claimed(foreign: bytes) -> None:
    assert IMPORTER.recognises(Path("metrics.jsonl"), foreign) is None


@settings(max_examples=80, deadline=None)
@given(junk=st.binary(max_size=60), place=st.integers(0, 700), kind=st.sampled_from(["metrics", "rollout summaries"]))
def test_any_bytes_give_records_or_our_errors(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, place: int, kind: str
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "metrics.jsonl"
    whole = "".join(json.dumps(row) + "\n" for row in (ROW if kind == "metrics" else SUMMARY,) * 2).encode()
    path.write_bytes(whole[:place] + junk + whole[place + len(junk) // 2 :])
    IMPORTER.recognises(path, path.read_bytes())
    try:
        check_records(IMPORTER.read(path, kind))
    except BreadthError:
        return


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=20, deadline=None)
@given(
    base=st.sampled_from([ROW, SUMMARY]),
    changes=st.dictionaries(st.sampled_from(sorted({**ROW, **SUMMARY})), JSON, max_size=5),
)
def test_any_types_are_imported_or_refused(
    tmp_path_factory: pytest.TempPathFactory, base: dict[str, Any], changes: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    path = write(folder / "metrics.jsonl", [base, {**base, **changes}])
    try:
        import_files([path], folder / "run")
    except BreadthError:
        return
    assert Run.open(folder / "run").broken == ()
