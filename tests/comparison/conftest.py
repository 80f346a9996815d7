"""Two policies on four problems whose pass@k and votes can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter

Replies = Mapping[str, Sequence[str | None]]
TRUTH = {"a": "1", "b": "2", "c": "3", "d": "4"}
BROAD: Replies = {
    "a": ["1", "1", "7", "8"],
    "b": ["2", "5", "6", "7"],
    "c": ["3", "8", "8", "9"],
    "d": ["4", "4", "4", "1"],
}
NARROW: Replies = {
    "a": ["1", "1", "1", "1"],
    "b": ["5", "5", "5", "5"],
    "c": ["8", "8", "8", "8"],
    "d": ["4", "4", "4", "4"],
}


def write_run(folder: Path, at: Mapping[int, Replies], tokens: int = 10) -> Run:
    """Write held-out replies of some checkpoints."""
    writer = RunWriter(folder, Header(name=folder.name, trainer="trl"))
    for step, replies in at.items():
        rows = [(name, answer) for name, given in replies.items() for answer in given]
        writer.rollouts(
            {
                "problem": [name for name, _ in rows],
                "answer": [answer for _, answer in rows],
                "correct": [answer == TRUTH[name] for name, answer in rows],
                "tokens": [tokens] * len(rows),
            },
            step,
            split="eval",
        )
    return Run.open(folder)


@pytest.fixture
def write() -> Callable[..., Run]:
    """Return what writes a run: ``write(folder, {step: replies}, tokens)``."""
    return write_run


@pytest.fixture
def replies() -> dict[str, Replies]:
    """Return the two policies' answers."""
    return {"broad": BROAD, "narrow": NARROW}


@pytest.fixture
def broad(tmp_path: Path) -> Run:
    return write_run(tmp_path / "broad", {0: BROAD})


@pytest.fixture
def narrow(tmp_path: Path) -> Run:
    return write_run(tmp_path / "narrow", {50: NARROW}, tokens=5)
