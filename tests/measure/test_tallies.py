"""Answers counted per group, and rarefaction against enumeration of every draw."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.tallies import tally


def test_counts_by_hand_in_any_row_order() -> None:
    counted = tally(["b", "a", "b", "b", "a", "c"], [5, 0, 5, 9, -1, -1])
    assert counted.groups.tolist() == ["a", "b", "c"]
    assert counted.samples.tolist() == [2, 3, 1]
    assert counted.parsed.tolist() == [1, 3, 0]
    assert counted.distinct.tolist() == [1, 2, 0]
    assert counted.rows.tolist() == [1, 0, 1, 1, 0, 2]
    pairs = zip(counted.owners.tolist(), counted.answers.tolist(), counted.counts.tolist(), strict=True)
    assert sorted(pairs) == [(0, 0, 1), (1, 5, 2), (1, 9, 1)]


def test_rarefaction_by_hand() -> None:
    # 7,7,7,5,9,5,7,3 in 4 of 8 draws, C(8,4) = 70 ways. The 7s are missed in C(4,4) = 1, the 5s in C(6,4) = 15, 9 and 3 in
    # C(7,4) = 35 each: 4 - (1 + 15 + 35 + 35) / 70.
    counted = tally([0] * 8, [7, 7, 7, 5, 9, 5, 7, 3])
    assert counted.expected_distinct(4)[0] == pytest.approx(4 - 86 / 70, abs=1e-12)
    assert counted.expected_distinct(1)[0] == pytest.approx(1, abs=1e-12)
    assert counted.expected_distinct(8)[0] == pytest.approx(4, abs=1e-12)
    assert counted.expected_distinct(0)[0] == 0


def test_an_unparsable_sample_is_drawn_and_brings_nothing() -> None:
    # Draw 2 of {1, 2, none}: {1,2} brings two answers, {1,none} and {2,none} one each: 4 / 3.
    assert tally([0, 0, 0], [1, 2, -1]).expected_distinct(2)[0] == pytest.approx(4 / 3)


def test_draws_may_differ_per_group_and_too_many_give_nan() -> None:
    counted = tally([0, 0, 1, 1, 1], [1, 2, 1, 2, 3])
    assert counted.expected_distinct([2, 1]).tolist() == pytest.approx([2, 1])
    assert counted.expected_distinct(3).tolist() == pytest.approx([np.nan, 3], nan_ok=True)
    with pytest.raises(MeasureError, match="-1 draws"):
        counted.expected_distinct(-1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-1, 3), min_size=1, max_size=8), st.data())
def test_rarefaction_agrees_with_every_possible_draw(classes: list[int], data: st.DataObject) -> None:
    draws = data.draw(st.integers(0, len(classes)))
    seen = [len({label for label in drawn if label >= 0}) for drawn in combinations(classes, draws)]
    assert tally([0] * len(classes), classes).expected_distinct(draws)[0] == pytest.approx(sum(seen) / len(seen))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 4)), min_size=1, max_size=30))
def test_names_of_answers_and_order_of_rows_do_not_matter(rows: list[tuple[int, int]]) -> None:
    groups, classes = zip(*rows, strict=True)
    renamed = [label if label < 0 else 10**12 - 7 * label for label in classes]
    plain = tally(groups, classes)
    other = tally(groups[::-1], renamed[::-1])
    assert plain.distinct.tolist() == other.distinct.tolist()
    assert plain.expected_distinct(1).tolist() == pytest.approx(other.expected_distinct(1).tolist())


def test_rarefaction_holds_for_huge_groups() -> None:
    # Half of a million samples drawn: an answer given once is seen with chance 1/2, one given twice with 1 - (n/2 - 1)/(2(n - 1)).
    size = 1_000_000
    classes = np.zeros(size, dtype=np.int64)
    classes[:3] = [1, 2, 2]
    expected = 1 + 0.5 + 1 - (size / 2 - 1) / (2 * (size - 1))
    assert tally(np.zeros(size, dtype=int), classes).expected_distinct(size // 2)[0] == pytest.approx(expected, abs=1e-6)


def test_a_million_rows_are_counted() -> None:
    rng = np.random.default_rng(0)
    groups, classes = rng.integers(0, 60_000, 1_000_000), rng.integers(-1, 1_000_000, 1_000_000)
    counted = tally(groups, classes)
    assert counted.samples.sum() == 1_000_000
    # Among a million answers, four draws are all but surely different: 4 (1 - 1/1,000,001) of them parse.
    assert np.nanmean(counted.expected_distinct(4)) == pytest.approx(4, abs=0.001)


@pytest.mark.parametrize(
    ("groups", "classes", "message"),
    [
        ([], [], "not empty"),
        ([1, 2], [1], "equal length"),
        ([[1]], [[1]], "columns"),
        ([1], [0.5], "whole numbers"),
        ([1], [-2], "smallest -2"),
    ],
)
def test_bad_columns_are_refused(groups: object, classes: object, message: str) -> None:
    with pytest.raises(MeasureError, match=message):
        tally(np.asarray(groups), np.asarray(classes))
