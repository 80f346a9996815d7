"""Importing: whole folders, broken files, restarts, and nothing left behind on failure."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from breadth.base import settings
from breadth.base.errors import BrokenFileError, UnknownFormatError, UnsafeFileError, WriteError
from breadth.runs import importing
from breadth.runs.importer import all_importers, recognise
from breadth.runs.importing import ImportFailure, ImportSummary, import_files, read_logs
from breadth.runs.reader import Run
from breadth.runs.schema import EntropyKind, LoggedConfig, MetricRow, Record, Remark, RolloutBatch
from breadth.runs.writer import RunWriter

FIRST = ImportSummary(1, 2, {"length": "completion_length"}, {"a": 1}, None, False, (0.0,), (Remark("x", "f"),), ())
SECOND = ImportSummary(
    3,
    4,
    {"length": "response_length", "kl_old": "ppo_kl"},
    {"b": 2},
    EntropyKind("sampled"),
    True,
    (1.0,),
    (),
    (ImportFailure("UnsafeFileError", Remark("y", "g", 2, "z")),),
)


def test_summaries_add_up_and_a_changed_name_is_reported() -> None:
    both = FIRST + SECOND
    assert (both.metric_rows, both.rollouts) == (4, 6)
    assert both.names == {"length": "completion_length", "kl_old": "ppo_kl"}
    assert both.config == {"a": 1, "b": 2}
    assert (both.entropy, both.token_entropy, both.levels) == (EntropyKind("sampled"), True, (0.0, 1.0))
    assert both.remarks[-1].problem == "length is completion_length in some rows and response_length in others."
    assert isinstance(both.failures[0].error, UnsafeFileError)
    assert str(both.failures[0].error) == "g, row 2: y\n  -> z"


def test_three_levels_are_enough_to_know() -> None:
    many = ImportSummary(levels=(0.0, 0.5)) + ImportSummary(levels=(0.25, 1.0))
    assert len(many.levels) == 3


def test_a_summary_crosses_processes_as_toml() -> None:
    assert settings.loads(ImportSummary, settings.dumps(FIRST + SECOND)) == FIRST + SECOND


@dataclass(frozen=True)
class Scripted:
    """Reads files named *.script as the records it was given."""

    records: Mapping[str, Sequence[Record | Exception]]
    trainer: str = "scripted"
    entropy: EntropyKind = EntropyKind("exact", None, "token-mean", "response")
    switches: Mapping[str, str] = field(default_factory=dict)

    def recognises(self, path: Path, start: bytes) -> str | None:
        return "script" if path.suffix == ".script" else None

    def current(self, files: Sequence[Path]) -> Sequence[Path]:
        return files

    def read(self, path: Path, kind: str) -> Iterator[Record]:
        for record in self.records[path.stem]:
            if isinstance(record, Exception):
                raise record
            yield record


def rows(*steps: int | None, **values: float) -> list[MetricRow]:
    return [MetricRow(values or {"entropy": 0.5}, step) for step in steps]


def bring(tmp_path: Path, *records: Record | Exception, name: str = "run") -> Run:
    (tmp_path / "a.script").write_text("x")
    import_files([tmp_path / "a.script"], tmp_path / name, importers=[Scripted({"a": records})])
    return Run.open(tmp_path / name)


def test_records_become_a_run(tmp_path: Path) -> None:
    batch = pa.table(
        {
            "problem": ["p", "p"],
            "prompt": ["1+1", "1+1"],
            "step": [3, 3],
            "reward": [0.0, 1.0],
            "completion": ["a", "b"],
        }
    )
    run = bring(tmp_path, LoggedConfig({"temperature": 0.7, "none": None}), *rows(1, 2), RolloutBatch(batch))
    assert run.header.trainer == "scripted"
    assert run.header.names == {"entropy": "entropy"}
    assert run.header.entropies == {"entropy": EntropyKind("exact", 0.7, "token-mean", "response")}
    assert run.header.reward_levels == (0.0, 1.0)
    assert run.series("entropy").steps.tolist() == [1, 2]
    assert run.query("SELECT prompt FROM problems")["prompt"].to_pylist() == ["1+1"]
    assert "prompt" not in run.columns
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_restarts_are_found_and_the_newest_wins(tmp_path: Path) -> None:
    run = bring(tmp_path, *rows(0), *rows(0, 1, 2), *rows(0, 1, 2, 3, entropy=0.9))
    assert run.attempts == 3
    assert run.series("entropy").values.tolist() == [0.9] * 4
    assert "went back 2 times" in run.header.remarks[0].problem


def test_rows_of_one_step_with_other_names_are_one_attempt(tmp_path: Path) -> None:
    run = bring(tmp_path, *rows(5, entropy=0.5, epoch=1.0), *rows(5, train_runtime=3.0, epoch=1.0))
    assert run.attempts == 1


def test_unnumbered_rows_are_numbered_and_reported(tmp_path: Path) -> None:
    run = bring(tmp_path, *rows(None, None, None))
    assert run.series("entropy").steps.tolist() == [1, 2, 3]
    assert "carry no step" in run.header.remarks[0].problem


def test_a_clock_going_backwards_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    run = bring(tmp_path, MetricRow({"entropy": 1.0}, 1, 100.0), MetricRow({"entropy": 2.0}, 2, 50.0))
    assert run.series("entropy").values.tolist() == [1.0, 2.0]
    assert "clock went backwards 1 times" in run.header.remarks[0].problem


def test_nan_and_infinite_rewards_are_kept(tmp_path: Path) -> None:
    batch = pa.table({"problem": ["p"] * 3, "step": [1] * 3, "reward": [math.nan, math.inf, 1.0]})
    run = bring(tmp_path, *rows(1, reward=math.nan), RolloutBatch(batch))
    assert math.isnan(run.series("reward").values[0])
    assert run.query("SELECT count(*) n FROM rollouts WHERE isinf(reward)")["n"].to_pylist() == [1]
    assert run.header.reward_levels == ()


def test_a_file_that_breaks_midway_keeps_what_was_read_and_says_so(tmp_path: Path) -> None:
    run = bring(tmp_path, *rows(1, 2), BrokenFileError("a.script", "is cut.", "Copy it again.", row=3))
    assert run.series("entropy").steps.tolist() == [1, 2]
    assert [(remark.problem, remark.row, remark.remedy) for remark in run.header.remarks] == [
        ("is cut.", 3, "Copy it again.")
    ]


@pytest.mark.parametrize(
    "records", [(), (Remark("all rows are blank."),), (BrokenFileError("a.script", "is cut.", "Copy it again."),)]
)
def test_nothing_usable_is_an_error_and_leaves_nothing(tmp_path: Path, records: tuple[Record | Exception, ...]) -> None:
    with pytest.raises((UnknownFormatError, BrokenFileError), match=r"no rows|blank|cut"):
        bring(tmp_path, *records)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.script"]


def test_an_import_never_overwrites(tmp_path: Path) -> None:
    bring(tmp_path, *rows(1))
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(WriteError, match="never overwrites"):
        bring(tmp_path, *rows(9))
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_a_target_that_cannot_be_made_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 0.5}\n', encoding="utf-8")
    with pytest.raises(WriteError) as refused:
        import_files([log], tmp_path / "file" / "run")
    assert refused.value.problem.startswith(f"{tmp_path / 'file' / 'run'}: could not be written: ")


def test_a_file_that_is_gone_when_it_is_read_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1, "reward": 0.5}\n', encoding="utf-8")
    found, _ = importing.find_files([log], all_importers())
    log.unlink()
    with pytest.raises(BrokenFileError, match=r"log\.jsonl: cannot be read: No such file"):
        importing.import_recognised(found, tmp_path / "run")


def test_a_full_disk_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RunWriter, "rollouts", full)
    batch = RolloutBatch(pa.table({"problem": ["p"], "step": [1]}))
    with pytest.raises(WriteError, match="No space left"):
        bring(tmp_path, *rows(1), batch, batch, batch, batch)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.script"]


def test_what_a_killed_import_left_is_removed_by_the_next(tmp_path: Path) -> None:
    begin = "import sys; from pathlib import Path; from breadth.base.system import temporary_name\n"
    script = begin + "left = temporary_name(Path(sys.argv[1]))\nleft.mkdir()\n(left / 'half').write_text('x')"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "killed")], check=True)
    (left,) = tmp_path.iterdir()
    os.utime(left, (0, 0))
    import_rows(tmp_path, "one")
    assert left.exists(), "what is young may belong to another container"
    os.utime(left / "half", (0, 0))
    import_rows(tmp_path, "two")
    assert not left.exists()


def import_rows(tmp_path: Path, name: str) -> None:
    source = tmp_path / f"{name}.script"
    source.touch()
    import_files([source], tmp_path / name, importers=[Scripted({name: rows(1, 2)})])


def test_long_rollouts_become_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "BYTES_PER_FILE", 1 << 20)
    table = pa.table({"step": [3], "problem": ["p"], "prompt": ["p"], "completion": ["x" * 600_000]})
    (tmp_path / "a.script").touch()
    import_files([tmp_path / "a.script"], tmp_path / "run", importers=[Scripted({"a": [RolloutBatch(table)] * 5})])
    run = Run.open(tmp_path / "run")
    assert (len(run.rollout_files), run.query("SELECT count(*) AS n FROM rollouts")["n"].to_pylist()) == (3, [5])


def test_in_a_folder_unknown_files_are_passed_over_with_a_remark(tmp_path: Path) -> None:
    source = tmp_path / "out"
    source.mkdir()
    (source / "a.script").write_text("x")
    (source / "model.bin").write_bytes(b"\x80\x02}q")
    (source / "notes.txt").write_text("hello")
    (source / ".hidden").write_text("x")
    made = import_files([source], tmp_path / "run", importers=[Scripted({"a": rows(1)})])
    assert [remark.problem for remark in made.remarks] == [
        "1 files were passed over as pickles, which are never opened: model.bin.",
        "1 files were passed over as of no kind we know: notes.txt.",
    ]


def test_named_files_are_refused_for_a_reason(tmp_path: Path) -> None:
    importers = [Scripted({})]
    pickled, foreign, empty = tmp_path / "a.pt", tmp_path / "b.txt", tmp_path / "c.jsonl"
    pickled.write_bytes(b"x")
    foreign.write_text("hello")
    empty.write_text("")
    with pytest.raises(UnsafeFileError, match="JSONL or Parquet"):
        import_files([pickled], tmp_path / "run", importers=importers)
    with pytest.raises(UnknownFormatError, match=r"starts with 'hello'"):
        import_files([foreign], tmp_path / "run", importers=importers)
    with pytest.raises(UnknownFormatError, match=r"is empty\.\n  -> Wait until something is written"):
        import_files([empty], tmp_path / "run", importers=importers)
    with pytest.raises(BrokenFileError, match="cannot be read"):
        import_files([tmp_path / "none"], tmp_path / "run", importers=importers)
    assert not (tmp_path / "run").exists()


def test_empty_and_already_imported_folders_are_distinguished(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnknownFormatError, match="empty folder"):
        import_files([tmp_path / "empty"], tmp_path / "run", importers=[Scripted({})])
    RunWriter(tmp_path / "done")
    with pytest.raises(UnknownFormatError, match="breadth show"):
        import_files([tmp_path / "done"], tmp_path / "run", importers=[Scripted({})])


def test_too_many_remarks_are_counted(tmp_path: Path) -> None:
    run = bring(tmp_path, *rows(1), *[Remark(f"odd {place}") for place in range(importing.MAX_REMARKS + 7)])
    assert (len(run.header.remarks), run.header.remarks_left_out) == (importing.MAX_REMARKS, 7)


def test_a_metric_that_changes_its_name_is_reported_once(tmp_path: Path) -> None:
    run = bring(tmp_path, *rows(1, completion_length=3.0), *rows(2, 3, **{"completions/mean_length": 4.0}))
    assert run.series("length").values.tolist() == [3.0, 4.0, 4.0]
    assert [remark.problem for remark in run.header.remarks] == [
        "length is completion_length in some rows and completions/mean_length in others."
    ]


def test_several_runs_in_one_log_are_kept_apart(tmp_path: Path) -> None:
    run = bring(tmp_path, *rows(*range(30)), *rows(*range(12), entropy=0.9))
    assert "start over 1 times: 2 runs" in run.header.remarks[0].problem
    assert run.series("entropy").values.tolist() == [0.9] * 12  # and not the first run's beyond step 11
    assert run.attempts == 1
    first, last = run.all_runs
    assert last is run
    assert len(first.series("entropy")) == 30
    assert first.all_runs == (first,)


def test_logs_read_into_memory_are_the_run_an_import_would_write(tmp_path: Path) -> None:
    records: list[Record] = [
        *rows(1, 2, 3, entropy=0.5, reward=math.nan),
        LoggedConfig({"temperature": 0.7}),
        Remark("odd", "first.script"),
        *rows(2, 3, entropy=0.4),
    ]
    written = bring(tmp_path, *records)
    source = next(tmp_path.rglob("*.script"))
    before = sorted(tmp_path.rglob("*"))
    read = read_logs([recognise(source, [Scripted({source.stem: records})])])
    assert read is not None
    assert sorted(tmp_path.rglob("*")) == before
    assert repr(read.points) == repr(written.points)  # NaN equals NaN by its text
    assert (read.header.names, read.header.config) == (written.header.names, written.header.config)
    assert read.header.entropies == written.header.entropies
    assert [remark.problem for remark in read.header.remarks] == [remark.problem for remark in written.header.remarks]
    assert not read.has_problems


def test_rollouts_are_not_read_into_memory(tmp_path: Path) -> None:
    source = tmp_path / "one.script"
    source.write_text("x")
    batch = RolloutBatch(pa.table({"step": [1], "problem": ["a"]}))
    assert read_logs([recognise(source, [Scripted({source.stem: [*rows(1, reward=1.0), batch]})])]) is None


def test_more_metrics_than_fit_are_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "MAX_POINTS_BYTES", 1 << 10)
    source = tmp_path / "one.script"
    source.write_text("x")
    importer = Scripted({source.stem: rows(*range(10))})
    assert read_logs([recognise(source, [importer])]) is None


def test_a_log_without_rows_is_refused_in_memory_too(tmp_path: Path) -> None:
    source = tmp_path / "one.script"
    source.write_text("x")
    with pytest.raises(UnknownFormatError, match="no rows"):
        read_logs([recognise(source, [Scripted({source.stem: []})])])


def test_no_password_of_an_address_in_a_trainers_settings_is_written(tmp_path: Path) -> None:
    address = "https://user:secret@host/model?token=secret"
    arguments = {"per_device_train_batch_size": 4, "num_generations": 8, "output_dir": address, "tags": [address, "a"]}
    (tmp_path / "grpo_config.json").write_text(json.dumps(arguments))
    rows = [{"step": step, "reward": 0.5, "loss": 0.1} for step in range(1, 13)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": rows, "global_step": 12}))
    import_files([tmp_path / "grpo_config.json", tmp_path / "trainer_state.json"], tmp_path / "run")
    written = (tmp_path / "run" / "run.toml").read_text()
    assert "https://***@host/model?***" in written
    assert "secret" not in written


def test_no_secret_of_a_setting_or_a_name_is_written(tmp_path: Path) -> None:
    arguments = {"per_device_train_batch_size": 4, "num_generations": 8, "output_dir": "o", "hub_token": "hunter22"}
    (tmp_path / "grpo_config.json").write_text(json.dumps(arguments))
    rows = [{"step": step, "reward": 0.5, "ftp://user:hunter22@h/x": 0.1} for step in range(1, 13)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": rows, "global_step": 12}))
    import_files([tmp_path / "grpo_config.json", tmp_path / "trainer_state.json"], tmp_path / "run")
    (tmp_path / "notes.txt").write_text("HF_TOKEN: hunter22\nnothing else\n")
    with pytest.raises(UnknownFormatError, match=r"starts with 'HF_TOKEN: \*\*\*"):
        import_files([tmp_path / "notes.txt"], tmp_path / "other")
    assert "ftp://***@h/x" in Run.open(tmp_path / "run").metric_names()
    assert "hunter22" not in "".join((tmp_path / "run" / name).read_text() for name in ("run.toml", "metrics.jsonl"))
