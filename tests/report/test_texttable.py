"""Tables in the terminal: numbers whole at every width."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from breadth.measure.intervals import Interval
from breadth.report.cells import Missing
from breadth.report.sections import Column, Table

CHECKPOINTS = Table(
    "Checkpoints",
    [Column("checkpoint"), Column("pass@1", "%"), Column("effective answers"), Column("mean length", "tokens")],
    [
        ["base", Interval(0.28, 0.25, 0.312), 4.82, 611],
        ["step 300 of the long run", Missing("not saved"), 1.2, 12720],
    ],
    note="Bootstrap.",
)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_side_by_side(printed: Callable[..., str]) -> None:
    found = lines(printed(CHECKPOINTS, 100))
    assert "checkpoint                         pass@1 (%)  effective answers  mean length (tokens)" in found
    assert "base                      28.0 (25.0 to 31.2)               4.82                   611" in found
    assert "step 300 of the long run              n/a [a]               1.20                12,720" in found
    assert "a not saved" in found
    assert "Bootstrap." in found


def test_words_are_squeezed_before_numbers(printed: Callable[..., str]) -> None:
    found = lines(printed(CHECKPOINTS, 60))
    row = next(line for line in found if line.startswith("base"))
    assert row.split() == ["base", "28.0", "(25.0", "to", "31.2)", "4.82", "611"]
    assert all(len(line) <= 60 for line in found)


def test_what_does_not_fit_is_printed_row_by_row(printed: Callable[..., str]) -> None:
    found = lines(printed(CHECKPOINTS, 45))
    start = found.index("checkpoint: base")
    assert [line.split("  ")[-1].strip() for line in found[start + 1 : start + 4]] == ["28.0 (25.0 to 31.2)", "4.82", "611"]
    assert "checkpoint: step 300 of the long run" in found


@pytest.mark.parametrize("width", [60, 100, 160])
def test_many_columns_keep_all_numbers(width: int, printed: Callable[..., str]) -> None:
    numbers = [float(1000 * place + 7) for place in range(14)]
    text = printed(Table("Wide", [Column(f"column {place}") for place in range(14)], [numbers]), width)
    assert all(f"{number:,.0f}" in text for number in numbers)
    assert all(len(line) <= width for line in lines(text))


def test_a_huge_table_folds_with_a_count(printed: Callable[..., str]) -> None:
    text = printed(Table("Long", [Column("n")], [[10_000 + index] for index in range(1000)]))
    assert "10,019" in text
    assert "10,020" not in text
    assert "… 980 more rows; the JSON and the page have them all" in text


def test_no_rows_and_no_columns(printed: Callable[..., str]) -> None:
    assert "No rows." in printed(Table("T", [Column("a")], []))
    assert "No rows." in printed(Table("T", [], []))
