"""The journal: everything comes back as it was, a torn last line is left out, another run is refused."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from breadth.base.errors import BrokenFileError, WriteError
from breadth.inference.records import Candidate, Spend
from breadth.runtime.journal import JOURNAL_FILE, Journal, JournalEvent, event_row, last_line_end

CANDIDATE = Candidate(
    "six \ud83d\ude00 \x1b[31m and seven".encode("utf-16", "surrogatepass").decode("utf-16"),
    "42",
    "42",
    reasoning="hm",
    tokens=3,
    logprobs=np.array([-0.5, np.nan, -2], dtype=np.float32),
    confidences=np.array([1.5, 2.5, np.nan], dtype=np.float32),
    tool_calls=({"id": "a"},),
    message={"cap_ignored": [3, 2]},
    draw_id="0.1",
)


def events() -> list[JournalEvent]:
    return [
        JournalEvent("a", "", "0.0", "arrived", Spend(1, 10, 2, 3, 0.5, 0.01), CANDIDATE),
        JournalEvent("a", "", "0.1", "failed", Spend(calls=3), reason="500"),
        JournalEvent("a", "1.0/", "1.0/0.0", "arrived", candidate=Candidate("x")),
        JournalEvent("a", "", "1", "forked", branches=(0, 2)),
        JournalEvent("b", "", "0.0", "discarded", Spend(calls=1, output_tokens=4)),
    ]


def test_events_come_back_in_order_by_task_and_path(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for event in events():
        journal.append(event)
    again = Journal.open(tmp_path)
    first, second, fork = again.take_events("a", "")
    assert (first, second, fork) == (events()[0], events()[1], events()[3])
    assert first.candidate is not None
    np.testing.assert_array_equal(first.candidate.logprobs, CANDIDATE.logprobs)
    np.testing.assert_array_equal(first.candidate.confidences, CANDIDATE.confidences)
    assert first.candidate.message == {"cap_ignored": [3, 2]}
    assert [event.candidate for event in again.take_events("a", "1.0/")] == [Candidate("x")]
    assert [event.spend.output_tokens for event in again.peek_events("b")] == [4]
    assert not again.take_events("a", ""), "what was taken up is not taken up twice"


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_line_cut_by_a_kill_is_left_out_and_not_glued_to(tmp_path: Path, cut: int) -> None:
    journal = Journal(tmp_path)
    for event in events()[:3]:
        journal.append(event)
    path = tmp_path / JOURNAL_FILE
    path.write_bytes(path.read_bytes()[:-cut])
    again = Journal.open(tmp_path)
    assert len(again.take_events("a", "")) == 2
    assert not again.take_events("a", "1.0/"), "a line without its end was not written"
    again.append(events()[4])
    third = Journal.open(tmp_path)
    assert len(third.take_events("a", "")) == 2
    assert len(third.take_events("b", "")) == 1


def test_damage_in_the_middle_is_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for event in events():
        journal.append(event)
    lines = (tmp_path / JOURNAL_FILE).read_bytes().splitlines(keepends=True)
    lines[1] = b'{"task": 3\n'
    (tmp_path / JOURNAL_FILE).write_bytes(b"".join(lines))
    with pytest.raises(BrokenFileError, match="row 2"):
        Journal.open(tmp_path)


def test_a_task_begun_otherwise_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path).begin_task("a", "one")
    again = Journal.open(tmp_path)
    again.begin_task("a", "one")
    with pytest.raises(BrokenFileError, match="another prompt, policy or seed"):
        again.begin_task("a", "two")


@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_what_never_ends_is_neither_read_nor_written(tmp_path: Path, kind: str) -> None:
    path = tmp_path / JOURNAL_FILE
    path.symlink_to(os.devnull) if kind == "device" else os.mkfifo(path)
    with pytest.raises(BrokenFileError, match="a pipe or a device"):
        Journal.open(tmp_path)
    with pytest.raises(BrokenFileError, match="a pipe or a device"):
        Journal(tmp_path).append(events()[0])


def test_without_a_folder_nothing_is_kept() -> None:
    journal = Journal()
    journal.begin_task("a", "one")
    journal.append(events()[0])
    assert not journal.take_events("a", "")
    assert not journal.fingerprints


def test_a_folder_that_is_gone_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(WriteError):
        Journal(tmp_path / "gone").append(events()[0])


def test_what_json_cannot_hold_is_written_all_the_same(tmp_path: Path) -> None:
    candidate = Candidate("x", tool_calls=({"id": "\ud83d"},), logprobs=np.arange(6, dtype=np.float32)[::2])
    Journal(tmp_path).append(JournalEvent("\udcff", "", "0.0", "arrived", candidate=candidate))
    (event,) = Journal.open(tmp_path).take_events("?", "")
    assert event.candidate is not None
    assert event.candidate.tool_calls == ({"id": "?"},)
    np.testing.assert_array_equal(event.candidate.logprobs, [0, 2, 4])


def test_a_disk_that_takes_half_a_line_leaves_none_of_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(events()[0])
    before = (tmp_path / JOURNAL_FILE).read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
    try:
        with pytest.raises(WriteError):
            journal.append(events()[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / JOURNAL_FILE).read_bytes() == before


def test_a_file_that_cannot_be_read_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).mkdir()
    with pytest.raises(BrokenFileError, match="is a folder"):
        Journal.open(tmp_path)


def test_what_was_abandoned_is_paid_and_not_taken_up(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for event in (
        events()[0],
        events()[3],
        JournalEvent("a", "", "0.0", "abandoned"),
        JournalEvent("a", "", "1", "abandoned"),
        events()[0],
    ):
        journal.append(event)
    first, second = Journal.open(tmp_path).take_events("a", "")
    assert (first.kind, first.spend) == ("discarded", events()[0].spend)
    assert second == events()[0]


def test_a_row_holds_what_differs_from_the_defaults_and_nothing_else() -> None:
    plain = JournalEvent("a", "", "0.0", "arrived", candidate=Candidate("x"))
    assert event_row(plain) == {
        "task": "a",
        "path": "",
        "place": "0.0",
        "kind": "arrived",
        "candidate": {"text": "x"},
    }
    failed = JournalEvent("a", "", "0.1", "failed", Spend(calls=3), reason="500", fatal=True)
    assert event_row(failed) == {
        "task": "a",
        "path": "",
        "place": "0.1",
        "kind": "failed",
        "spend": {"calls": 3},
        "reason": "500",
        "fatal": True,
    }


def test_a_fatal_failure_is_fatal_after_a_restart_and_another_is_not(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    fatal = JournalEvent("a", "", "0.0", "failed", reason="401", fatal=True)
    mild = JournalEvent("a", "", "0.1", "failed", reason="500")
    journal.append(fatal)
    journal.append(mild)
    assert list(Journal.open(tmp_path).take_events("a", "")) == [fatal, mild]


@pytest.mark.parametrize(
    ("content", "end"),
    [
        (b"ab\ncd", 3),
        (b"abcd", 0),
        (b"\nabcd", 1),
        (b"ab\n" + b"x" * ((1 << 16) - 1), 3),
        (b"ab\n" + b"x" * (1 << 16), 3),
        (b"\n" + b"x" * (1 << 16), 1),
        (b"ab\n" + b"x" * (3 << 16), 3),
        (b"x" * (1 << 17), 0),
    ],
)
def test_the_last_line_break_is_found_however_long_the_cut_line_is(tmp_path: Path, content: bytes, end: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with path.open("rb") as file:
        assert last_line_end(file.fileno(), os.fstat(file.fileno()).st_size) == end


def test_a_first_line_cut_by_a_kill_is_replaced(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).write_bytes(b'{"task": "a", "pa')
    Journal(tmp_path).append(events()[4])
    assert (tmp_path / JOURNAL_FILE).read_bytes().count(b"\n") == 1
    assert list(Journal.open(tmp_path).take_events("b", "")) == [events()[4]]


def test_empty_lines_are_skipped_and_lines_are_counted_from_one(tmp_path: Path) -> None:
    Journal(tmp_path).append(events()[4])
    path = tmp_path / JOURNAL_FILE
    path.write_bytes(b"\n  \n" + path.read_bytes())
    assert list(Journal.open(tmp_path).take_events("b", "")) == [events()[4]]
    path.write_bytes(path.read_bytes() + b"[]\n")
    with pytest.raises(BrokenFileError, match="row 4"):
        Journal.open(tmp_path)


def test_a_task_is_recorded_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.begin_task("a", "one")
    journal.begin_task("a", "one")
    journal.begin_task("b", "two")
    assert (tmp_path / JOURNAL_FILE).read_bytes().count(b"\n") == 2
    assert Journal.open(tmp_path).fingerprints == {"a": "one", "b": "two"}


def test_a_subtree_is_one_task_and_the_paths_below(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for task, path in (("a", ""), ("a", "1.0/"), ("a", "1.0/2.0/"), ("a", "2.0/"), ("b", "1.0/")):
        journal.append(JournalEvent(task, path, f"{path}0.0", "discarded"))
    again = Journal.open(tmp_path)
    assert [event.path for event in again.take_subtree("a", "1.0/")] == ["1.0/", "1.0/2.0/"]
    assert sorted(again.recorded) == [("a", ""), ("a", "2.0/"), ("b", "1.0/")]
    assert [event.path for event in again.peek_events("a")] == ["", "2.0/"]
    assert [event.path for event in again.peek_events("a")] == ["", "2.0/"], "looking does not remove"


def test_abandoning_a_fork_leaves_another_fork_and_the_samples(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    kept = [events()[0], JournalEvent("a", "", "2", "forked", branches=(1,))]
    for event in (kept[0], events()[3], kept[1], JournalEvent("a", "", "1", "abandoned")):
        journal.append(event)
    assert list(Journal.open(tmp_path).take_events("a", "")) == kept


def test_mappings_arrays_and_strange_values_are_written_as_json_has_them(tmp_path: Path) -> None:
    message = {"size": np.float64(1.5), "path": Path("x"), "view": MappingProxyType({"a": 1})}
    Journal(tmp_path).append(JournalEvent("a", "", "0.0", "arrived", candidate=Candidate("x", message=message)))
    (event,) = Journal.open(tmp_path).take_events("a", "")
    assert event.candidate is not None
    assert event.candidate.message == {"size": 1.5, "path": "x", "view": {"a": 1}}


def test_a_line_cut_after_its_first_character_is_removed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(events()[0])
    path = tmp_path / JOURNAL_FILE
    whole = path.read_bytes()
    path.write_bytes(whole + b"{")
    journal.append(events()[4])
    assert path.read_bytes().startswith(whole + b'{"task"')
    assert len(Journal.open(tmp_path).take_events("b", "")) == 1
