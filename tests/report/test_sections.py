"""Sections and pages: what they store and what they refuse."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from breadth.base.errors import MeasureError
from breadth.report.sections import (
    Axis,
    Column,
    Curve,
    Event,
    Fact,
    Group,
    Outcome,
    Page,
    Series,
    Severity,
    Table,
    Text,
    Token,
    Verdict,
)


def test_sequences_and_arrays_are_stored_as_tuples() -> None:
    series = Series("a", np.arange(3).tolist(), [0.1, math.nan, 0.3])
    assert series.x == (0.0, 1.0, 2.0)
    assert Group("p", ["correct", Outcome.WRONG]).outcomes == (Outcome.CORRECT, Outcome.WRONG)  # type: ignore[list-item]  # words are accepted too
    table = Table("t", [Column("a")], [[np.float32(0.5)]])  # type: ignore[list-item]  # so are numpy's numbers
    assert table.rows == ((0.5,),)
    assert type(table.rows[0][0]) is float


def test_records_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Fact("a", 1).value = 2  # type: ignore[misc]  # that is the point


def test_words_of_an_enumeration_are_checked() -> None:
    assert Verdict("cannot tell", "x").severity is Severity.CANNOT_TELL  # type: ignore[arg-type]  # the word is accepted too
    with pytest.raises(MeasureError, match="Did you mean 'warning'"):
        Verdict("warnin", "x")  # type: ignore[arg-type]  # misspelt on purpose
    with pytest.raises(MeasureError, match="none of the outcomes"):
        Group("p", ["solved"])  # type: ignore[list-item]  # not a word of ours


def test_a_row_must_fit_its_columns() -> None:
    with pytest.raises(MeasureError, match="Row 1 of the table 't' has 1 cells for 2 columns"):
        Table("t", [Column("a"), Column("b")], [[1, 2], [3]])


@pytest.mark.parametrize(
    ("y", "low", "high"),
    [([1.0], [], []), ([1.0, 2.0], [0.0], [0.0]), ([1.0, 2.0], [0.0, 1.0], [])],
)
def test_a_series_must_have_as_many_of_everything(y: list[float], low: list[float], high: list[float]) -> None:
    with pytest.raises(MeasureError, match="The series 's' has 2 x"):
        Series("s", [0, 1], y, low, high)


@pytest.mark.parametrize(("xs", "events"), [([0.0, 1.0], []), ([1.0, 2.0], [Event(-1, "before")])])
def test_a_logarithmic_axis_refuses_what_is_not_above_zero(xs: list[float], events: list[Event]) -> None:
    with pytest.raises(MeasureError, match="logarithmic x"):
        Curve("c", [Series("s", xs, [1.0, 1.0])], Axis("k"), Axis("y"), log_x=True, events=events)


def test_a_token_keeps_plain_numbers() -> None:
    assert type(Token("a", np.float32(0.5)).value) is float  # type: ignore[arg-type]  # numpy's numbers are accepted
    assert Token("a").value is None


def test_lists_are_stored_as_tuples() -> None:
    page = Page("t", [Text("a")], provenance=[Fact("seed", 0)])
    assert page.sections == (Text("a"),)
    assert page.provenance == (Fact("seed", 0),)
