"""TensorBoard event files as metric rows: steps joined, held-out scores apart, restarts, the importers' contract."""

from __future__ import annotations

import math
import struct
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.tensorboard import IMPORTER, Scalars, read_events, starts_like_events
from breadth.base.errors import BrokenFileError
from breadth.runs.importer import all_importers, recognise
from breadth.runs.importing import import_files
from breadth.runs.reader import Run
from breadth.runs.schema import MetricRow, Remark
from breadth.testing.importers import check_importer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorBoard's own, about its dependencies
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter


def scalar(tag: str, value: float, step: int, time: float) -> Any:
    summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])
    return event_pb2.Event(wall_time=time, step=step, summary=summary)


def write(folder: Path, events: list[Any]) -> Path:
    """Write events with TensorBoard's own writer."""
    writer = EventFileWriter(str(folder))
    for event in events:
        writer.add_event(event)
    writer.close()
    return next(folder.glob("events.out.tfevents.*"))


def scalars(path: Path) -> list[Scalars]:
    return [event for event in read_events(path) if isinstance(event, Scalars)]


def remarks(path: Path) -> list[str]:
    return [event.problem for event in read_events(path) if isinstance(event, Remark)]


def test_reads_what_tensorboard_wrote_as_tensorboard_reads_it(tmp_path: Path) -> None:
    events = [
        scalar(f"train/{name}", 0.1 * step + len(name), step, 1.7e9 + step)
        for step in range(50)
        for name in ("entropy", "reward")
    ]
    path = write(tmp_path, events)
    theirs = [
        (event.step, event.wall_time, value.tag, value.simple_value)
        for event in LegacyEventFileLoader(str(path)).Load()
        for value in event.summary.value
    ]
    ours = [(event.step, event.time, tag, value) for event in scalars(path) for tag, value in event.values.items()]
    assert ours == theirs
    assert len(ours) == 100
    assert remarks(path) == []


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[0.25]), 0.25),
        (tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, tensor_content=struct.pack("<f", -1.5)), -1.5),
        (tensor_pb2.TensorProto(dtype=types_pb2.DT_DOUBLE, double_val=[1e-300]), 1e-300),
        (tensor_pb2.TensorProto(dtype=types_pb2.DT_DOUBLE, tensor_content=struct.pack("<d", 2.0)), 2.0),
        (tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[1.0, 2.0]), None),
        (tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[b"text"]), None),
    ],
)
def test_scalar_tensors_count_and_others_do_not(tmp_path: Path, tensor: Any, expected: float | None) -> None:
    summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="loss", tensor=tensor)])
    path = write(tmp_path, [event_pb2.Event(wall_time=5.0, step=3, summary=summary)])
    assert scalars(path) == ([] if expected is None else [Scalars(3, 5.0, {"loss": expected})])


def test_nan_and_infinity_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path, [scalar("reward", math.nan, 1, 1.0), scalar("reward", math.inf, 2, 2.0)])
    first, second = scalars(path)
    assert math.isnan(first.values["reward"])
    assert second.values["reward"] == math.inf


def test_large_records_are_passed_over(tmp_path: Path) -> None:
    picture = summary_pb2.Summary.Value(
        tag="picture", image=summary_pb2.Summary.Image(encoded_image_string=bytes(2 << 20))
    )
    large = event_pb2.Event(wall_time=1.0, step=1, summary=summary_pb2.Summary(value=[picture]))
    path = write(tmp_path, [large, scalar("reward", 1.0, 1, 2.0)])
    assert [event.values for event in scalars(path)] == [{"reward": 1.0}]


def test_negative_steps_come_back_as_written(tmp_path: Path) -> None:
    path = write(tmp_path, [scalar("reward", 1.0, -1, 1.0)])
    assert scalars(path)[0].step == -1


def test_a_cut_last_record_is_a_remark_at_every_byte(tmp_path: Path) -> None:
    path = write(tmp_path, [scalar("reward", float(step), step, 1.0) for step in range(3)])
    whole = path.read_bytes()
    # One record is 12 bytes of header, the data and 4 bytes of checksum; the last three records are of one size but for
    # step 0,
    # whose zero step and zero value are left out by the writer.
    last = len(whole) - (12 + int.from_bytes(_header_of_last(whole), "little") + 4)
    for end in range(last + 1, len(whole)):
        path.write_bytes(whole[:end])
        assert [event.step for event in scalars(path)] == [0, 1]
        assert remarks(path) == [f"the last record, at byte {last}, is not whole and was left out."]
    path.write_bytes(whole[:last])
    assert remarks(path) == []


def _header_of_last(whole: bytes) -> bytes:
    place, header = 0, b""
    while place < len(whole):
        header = whole[place : place + 8]
        place += 16 + int.from_bytes(header, "little")
    return header


def test_a_damaged_length_stops_and_says_where(tmp_path: Path) -> None:
    path = write(tmp_path, [scalar("reward", 1.0, 1, 1.0)])
    whole = bytearray(path.read_bytes())
    first = 16 + int.from_bytes(whole[:8], "little")  # where the second record starts
    whole[first] ^= 1
    path.write_bytes(bytes(whole))
    assert scalars(path) == []
    assert remarks(path) == [f"damaged at byte {first}; the remaining {len(whole) - first} bytes cannot be read."]


def test_damaged_data_cost_one_record(tmp_path: Path) -> None:
    path = write(tmp_path, [scalar("reward", 1.0, 1, 1.0), scalar("reward", 2.0, 2, 2.0)])
    whole = bytearray(path.read_bytes())
    first = 16 + int.from_bytes(whole[:8], "little")
    whole[first + 12 + 3] ^= 0xFF
    path.write_bytes(bytes(whole))
    assert [event.step for event in scalars(path)] == [2]
    assert remarks(path) == ["1 damaged records were left out."]


def test_recognition_asks_for_a_whole_first_record(tmp_path: Path) -> None:
    start = write(tmp_path, []).read_bytes()
    assert starts_like_events(start)
    assert not starts_like_events(start[:11])
    assert not starts_like_events(b"\0" + start)
    assert not starts_like_events(start[:8] + b"\0\0\0\0" + start[12:])
    assert not starts_like_events(b"")


def test_a_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BrokenFileError, match="cannot be read"):
        list(read_events(tmp_path))


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 400), junk=st.binary(max_size=40))
def test_any_damage_gives_records_or_remarks(tmp_path_factory: pytest.TempPathFactory, place: int, junk: bytes) -> None:
    folder = tmp_path_factory.mktemp("events")
    path = write(folder, [scalar("reward", float(step), step, 1.0) for step in range(8)])
    whole = path.read_bytes()
    path.write_bytes(whole[:place] + junk + whole[place + len(junk) :])
    for event in read_events(path):
        assert isinstance(event, Remark) or event.values


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_message_with_a_right_checksum_is_survived(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.summary.writer.record_writer import RecordWriter
    path = tmp_path_factory.mktemp("events") / "events.out.tfevents.1.host"
    with path.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(data)
        writer.write(scalar("reward", 1.0, 7, 1.0).SerializeToString())
        writer.flush()
        events = [event for event in scalars(path) if event.step == 7 and event.values == {"reward": 1.0}]
        assert events


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorBoard's own, about its dependencies
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

Point = tuple[str, float, int]
"""Tag, value, step."""


def write_points(path: Path, points: list[Point], start: float = 1.7e9) -> Path:
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
    return [record for record in IMPORTER.read(path, "event file") if isinstance(record, MetricRow)]


def test_contract(tmp_path: Path) -> None:
    points = [(tag, float(step), step) for step in range(5) for tag in ("train/entropy", "train/reward", "eval/reward")]
    check_importer(IMPORTER, [write_points(tmp_path / "events.out.tfevents.1700000000.host", points)])


def test_all_tags_of_a_step_make_one_row(tmp_path: Path) -> None:
    path = write_points(
        tmp_path / "e", [("train/entropy", 0.5, 1), ("train/reward", 0.25, 1), ("train/entropy", 0.25, 2)]
    )
    assert rows(path) == [
        MetricRow({"train/entropy": 0.5, "train/reward": 0.25}, 1, 1.7e9),
        MetricRow({"train/entropy": 0.25}, 2, 1.7e9 + 2),
    ]


def test_evaluation_is_a_row_of_its_own(tmp_path: Path) -> None:
    path = write_points(tmp_path / "e", [("train/reward", 0.25, 1), ("eval/reward", 0.75, 1)])
    assert [(row.split, row.values) for row in rows(path)] == [
        ("eval", {"reward": 0.75}),
        ("train", {"train/reward": 0.25}),
    ]


def test_tags_translate_and_the_entropy_stays_unknown(tmp_path: Path) -> None:
    path = write_points(
        tmp_path / "events.out.tfevents.1.h", [("train/entropy", 1.5, 1), ("train/completions/mean_length", 80.0, 1)]
    )
    import_files([path], tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert run.header.trainer == "tensorboard"
    assert run.header.entropies["entropy"].estimator == "unknown"
    assert run.series("entropy").values.tolist() == [1.5]
    assert run.series("length").values.tolist() == [80.0]


def test_a_resumed_run_is_one_series_and_the_later_file_counts(tmp_path: Path) -> None:
    write_points(
        tmp_path / "logs/events.out.tfevents.1700000000.h.1.0", [("reward", float(step), step) for step in range(1, 6)]
    )
    write_points(
        tmp_path / "logs/events.out.tfevents.1700000900.h.2.0",
        [("reward", 10.0 + step, step) for step in range(4, 8)],
        1.7e9 + 900,
    )
    import_files([tmp_path / "logs"], tmp_path / "run")
    series = Run.open(tmp_path / "run").series("reward")
    assert series.steps.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert series.values.tolist() == [1.0, 2.0, 3.0, 14.0, 15.0, 16.0, 17.0]
    assert series.superseded == 2


def test_a_tag_that_goes_back_inside_one_file_is_a_restart(tmp_path: Path) -> None:
    path = write_points(
        tmp_path / "events.out.tfevents.1.h", [("reward", 1.0, 1), ("reward", 2.0, 2), ("reward", 3.0, 1)]
    )
    imported = import_files([path], tmp_path / "run")
    assert imported.metric_rows == 3
    assert Run.open(tmp_path / "run").attempts == 2
    assert Run.open(tmp_path / "run").series("reward").values.tolist() == [3.0, 2.0]


def test_two_writers_a_step_apart_are_no_restart(tmp_path: Path) -> None:
    points: list[Point] = []
    for step in range(1, 5):
        points += [("rollout/reward", float(step), step + 1), ("actor/entropy", 0.1, step)]
    path = write_points(tmp_path / "events.out.tfevents.1.h", points)
    import_files([path], tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert run.attempts == 1
    assert run.series("reward").steps.tolist() == [2, 3, 4, 5]
    assert run.series("entropy").steps.tolist() == [1, 2, 3, 4]


def test_a_clock_that_runs_backwards_is_told(tmp_path: Path) -> None:
    path = write_points(tmp_path / "e1", [("reward", 1.0, 1)])
    late = write_points(tmp_path / "e2", [("reward", 1.0, 2)], 1.6e9).read_bytes()
    first = 16 + int.from_bytes(late[:8], "little")
    path.write_bytes(path.read_bytes() + late[first:])
    imported = import_files([path], tmp_path / "run")
    assert any("clock went backwards 1 times" in remark.problem for remark in imported.remarks)


def test_negative_steps_are_numbered(tmp_path: Path) -> None:
    assert rows(write_points(tmp_path / "e", [("reward", 1.0, -1)]))[0].step is None


def test_only_tensorboard_claims_event_files(tmp_path: Path) -> None:
    path = write_points(tmp_path / "anything.bin", [("reward", 1.0, 1)])
    assert recognise(path, all_importers()).importer is IMPORTER


@pytest.mark.parametrize("content", [b"", b"\x18\0\0\0\0\0\0\0", b"brain.Event:2", b'{"step": 1}'])
def test_other_files_are_not_claimed(content: bytes) -> None:
    assert IMPORTER.recognises(Path("events.out.tfevents.1.h"), content) is None


def test_nothing_else_is_kept_of_an_event(tmp_path: Path) -> None:
    text: Any = summary_pb2.Summary.Value(tag="note", metadata=summary_pb2.SummaryMetadata(summary_description="text"))
    path = tmp_path / "e"
    with path.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(
            event_pb2.Event(wall_time=1.0, step=1, summary=summary_pb2.Summary(value=[text])).SerializeToString()
        )
        writer.flush()
        assert rows(path) == []
