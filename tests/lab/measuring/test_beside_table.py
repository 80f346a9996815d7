"""The table beside: a row a course, means over seeds by hand."""

from __future__ import annotations

import math

import pytest

from breadth.lab.measuring.beside_table import TOKENS, VOTED, beside_table, over_beside
from breadth.measure.intervals import Interval

TRIALS = [{"beside": {"passed": 0.1, "voted": vote, "covered": 0.5, "tokens": 20.0}} for vote in (0.2, 0.4)]


def test_numbers_over_seeds() -> None:
    assert over_beside(TRIALS, VOTED).value == pytest.approx(0.3)
    assert over_beside(TRIALS[:1], VOTED).high == 1.0
    assert math.isinf(over_beside(TRIALS[:1], TOKENS).high)


def test_a_row_a_course() -> None:
    table = beside_table("course", {"one": TRIALS}, 16, "a note")
    assert [column.name for column in table.columns] == [
        "course",
        "pass@1",
        "vote for 192 tokens",
        "pass@16",
        "tokens of a reply",
    ]
    ((name, *cells),) = table.rows
    assert name == "one"
    assert [cell.value for cell in cells if isinstance(cell, Interval)] == pytest.approx([0.1, 0.3, 0.5, 20.0])
