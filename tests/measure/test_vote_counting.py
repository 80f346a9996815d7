"""The counting behind votes against plain rational arithmetic that tracks ties one by one."""

from __future__ import annotations

import csv
from collections import Counter
from fractions import Fraction
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from breadth.base.errors import MeasureError
from breadth.measure import vote_counting
from breadth.measure.answers import answer_classes
from breadth.measure.pass_at_k import share_never_solved
from breadth.measure.validate import BoolArray
from breadth.measure.vote_counting import (
    ClassVote,
    independent_win_probabilities,
    maj_at_k,
    maj_at_k_by_problem,
    maj_at_k_from_shares,
    mean_maj_at_k,
    plurality,
    weighted_vote,
    win_probabilities,
)


def rational_chances(standing: ClassVote) -> list[Fraction]:
    """Whole-number polynomials in x with one row per number of ties: slow, exact, no integral."""
    own, rivals, silent = standing
    total = own + sum(rivals) + silent
    chances = [Fraction(0)] * (total + 1)
    for level in range(1, own + 1):
        table = [[comb(silent, j) for j in range(total + 1)]]
        for rival in rivals:
            table = times_rival(table, rival, level, total)
        for ties, row in enumerate(table):
            for votes in range(total + 1 - level):
                chances[votes + level] += Fraction(
                    comb(own, level) * row[votes], (ties + 1) * comb(total, votes + level)
                )
    return chances[1:]


def times_rival(table: list[list[int]], rival: int, level: int, total: int) -> list[list[int]]:
    result = [[0] * (total + 1) for _ in range(len(table) + 1)]
    for ties, row in enumerate(table):
        for votes, ways in enumerate(row):
            for more in range(min(rival, level, total - votes) + 1 if ways else 0):
                result[ties + (more == level)][votes + more] += ways * comb(rival, more)
    return result


STANDINGS: list[ClassVote] = [
    (6, (6, 5, 5, 5, 5, 5, 3, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1), 0),
    (12, (14, 9, 5, 4, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), 0),
    (20, (19, 1, 1, 1), 22),
    (1, (63,), 0),
    (1, (), 63),
    (64, (), 0),
]


@pytest.mark.parametrize("standing", STANDINGS, ids=str)
def test_sixty_four_samples_agree_with_rational_arithmetic_to_a_trillionth(standing: ClassVote) -> None:
    computed = win_probabilities([standing], np.arange(1, 65))[0]
    for value, expected in zip(computed.tolist(), rational_chances(standing), strict=True):
        assert abs(Fraction(value) - expected) <= Fraction(1, 10**12) * expected


def test_a_batch_gives_what_each_vote_gives_alone() -> None:
    draws = np.array([1, 2, 7, 33, 64])
    together = win_probabilities(STANDINGS, draws)
    alone = [win_probabilities([standing], draws)[0] for standing in STANDINGS]
    np.testing.assert_allclose(together, alone, rtol=1e-13)


def test_the_size_of_a_batch_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.array([1, 2, 7, 33, 64])
    expected = win_probabilities(STANDINGS, draws)
    monkeypatch.setattr(vote_counting, "_BATCH_CELLS", 1)
    np.testing.assert_allclose(win_probabilities(STANDINGS, draws), expected, rtol=1e-13)


@pytest.mark.parametrize(("classes", "each"), [(64, 1), (200, 1), (20, 10), (10, 100)])
def test_equal_classes_share_every_win(classes: int, each: int) -> None:
    # By symmetry each of L equal classes wins 1/L of the draws, whatever k: this leans on every tie being shared.
    chances = win_probabilities([(each, (each,) * (classes - 1), 0)], np.arange(1, classes * each + 1))
    np.testing.assert_allclose(chances * classes, 1.0, rtol=1e-12)


def test_many_samples_with_few_draws_stay_within_range() -> None:
    # 10,000 samples in 10 equal classes, k up to 64: C(10000, 64) is about 1e167.
    np.testing.assert_allclose(win_probabilities([(1000, (1000,) * 9, 0)], np.arange(1, 65)) * 10, 1.0, rtol=1e-12)


def test_votes_too_large_to_count_are_refused_with_what_to_do_instead() -> None:
    for total, most in ((1100, 550), (5000, 5000), (10_000, 200)):
        with pytest.raises(MeasureError, match=r"(?s)floating point.*maj_at_k_from_shares"):
            win_probabilities([(total // 2, (total - total // 2,), 0)], np.array([most]))


def test_one_draw_too_large_to_count_is_enough_to_refuse() -> None:
    with pytest.raises(MeasureError, match="floating point"):
        win_probabilities([(550, (550,), 0)], np.array([1, 550]))


def test_no_votes_give_no_rows() -> None:
    assert win_probabilities([], np.array([1, 2])).shape == (0, 2)


def test_chances_of_independent_draws_sum_to_the_chance_that_anybody_votes() -> None:
    # Somebody votes unless all k draws are silent, which has chance 0.2^k.
    draws = np.array([1, 2, 3, 10, 150])
    shares = np.array([0.5, 0.2, 0.1])
    chances = sum(independent_win_probabilities(shares, own, draws) for own in range(3))
    np.testing.assert_allclose(chances, 1 - 0.2**draws, rtol=1e-12)


def test_seven_hundred_independent_draws_stay_within_range() -> None:
    # A lone class wins unless all draws are silent.
    np.testing.assert_allclose(
        independent_win_probabilities(np.array([0.01]), 0, np.array([1, 700])), [0.01, 1 - 0.99**700], rtol=1e-11
    )


def test_independent_draws_of_one_and_two_votes_by_hand() -> None:
    # k=2, shares (.5, .3), silence .2: the first wins with 2 votes (.25), with 1 vote and a silent one (2*.5*.2 = .2),
    # and half of the ties (2*.5*.3/2 = .15): .6.
    np.testing.assert_allclose(
        independent_win_probabilities(np.array([0.5, 0.3]), 0, np.array([1, 2])), [0.5, 0.6], rtol=1e-14
    )


def enumerated(labels: list[int], values: list[Fraction], k: int) -> Fraction:
    """Look at every draw of k samples, one by one."""
    outcomes = []
    for draw in combinations(labels, k):
        votes = Counter(label for label in draw if label >= 0)
        leaders = [label for label, count in votes.items() if count == max(votes.values())]
        outcomes.append(
            sum((values[label] for label in leaders), Fraction(0)) / len(leaders) if leaders else Fraction(0)
        )
    return sum(outcomes, Fraction(0)) / len(outcomes)


def test_the_numbers_worked_out_by_hand() -> None:
    # A 4 (right), B 3, C 1. k=2: AA 6/28, ties with A: A(B or C) 16/28 of which half: (6 + 8)/28 = 1/2.
    curve = maj_at_k([4, 3, 1], [True, False, False])
    np.testing.assert_allclose(curve[[0, 1, 2, 4, 7]], [0.5, 0.5, 4 / 7, 37 / 56, 1], rtol=1e-14)
    np.testing.assert_allclose(curve[[2, 4]], [0.57143, 0.66071], atol=5e-6)


def test_more_votes_help_a_plurality_and_hurt_a_minority() -> None:
    k = [1, 3, 5, 9, 21]
    np.testing.assert_allclose(
        maj_at_k_from_shares([0.4, 0.3, 0.3], [1, 0, 0], k), [0.400, 0.424, 0.447, 0.489, 0.571], atol=5e-4
    )
    np.testing.assert_allclose(
        maj_at_k_from_shares([0.4, 0.6], [1, 0], k), [0.400, 0.352, 0.317, 0.267, 0.174], atol=5e-4
    )


def test_three_independent_votes_by_hand() -> None:
    # Two classes, k=3: p^3 + 3 p^2 q with p=.4: .064 + .288 = .352 exactly.
    assert float(maj_at_k_from_shares([0.4, 0.6], [1, 0], 3)) == pytest.approx(0.352, rel=1e-14)


small_votes = st.lists(st.integers(-1, 3), min_size=1, max_size=9)


@settings(max_examples=80, deadline=None)
@given(small_votes, st.lists(st.sampled_from([Fraction(0), Fraction(1), Fraction(1, 2)]), min_size=4, max_size=4))
def test_every_k_equals_the_enumeration_of_all_draws(labels: list[int], values: list[Fraction]) -> None:
    counts = [labels.count(label) for label in range(4)]
    curve = maj_at_k(counts, [float(value) for value in values], unparsable=labels.count(-1))
    for k, computed in enumerate(curve.tolist(), start=1):
        assert computed == pytest.approx(float(enumerated(labels, values, k)), rel=1e-12, abs=1e-300)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=12), st.integers(0, 5), st.randoms(use_true_random=False))
def test_order_of_classes_does_not_matter_and_one_vote_is_a_sample(counts: list[int], silent: int, random: Any) -> None:
    counts[0] += 1
    right = [index % 2 == 0 for index in range(len(counts))]
    curve = maj_at_k(counts, right, unparsable=silent)
    order = list(range(len(counts)))
    random.shuffle(order)
    shuffled = maj_at_k([counts[index] for index in order], [right[index] for index in order], unparsable=silent)
    np.testing.assert_allclose(shuffled, curve, rtol=1e-12)
    assert curve[0] == pytest.approx(
        sum(c for c, ok in zip(counts, right, strict=True) if ok) / (sum(counts) + silent), rel=1e-12
    )
    assert np.all((curve >= 0) & (curve <= 1 + 1e-12))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 6))
def test_if_every_class_is_right_only_silence_is_wrong(counts: list[int], silent: int) -> None:
    counts[0] += 1
    curve = maj_at_k(counts, [True] * len(counts), unparsable=silent)
    total = sum(counts) + silent
    silence = [comb(silent, k) / comb(total, k) for k in range(1, total + 1)]
    np.testing.assert_allclose(curve, 1 - np.array(silence), rtol=1e-12, atol=1e-15)


def test_draws_of_nothing_but_unparsable_samples_score_nothing() -> None:
    # One right vote among 4 samples: it is drawn with chance k/4, and then it wins.
    np.testing.assert_allclose(maj_at_k([1], [True], unparsable=3), [0.25, 0.5, 0.75, 1.0], rtol=1e-14)
    np.testing.assert_array_equal(maj_at_k([0, 0], [True, False], unparsable=3), [0, 0, 0])
    np.testing.assert_array_equal(maj_at_k([], [], unparsable=2), [0, 0])


def test_votes_from_many_samples_approach_votes_from_their_shares() -> None:
    finite = maj_at_k([4000, 3000, 3000], [1, 0, 0], [1, 3, 5, 9, 21])
    np.testing.assert_allclose(finite, maj_at_k_from_shares([0.4, 0.3, 0.3], [1, 0, 0], [1, 3, 5, 9, 21]), atol=1e-3)


def test_a_single_k_adds_no_axis() -> None:
    assert maj_at_k([4, 3, 1], [1, 0, 0], 3).shape == ()
    assert maj_at_k_from_shares([0.4, 0.6], [1, 0], 3).shape == ()
    assert maj_at_k_by_problem(["a", "a"], [0, 1], [1, 0], 2).shape == (1,)


def test_problems_are_counted_from_one_row_per_sample_in_any_order() -> None:
    problems = ["b"] * 8 + ["a"] * 3 + ["c"] * 3
    classes = [7, 7, 7, 7, 2, 2, 2, 5, -1, 0, 0, -1, -1, -1]
    correct = [1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1]
    order = np.random.default_rng(3).permutation(14)
    curves = maj_at_k_by_problem(np.array(problems)[order], np.array(classes)[order], np.array(correct)[order])
    # a: a draw of k of (none, right, right) holds a right vote: 2/3, 1, 1. b: A 4, B 3, C 1. c never votes.
    np.testing.assert_allclose(curves, np.array([[2 / 3, 1.0, 1.0], [0.5, 0.5, 4 / 7], [0.0, 0.0, 0.0]]), rtol=1e-14)
    np.testing.assert_allclose(mean_maj_at_k(problems, classes, correct, [3]), [(1 + 4 / 7) / 3], rtol=1e-14)


def test_a_class_graded_both_ways_counts_by_its_share() -> None:
    # Class 0 was graded right, wrong; it wins both 1-vote draws it is in: accuracy of one sample = 1/3 again.
    curve = maj_at_k_by_problem([0, 0, 0], [0, 0, 1], [1, 0, 0])[0]
    # k=2: {0,0} half right; {0,1} twice: half the tie times half: (1/2 + 1/4 + 1/4)/3 = 1/3. k=3: class 0 wins: 1/2.
    np.testing.assert_allclose(curve, [1 / 3, 1 / 3, 1 / 2], rtol=1e-14)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(-1, 4), min_size=6, max_size=6), min_size=1, max_size=12))
def test_many_problems_at_once_equal_each_problem_alone(groups: list[list[int]]) -> None:
    problems = np.repeat(np.arange(len(groups)), 6)
    classes = np.array(groups).ravel()
    curves = maj_at_k_by_problem(problems, classes, classes == 0)
    for curve, group in zip(curves, groups, strict=True):
        counts = [group.count(label) for label in range(5)]
        np.testing.assert_allclose(curve, maj_at_k(counts, [1, 0, 0, 0, 0], unparsable=group.count(-1)), rtol=1e-12)


def test_winners_and_shares_of_plain_and_weighted_votes() -> None:
    assert plurality([3, 1, 3, -1, 1, 2]).winners == (1, 3)
    assert plurality([3, 1, 3, -1, 1, 2]).shares == {1: 0.4, 2: 0.2, 3: 0.4}
    assert weighted_vote([0, 1, 1], [0.9, 0.4, 0.4]).winners == (0,)
    assert weighted_vote([0, 1, 1], [0.3, 0.1, 0.2]).winners == (
        0,
        1,
    )  # 0.1 + 0.2 is not 0.3 in floats, but it is a tie
    assert plurality([-1, -1]).winners == ()
    assert weighted_vote([0, 1], [0.0, 0.0]).winners == ()
    assert plurality([]).shares == {}


@given(st.lists(st.integers(-1, 4), max_size=20), st.randoms(use_true_random=False))
def test_permuting_the_samples_does_not_change_the_winners(classes: list[int], random: Any) -> None:
    shuffled = classes.copy()
    random.shuffle(shuffled)
    assert plurality(shuffled) == plurality(classes)


@pytest.mark.parametrize(
    ("counts", "correct", "k", "unparsable"),
    [
        ([], [], None, 0),
        ([0, 0], [1, 0], None, 0),
        ([3, -1], [1, 0], None, 0),
        ([3, 1], [1, 0], None, -1),
        ([3, 1], [1], None, 0),
        ([3, 1], [1, 2], None, 0),
        ([3, 1], [1, float("nan")], None, 0),
        ([3, 1], [1, 0], [5], 0),
        ([3, 1], [1, 0], [0], 0),
        ([2.5, 1], [1, 0], None, 0),
        ([[3, 1]], [[1, 0]], None, 0),
    ],
)
def test_counts_it_must_refuse(counts: list[int], correct: list[int], k: list[int] | None, unparsable: int) -> None:
    with pytest.raises(MeasureError):
        maj_at_k(counts, correct, k, unparsable)


@pytest.mark.parametrize(
    ("problems", "classes", "correct", "k"),
    [
        ([], [], [], None),
        ([0, 0], [0], [1, 0], None),
        ([0, 0], [0, -2], [1, 0], None),
        ([0, 0], [0, 0.5], [1, 0], None),
        ([0, 0], [0, 1], [1, float("nan")], None),
        ([0, 0, 1], [0, 1, 1], [1, 0, 0], [2]),
    ],
)
def test_columns_it_must_refuse(
    problems: list[int], classes: list[int], correct: list[int], k: list[int] | None
) -> None:
    with pytest.raises(MeasureError):
        mean_maj_at_k(problems, classes, correct, k)


@pytest.mark.parametrize(
    ("shares", "k"),
    [([0.7, 0.7], [1]), ([-0.1, 0.5], [1]), ([float("nan"), 0.1], [1]), ([0.4, 0.6], [701]), ([0.4, 0.6], [0])],
)
def test_shares_it_must_refuse(shares: list[float], k: list[int]) -> None:
    with pytest.raises(MeasureError):
        maj_at_k_from_shares(shares, [1, 0], k)


def test_weights_it_must_refuse() -> None:
    for weights in ([1.0, -0.5], [1.0, float("nan")], [1.0, float("inf")], [1.0]):
        with pytest.raises(MeasureError):
            weighted_vote([0, 1], weights)


VOTES = [
    "consol_gpt4omini_gsm8k_vote40",
    "consol_o3mini_low_aime24_vote40",
    "consol_o3mini_high_aime24_vote40",
    "qwen25math_rm_example_math100x8",
    "openai_gsm_4models",
]


def published(fixtures: Path, name: str) -> tuple[float, float, float]:
    """Mean, majority and any-correct accuracy from the table that came with the votes."""
    lines = (fixtures / "votes" / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter="|")]
    header = next(row for row in rows if "mean acc" in row)
    row = next(row for row in rows if f"{name}.parquet" in row)
    mean, majority, some = (float(row[header.index(title)]) for title in ("mean acc", "majority acc", "any-correct"))
    return mean, majority, some


def read_votes(fixtures: Path, name: str) -> tuple[NDArray[Any], list[str | None], BoolArray]:
    from pyarrow import parquet

    table = parquet.read_table(fixtures / "votes" / f"{name}.parquet", columns=["question_id", "answer", "correct"])
    return (
        np.array(table["question_id"].to_pylist()),
        table["answer"].to_pylist(),
        np.array(table["correct"].to_pylist()),
    )


@pytest.mark.parametrize("name", VOTES)
def test_real_votes_give_the_published_accuracies(fixtures: Path, name: str) -> None:
    problems, answers, correct = read_votes(fixtures, name)
    mean, majority, some = published(fixtures, name)
    ids, rows = np.unique(problems, return_inverse=True)
    classes = np.full(len(answers), -1)
    tied, merged, first_counted = 0, 0, 0
    for row in range(len(ids)):
        where = np.flatnonzero(rows == row)
        texts = [answers[index] for index in where]
        classes[where] = answer_classes(texts)
        right, wrong = set(classes[where][correct[where]].tolist()), set(classes[where][~correct[where]].tolist())
        assert not right & wrong, "an answer key joins a right answer with a wrong one"
        winners = plurality(classes[where]).winners
        tied += len(winners) > 1
        merged += len(set(texts)) > len(right | wrong)
        first_counted += min(winners) in right  # classes are numbered by first appearance
    curves = maj_at_k_by_problem(problems, classes, correct, [1, int(np.bincount(rows).min())])
    assert curves[:, 0].mean() == pytest.approx(mean, abs=5e-5)
    assert 1 - share_never_solved(np.bincount(rows), np.bincount(rows, correct)) == pytest.approx(some, abs=5e-5)
    # The table gives ties to the first answer counted, and counts spellings ('3,000' and '3000') apart.
    assert abs(first_counted / len(ids) - majority) <= merged / len(ids) + 5e-5
    # Here ties are shared: each tied question can move the mean by at most 1/questions.
    assert abs(curves[:, 1].mean() - first_counted / len(ids)) <= tied / len(ids) + 1e-12


def test_a_batch_is_filled_to_its_size_and_not_beyond() -> None:
    # Drawing 3 of (2; 2): 2 levels, and of the rival's 2 votes half: 3 rows of 4 numbers. 32,768 hold 2,730 of them.
    batches = list(vote_counting._batches([(2, (2,), 0)] * 3000, 3))
    assert [len(batch) for batch in batches] == [2730, 270]
    assert sorted(index for batch in batches for index in batch) == list(range(3000))
    # Drawing 1 of (1; none): 1 row of 2 numbers, so exactly 16,384 fit.
    assert [len(batch) for batch in vote_counting._batches([(1, (), 0)] * 16_385, 1)] == [16_384, 1]
    assert list(vote_counting._batches([], 1)) == []


def test_votes_and_silence_by_hand() -> None:
    # Two right, one wrong, one silent. k = 1: 2/4. k = 2 of the 6 pairs: right wins 1 + 2, and half of the 2 ties.
    assert maj_at_k([2, 1], [1, 0], unparsable=1)[:2].tolist() == pytest.approx([1 / 2, 4 / 6])
    assert maj_at_k([2, 1], [1, 0], 4, unparsable=1) == pytest.approx(1.0)
    assert maj_at_k([0, 1], [1, 0], 1) == 0.0
    assert maj_at_k([1], [1], 1) == 1.0
    assert maj_at_k([], [], 1, unparsable=1) == 0.0


def test_the_shares_may_add_up_to_one_and_lack_some() -> None:
    assert maj_at_k_from_shares([0.6, 0.4], [1, 0], 1) == pytest.approx(0.6)
    assert maj_at_k_from_shares([0.6, 0.2], [1, 0], 2) == pytest.approx(0.36 + 2 * 0.6 * 0.2 + 0.6 * 0.2)
    assert maj_at_k_from_shares([1.0], [1], 700) == pytest.approx(1.0)
    with pytest.raises(MeasureError, match="too large"):
        maj_at_k_from_shares([1.0], [1], 701)


def test_weights_within_a_trillionth_are_tied() -> None:
    assert weighted_vote([0, 1], [1.0, 1.0 - 1e-13]).winners == (0, 1)
    assert weighted_vote([0, 1], [1.0, 1.0 - 1e-11]).winners == (0,)
    assert weighted_vote([-1, 3], [9.0, 1.0]).winners == (3,)
    assert weighted_vote([0, 1], [0.0, 5e-324]).winners == (1,), "the smallest weight that a float holds"
    assert weighted_vote([0, 1], [0.0, 0.0]).winners == ()


def test_problems_of_a_single_class_are_kept_apart() -> None:
    assert maj_at_k_by_problem([0, 1, 2, 2], [0, 0, 0, 0], [1, 0, 1, 0], 1).tolist() == [1.0, 0.0, 0.5]
    assert maj_at_k_by_problem([0, 1], [-1, -1], [1, 1], 1).tolist() == [0.0, 0.0]
    assert maj_at_k_by_problem([0, 1, 1], [-1, 0, -1], [1, 1, 0], 1).tolist() == [0.0, 0.5]
