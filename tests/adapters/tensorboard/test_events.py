"""The event-file reader against files written by TensorBoard itself, and against damage."""

from __future__ import annotations

import math
import struct
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.tensorboard.events import Scalars, read_events, starts_like_events
from breadth.base.errors import BrokenFileError
from breadth.runs.records import Remark

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
    events = [scalar(f"train/{name}", 0.1 * step + len(name), step, 1.7e9 + step) for step in range(50) for name in ("entropy", "reward")]
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
    picture = summary_pb2.Summary.Value(tag="picture", image=summary_pb2.Summary.Image(encoded_image_string=bytes(2 << 20)))
    large = event_pb2.Event(wall_time=1.0, step=1, summary=summary_pb2.Summary(value=[picture]))
    path = write(tmp_path, [large, scalar("reward", 1.0, 1, 2.0)])
    assert [event.values for event in scalars(path)] == [{"reward": 1.0}]


def test_negative_steps_come_back_as_written(tmp_path: Path) -> None:
    path = write(tmp_path, [scalar("reward", 1.0, -1, 1.0)])
    assert scalars(path)[0].step == -1


def test_a_cut_last_record_is_a_remark_at_every_byte(tmp_path: Path) -> None:
    path = write(tmp_path, [scalar("reward", float(step), step, 1.0) for step in range(3)])
    whole = path.read_bytes()
    # One record is 12 bytes of header, the data and 4 bytes of checksum; the last three records are of one size but for step 0,
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
