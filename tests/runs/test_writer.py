"""Writer: what is written survives kills, full disks and other ranks; each problem is kept once."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from breadth.base.errors import MeasureError, WriteError
from breadth.runs import writer as writer_module
from breadth.runs.reader import Run
from breadth.runs.writer import ProblemWriter, RunWriter, conform, distinct_problems, problem_id

ROWS = {"problem": ["a", "a", "b"], "reward": [1.0, 0.0, 1.0], "completion": ["x", "y", "z"]}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    writer.metrics(1, {"entropy": 0.5, "reward": float("nan"), "kl": float("-inf")}, time=3.0)
    writer.rollouts(ROWS, 1)
    writer.problems({"problem": ["a", "b"], "prompt": ["1+1", "2+2"]})
    run = Run.open(tmp_path / "run")
    assert run.header.created.endswith("+00:00")
    assert run.series("entropy").values.tolist() == [0.5]
    assert str(run.points[0].values) == "{'entropy': 0.5, 'reward': nan, 'kl_reference': -inf}"
    assert run.query("SELECT problem, sum(reward) s FROM rollouts GROUP BY problem ORDER BY problem")[
        "s"
    ].to_pylist() == [1.0, 1.0]
    assert run.query("SELECT prompt FROM problems WHERE problem = ?", "b")["prompt"].to_pylist() == ["2+2"]
    assert run.broken == ()


def test_every_metric_row_is_strict_json(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    writer.metrics(1, {"reward": float("nan")})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    row = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=refuse)
    assert row["values"] == {"reward": "nan"}


def test_a_resumed_run_adds_an_attempt_and_overwrites_nothing(tmp_path: Path) -> None:
    first = RunWriter(tmp_path)
    for step in (1, 2, 3):
        first.metrics(step, {"entropy": float(step)})
        first.rollouts({"problem": ["a"], "reward": [0.0]}, step)
    second = RunWriter(tmp_path)
    assert second.attempt == 1
    second.metrics(3, {"entropy": 30.0})
    second.rollouts({"problem": ["a"], "reward": [1.0]}, 3)
    run = Run.open(tmp_path)
    assert run.attempts == 2
    assert run.series("entropy").values.tolist() == [1.0, 2.0, 30.0]
    assert run.series("entropy").superseded == 1
    assert run.query("SELECT reward FROM rollouts ORDER BY step")["reward"].to_pylist() == [0.0, 0.0, 1.0]
    assert len(list((tmp_path / "rollouts").iterdir())) == 4


def test_the_attempt_counts_this_rank_only(tmp_path: Path) -> None:
    RunWriter(tmp_path, rank=0).metrics(1, {"a": 1.0})
    assert RunWriter(tmp_path, rank=1).attempt == 0
    assert RunWriter(tmp_path, rank=0).attempt == 1


def test_a_line_cut_by_a_kill_does_not_spoil_the_next(tmp_path: Path) -> None:
    RunWriter(tmp_path).metrics(1, {"a": 1.0})
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 2, "val')
    RunWriter(tmp_path).metrics(2, {"a": 2.0})
    run = Run.open(tmp_path)
    assert run.series("a").values.tolist() == [1.0, 2.0]
    assert [(remark.row, "JSON object" in remark.problem) for remark in run.broken] == [(2, True)]


RANK = """
    import sys
    from pathlib import Path
    from breadth.runs.writer import RunWriter
    rank = int(sys.argv[2])
    writer = RunWriter(Path(sys.argv[1]), rank=rank)
    for step in range(100):
        writer.metrics(step, {"entropy": float(rank), "place": float(step)})
        if step % 20 == 0:
            writer.rollouts({"problem": [f"p{rank}"], "reward": [float(step)]}, step)
            writer.problems({"problem": [f"p{rank}-{step}"], "prompt": ["?"]})
"""


def test_two_ranks_may_write_at_once(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(RANK), str(tmp_path), str(rank)]) for rank in (0, 1)
    ]
    assert [process.wait() for process in ranks] == [0, 0]
    run = Run.open(tmp_path)
    assert run.broken == ()
    assert sorted((point.rank, point.step) for point in run.points) == [
        (rank, step) for rank in (0, 1) for step in range(100)
    ]
    assert run.query("SELECT count(*) n FROM rollouts")["n"].to_pylist() == [10]
    assert run.query("SELECT count(*) n FROM problems")["n"].to_pylist() == [10]


KILLED = """
    import sys
    from pathlib import Path
    from breadth.runs.writer import RunWriter
    writer = RunWriter(Path(sys.argv[1]))
    print("ready", flush=True)
    step = 0
    while True:
        step += 1
        writer.rollouts({"problem": ["p"] * 2000, "completion": ["x" * 200] * 2000}, step)
        writer.metrics(step, {"entropy": 1.0})
"""


@pytest.mark.parametrize("delay", [0.05, 0.17, 0.31])
def test_a_kill_at_any_instant_loses_at_most_the_step_being_written(tmp_path: Path, delay: float) -> None:
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    run = Run.open(tmp_path)
    steps = sorted(path.name for path in run.rollout_files)
    assert run.broken == ()
    assert len(steps) - len(run.points) in (0, 1)
    if steps:
        assert run.query("SELECT count(*) n FROM rollouts")["n"].to_pylist() == [2000 * len(steps)]


FULL = """
    import os, resource, signal, sys
    from pathlib import Path
    from breadth.base.errors import WriteError
    from breadth.runs.writer import RunWriter
    writer = RunWriter(Path(sys.argv[1]))
    for step in range(20):
        writer.metrics(step, {"entropy": 1.0})
    size = (Path(sys.argv[1]) / "metrics.jsonl").stat().st_size
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, size + 40))
    text = {"problem": ["p"], "completion": [os.urandom(9999).hex()]}
    for write in (lambda: writer.metrics(99, {"entropy": 1.0}), lambda: writer.rollouts(text, 99)):
        try:
            write()
        except WriteError as error:
            print(error.remedy)
"""


def test_a_full_disk_is_reported_and_nothing_is_half_written(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("Free some space") == 2, done.stderr
    run = Run.open(tmp_path)
    assert run.broken == ()
    assert len(run.points) == 20
    assert list((tmp_path / "rollouts").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="could not be written"):
        RunWriter(tmp_path / "file" / "run")


def test_rollouts_are_held_to_the_schema(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    with pytest.raises(MeasureError, match="without the column 'problem'"):
        writer.rollouts({"reward": [1.0]}, 1)
    with pytest.raises(MeasureError, match="no column 'rewrd'"):
        writer.rollouts({"problem": ["a"], "rewrd": [1.0]}, 1)
    with pytest.raises(MeasureError, match="'reward' holds string"):
        writer.rollouts({"problem": ["a"], "reward": ["high"]}, 1)
    assert list((tmp_path / "rollouts").iterdir()) == []


def test_conform_fills_step_and_split_and_casts() -> None:
    table = conform(pa.table({"problem": ["a"], "reward": [1], "reward/format": [0], "entropy": [[0.5]]}), 7, "eval")
    assert table.to_pylist() == [
        {"problem": "a", "reward": 1.0, "reward/format": 0.0, "entropy": [0.5], "step": 7, "split": "eval"}
    ]


def test_the_first_text_of_a_problem_is_kept() -> None:
    kept = distinct_problems(
        [pa.table({"problem": ["a"], "prompt": ["1"]}), pa.table({"problem": ["a", "b"], "prompt": ["2", "3"]})]
    )
    assert kept.column("prompt").to_pylist() == ["1", "3"]


def test_two_batches_of_one_step_are_two_parts(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    names = [writer.rollouts(ROWS, 4).name, writer.rollouts(ROWS, 4).name]
    assert names == ["train-00000004-r0-a0-p0.parquet", "train-00000004-r0-a0-p1.parquet"]
    assert Run.open(tmp_path).query("SELECT count(*) n FROM rollouts")["n"].to_pylist() == [6]


def test_long_text_is_not_dictionary_coded(tmp_path: Path) -> None:
    path = RunWriter(tmp_path).rollouts(ROWS, 1)
    group = pq.ParquetFile(path).metadata.row_group(0)
    coded = {
        group.column(place).path_in_schema: "RLE_DICTIONARY" in group.column(place).encodings
        for place in range(group.num_columns)
    }
    assert coded["problem"]
    assert not coded["completion"]


def test_no_temporary_file_is_left(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    writer.rollouts(ROWS, 1)
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if name.endswith(".tmp")]


def test_ids_are_stable_short_and_distinct() -> None:
    assert problem_id("What is 1 + 1?") == "_SaTqIR7YR_Y"
    ids = {problem_id(f"problem {number}") for number in range(10_000)}
    assert len(ids) == 10_000
    assert {len(one) for one in ids} == {12}
    assert problem_id("\ud800")


def test_each_problem_is_written_once_with_its_first_text(tmp_path: Path) -> None:
    sink = ProblemWriter(tmp_path / "p.parquet")
    sink.add(pa.table({"problem": ["a", "a", "b"], "prompt": ["1", "2", "3"]}))
    sink.add(pa.table({"problem": ["b", "c"], "prompt": ["4", "5"], "reference": ["r", "s"]}))
    sink.close()
    assert len(sink) == 3
    assert pq.read_table(tmp_path / "p.parquet").select(["problem", "prompt", "reference"]).to_pylist() == [
        {"problem": "a", "prompt": "1", "reference": None},
        {"problem": "b", "prompt": "3", "reference": None},
        {"problem": "c", "prompt": "5", "reference": "s"},
    ]


def test_no_problems_no_file(tmp_path: Path) -> None:
    sink = ProblemWriter(tmp_path / "p.parquet")
    sink.close()
    assert not (tmp_path / "p.parquet").exists()


def test_two_writers_of_one_rank_keep_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = RunWriter(tmp_path), RunWriter(tmp_path)
    assert first.attempt == second.attempt
    written = writer_module.write_parquet

    def write_while_another_does(table: pa.Table, path: Path) -> None:
        monkeypatch.setattr(writer_module, "write_parquet", written)
        names.append(second.rollouts({"problem": ["of the second"]}, 1).name)
        written(table, path)

    names: list[str] = []
    monkeypatch.setattr(writer_module, "write_parquet", write_while_another_does)
    names.append(first.rollouts({"problem": ["of the first"]}, 1).name)
    assert names == ["train-00000001-r0-a0-p0.parquet", "train-00000001-r0-a0-p1.parquet"]
    problems = Run.open(tmp_path).query("SELECT problem FROM rollouts ORDER BY problem")["problem"].to_pylist()
    assert problems == ["of the first", "of the second"]


def test_a_disk_that_became_read_only_is_a_write_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RunWriter(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(pq, "write_table", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(WriteError, match="Read-only file system"):
        writer.rollouts(ROWS, 1)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(WriteError, match="Read-only file system"):
        writer.problems({"problem": ["a"]})


def test_temporary_files_of_killed_writers_are_removed(tmp_path: Path) -> None:
    folder = RunWriter(tmp_path).folder / "rollouts"
    script = "import sys; from pathlib import Path; from breadth.base.system import atomic_file; import os\n" + (
        "with atomic_file(Path(sys.argv[1])) as path:\n    path.write_text('half')\n    os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", script, str(folder / "train-00000001-r0-a0-p0.parquet")], check=False)
    (left,) = folder.iterdir()
    assert not Run.open(tmp_path).rollout_files
    RunWriter(tmp_path)
    assert left.exists(), "what is young may belong to another container"
    os.utime(left, (0, 0))
    RunWriter(tmp_path)
    assert not left.exists()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the names of open files are read from /proc")
def test_what_counts_as_written_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RunWriter(tmp_path)
    synced: list[str] = []
    fsync = os.fsync

    def note(file: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        fsync(file)

    monkeypatch.setattr(os, "fsync", note)
    writer.metrics(1, {"entropy": 0.5})
    assert [Path(name).name for name in synced] == ["metrics.jsonl", tmp_path.name]
    synced.clear()
    writer.metrics(2, {"entropy": 0.4})
    assert not synced
    writer.rollouts(ROWS, 2)
    names = [Path(name).name for name in synced]
    assert names[0].startswith(".train-00000002")
    assert names[1:] == ["rollouts", "metrics.jsonl", tmp_path.name]
    synced.clear()
    quick = RunWriter(tmp_path, flush=False)
    quick.metrics(3, {"entropy": 0.4})
    quick.rollouts(ROWS, 3)
    assert not synced


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the names of open files are read from /proc")
def test_the_name_of_a_new_run_folder_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink())))
    RunWriter(tmp_path / "runs" / "one")
    assert {str(tmp_path), str(tmp_path / "runs"), str(tmp_path / "runs" / "one")} <= set(synced)
    synced.clear()
    RunWriter(tmp_path / "runs" / "one")
    assert synced == []


def test_rollouts_and_problems_are_flushed_to_the_disk_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    careful, quick = RunWriter(tmp_path / "careful"), RunWriter(tmp_path / "quick", flush=False)
    flushed.clear()
    careful.rollouts(ROWS, 1)
    assert flushed
    flushed.clear()
    careful.problems({"problem": ["a"], "prompt": ["1+1"]})
    assert flushed
    flushed.clear()
    quick.rollouts(ROWS, 1)
    assert not flushed
    assert (careful.flush, quick.flush) == (True, False)


def test_a_writer_starts_as_rank_0_and_says_so_in_every_row(tmp_path: Path) -> None:
    RunWriter(tmp_path).metrics(3, {"a": 1.0})
    RunWriter(tmp_path, rank=2).metrics(4, {"a": 2.0}, split="eval", attempt=7, source=5, time=1.5)
    first, second = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert first == {
        "step": 3,
        "split": "train",
        "rank": 0,
        "attempt": 0,
        "source": 0,
        "time": None,
        "values": {"a": 1.0},
    }
    assert (second["rank"], second["attempt"], second["source"], second["time"]) == (2, 7, 5, 1.5)
    assert RunWriter(tmp_path, rank=2).attempt == 8
    assert RunWriter(tmp_path, rank=20).attempt == 0


def test_an_attempt_is_counted_from_rollouts_too(tmp_path: Path) -> None:
    RunWriter(tmp_path, rank=1).rollouts(ROWS, 1, attempt=4)
    assert RunWriter(tmp_path, rank=1).attempt == 5
    assert RunWriter(tmp_path, rank=0).attempt == 0
    RunWriter(tmp_path, rank=1).metrics(1, {"a": 1.0}, attempt=2)
    assert RunWriter(tmp_path, rank=1).attempt == 5, "the largest of both counts"


def test_a_batch_without_new_problems_writes_nothing(tmp_path: Path) -> None:
    sink = ProblemWriter(tmp_path / "p.parquet")
    sink.add(pa.table({"problem": pa.array([], pa.string())}))
    sink.close()
    assert len(sink) == 0
    assert not (tmp_path / "p.parquet").exists()


def test_rows_are_put_on_the_disk_once_in_five_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, synced, now = RunWriter(tmp_path), list[int](), 0.0
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    counts = []
    for now in (1.0, 5.9, 6.0, 6.1, 11.0, 11.2):
        writer.metrics(1, {"a": now})
        counts.append(len(synced))
    # A file and its folder: at the first row, and once more than five seconds have passed.
    assert counts == [2, 2, 2, 4, 4, 6]


def test_pages_fit_the_cache_of_a_processor() -> None:
    assert writer_module.PAGE_BYTES == 262_144
