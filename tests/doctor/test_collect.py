"""Files in any mix become one piece of evidence a run; junk is named, not judged."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from breadth.base.errors import BreadthError, BrokenFileError, FileError, UnknownFormatError
from breadth.doctor.collect import (
    MAX_DATA_ROWS,
    MAX_TOML_BYTES,
    classify_files,
    collect_evidence,
    is_training_data,
    read_training_data,
)
from breadth.runs.importer import all_importers
from breadth.runs.paths import locate
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter


def history(path: Path, entropy: float = 0.5) -> Path:
    rows = [{"step": step, "epoch": step / 10, "loss": 0.0, "reward": 0.1, "entropy": entropy} for step in range(1, 13)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"log_history": rows, "global_step": 12}))
    return path


SCRIPT = "from trl import GRPOConfig\nargs = GRPOConfig(output_dir='o', num_generations=4, max_completion_length=64)\n"


def test_a_configuration_goes_with_the_only_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    found = collect_evidence([history(tmp_path / "a.json"), tmp_path / "train.py"], tmp_path / "work")
    assert [case.name for case in found.cases] == ["a"]
    assert found.cases[0].config.group == 4
    assert found.cases[0].dialect is not None
    assert found.used == ("train.py: configuration of trl", "a.json: trl trainer state")


def test_every_log_is_a_run_and_a_configuration_alone_a_case(tmp_path: Path) -> None:
    history(tmp_path / "logs" / "a.json")
    history(tmp_path / "logs" / "b.json")
    found = collect_evidence([tmp_path / "logs"], tmp_path / "work")
    assert sorted(case.name for case in found.cases) == ["a", "b"]
    (tmp_path / "train.py").write_text(SCRIPT)
    alone = collect_evidence([tmp_path / "train.py"], tmp_path / "work2")
    assert [case.run for case in alone.cases] == [None]


def test_with_two_configurations_each_run_takes_the_one_beside_it(tmp_path: Path) -> None:
    for name, size in (("a", 4), ("b", 16)):
        history(tmp_path / name / "trainer_state.json")
        (tmp_path / name / "train.py").write_text(SCRIPT.replace("num_generations=4", f"num_generations={size}"))
    found = collect_evidence([tmp_path / "a", tmp_path / "b"], tmp_path / "work")
    assert {case.name: case.config.group for case in found.cases} == {"a": 4, "b": 16}


def test_run_folders_are_found_inside_a_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        RunWriter(tmp_path / "runs" / name, Header(name=name)).metrics(1, {"entropy": 0.5})
    found = collect_evidence([tmp_path / "runs"], tmp_path / "work")
    assert [case.name for case in found.cases] == ["one", "two"]


def test_notes_next_to_run_folders_are_no_runs(tmp_path: Path) -> None:
    RunWriter(tmp_path / "runs" / "one", Header(name="one")).metrics(1, {"entropy": 0.5})
    notes = tmp_path / "runs" / "128.json"
    notes.write_text(json.dumps({"accuracy": [0.0, 0.25] * 20, "answer_entropy": [0.1] * 40}), encoding="utf-8")
    history(tmp_path / "runs" / "two" / "trainer_state.json")
    found = collect_evidence([tmp_path / "runs"], tmp_path / "work")
    assert [case.name for case in found.cases] == ["one", "two"]
    assert [(Path(remark.file).name, remark.remedy) for remark in found.unused] == [
        ("128.json", "Name the file itself to have it read.")
    ]
    both = collect_evidence([tmp_path / "runs", notes], tmp_path / "again")
    assert len(both.cases) == 3


def test_junk_in_a_folder_is_passed_over_with_its_reason(tmp_path: Path) -> None:
    history(tmp_path / "mix" / "trainer_state.json")
    (tmp_path / "mix" / "weights.pt").write_bytes(b"\x80\x04....")
    (tmp_path / "mix" / "notes.md").write_text("buy milk")
    (tmp_path / "mix" / "broken.py").write_text("GRPOConfig(num_generations=\n")
    found = collect_evidence([tmp_path / "mix"], tmp_path / "work")
    assert len(found.cases) == 1
    assert sorted(Path(one.file).name for one in found.unused) == ["broken.py", "notes.md", "weights.pt"]


@pytest.mark.parametrize(("name", "content"), [("a.md", "nothing"), ("a.json", ""), ("missing", None)])
def test_what_was_named_and_cannot_be_read_is_an_error(tmp_path: Path, name: str, content: str | None) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(FileError):
        collect_evidence([tmp_path / name], tmp_path / "work")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnknownFormatError, match="nothing that the doctor can read"):
        collect_evidence([tmp_path / "empty"], tmp_path / "work")


def test_policy_server_and_data_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('[strategy]\nkind = "vote"\n')
    (tmp_path / "server.toml").write_text(
        'url = "http://x"\nmodel = "m"\ntop_logprobs = 5\n[dialect]\nkind = "openai"\n'
    )
    (tmp_path / "data.jsonl").write_text(
        '{"question": "1+1?", "solution": "First we add one and one. The answer is 2."}\n'
    )
    found = collect_evidence([tmp_path], tmp_path / "work")
    (case,) = found.cases
    assert case.policy is not None
    assert case.server is not None
    assert case.data == ("First we add one and one. The answer is 2.",)


def table(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_runs_one_behind_the_other_in_a_log_are_judged_apart(tmp_path: Path) -> None:
    levels = [0.5] * 20 + [0.1] * 12
    log = table(
        tmp_path / "both.jsonl", [{"step": n % 20, "entropy": level, "reward": 0.5} for n, level in enumerate(levels)]
    )
    found = collect_evidence([log], tmp_path / "work")
    assert [case.name for case in found.cases] == ["both, run 1 of 2", "both, run 2 of 2"]
    assert [set(case.run.series("entropy").values.tolist()) for case in found.cases if case.run] == [{0.5}, {0.1}]
    assert any("2 runs in sequence, split where the step number restarts" in line for line in found.used)


def test_the_runs_of_a_table_are_judged_apart_whatever_they_are_called(tmp_path: Path) -> None:
    names = ["../../escape", "b"]
    rows: list[dict[str, object]] = [
        {"step": n // 2, "run": names[n % 2], "entropy": n % 2 + 0.5, "reward": 0.5} for n in range(40)
    ]
    log = table(tmp_path / "stacked.jsonl", rows)
    found = collect_evidence([log], tmp_path / "work")
    assert [case.name for case in found.cases] == ["stacked, ../../escape", "stacked, b"]
    assert [set(case.run.series("entropy").values.tolist()) for case in found.cases if case.run] == [{0.5}, {1.5}]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["stacked.jsonl"]  # read into memory


def test_two_tables_of_metrics_are_two_runs_called_by_their_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        table(tmp_path / f"{name}.jsonl", [{"step": n, "entropy": 0.5, "reward": 0.5} for n in range(12)])
    assert [case.name for case in collect_evidence([tmp_path], tmp_path / "work").cases] == ["a", "b"]


def test_a_broken_log_in_a_folder_is_passed_over_and_a_named_one_is_an_error(tmp_path: Path) -> None:
    history(tmp_path / "mix" / "good" / "trainer_state.json")
    broken = tmp_path / "mix" / "trainer_state.json"
    broken.write_text('{"log_history": [{"step": 1, "loss": ')
    found = collect_evidence([tmp_path / "mix"], tmp_path / "work")
    assert [case.name for case in found.cases] == ["good"]
    assert [Path(one.file).name for one in found.unused] == ["trainer_state.json"]
    with pytest.raises(FileError, match="not a whole JSON document"):
        collect_evidence([broken], tmp_path / "again")


def test_a_table_is_called_by_its_file_wherever_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(tmp_path / "mine.jsonl", [{"step": n, "prompt": "1+1", "completion": "2", "reward": 1.0} for n in range(12)])
    monkeypatch.chdir(tmp_path)
    assert [case.name for case in collect_evidence([Path("mine.jsonl")], tmp_path / "work").cases] == ["mine"]


def test_a_broken_policy_that_was_named_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('[strategy]\nkind = "no-such"\n')
    with pytest.raises(BreadthError, match="no-such"):
        classify_files([tmp_path / "policy.toml"], all_importers())


def test_hidden_files_and_the_inside_of_run_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config.py").write_text("GRPOConfig(")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.toml").write_text("schema = 1\n")
    (tmp_path / "run" / "inside.py").write_text("GRPOConfig(")
    found = classify_files([tmp_path], all_importers())
    assert found.folders == [tmp_path / "run"]
    assert not found.remarks


def test_links_that_lead_up_and_pipes_are_not_followed(tmp_path: Path) -> None:
    inside = tmp_path / "above" / "run"
    inside.mkdir(parents=True)
    (tmp_path / "above" / "notes.md").write_text("not asked for")
    (inside / "up").symlink_to("..")
    (inside / "self").symlink_to(".")
    (inside / "gone").symlink_to("nowhere")
    (inside / "system").symlink_to("/dev")
    os.mkfifo(inside / "pipe")
    found = classify_files([inside], all_importers())
    assert sorted(Path(one.file).name for one in found.remarks) == ["gone", "pipe"]
    with pytest.raises(BrokenFileError, match="a pipe or a device"):
        classify_files([inside / "pipe"], all_importers())


def test_a_toml_file_that_is_too_long_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "zeros.toml").open("wb") as file:
        file.truncate(MAX_TOML_BYTES + 1)
    with pytest.raises(UnknownFormatError, match="nothing but zeros"):
        classify_files([tmp_path / "zeros.toml"], all_importers())


ROW = {"question": "What is 1 + 1, and why?", "answer": "2"}


@pytest.mark.parametrize(
    ("row", "data"),
    [
        (ROW, True),
        ({"prompt": "p", "response": "r"}, True),
        ({**ROW, "reward": 1.0}, False),
        ({"input": "i", "output": "o", "score": 1, "step": 3}, False),
        ({"step": 1, "data": {}}, False),
        ({"text": "only text"}, False),
    ],
)
def test_columns_tell(tmp_path: Path, row: dict[str, Any], data: bool) -> None:
    line = json.dumps(row).encode() + b"\n"
    assert is_training_data(tmp_path / "x.jsonl", line) is data


def test_damaged_parquet_is_refused_and_its_column_names_claim_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_pylist([{**ROW, "number": place} for place in range(100)]), path, compression="lz4")
    whole = path.read_bytes()
    path.write_bytes(b"PAR1" + b"\xff" * 200 + whole[204:])
    assert is_training_data(path, whole)
    with pytest.raises(BrokenFileError, match="Parquet"):
        read_training_data(path)
    path.write_bytes(whole.replace(b"question", b"\xff" * 8))
    assert not is_training_data(path, whole)


def test_solutions_are_read_where_they_say_something_else_the_question(tmp_path: Path) -> None:
    solved = {**ROW, "solution": "We add one and one, which is two."}
    talked = {
        "prompt": "p q r s",
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "You add them up, so two."}],
    }
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (ROW, solved, talked)) + "not json\n")
    assert read_training_data(tmp_path / "x.jsonl") == (ROW["question"], solved["solution"], "You add them up, so two.")


def test_parquet_and_json_documents_are_read_too_and_no_more_than_needed(tmp_path: Path) -> None:
    rows = [{"question": f"What is {number} plus one?", "answer": str(number)} for number in range(MAX_DATA_ROWS + 10)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    (tmp_path / "x.json").write_text(json.dumps(rows[:3]))
    assert is_training_data(tmp_path / "x.parquet", b"PAR1")
    assert len(read_training_data(tmp_path / "x.parquet")) == MAX_DATA_ROWS
    assert read_training_data(tmp_path / "x.json")[2] == "What is 2 plus one?"


def test_a_whole_disk_links_in_a_circle_and_a_closed_folder_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnknownFormatError, match="is a whole disk"):
        classify_files([Path(tmp_path.anchor)], all_importers())
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(FileError, match="cannot be read"):
        classify_files([tmp_path / "loop"], all_importers())

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(FileError, match="cannot be read: Permission denied"):
        classify_files([tmp_path], all_importers())


def test_the_doctor_reads_a_run_in_an_object_store(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "mine")
    for step in range(1, 4):
        writer.metrics(step, {"entropy": 1.0 / step})
    fsspec.filesystem("memory").put(str(tmp_path / "mine"), "/bucket/mine", recursive=True)
    collected = collect_evidence([locate("memory://bucket/mine")], tmp_path / "work")
    assert [case.name for case in collected.cases] == ["mine"]


@pytest.mark.parametrize("value", ["[" * 3000 + "]" * 3000, "{a=" * 3000 + "1" + "}" * 3000])
def test_toml_that_is_nested_too_deeply_is_said(tmp_path: Path, value: str) -> None:
    (tmp_path / "policy.toml").write_text(f'strategy = {{kind = "vote", x = {value}}}\n')
    with pytest.raises(BrokenFileError, match="nested too deeply"):
        classify_files([tmp_path / "policy.toml"], all_importers())
    assert "nested too deeply" in classify_files([tmp_path], all_importers()).remarks[0].problem


def test_a_number_of_thousands_of_digits_is_no_policy(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(f"strategy = {'9' * 6000}\n")
    with pytest.raises(UnknownFormatError):
        classify_files([tmp_path / "other.toml"], all_importers())


def test_a_table_with_the_metrics_of_one_trainer_is_its_log(tmp_path: Path) -> None:
    rows = "".join(f"{step},0.5,0.{step}\n" for step in range(1, 10))
    for name, metric in (("w.csv", "train/completions/clipped_ratio"), ("p.csv", "my/clipped"), ("v.csv", "entropy")):
        (tmp_path / name).write_text(f"Step,{metric},train/reward\n{rows}")
    (tmp_path / "v.csv").write_text(f"step,actor/pg_clipfrac,actor/entropy\n{rows}")
    found = {case.name: case for case in collect_evidence([tmp_path], tmp_path / "work").cases}
    trainers = {name: "" if case.run is None else case.run.header.trainer for name, case in found.items()}
    assert trainers == {"w": "trl", "p": "generic", "v": "verl"}
    dialect = found["w"].dialect
    assert dialect is not None
    assert dialect.trainer == "trl"
    assert found["v"].run is not None
    assert found["v"].run.header.entropies["entropy"].estimator == "exact"


@pytest.mark.parametrize(
    ("call", "settings"), [("GRPOConfig(beta=0.25, num_generations=8)", True), ("GRPOConfig(beta=", False)]
)
def test_a_notebook_has_settings_and_a_log(tmp_path: Path, call: str, *, settings: bool) -> None:
    lines = [f"{{'loss': 0.1, 'reward': {step / 20}, 'epoch': {step / 100}}}\n" for step in range(1, 12)]
    output = {"output_type": "stream", "name": "stdout", "text": lines}
    cells = [{"cell_type": "code", "source": ["from trl import GRPOConfig\n", call], "outputs": [output]}]
    path = tmp_path / "colab.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}))
    collected = collect_evidence([path], tmp_path / "work")
    (case,) = collected.cases
    reward = case.series("reward")
    assert reward is not None
    assert len(reward) == 11
    assert (case.config.kl == 0.25) is settings
    assert len(collected.unused) == (0 if settings else 1)
