"""A follower sees each row and file once, and waits for lines that are not finished."""

from __future__ import annotations

from pathlib import Path

from breadth.runs.follow import Follower
from breadth.runs.writer import RunWriter


def test_each_poll_returns_only_what_is_new(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    assert follower.poll() == ([], [])
    writer = RunWriter(tmp_path)
    writer.metrics(1, {"a": 1.0})
    path = writer.rollouts({"problem": ["p"]}, 1)
    points, files = follower.poll()
    assert ([point.step for point in points], files) == ([1], [path])
    assert follower.poll() == ([], [])
    writer.metrics(2, {"a": 2.0})
    assert [point.step for point in follower.poll()[0]] == [2]


def test_a_half_written_line_waits_and_a_bad_one_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    follower = Follower(tmp_path)
    path.write_bytes(b'bad\n{"step": 1, "values": {"a": 1}}\n{"step": 2, "val')
    assert [point.step for point in follower.poll()[0]] == [1]
    with path.open("ab") as file:
        file.write(b'ues": {"a": 2}}\n')
    assert [point.step for point in follower.poll()[0]] == [2]


def test_files_still_being_written_are_not_seen(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    RunWriter(tmp_path)
    (tmp_path / "rollouts" / ".train-00000001-r0-a0-p0.parquet.12.tmp").write_bytes(b"half")
    (tmp_path / "rollouts" / "notes.parquet").write_bytes(b"")
    assert follower.poll()[1] == []
