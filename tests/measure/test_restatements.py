"""Statements of answers as columns, found in texts and paired with their neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from breadth.base.errors import MeasureError
from breadth.measure.restatements import Restatements, neighbour_pairs, stated_in


def test_statements_found_in_texts() -> None:
    texts = [
        "First I get \\boxed{3}. Wait. The answer is 0.5. So \\boxed{\\frac{1}{2}}",
        "I do not know.",
        "<answer>7</answer>",
    ]
    found = stated_in(texts, ["1/2", "2", "8"])
    assert found.traces.tolist() == [0, 0, 0, 2]
    assert found.correct.tolist() == [False, True, True, False]
    # 0.5 and 1/2 are one answer, 3 and 7 are others.
    assert found.classes[1] == found.classes[2]
    assert len({found.classes[0], found.classes[1], found.classes[3]}) == 3
    assert found.positions[0] == texts[0].index("\\boxed{3}") / len(texts[0])
    assert (np.diff(found.positions[:3]) > 0).all()


def test_an_unreadable_truth_makes_nothing_right() -> None:
    found = stated_in(["The answer is n/a. \\boxed{3}"], ["n/a"])
    assert not found.correct.any()


def test_pairs_by_hand_whatever_the_order_of_rows() -> None:
    # Trace a in order: right, right, wrong 2, wrong 3, none, wrong 3, right. Trace b: wrong 5.
    classes, correct = [1, 1, 2, 3, -1, 3, 1, 5], [1, 1, 0, 0, 0, 0, 1, 0]
    traces, positions = ["a"] * 7 + ["b"], [1, 2, 3, 4, 5, 6, 7, 1]
    shuffle = np.random.default_rng(0).permutation(8)
    statements = Restatements(*(np.asarray(column)[shuffle] for column in (traces, positions, classes, correct)))
    pairs = neighbour_pairs(statements)
    assert statements.positions[pairs.rows].tolist() == [1, 2, 3, 4, 5, 6]
    assert pairs.kept_right.tolist() == [True, False, False, False, False, False]
    assert pairs.lost.tolist() == [False, True, False, False, False, False]
    assert pairs.moved.tolist() == [False, False, True, False, False, False]
    assert pairs.kept_wrong.tolist() == [False, False, False, True, True, False]
    assert pairs.found.tolist() == [False, False, False, False, False, True]
    assert pairs.changed.tolist() == [False, True, True, False, False, True]


def test_bad_columns_are_refused() -> None:
    with pytest.raises(MeasureError, match="Lengths differ"):
        Restatements(["a", "b"], [1], [1], [True])
    with pytest.raises(MeasureError, match="positions is empty"):
        Restatements([], [], [], [])
    with pytest.raises(MeasureError, match="whole numbers from -1"):
        Restatements(["a"], [1], [-2], [True])
    with pytest.raises(MeasureError, match="order is unknown"):
        neighbour_pairs(Restatements(["a", "a"], [1, 1], [1, 2], [True, False]))
    with pytest.raises(MeasureError, match="2 texts and 1 right answers"):
        stated_in(["a", "b"], ["1"])
    with pytest.raises(MeasureError, match="None of the 1 texts states"):
        stated_in(["I do not know."], ["1"])
