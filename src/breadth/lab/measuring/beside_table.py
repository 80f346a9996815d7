"""The numbers beside what is trained on and held out, of several courses over their seeds, as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from breadth.lab.demo.plan import FULL
from breadth.lab.measuring.seeds import over_seeds
from breadth.measure.intervals import Interval
from breadth.report.cells import Cell
from breadth.report.sections import Column, Table

PASSED, VOTED, COVERED, TOKENS = "passed", "voted", "covered", "tokens"
"""pass@1, a vote for the tokens of the corners, pass@k at all replies, tokens of a reply."""
Judged = Mapping[str, Any]
"""The result of a trial that was judged beside."""


def over_beside(trials: Sequence[Judged], what: str) -> Interval:
    """Return one of the numbers over seeds."""
    return over_seeds([one["beside"][what] for one in trials], bounds=(0.0, float("inf") if what == TOKENS else 1.0))


def beside_table(head: str, courses: Mapping[str, Sequence[Judged]], replies: int, note: str) -> Table:
    """Return a row a course; ``replies`` are those to each problem."""
    columns = {
        PASSED: "pass@1",
        VOTED: f"vote for {FULL.thinking} tokens",
        COVERED: f"pass@{replies}",
        TOKENS: "tokens of a reply",
    }
    rows: list[list[Cell]] = [
        [name, *(over_beside(trials, what) for what in columns)] for name, trials in courses.items()
    ]
    return Table(
        "Beside the problems trained on, at the end", [Column(head), *map(Column, columns.values())], rows, note
    )
