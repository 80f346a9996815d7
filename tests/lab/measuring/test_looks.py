"""Looks: kept, read back, and their numbers by hand."""

from __future__ import annotations

import math

import numpy as np
import orjson
import pytest

from breadth.lab.measuring.evaluation import evaluate
from breadth.lab.measuring.looks import Look, look_of
from breadth.lab.model.reasoner import Reasoner
from breadth.lab.task.tasks import held_out
from breadth.measure.transfer import transfer_gap

LOOK = Look(3, [1, 2], [[1, 1, 0, 4], [3, 3, -1, 2]], 0.5, math.nan, 0.7, 0.875, 20.0, {"infix": 1.0}, {"add": 1.0})
"""Two problems, four replies each: two right of four, one right of four with one that is none."""


def test_numbers_by_hand() -> None:
    assert LOOK.right.tolist() == [[True, True, False, False], [False, False, False, True]]
    assert LOOK.passed(1) == pytest.approx([0.5, 0.25])
    # pass@2: 1 - C(2, 2) / C(4, 2) = 5/6 and 1 - C(3, 2) / C(4, 2) = 1/2.
    assert LOOK.passed(2) == pytest.approx([5 / 6, 1 / 2])
    assert LOOK.passed(4).tolist() == [1, 1]
    # The votes of all four: 1 leads with two of four; 3 leads with two of three that vote.
    assert LOOK.voted(4).tolist() == [1, 0]
    assert LOOK.distinct(4).tolist() == [3, 2]
    # Of two drawn: answer 1 is missed in C(2, 2) of 6 pairs, 0 and 4 each in C(3, 2) = 3 of 6: 5/6 + 1/2 + 1/2.
    assert LOOK.distinct(2)[0] == pytest.approx(11 / 6)


def test_it_comes_back_from_json_with_its_gaps() -> None:
    back = Look.from_row(orjson.loads(orjson.dumps(LOOK.to_row())))
    assert math.isnan(back.planning)
    assert (back.entropy, back.answers, back.gold, back.styles) == (LOOK.entropy, LOOK.answers, LOOK.gold, LOOK.styles)


def test_a_policy_has_no_transfer_gap_to_itself() -> None:
    same = Look(0, [9], [[1, 2, 3, -1]], 0, 0, 0, 0, 0, {}, {})
    gap = transfer_gap(same.arm, same.arm)
    assert gap.every.shared.value == 0
    assert gap.every.base.distinct.value == 3


def test_an_evaluation_keeps_its_numbers(memorised: Reasoner) -> None:
    evaluation = evaluate(memorised, held_out(7, "medium")[:3], 4, seed=2)
    look = look_of(evaluation, 5)
    assert look.step == 5
    assert look.samples == 4
    for k in (1, 2, 4):
        assert look.passed(k) == pytest.approx(evaluation.pass_by_problem(k))
        assert look.voted(k) == pytest.approx(evaluation.majority_by_problem(k))
    assert look.entropy == evaluation.entropy()
    assert np.array_equal(look.table, evaluation.answers)
