"""Every outcome in order of arrival, on disk at once: a killed run resumes from here and samples nothing twice."""

from __future__ import annotations

import errno
import json
import os
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson

from breadth.base.errors import BrokenFileError
from breadth.base.system import write_error
from breadth.inference.records import Candidate, Spend
from breadth.runs.jsonl import read_error, require_regular_file

JOURNAL_FILE = "replies.jsonl"
ARRAY_FIELDS = ("logprobs", "confidences")
EventKind = Literal["arrived", "failed", "discarded", "forked", "abandoned"]


@dataclass(frozen=True)
class JournalEvent:
    """One thing that happened to a run of a task."""

    task: str
    """Name of the task."""
    path: str
    """Path of the run within the task: empty for the strategy's own, longer for forked ones."""
    draw_id: str
    """Id of the sample or fork; the file calls it ``place``."""
    kind: EventKind
    """arrived, failed, discarded (cancelled in flight), forked (which branches ended first), or abandoned: what was
    recorded under the same id is paid for and not to be replayed.
    """
    spend: Spend = Spend()
    """What it used."""
    candidate: Candidate | None = None
    """What arrived."""
    reason: str = ""
    """Why it failed."""
    fatal: bool = False
    """Whether others of its kind would fail as well."""
    branches: tuple[int, ...] = ()
    """Branches of a fork that ended in time."""


@dataclass
class Journal:
    """Events of one run folder: replays those of an earlier attempt, and appends new ones.

    Without a folder it keeps nothing.
    """

    folder: Path | None = None
    """Folder of the file."""
    recorded: dict[tuple[str, str], deque[JournalEvent]] = field(default_factory=lambda: defaultdict(deque))
    """Events of earlier attempts, by task and path, in order."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    """Task -> hash of prompt, policy and seed."""

    @classmethod
    def open(cls, folder: Path) -> Journal:
        """Read what an earlier attempt left; a last line cut off by a kill is skipped, and overwritten later."""
        journal = cls(folder)
        path = folder / JOURNAL_FILE
        require_regular_file(path)
        try:
            *lines, _ = path.read_bytes().split(b"\n") if path.exists() else [b""]
        except OSError as error:
            raise read_error(path, error) from error
        for number, line in enumerate(lines, 1):
            if line.strip():
                journal._read_line(line, path, number)
        return journal

    def _read_line(self, line: bytes, path: Path, number: int) -> None:
        try:
            row = orjson.loads(line)
            if "fingerprint" in row:
                self.fingerprints[row["task"]] = row["fingerprint"]
            else:
                self._add_recorded(event_from_row(row))
        except (ValueError, TypeError, KeyError) as error:
            raise BrokenFileError(
                path,
                f"this line is no event of a run: {error}.",
                "Remove the line, or start in a new folder.",
                row=number,
            ) from error

    def _add_recorded(self, event: JournalEvent) -> None:
        run = event.task, event.path
        if event.kind != "abandoned":
            self.recorded[run].append(event)
            return
        kept = [known for known in self.recorded[run] if known.kind != "forked" or known.draw_id != event.draw_id]
        self.recorded[run] = deque(
            replace(known, kind="discarded") if known.draw_id == event.draw_id else known for known in kept
        )

    def begin_task(self, task: str, fingerprint: str) -> None:
        """Record the fingerprint of a task; an earlier attempt must have had the same."""
        if self.folder is None:
            return
        known = self.fingerprints.get(task)
        if known is None:
            self.fingerprints[task] = fingerprint
            self._write_row({"task": task, "fingerprint": fingerprint})
        elif known != fingerprint:
            raise BrokenFileError(
                self.folder / JOURNAL_FILE,
                f"task '{task}' was started with another prompt, policy or seed: its replies cannot be used again.",
                "Choose another folder, or repeat the command with the settings it was started with.",
            )

    def take_events(self, task: str, path: str) -> deque[JournalEvent]:
        """Remove and return what an earlier attempt recorded of one run, in order."""
        return self.recorded.pop((task, path), deque())

    def take_subtree(self, task: str, path: str) -> Iterable[JournalEvent]:
        """Remove and yield what was recorded of one run and the runs it forked."""
        for name, inner in [run for run in self.recorded if run[0] == task and run[1].startswith(path)]:
            yield from self.take_events(name, inner)

    def peek_events(self, task: str) -> Iterable[JournalEvent]:
        """Yield everything of a task that has not been replayed yet, without removing it."""
        for (name, _), events in self.recorded.items():
            if name == task:
                yield from events

    def append(self, event: JournalEvent) -> None:
        """Write an event to disk before anything acts on it."""
        if self.folder is not None:
            self._write_row(event_row(event))

    def _write_row(self, row: Mapping[str, Any]) -> None:
        assert self.folder is not None  # noqa: S101 - a journal that keeps nothing does not come here
        line = encode_line(row)
        path = self.folder / JOURNAL_FILE
        require_regular_file(path)
        try:
            with path.open("ab+", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                    size = last_line_end(file.fileno(), size)  # an earlier attempt was killed inside its line
                    file.truncate(size)
                if file.write(line) != len(line):  # the disk is full: leave the file as long as it was
                    file.truncate(size)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301 - worded below
        except OSError as error:
            raise write_error(path, error) from error


def last_line_end(descriptor: int, size: int) -> int:
    """Return the position after the last line break of a file."""
    block = 1 << 16
    end = size
    while end > 0:
        start = max(0, end - block)
        found = os.pread(descriptor, block, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def encode_line(row: Mapping[str, Any]) -> bytes:
    """Return a row as a line of JSON; lone surrogates, which JSON cannot hold, become question marks."""
    try:
        return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE, default=_to_json)
    except TypeError:
        text = json.dumps(row, ensure_ascii=False, default=_to_json)
        return encode_line(json.loads(text.encode("utf-8", "replace")))


def _to_json(value: Any) -> Any:
    """Convert what orjson does not know: arrays with gaps to lists, mappings to tables, all else to text."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return dict(value) if isinstance(value, Mapping) else str(value)


FIELD_KEYS = {"draw_id": "place"}
"""Field of a record -> its key in the file, where that differs."""


def event_row(event: JournalEvent) -> dict[str, Any]:
    """Return an event as a row of the file."""
    row: dict[str, Any] = {"task": event.task, "path": event.path, "place": event.draw_id, "kind": event.kind}
    if event.spend != Spend():
        row["spend"] = non_default_fields(event.spend)
    if event.candidate is not None:
        row["candidate"] = non_default_fields(event.candidate)
    for name in ("reason", "fatal", "branches"):
        if getattr(event, name):
            row[name] = getattr(event, name)
    return row


def non_default_fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record that differ from their defaults, under their keys in the file."""
    values = {}
    for spec in fields(record):
        value = getattr(record, spec.name)
        if value is None or (not isinstance(value, np.ndarray) and (value == spec.default or value == {})):
            continue
        values[FIELD_KEYS.get(spec.name, spec.name)] = value
    return values


def event_from_row(row: Mapping[str, Any]) -> JournalEvent:
    """Return a row of the file as an event."""
    candidate = None
    if "candidate" in row:
        values: dict[str, Any] = dict(row["candidate"])
        for name, key in FIELD_KEYS.items():
            if key in values:
                values[name] = values.pop(key)
        for name in ARRAY_FIELDS:
            if name in values:
                values[name] = np.array(
                    [np.nan if number is None else number for number in values[name]], dtype=np.float32
                )
        values["tool_calls"] = tuple(values.get("tool_calls", ()))
        candidate = Candidate(**{"text": "", **values})
    return JournalEvent(
        row["task"],
        row["path"],
        row["place"],
        row["kind"],
        Spend(**row.get("spend", {})),
        candidate,
        row.get("reason", ""),
        row.get("fatal", False),
        tuple(row.get("branches", ())),
    )
