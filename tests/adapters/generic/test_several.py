"""Tables that are no run are refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.adapters.generic.several import RUNS, Several, refuse_summaries
from breadth.base.errors import UnknownFormatError


def test_one_run_passes_and_a_second_is_refused() -> None:
    several = Several(["Run", "step"], RUNS, Path("table.csv"))
    several.add([{"Run": "a", "step": 1}, {"Run": None, "step": 2}, {"step": 3}])
    several.refuse_several()
    assert several.found == ""
    several.add([{"Run": "b"}])
    with pytest.raises(UnknownFormatError, match=r"rows of several runs \('Run': a, b"):
        several.refuse_several()


def test_columns_of_another_kind_are_not_looked_at() -> None:
    several = Several(["seed"], RUNS, Path("table.csv"))
    several.add([{"seed": 1}, {"seed": 2}])
    assert several.found == ""


def test_summaries_are_refused() -> None:
    refuse_summaries(["question_id", "answer"], Path("votes.csv"))
    with pytest.raises(UnknownFormatError, match="one row for many samples"):
        refuse_summaries(["question_id", "Num_Votes"], Path("votes.csv"))
