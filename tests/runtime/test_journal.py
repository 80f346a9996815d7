"""The journal: everything comes back as it was, a torn last line is left out, another run is refused."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from breadth.base.errors import BrokenFileError, WriteError
from breadth.inference.budget import Spend
from breadth.inference.records import Candidate
from breadth.runtime.journal import JOURNAL_FILE, Journal, JournalEvent

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
    with pytest.raises(BrokenFileError, match="cannot be read"):
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
