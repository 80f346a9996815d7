"""Tests of TRL's importer as a whole: recognising, the family's contract, real logs, damaged files."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.trl.history import OBJECTIVE_FILE
from breadth.adapters.trl.importer import IMPORTER, TRL_READERS, log_rows, read_trl_console
from breadth.base.errors import BreadthError, UnknownFormatError, UnsafeFileError
from breadth.runs.importer import all_importers, recognise
from breadth.runs.importing import import_files
from breadth.runs.jsonl import MAX_ROW_BYTES, read_head
from breadth.runs.reader import Run
from breadth.runs.schema import MetricRow, Record, Remark
from breadth.testing.importers import check_importer, check_records

CONSOLE = "".join(
    f"{{'loss': '{0.5 / step:.4g}', 'grad_norm': nan, 'reward': '{step / 10}', 'epoch': '{step / 100}'}}\n"
    for step in range(1, 6)
)
HISTORY = [
    {"loss": 0.5 / step, "reward": step / 10, "entropy": 1.0, "epoch": step / 100, "step": step} for step in range(1, 6)
]
OURS = {
    "entropy": {"entropy"},
    "reward": {"reward"},
    "clip": {"truncated"},
    "len": {"length"},
    "kl": {"kl_reference"},
    "gn": {"grad_norm"},
    "zero": {"zero_variance_groups"},
}


def notebook(*outputs: dict[str, Any]) -> str:
    """Return a notebook whose only cell has these outputs."""
    cell = {"cell_type": "code", "source": ["trainer.train()"], "outputs": list(outputs)}
    return json.dumps({"cells": [{"cell_type": "markdown", "source": "# GRPO"}, cell], "nbformat": 4})


def progress_table(columns: list[str], rows: list[list[str]]) -> dict[str, Any]:
    """Return the output in which transformers shows the progress of training, as a notebook keeps it."""
    head = "".join(f"      <th>{name}</th>\n" for name in columns)
    body = "".join("<tr>\n" + "".join(f"      <td>{cell}</td>\n" for cell in row) + "    </tr>\n" for row in rows)
    page = (
        "\n    <div>\n      <progress value='3' max='3'></progress>\n      [3/3 00:01, Epoch 1/1]\n    </div>\n"
        f'    <table border="1" class="dataframe">\n  <thead>\n <tr style="text-align: left;">\n{head}    </tr>\n'
        f"  </thead>\n  <tbody>\n    {body}  </tbody>\n</table><p>"
    )
    return {"output_type": "display_data", "data": {"text/html": page.splitlines(keepends=True)}, "metadata": {}}


@pytest.fixture
def samples(tmp_path: Path) -> dict[str, Path]:
    """One small file of each kind."""
    folder = tmp_path / "output"
    (folder / "checkpoint-5").mkdir(parents=True)
    (folder / "completions").mkdir()
    files = {
        "trainer state": folder / "checkpoint-5" / "trainer_state.json",
        "log history": folder / "log.json",
        "console log": folder / "train.log",
        "notebook": folder / "train.ipynb",
        "arguments": folder / "grpo_config.json",
        "completions": folder / "completions" / "completions_00005.parquet",
    }
    files["trainer state"].write_text(
        json.dumps({"global_step": 5, "log_history": HISTORY, "logging_steps": 1}, indent=2)
    )
    files["log history"].write_text(json.dumps(HISTORY))
    files["console log"].write_text("start\n" + CONSOLE)
    lines = [*CONSOLE.splitlines(keepends=True)]
    files["notebook"].write_text(notebook({"output_type": "stream", "name": "stdout", "text": lines}))
    files["arguments"].write_text(json.dumps({"num_generations": 2, "output_dir": "output", "temperature": 0.9}))
    rows = {
        "step": [5, 5],
        "prompt": ["p", "p"],
        "completion": ["a", "b"],
        "right": [1.0, 0.0],
        "advantage": [0.7, -0.7],
    }
    pq.write_table(pa.table(rows), files["completions"])
    return files


def problem_of(path: Path, kind: str) -> str:
    """Read a file and check what it gives; return the problem it is refused for, or nothing."""
    try:
        check_records(IMPORTER.read(path, kind))
    except BreadthError as error:
        return error.problem
    return ""


def test_contract(samples: dict[str, Path]) -> None:
    check_importer(IMPORTER, list(samples.values()))


def test_each_kind_is_recognised(samples: dict[str, Path]) -> None:
    assert {kind: IMPORTER.recognises(path, read_head(path)) for kind, path in samples.items()} == {
        kind: kind for kind in samples
    }
    assert TRL_READERS.keys() == samples.keys() | {"pickled arguments"}


@pytest.mark.parametrize(
    "start", [b"\xef\xbb\xbf", b"\r\n", b"[2026-01-01 10:00] INFO starting\r\n", b"[1, 2, 3] is printed first\n"]
)
def test_what_stands_before_the_first_row_does_not_matter(tmp_path: Path, start: bytes) -> None:
    assert IMPORTER.recognises(tmp_path / "a.log", start + CONSOLE.encode()) == "console log"


def test_the_progress_table_of_a_notebook_is_its_log(tmp_path: Path) -> None:
    columns = ["Step", "Training Loss", "reward", "completions / mean_length", "rewards / right &amp; short / mean"]
    rows = [["2", "0.5", "0.25", "100.5", "0.1"], ["4", "No log", "0.5", "90.0", "0.3"], ["6", "0.1"]]
    fine_tuning = progress_table(["Step", "Training Loss"], [["1", "2.5"], ["2", "2.0"]])
    path = tmp_path / "grpo.ipynb"
    path.write_text(notebook(fine_tuning, progress_table(columns, rows)))
    assert IMPORTER.recognises(path, read_head(path)) == "notebook"
    assert list(IMPORTER.read(path, "notebook")) == [
        MetricRow(
            {
                "Training Loss": 0.5,
                "reward": 0.25,
                "completions/mean_length": 100.5,
                "rewards/right & short/mean": 0.1,
            },
            2,
        ),
        MetricRow({"reward": 0.5, "completions/mean_length": 90.0, "rewards/right & short/mean": 0.3}, 4),
    ]
    run = Run.open(import_files([path], tmp_path / "run").folder)
    assert run.series("reward").values.tolist() == [0.25, 0.5]
    assert run.series("length").values.tolist() == [100.5, 90.0]
    path.write_text(notebook(fine_tuning))
    assert IMPORTER.recognises(path, read_head(path)) is None


def test_a_log_is_recognised_behind_a_megabyte_of_noise(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("INFO: still loading the weights\n" * 40_000 + CONSOLE)
    assert IMPORTER.recognises(path, read_head(path)) == "console log"


@pytest.mark.parametrize(
    "start",
    [
        b'[{"epoch": 1, "name": "x"}]',
        b"{\"output\": \"{'loss': 1, 'epoch': 2}\"}",
        b"{'model': 'x', 'epoch': 3}",
        b'[["epoch"]]',
        b"\x93NUMPY",
    ],
)
def test_foreign_files_are_not_claimed(start: bytes) -> None:
    assert IMPORTER.recognises(Path("a.json"), start) is None


def test_the_state_of_our_own_chain_is_no_log(tmp_path: Path) -> None:
    state = tmp_path / OBJECTIVE_FILE
    state.write_text(json.dumps({"step": 20, "generation": 20, "chain": "", "states": {}}), encoding="utf-8")
    with pytest.raises(UnknownFormatError, match="state of a chain"):
        recognise(state, all_importers())


def test_the_pickled_arguments_are_refused_once_and_the_rest_is_read(samples: dict[str, Path], tmp_path: Path) -> None:
    output = samples["console log"].parent
    for folder in (output, output / "checkpoint-5"):
        (folder / "training_args.bin").write_bytes(b"PK\x03\x04 a pickle inside")
    for log in ("train.log", "train.ipynb", "log.json"):
        (output / log).unlink()
    got = import_files([output], tmp_path / "run", importers=[IMPORTER])
    assert (got.metric_rows, got.rollouts) == (5, 2)
    assert [remark.file for remark in got.remarks if "pickle" in remark.problem] == [str(output / "training_args.bin")]
    with pytest.raises(UnsafeFileError, match="pickle of the training arguments"):
        import_files([output / "training_args.bin"], tmp_path / "other", importers=[IMPORTER])
    assert Run.open(tmp_path / "run").header.entropies["entropy"].temperature == 0.9


def test_a_console_log_and_its_state_agree_on_the_steps(samples: dict[str, Path], tmp_path: Path) -> None:
    output = samples["console log"].parent
    rows = [{**row, "step": row["step"] * 10} for row in HISTORY]
    samples["trainer state"].write_text(json.dumps({"global_step": 50, "log_history": rows}))
    samples["console log"].write_text(
        "".join(str({name: f"{value:.4g}" for name, value in row.items() if name != "step"}) + "\n" for row in rows)
    )
    samples["log history"].unlink()
    samples["notebook"].unlink()
    import_files([output], tmp_path / "run", importers=[IMPORTER])
    assert Run.open(tmp_path / "run").series("reward").steps.tolist() == [10, 20, 30, 40, 50]


def test_duplicate_steps_after_a_resume_count_once(tmp_path: Path) -> None:
    rows = [*HISTORY, *({**row, "reward": 9.0} for row in HISTORY[3:])]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    got = import_files([tmp_path / "trainer_state.json"], tmp_path / "run", importers=[IMPORTER])
    assert Run.open(tmp_path / "run").series("reward").values.tolist() == [0.1, 0.2, 0.3, 9.0, 9.0]
    assert any("went back" in remark.problem for remark in got.remarks)


def test_a_line_of_100_megabytes_is_left_out_with_a_remark(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    with path.open("wb") as file:
        file.write(CONSOLE.encode())
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + CONSOLE.encode())
    records = list(IMPORTER.read(path, "console log"))
    assert sum(isinstance(record, MetricRow) for record in records) == 10
    assert any("a single row of 105 MB" in getattr(record, "problem", "") for record in records)
    assert MAX_ROW_BYTES < 100 << 20


@pytest.mark.parametrize("kind", ["trainer state", "log history", "console log", "arguments", "completions"])
def test_an_empty_file_and_a_folder_are_refused_or_hold_nothing(tmp_path: Path, kind: str) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    assert problem_of(tmp_path / "folder", kind).startswith(f"{tmp_path / 'folder'}: ")
    empty = problem_of(tmp_path / "empty", kind)
    assert empty == "" if kind == "console log" else str(tmp_path / "empty") in empty


@given(st.sampled_from(["trainer state", "log history", "console log", "arguments"]), st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_arbitrary_bytes_raise_only_our_errors(
    tmp_path_factory: pytest.TempPathFactory, kind: str, junk: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "junk"
    path.write_bytes(junk)
    IMPORTER.recognises(path, junk)
    problem = problem_of(path, kind)
    assert problem == "" or problem.startswith(f"{path}: ")


@given(st.sampled_from(["trainer state", "log history", "console log"]), st.data())
@settings(max_examples=150, deadline=None)
def test_mutated_files_raise_only_our_errors(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    text = (
        CONSOLE
        if kind == "console log"
        else json.dumps({"log_history": HISTORY} if kind == "trainer state" else HISTORY)
    )
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 12, len(text))))
    junk = data.draw(
        st.sampled_from(
            ["", "{", "}", "[", "'", '"', ",", "NaN", "1e999", "-", "\x1b[0m", "\0", "\ud7ff", "null", "9" * 400]
        )
    )
    path = tmp_path_factory.getbasetemp() / "mutated"
    path.write_text(text[:start] + junk + text[end:])
    problem = problem_of(path, kind)
    assert problem == "" or problem.startswith(f"{path}: ")


def test_real_logs_import_with_every_row_and_field(fixtures: Path, tmp_path: Path) -> None:
    with (fixtures / "training_logs" / "labels.csv").open() as file:
        labels = [row for row in csv.DictReader(file) if row["format"].startswith("TRL")]
    assert len(labels) == 19
    for label in labels:
        target = tmp_path / label["file"]
        import_files([fixtures / "training_logs" / label["file"]], target, importers=[IMPORTER])
        run = Run.open(target)
        trained = [point for point in run.points if point.split == "train"]
        assert len(trained) == int(label["rows"]), label["file"]
        assert max(point.step for point in trained) == int(label["last_step"]), label["file"]
        for field in label["fields"].split():
            assert OURS[field] & set(run.metric_names()), f"{label['file']} has no {field}"
        assert run.header.trainer == "trl"


def test_a_real_evaluated_run_keeps_its_evaluations_apart(fixtures: Path, tmp_path: Path) -> None:
    import_files(
        [fixtures / "training_logs" / "alexchilton__wordle_stage2.json"], tmp_path / "run", importers=[IMPORTER]
    )
    run = Run.open(tmp_path / "run")
    assert run.series("reward", "eval").steps.tolist() == list(range(20, 161, 20))
    assert run.series("reward", "eval").values[0] == pytest.approx(-0.486133, abs=1e-6)


def read(folder: Path, text: str | bytes) -> list[Record]:
    path = folder / "train.log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(read_trl_console(path))


def rows(records: list[Record]) -> list[MetricRow]:
    return [record for record in records if isinstance(record, MetricRow)]


def test_rows_stand_between_other_lines(tmp_path: Path) -> None:
    text = (
        "INFO loading {'model': 'x'}\n  1%|▏         | 1/100 [00:05<08:15,  5.01s/it]\r\x1b[A{'loss': '1.72e-08',"
        " 'reward': '0.25', 'epoch': '0.01'}\x1b[0m\r\n[rank0]: {'loss': 0.5, 'grad_norm': nan, 'reward':"
        " np.float64(0.5), 'kl': tensor(0.1, device='cuda:0'), 'epoch': 0.02}\n{'note': 'no log row', 'epoch': 3}\n"
    )
    first, second = rows(read(tmp_path, text))
    assert first == MetricRow({"loss": 1.72e-08, "reward": 0.25, "epoch": 0.01}, None)
    assert math.isnan(second.values["grad_norm"])
    assert {name: value for name, value in second.values.items() if name != "grad_norm"} == {
        "loss": 0.5,
        "reward": 0.5,
        "kl": 0.1,
        "epoch": 0.02,
    }


def test_evaluations_and_the_summary_stand_at_the_row_before_them(tmp_path: Path) -> None:
    text = (
        "{'eval_loss': 1.0, 'eval_reward': 0.1, 'epoch': 0}\n"
        "{'loss': 0.5, 'reward': 0.2, 'epoch': 0.1}\n"
        "{'loss': 0.4, 'reward': 0.3, 'epoch': 0.2}{'eval_loss': 0.9, 'eval_reward': 0.4, 'epoch': 0.2}\n"
        "{'train_runtime': 9.5, 'train_loss': 0.45, 'epoch': 0.2}\n"
    )
    assert rows(read(tmp_path, text)) == [
        MetricRow({"loss": 1.0, "reward": 0.1, "epoch": 0.0}, 0, split="eval"),
        MetricRow({"loss": 0.5, "reward": 0.2, "epoch": 0.1}, None),
        MetricRow({"loss": 0.4, "reward": 0.3, "epoch": 0.2}, None),
        MetricRow({"loss": 0.9, "reward": 0.4, "epoch": 0.2}, 2, split="eval"),
        MetricRow({"train_runtime": 9.5, "train_loss": 0.45, "epoch": 0.2}, 2),
    ]


def test_a_summary_with_the_last_steps_metrics_is_a_row_of_its_own(tmp_path: Path) -> None:
    text = "{'loss': 0.5, 'epoch': 0.1}\n{'train_runtime': 9.5, 'train_loss': 0.45, 'reward': 0.7, 'epoch': 0.2}\n"
    assert [row.step for row in rows(read(tmp_path, text))] == [None, None]


def test_a_printed_step_counts(tmp_path: Path) -> None:
    text = "{'loss': 0.5, 'epoch': 0.1, 'step': 50}\n{'eval_loss': 0.4, 'epoch': 0.1}\n"
    assert [row.step for row in rows(read(tmp_path, text))] == [50, 50]


def test_a_last_row_that_breaks_off_is_remarked(tmp_path: Path) -> None:
    records = read(tmp_path, "{'loss': 0.5, 'epoch': 0.1}\n{'loss': 0.4, 'rew")
    assert len(rows(records)) == 1
    assert records[-1] == Remark(
        "the last row breaks off; left out.",
        str(tmp_path / "train.log"),
        2,
        "The trainer was stopped while printing, or still runs.",
    )


def test_rows_that_a_terminal_has_wrapped_are_whole(tmp_path: Path) -> None:
    records = read(tmp_path, "{'loss': 0.5, 'rewa\nrd': 0.25, 'epo\nch': 0.1}\n{'loss': 0.4, 'epoch': 0.2}\n")
    assert rows(records) == [
        MetricRow({"loss": 0.5, "reward": 0.25, "epoch": 0.1}, None),
        MetricRow({"loss": 0.4, "epoch": 0.2}, None),
    ]


def test_odd_values_and_odd_bytes_are_remarked(tmp_path: Path) -> None:
    records = read(tmp_path, b"\xff\xfe\n{'loss': 0.5, 'mode': 'fast', 'epoch': 0.1}\n")
    assert rows(records) == [MetricRow({"loss": 0.5, "epoch": 0.1}, None)]
    said = [record.problem for record in records if isinstance(record, Remark)]
    assert said == [
        "1 rows are not UTF-8; the odd bytes were replaced.",
        "'mode' is 'fast', not a number, in 1 rows; left out there.",
    ]


def test_names_with_quotes_and_signs(tmp_path: Path) -> None:
    (row,) = rows(
        read(tmp_path, """{'loss': 0.5, "rewards/it's/mean": '1', 'rewards/<lambda>/std': -2e-3, 'epoch': 0.1}""")
    )
    assert row.values == {"loss": 0.5, "rewards/it's/mean": 1.0, "rewards/<lambda>/std": -0.002, "epoch": 0.1}


def test_nothing_is_evaluated() -> None:
    (row,) = log_rows("{'loss': __import__('os').getcwd(), 'epoch': 1}")
    assert row == {"loss": "__import__('os')", "epoch": "1"}


@pytest.mark.parametrize(
    "junk", ["{'" * 200_000, "'epoch': " * 200_000, "{'a': " + "1," * 300_000, "{'loss'" + " " * 500_000]
)
def test_hostile_lines_take_linear_time(tmp_path: Path, junk: str) -> None:
    assert rows(read(tmp_path, junk + "\n{'loss': 0.5, 'epoch': 0.1}\n")) == [
        MetricRow({"loss": 0.5, "epoch": 0.1}, None)
    ]


def state_beside(folder: Path, values: dict[int, tuple[float, float]]) -> None:
    history: list[dict[str, Any]] = [
        {"loss": loss, "reward": reward, "num_tokens": step * 100.0, "epoch": step / 9, "step": step}
        for step, (loss, reward) in values.items()
    ]
    (folder / "checkpoint-30").mkdir()
    (folder / "checkpoint-30" / "trainer_state.json").write_text(
        json.dumps({"global_step": 30, "log_history": history})
    )


def console_row(step: int, loss: float, reward: float) -> str:
    return f"{{'loss': '{loss:.4g}', 'reward': '{reward:.4g}', 'num_tokens': '{step * 100:.4g}', 'epoch': '0.1'}}\n"


def test_steps_come_from_the_trainer_state_beside_the_log(tmp_path: Path) -> None:
    state_beside(tmp_path, {10: (0.123456, 0.5), 20: (0.0234567, 0.6), 30: (math.nan, 0.7)})
    text = (
        console_row(10, 0.123456, 0.5)
        + console_row(20, 0.0234567, 0.6)
        + console_row(30, math.nan, 0.7)
        + console_row(40, 0.1, 0.8)
    )
    assert [row.step for row in rows(read(tmp_path, text))] == [10, 20, 30, 40]


def test_a_restart_in_the_log_is_seen_through_the_state(tmp_path: Path) -> None:
    """Steps 20 and 30 were lost and done again: the state holds the second time only."""
    state_beside(tmp_path, {10: (0.1, 0.5), 20: (0.2, 0.6), 30: (0.3, 0.7)})
    lost = console_row(20, 0.25, 0.61) + console_row(30, 0.35, 0.71)
    text = console_row(10, 0.1, 0.5) + lost + console_row(20, 0.2, 0.6) + console_row(30, 0.3, 0.7)
    assert [row.step for row in rows(read(tmp_path, text))] == [10, 20, 30, 20, 30]


def test_the_state_of_another_run_says_nothing(tmp_path: Path) -> None:
    state_beside(tmp_path, {10: (0.9, 0.1), 20: (0.8, 0.2)})
    text = console_row(10, 0.1, 0.5) + console_row(20, 0.2, 0.6)
    assert [row.step for row in rows(read(tmp_path, text))] == [None, None]


def test_an_empty_log_holds_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, b"") == []


def test_an_epoch_that_goes_back_is_a_restart_or_another_run(tmp_path: Path) -> None:
    def printed(epochs: list[float]) -> str:
        return "".join(f"{{'loss': 0.1, 'reward': 0.5, 'epoch': {epoch}}}\n" for epoch in epochs)

    restarted = rows(read(tmp_path, printed([0.1, 0.2, 0.3, 0.4, 0.3, 0.4, 0.5])))
    assert [row.step for row in restarted] == [None, None, None, None, 3, None, None]
    another = rows(read(tmp_path, printed([0.1, 0.2, 0.3, 0.1, 0.2])))
    assert [row.step for row in another] == [None, None, None, 1, None]
    again = rows(read(tmp_path, printed([0.1, 0.2, 0.3, 0.2, 0.3, 0.4, 0.4, 0.2])))
    assert [row.step for row in again] == [None, None, None, 2, None, None, None, 2]
