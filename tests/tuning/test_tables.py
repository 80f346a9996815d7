"""The tables: one row an option, arm, budget or rule, with what was chosen marked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from breadth.report.cells import Missing, is_interval
from breadth.report.sections import Table
from breadth.runs.reader import Run
from breadth.tuning.tables import equal_table, grid_table, options_table, score_of, stop_table, traits_table
from breadth.tuning.tuned import Tuned, tuned

Swept = Callable[..., Path]


@pytest.fixture
def voted(swept: Swept) -> Tuned:
    """A sweep of which a vote of eight is chosen."""
    return tuned(Run.open(swept(lambda _: 0.45, misled=0.15, budgets=(32, 128), draws=2)))


def test_options_are_listed_cheapest_first_with_the_choice_marked(voted: Tuned) -> None:
    table = options_table(voted)
    assert [column.name for column in table.columns] == ["option", "draws", "accuracy", "tokens a question", "seconds"]
    names = ["one plain draw", "think 32", "vote of 2", "think 128", "vote of 4", "vote of 8 (chosen, highest)"]
    assert [row[0] for row in table.rows] == names
    assert table.rows[0][2] == score_of(voted.options[0])


def test_budgets_and_widths_are_shown_together(voted: Tuned) -> None:
    (table,) = grid_table(voted)
    assert isinstance(table, Table)
    assert [column.name for column in table.columns] == [
        "samples",
        "tokens of one",
        "one",
        "vote of 2",
        "vote of 4",
        "vote of 8",
    ]
    assert [(row[0], row[1]) for row in table.rows] == [("as it comes", 36), ("think 32", 36), ("think 128", 132)]
    plain, _, forced = table.rows
    votes = [option.score for option in voted.options if option.budget is None]
    assert [cell.value for cell in plain[2:] if is_interval(cell)] == pytest.approx(votes)
    # Two samples at each budget: a vote of two is as good as one of them, and wider ones were not drawn.
    assert forced[2] == forced[3]
    assert all(isinstance(cell, Missing) for cell in forced[4:])


def test_samples_are_described_arm_by_arm(voted: Tuned) -> None:
    table = traits_table(voted)
    assert [row[0] for row in table.rows] == ["as it comes", "think 32", "think 128"]
    assert "over 2 samples" in table.note
    assert not any(isinstance(cell, Missing) for row in table.rows for cell in row)


def test_equal_tokens_have_a_row_for_each_budget(voted: Tuned) -> None:
    (table,) = equal_table(voted)
    assert isinstance(table, Table)
    # 36 and 132 tokens pay for one and for three plain draws of 36.
    assert [(row[0], row[1], row[3], row[4]) for row in table.rows] == [(32, 36, 1, 36), (128, 132, 3, 108)]
    assert len({column.name for column in table.columns}) == len(
        table.columns
    )  # on a narrow screen a name stands alone


def test_stop_rules_are_listed_with_the_one_taken(voted: Tuned) -> None:
    (table,) = stop_table(voted)
    assert isinstance(table, Table)
    assert table.title == "When the vote of 8 may stop"
    assert [str(row[0]).endswith(" (chosen)") for row in table.rows].count(True) == 1
    assert table.columns[-1].name == "as all 8 draws"
    tokens = [float(str(row[4])) for row in table.rows]
    assert tokens == sorted(tokens)


def test_what_was_not_measured_has_no_table(swept: Swept) -> None:
    single = tuned(Run.open(swept(lambda _: 0.5, 6, budgets=(), draws=1)))
    assert equal_table(single) == []
    assert grid_table(single) == []
    assert stop_table(single) == []
