"""What came back, in the order it came, on disk at once: a killed run goes on from here without drawing anything twice."""

from __future__ import annotations

import errno
import json
import os
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import orjson

from breadth.base.atomic import write_error
from breadth.base.errors import BrokenFileError
from breadth.inference.budget import Spend
from breadth.inference.records import Candidate
from breadth.runs.jsonl import read_error

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
    """Which draw or fork it is about."""
    kind: EventKind
    """arrived, failed, discarded (cancelled in flight), forked (which branches ended first), or abandoned: what was recorded under the
    same place is paid, and not to be taken up any more."""
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
    """Events of one run folder: those of an earlier attempt to be taken up again, and new ones appended.

    Without a folder it keeps nothing.
    """

    folder: Path | None = None
    """Where the file lies."""
    recorded: dict[tuple[str, str], deque[JournalEvent]] = field(default_factory=lambda: defaultdict(deque))
    """Events of earlier attempts, by task and path, in order."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    """Task -> what it was asked with."""

    @classmethod
    def open(cls, folder: Path) -> Journal:
        """Read what an earlier attempt left; a last line cut off by a kill is left out, for the next event takes its place."""
        journal = cls(folder)
        path = folder / JOURNAL_FILE
        try:
            *lines, _ = path.read_bytes().split(b"\n") if path.exists() else [b""]
        except OSError as error:
            raise read_error(path, error) from error
        for number, line in enumerate(lines, 1):
            if line.strip():
                journal._take(line, path, number)
        return journal

    def _take(self, line: bytes, path: Path, number: int) -> None:
        try:
            row = orjson.loads(line)
            if "fingerprint" in row:
                self.fingerprints[row["task"]] = row["fingerprint"]
            else:
                self._record(_event(row))
        except (ValueError, TypeError, KeyError) as error:
            raise BrokenFileError(
                path,
                f"this line is no event of a run: {error}.",
                "Remove the line, or start in a new folder.",
                row=number,
            ) from error

    def _record(self, event: JournalEvent) -> None:
        place = event.task, event.path
        if event.kind != "abandoned":
            self.recorded[place].append(event)
            return
        kept = [known for known in self.recorded[place] if known.kind != "forked" or known.draw_id != event.draw_id]
        self.recorded[place] = deque(
            replace(known, kind="discarded") if known.draw_id == event.draw_id else known for known in kept
        )

    def begin_task(self, task: str, fingerprint: str) -> None:
        """Note what a task is asked with; an earlier attempt must have asked the same."""
        if self.folder is None:
            return
        known = self.fingerprints.get(task)
        if known is None:
            self.fingerprints[task] = fingerprint
            self._append({"task": task, "fingerprint": fingerprint})
        elif known != fingerprint:
            raise BrokenFileError(
                self.folder / JOURNAL_FILE,
                f"task '{task}' was begun with another prompt, policy or seed: its replies cannot be taken up again.",
                "Choose another folder, or repeat the command with the settings it was begun with.",
            )

    def take_events(self, task: str, path: str) -> deque[JournalEvent]:
        """Return what an earlier attempt recorded of one run, in order; taken only once."""
        return self.recorded.pop((task, path), deque())

    def take_subtree(self, task: str, path: str) -> Iterable[JournalEvent]:
        """Return what was recorded of one run and the runs it forked; taken only once."""
        for name, inner in [place for place in self.recorded if place[0] == task and place[1].startswith(path)]:
            yield from self.take_events(name, inner)

    def pending_events(self, task: str) -> Iterable[JournalEvent]:
        """Return everything of a task that has not been taken up yet; it stays to be taken."""
        for (name, _), events in self.recorded.items():
            if name == task:
                yield from events

    def append(self, event: JournalEvent) -> None:
        """Write an event down before anybody acts on it."""
        if self.folder is not None:
            self._append(_row(event))

    def _append(self, row: Mapping[str, Any]) -> None:
        assert self.folder is not None  # noqa: S101 - a journal that keeps nothing does not come here
        line = _line(row)
        path = self.folder / JOURNAL_FILE
        try:
            with path.open("ab+", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                    size = _last_line_end(file.fileno(), size)  # an earlier attempt was killed inside its line
                    file.truncate(size)
                _write_whole(file, line, size)
        except OSError as error:
            raise write_error(path, error) from error


def _write_whole(file: IO[bytes], line: bytes, size: int) -> None:
    """Write a line, or leave the file as long as it was: a full disk may take only part of it."""
    if file.write(line) != len(line):
        file.truncate(size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _last_line_end(descriptor: int, size: int) -> int:
    """Return the place after the last line break."""
    block = 1 << 16
    end = size
    while end > 0:
        start = max(0, end - block)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _line(row: Mapping[str, Any]) -> bytes:
    """Return a row as a line of JSON; halves of characters (lone surrogates), which JSON cannot hold, become question marks."""
    try:
        return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE, default=_plain)
    except TypeError:
        text = json.dumps(row, ensure_ascii=False, default=_plain)
        return _line(json.loads(text.encode("utf-8", "replace")))


def _plain(value: Any) -> Any:
    """Return as JSON has it what our JSON writer does not know: arrays with gaps as lists, mappings as tables, all else as text."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return dict(value) if isinstance(value, Mapping) else str(value)


def _row(event: JournalEvent) -> dict[str, Any]:
    row: dict[str, Any] = {"task": event.task, "path": event.path, "place": event.draw_id, "kind": event.kind}
    if event.spend != Spend():
        row["spend"] = _changed(event.spend)
    if event.candidate is not None:
        row["candidate"] = _changed(event.candidate)
    for name in ("reason", "fatal", "branches"):
        if getattr(event, name):
            row[name] = getattr(event, name)
    return row


def _changed(record: Any) -> dict[str, Any]:
    """Return the fields of a record that differ from their defaults."""
    values = {}
    for spec in fields(record):
        value = getattr(record, spec.name)
        if value is None or (not isinstance(value, np.ndarray) and (value == spec.default or value == {})):
            continue
        values[spec.name] = value
    return values


def _event(row: Mapping[str, Any]) -> JournalEvent:
    candidate = None
    if "candidate" in row:
        values = dict(row["candidate"])
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
