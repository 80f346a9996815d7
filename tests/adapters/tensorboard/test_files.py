"""TensorBoard event files as metric rows: steps joined, held-out scores apart, restarts, the importers' contract."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.tensorboard.files import FILES
from breadth.runs.importer import all_importers, recognise
from breadth.runs.ingest import import_files
from breadth.runs.reader import Run
from breadth.runs.records import MetricRow
from breadth.testing.importers import check_importer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorBoard's own, about its dependencies
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

Point = tuple[str, float, int]
"""Tag, value, step."""


def write(path: Path, points: list[Point], start: float = 1.7e9) -> Path:
    """Write an event file, a second between points."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(event_pb2.Event(wall_time=start, file_version="brain.Event:2").SerializeToString())
        for place, (tag, value, step) in enumerate(points):
            summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])
            writer.write(event_pb2.Event(wall_time=start + place, step=step, summary=summary).SerializeToString())
        writer.flush()
    return path


def rows(path: Path) -> list[MetricRow]:
    return [record for record in FILES.read(path, "event file") if isinstance(record, MetricRow)]


def test_contract(tmp_path: Path) -> None:
    points = [(tag, float(step), step) for step in range(5) for tag in ("train/entropy", "train/reward", "eval/reward")]
    check_importer(FILES, [write(tmp_path / "events.out.tfevents.1700000000.host", points)])


def test_all_tags_of_a_step_make_one_row(tmp_path: Path) -> None:
    path = write(tmp_path / "e", [("train/entropy", 0.5, 1), ("train/reward", 0.25, 1), ("train/entropy", 0.25, 2)])
    assert rows(path) == [
        MetricRow({"train/entropy": 0.5, "train/reward": 0.25}, 1, 1.7e9),
        MetricRow({"train/entropy": 0.25}, 2, 1.7e9 + 2),
    ]


def test_evaluation_is_a_row_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path / "e", [("train/reward", 0.25, 1), ("eval/reward", 0.75, 1)])
    assert [(row.split, row.values) for row in rows(path)] == [("eval", {"reward": 0.75}), ("train", {"train/reward": 0.25})]


def test_tags_translate_and_the_entropy_stays_unknown(tmp_path: Path) -> None:
    path = write(tmp_path / "events.out.tfevents.1.h", [("train/entropy", 1.5, 1), ("train/completions/mean_length", 80.0, 1)])
    import_files([path], tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert run.header.trainer == "tensorboard"
    assert run.header.entropies["entropy"].estimator == "unknown"
    assert run.series("entropy").values.tolist() == [1.5]
    assert run.series("length").values.tolist() == [80.0]


def test_a_resumed_run_is_one_series_and_the_later_file_counts(tmp_path: Path) -> None:
    write(tmp_path / "logs/events.out.tfevents.1700000000.h.1.0", [("reward", float(step), step) for step in range(1, 6)])
    write(tmp_path / "logs/events.out.tfevents.1700000900.h.2.0", [("reward", 10.0 + step, step) for step in range(4, 8)], 1.7e9 + 900)
    import_files([tmp_path / "logs"], tmp_path / "run")
    series = Run.open(tmp_path / "run").series("reward")
    assert series.steps.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert series.values.tolist() == [1.0, 2.0, 3.0, 14.0, 15.0, 16.0, 17.0]
    assert series.superseded == 2


def test_a_tag_that_goes_back_inside_one_file_is_a_restart(tmp_path: Path) -> None:
    path = write(tmp_path / "events.out.tfevents.1.h", [("reward", 1.0, 1), ("reward", 2.0, 2), ("reward", 3.0, 1)])
    imported = import_files([path], tmp_path / "run")
    assert imported.metric_rows == 3
    assert Run.open(tmp_path / "run").attempts == 2
    assert Run.open(tmp_path / "run").series("reward").values.tolist() == [3.0, 2.0]


def test_two_writers_a_step_apart_are_no_restart(tmp_path: Path) -> None:
    points: list[Point] = []
    for step in range(1, 5):
        points += [("rollout/reward", float(step), step + 1), ("actor/entropy", 0.1, step)]
    path = write(tmp_path / "events.out.tfevents.1.h", points)
    import_files([path], tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert run.attempts == 1
    assert run.series("reward").steps.tolist() == [2, 3, 4, 5]
    assert run.series("entropy").steps.tolist() == [1, 2, 3, 4]


def test_a_clock_that_runs_backwards_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "e1", [("reward", 1.0, 1)])
    late = write(tmp_path / "e2", [("reward", 1.0, 2)], 1.6e9).read_bytes()
    first = 16 + int.from_bytes(late[:8], "little")
    path.write_bytes(path.read_bytes() + late[first:])
    imported = import_files([path], tmp_path / "run")
    assert any("clock went backwards 1 times" in remark.problem for remark in imported.remarks)


def test_negative_steps_are_numbered(tmp_path: Path) -> None:
    assert rows(write(tmp_path / "e", [("reward", 1.0, -1)]))[0].step is None


def test_only_tensorboard_claims_event_files(tmp_path: Path) -> None:
    path = write(tmp_path / "anything.bin", [("reward", 1.0, 1)])
    assert recognise(path, all_importers()).importer is FILES


@pytest.mark.parametrize("content", [b"", b"\x18\0\0\0\0\0\0\0", b"brain.Event:2", b'{"step": 1}'])
def test_other_files_are_not_claimed(content: bytes) -> None:
    assert FILES.recognises(Path("events.out.tfevents.1.h"), content) is None


def test_nothing_else_is_kept_of_an_event(tmp_path: Path) -> None:
    text: Any = summary_pb2.Summary.Value(tag="note", metadata=summary_pb2.SummaryMetadata(summary_description="text"))
    path = tmp_path / "e"
    with path.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(event_pb2.Event(wall_time=1.0, step=1, summary=summary_pb2.Summary(value=[text])).SerializeToString())
        writer.flush()
        assert rows(path) == []
