"""A server's dialect reads nothing and words what it knows: one line of JSON, one of flags, each flag once."""

from __future__ import annotations

from pathlib import Path

from breadth.doctor.finding import Change
from breadth.doctor.knobs import Knobs
from breadth.doctor.words.server_words import ServerWords

WORDS = ServerWords(
    "mine",
    {"votes": lambda count: {"n": count}},
    {"votes": lambda _: ["--many"], "loop_guard": lambda _: ["--many", "--guard"]},
)


def test_fields_and_flags() -> None:
    changes = [Change("votes", 3), Change("loop_guard", True), Change("max_tokens", 9), Change("unknown", 1)]
    assert WORDS.patch(changes, Knobs()) == ('request: {"n": 3, "max_tokens": 9}', "server: --many --guard")
    assert WORDS.patch([Change("loop_guard", False)], Knobs()) == ()


def test_it_has_no_file_to_read(tmp_path: Path) -> None:
    assert not WORDS.recognises(tmp_path / "a.yaml", b"mine")
    assert WORDS.read(tmp_path) == {}
    assert WORDS.knobs({"n": 3}) == Knobs()
