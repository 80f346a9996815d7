"""Read TensorBoard event files (``events.out.tfevents.*``) as metrics."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

from breadth.adapters.parse_values import StepMerger, as_step, metric_rows
from breadth.runs.jsonl import read_error
from breadth.runs.schema import EntropyKind, Record, Remark

HEADER_BYTES = 12
"""Bytes before a record's data: length and checksum."""
MAX_SCALAR_RECORD = 1 << 20
"""Larger records are pictures, audio and histograms; they hold no scalars and are skipped unread."""
MAX_CHECKED_RECORD = 1 << 12
"""Larger records are not checked: scalars are far smaller, and a checksum in Python costs 0.1 µs per byte."""
FLOAT, DOUBLE = 1, 2
"""``TensorProto.dtype`` of 32- and 64-bit floats."""
Field = tuple[int, int, bytes]
"""Field number, its value when it is a varint, its bytes otherwise."""


@dataclass(frozen=True)
class Scalars:
    """The scalars of one event."""

    step: int
    """Step at which it was logged."""
    time: float
    """Unix seconds."""
    values: dict[str, float]
    """Tag -> value."""


def starts_like_events(start: bytes) -> bool:
    """Whether a file begins with a whole record that opens an event file (``brain.Event:2``)."""
    if len(start) < HEADER_BYTES or not has_checksum(start[:8], start[8:HEADER_BYTES]):
        return False
    size = int.from_bytes(start[:8], "little")
    return size < MAX_SCALAR_RECORD and b"brain.Event:" in start[HEADER_BYTES : HEADER_BYTES + size]


def read_events(path: Path) -> Iterator[Scalars | Remark]:
    """Yield the scalars of an event file, in order, and remarks on its problems."""
    damaged = 0
    for record in read_event_records(path):
        if isinstance(record, Remark):
            yield record
        elif record is None:
            damaged += 1
        else:
            try:
                event = parse_event(record)
            except (ValueError, struct.error, IndexError):
                damaged += 1
                continue
            if event.values:
                yield event
    if damaged:
        yield Remark(
            f"{damaged} damaged records were left out.",
            str(path),
            None,
            "Copy the file again from where it was written.",
        )


def read_event_records(path: Path) -> Iterator[bytes | Remark | None]:
    """Yield each record's data; None for one whose checksum is wrong."""
    try:
        with path.open("rb") as file:
            yield from split_records(file, path)
    except OSError as error:
        raise read_error(path, error) from error


def split_records(file: IO[bytes], path: Path) -> Iterator[bytes | Remark | None]:
    """Yield the data of each record of an open file, and a remark where the file is damaged or cut."""
    size = file.seek(0, 2)
    place = file.seek(0)
    while place < size:
        header = file.read(HEADER_BYTES)
        if len(header) == HEADER_BYTES and not has_checksum(header[:8], header[8:]):
            problem = f"damaged at byte {place:,}; the remaining {size - place:,} bytes cannot be read."
            remedy = "Copy the file again from where it was written; what comes before the damage was read."
            yield Remark(problem, str(path), None, remedy)
            return
        length = int.from_bytes(header[:8], "little")
        after = place + HEADER_BYTES + length + 4
        if len(header) < HEADER_BYTES or after > size:
            problem = f"the last record, at byte {place:,}, is not whole and was left out."
            remedy = "The writer was stopped while writing, or still is: import again once it has finished."
            yield Remark(problem, str(path), None, remedy)
            return
        if length <= MAX_SCALAR_RECORD:
            data = file.read(length)
            yield data if length > MAX_CHECKED_RECORD or has_checksum(data, file.read(4)) else None
        place = file.seek(after)


def parse_event(event: bytes) -> Scalars:
    """Return the scalars of one event."""
    step, time = 0, 0.0
    values: dict[str, float] = {}
    for number, varint, data in message_fields(event):
        if number == 1 and len(data) == 8:
            time = float(struct.unpack("<d", data)[0])
        elif number == 2:
            step = varint if varint < 1 << 63 else varint - (1 << 64)
        elif number == 5:
            values.update(
                found for part, _, value in message_fields(data) if part == 1 and (found := parse_value(value))
            )
    return Scalars(step, time, values)


def parse_value(data: bytes) -> tuple[str, float] | None:
    """Return tag and number of one summary value; None if it is not a scalar."""
    tag, found = "", None
    for number, _, part in message_fields(data):
        if number == 1:
            tag = part.decode("utf-8", errors="replace")
        elif number == 2 and len(part) == 4:
            found = float(struct.unpack("<f", part)[0])
        elif number == 8:
            found = parse_tensor(part)
    return (tag, found) if found is not None else None


def parse_tensor(data: bytes) -> float | None:
    """Return the one number of a float tensor, None for any other tensor."""
    kind, content = 0, b""
    for number, varint, part in message_fields(data):
        if number == 1:
            kind = varint
        elif number in (4, 5, 6):  # tensor_content, float_val, double_val: little-endian floats in all three
            content += part
    shape = {(FLOAT, 4): "<f", (DOUBLE, 8): "<d"}.get((kind, len(content)))
    return float(struct.unpack(shape, content)[0]) if shape else None


def message_fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of one message; raises ValueError if it is not one."""
    place = 0
    while place < len(data):
        key, place = read_varint(data, place)
        kind, number = key & 7, key >> 3
        if kind == 0:
            value, place = read_varint(data, place)
            yield number, value, b""
            continue
        if kind == 2:
            width, place = read_varint(data, place)
        else:
            width = {1: 8, 5: 4}.get(kind, -1)
        if width < 0 or place + width > len(data):
            raise ValueError(f"no field of kind {kind} and {width} bytes fits here")
        yield number, 0, data[place : place + width]
        place += width


def read_varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a varint and the position behind it."""
    if data[place] < 0x80:  # nearly all: keys and lengths are small
        return data[place], place + 1
    value = shift = 0
    while shift < 70:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value & (1 << 64) - 1, place
    raise ValueError("a number of more than ten bytes")


def checksum_table() -> list[int]:
    """Return the CRC-32C of every byte (Castagnoli polynomial, reflected)."""
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CASTAGNOLI = checksum_table()


def has_checksum(data: bytes, checksum: bytes) -> bool:
    """Whether data have this checksum: CRC-32C, rotated by 15 bits and shifted, as TensorFlow masks it."""
    value = 0xFFFFFFFF
    for byte in data:
        value = CASTAGNOLI[(value ^ byte) & 0xFF] ^ value >> 8
    value ^= 0xFFFFFFFF
    masked = ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return masked.to_bytes(4, "little") == checksum


EVENTS = "event file"


@dataclass(frozen=True)
class TensorBoardImporter:
    """Reads the scalars of event files; pictures, histograms and texts are skipped.

    All tags of one step become one row, those under ``eval/`` and the like a separate eval row. A resumed run
    writes a new file into the same folder; names sort by the time they were made, so later files come later and their
    steps count. Where TensorBoard purges what an earlier writer logged past the step at which a later one starts,
    we keep those steps as an earlier attempt until the later one has come that far; a tag that goes back inside one
    file is a restart as well.
    """

    trainer = "tensorboard"
    """Name in the catalogue: the file does not say which trainer wrote it."""
    entropy = EntropyKind()
    """Unknown: a tag called entropy does not say how it was estimated."""
    switches = MappingProxyType(
        {
            "entropy": "SummaryWriter.add_scalar('train/entropy', mean_token_entropy, step)",
            "reward": "SummaryWriter.add_scalar('train/reward', mean_reward, step)",
            "rollouts": (
                "event files hold no rollouts: switch on the trainer's own dump, or write one JSON object per"
                " completion"
            ),
        }
    )
    """What to log; with ``torch.utils.tensorboard`` or any other writer of event files."""

    def recognises(self, path: Path, start: bytes) -> str | None:  # noqa: ARG002 - the protocol passes it
        """Look for a first record with a correct checksum that opens an event file."""
        return EVENTS if starts_like_events(start) else None

    def current(self, files: Sequence[Path]) -> Sequence[Path]:
        """Keep all: each writer of a run has its own file."""
        return files

    def read(self, path: Path, kind: str) -> Iterator[Record]:  # noqa: ARG002 - there is one kind
        """Yield a metric row for each step."""
        merger = StepMerger()
        for event in read_events(path):
            if isinstance(event, Remark):
                yield event
                continue
            time = event.time if math.isfinite(event.time) and event.time > 0 else None
            for row in metric_rows(event.values, as_step(event.step), time):
                yield from merger.add(row)
        yield from merger.flush()


IMPORTER = TensorBoardImporter()
"""The importer in the catalogue."""
