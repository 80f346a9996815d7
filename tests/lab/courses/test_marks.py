"""Which tokens plan, as the trainer is told."""

from __future__ import annotations

from itertools import pairwise

import pytest

from breadth.lab.courses.marks import PlanningMarks

REPLY = " <think> add 3 + 4 =0 + 6 5 =4 0 * 4 =0 again left </think> 0 <eos>"
PLANS = "0 1 111 0 111 0 111 0 1 1 1 0 0"


def offsets(text: str) -> list[tuple[int, int]]:
    """Each token is a word with the blank before it."""
    ends = [0]
    for word in text.split():
        ends.append(ends[-1] + 1 + len(word))
    return list(pairwise(ends))


def test_planning_tokens_by_hand() -> None:
    assert PlanningMarks().marks(REPLY, offsets(REPLY)) == [mark == "1" for mark in PLANS.replace(" ", "")]


@pytest.mark.parametrize("text", ["", " nonsense", " <think> add 3 + stray =4"])
def test_what_has_no_place_does_not_plan(text: str) -> None:
    found = PlanningMarks().marks(text, offsets(text))
    assert len(found) == len(text.split())
    assert found == [False, True, True, True, False, False][: len(found)] if "think" in text else not any(found)
