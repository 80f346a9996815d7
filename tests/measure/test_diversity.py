"""Diversity of answers: hand-worked numbers, published group means, and what must never count as an answer."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.answers import answer_classes
from breadth.measure.diversity import (
    ArmSamples,
    EntropyEstimator,
    answer_entropy,
    count_answers,
    effective_answers,
    expected_distinct,
    group_diversity,
    split_by_solved,
    transfer_gap,
)
from breadth.measure.validate import FloatArray, IntArray


def test_counts_by_hand_in_any_row_order() -> None:
    counted = count_answers(["b", "a", "b", "b", "a", "c"], [5, 0, 5, 9, -1, -1])
    assert counted.groups.tolist() == ["a", "b", "c"]
    assert counted.samples.tolist() == [2, 3, 1]
    assert counted.parsable.tolist() == [1, 3, 0]
    assert counted.distinct.tolist() == [1, 2, 0]
    assert counted.rows.tolist() == [1, 0, 1, 1, 0, 2]
    pairs = zip(counted.owners.tolist(), counted.answers.tolist(), counted.counts.tolist(), strict=True)
    assert sorted(pairs) == [(0, 0, 1), (1, 5, 2), (1, 9, 1)]


def test_rarefaction_by_hand() -> None:
    # 7,7,7,5,9,5,7,3 in 4 of 8 draws, C(8,4) = 70 ways. The 7s are missed in C(4,4) = 1, the 5s in C(6,4) = 15, 9 and 3
    # in
    # C(7,4) = 35 each: 4 - (1 + 15 + 35 + 35) / 70.
    counted = count_answers([0] * 8, [7, 7, 7, 5, 9, 5, 7, 3])
    assert counted.expected_distinct(4)[0] == pytest.approx(4 - 86 / 70, abs=1e-12)
    assert counted.expected_distinct(1)[0] == pytest.approx(1, abs=1e-12)
    assert counted.expected_distinct(8)[0] == pytest.approx(4, abs=1e-12)
    assert counted.expected_distinct(0)[0] == 0


def test_an_unparsable_sample_is_drawn_and_brings_nothing() -> None:
    # Draw 2 of {1, 2, none}: {1,2} brings two answers, {1,none} and {2,none} one each: 4 / 3.
    assert count_answers([0, 0, 0], [1, 2, -1]).expected_distinct(2)[0] == pytest.approx(4 / 3)


def test_draws_may_differ_per_group_and_too_many_give_nan() -> None:
    counted = count_answers([0, 0, 1, 1, 1], [1, 2, 1, 2, 3])
    assert counted.expected_distinct([2, 1]).tolist() == pytest.approx([2, 1])
    assert counted.expected_distinct(3).tolist() == pytest.approx([np.nan, 3], nan_ok=True)
    with pytest.raises(MeasureError, match="-1 draws"):
        counted.expected_distinct(-1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-1, 3), min_size=1, max_size=8), st.data())
def test_rarefaction_agrees_with_every_possible_draw(classes: list[int], data: st.DataObject) -> None:
    draws = data.draw(st.integers(0, len(classes)))
    seen = [len({label for label in drawn if label >= 0}) for drawn in combinations(classes, draws)]
    assert count_answers([0] * len(classes), classes).expected_distinct(draws)[0] == pytest.approx(
        sum(seen) / len(seen)
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 4)), min_size=1, max_size=30))
def test_names_of_answers_and_order_of_rows_do_not_matter(rows: list[tuple[int, int]]) -> None:
    groups, classes = zip(*rows, strict=True)
    renamed = [label if label < 0 else 10**12 - 7 * label for label in classes]
    plain = count_answers(groups, classes)
    other = count_answers(groups[::-1], renamed[::-1])
    assert plain.distinct.tolist() == other.distinct.tolist()
    assert plain.expected_distinct(1).tolist() == pytest.approx(other.expected_distinct(1).tolist())


def test_rarefaction_holds_for_huge_groups() -> None:
    # Half of a million samples drawn: an answer given once is seen with chance 1/2, one given twice with 1 - (n/2 -
    # 1)/(2(n - 1)).
    size = 1_000_000
    classes = np.zeros(size, dtype=np.int64)
    classes[:3] = [1, 2, 2]
    expected = 1 + 0.5 + 1 - (size / 2 - 1) / (2 * (size - 1))
    assert count_answers(np.zeros(size, dtype=int), classes).expected_distinct(size // 2)[0] == pytest.approx(
        expected, abs=1e-6
    )


def test_a_million_rows_are_counted() -> None:
    rng = np.random.default_rng(0)
    groups, classes = rng.integers(0, 60_000, 1_000_000), rng.integers(-1, 1_000_000, 1_000_000)
    counted = count_answers(groups, classes)
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
        count_answers(np.asarray(groups), np.asarray(classes))


OUTCOMES = [7, 7, 7, 5, 9, 5, 7, 3]
CLASSES = st.lists(st.integers(-1, 4), min_size=1, max_size=12)
ESTIMATORS: list[EntropyEstimator] = ["plug-in", "miller-madow", "chao-shen"]


def test_entropy_by_hand() -> None:
    # Shares 1/2, 1/4, 1/8, 1/8: (1/2 + 2/4 + 3/8 + 3/8) ln 2 = 1.75 ln 2.
    assert answer_entropy(OUTCOMES, "plug-in") == pytest.approx(1.75 * math.log(2), abs=1e-12)
    assert effective_answers(OUTCOMES, "plug-in") == pytest.approx(3.363586, abs=1e-6)
    # Miller-Madow adds (4 - 1) / 16.
    assert answer_entropy(OUTCOMES) == pytest.approx(1.75 * math.log(2) + 0.1875, abs=1e-12)
    assert effective_answers(OUTCOMES) == pytest.approx(math.exp(1.75 * math.log(2) + 0.1875), abs=1e-9)


def test_chao_shen_by_hand() -> None:
    # Two of eight answers are singletons: coverage 3/4, shares 3/8, 3/16, 3/32, 3/32.
    shares = np.array([3 / 8, 3 / 16, 3 / 32, 3 / 32])
    expected = sum(-p * math.log(p) / (1 - (1 - p) ** 8) for p in shares)
    assert answer_entropy(OUTCOMES, "chao-shen") == pytest.approx(expected, abs=1e-12)
    # Only singletons: coverage 1/8, eight shares of 1/64.
    alone = 8 * (math.log(64) / 64) / (1 - (63 / 64) ** 8)
    assert answer_entropy(list(range(8)), "chao-shen") == pytest.approx(alone, abs=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_one_answer_has_no_entropy_and_no_answer_has_none_to_measure(estimator: EntropyEstimator) -> None:
    assert answer_entropy([4] * 8, estimator) == 0
    assert effective_answers([4], estimator) == 1
    assert math.isnan(answer_entropy([-1, -1], estimator))
    assert math.isnan(effective_answers([-1, -1], estimator))


def test_correction_takes_back_bias_in_the_mean_over_groups() -> None:
    # 16 samples of 20 equally likely answers: the truth is ln 20 = 2.9957.
    rng = np.random.default_rng(0)
    rows, classes = np.repeat(np.arange(2000), 16), rng.integers(0, 20, 32_000)
    plug_in, miller_madow, chao_shen = (
        group_diversity(rows, classes, estimator=estimator).entropy.mean() for estimator in ESTIMATORS
    )
    assert plug_in == pytest.approx(math.log(20) - 0.68, abs=0.02)
    assert miller_madow == pytest.approx(math.log(20) - 0.36, abs=0.02)
    assert abs(chao_shen - math.log(20)) < 0.12


def test_distinct_and_expected_distinct() -> None:
    assert group_diversity([0] * len(OUTCOMES), OUTCOMES).distinct.tolist() == [4]
    assert group_diversity([0, 0], [-1, -1]).distinct.tolist() == [0]
    assert expected_distinct(OUTCOMES, 4) == pytest.approx(4 - 86 / 70)
    with pytest.raises(MeasureError, match="9 draws were asked for, but the group has 8"):
        expected_distinct(OUTCOMES, 9)


def test_groups_are_measured_as_if_alone() -> None:
    groups = ["a"] * 8 + ["b"] * 4 + ["c"] * 4
    classes = [*OUTCOMES, 1, 1, -1, 2, -1, -1, -1, -1]
    measured = group_diversity(groups, classes)
    assert measured.sample_size == 4
    assert measured.samples.tolist() == [8, 4, 4]
    assert measured.parsed.tolist() == [8, 3, 0]
    assert measured.distinct.tolist() == [4, 2, 0]
    assert measured.entropy.tolist() == pytest.approx(
        [answer_entropy(OUTCOMES), answer_entropy([1, 1, 2]), math.nan], nan_ok=True
    )
    assert measured.expected_distinct.tolist() == pytest.approx([4 - 86 / 70, 2, 0])


def test_unequal_groups_of_one_policy_compare_fairly_only_at_equal_size() -> None:
    rng = np.random.default_rng(3)
    sizes = np.where(np.arange(600) < 300, 8, 32)
    rows = np.repeat(np.arange(600), sizes)
    measured = group_diversity(rows, rng.integers(0, 12, len(rows)), sample_size=8)
    small, large = measured.distinct[:300].mean(), measured.distinct[300:].mean()
    assert large - small > 4
    # 12 (1 - (11/12)^8) = 6.02 distinct answers in 8 draws, whatever the group's size.
    assert measured.expected_distinct[:300].mean() == pytest.approx(6.02, abs=0.2)
    assert measured.expected_distinct[300:].mean() == pytest.approx(6.02, abs=0.2)


def _groups_with_mean(groups: int, total: int, size: int = 8) -> IntArray:
    """Return groups x size classes whose distinct answers sum to ``total``, as evenly as can be."""
    distinct = np.full(groups, total // groups)
    distinct[: total % groups] += 1
    classes: IntArray = np.minimum(np.arange(size)[None, :], distinct[:, None] - 1)
    return classes


def test_published_means_of_solved_and_unsolved_groups() -> None:
    # arXiv 2509.06941, GRPO: 2.279 on solved, 4.805 on unsolved, 2.883 over all groups. The three agree only if 76.09 %
    # of the
    # groups are solved, so 7,609 groups of 8 with 17,341 distinct answers and 2,391 with 11,489 must give all three.
    classes = np.concatenate([_groups_with_mean(7609, 17341), _groups_with_mean(2391, 11489)])
    correct = (classes == 0) & (np.arange(10_000)[:, None] < 7609)
    split = split_by_solved(np.repeat(np.arange(10_000), 8), classes.ravel(), correct.ravel())
    assert round(split.solved.distinct.value, 3) == 2.279
    assert round(split.unsolved.distinct.value, 3) == 4.805
    assert round(split.every.distinct.value, 3) == 2.883
    assert (split.solved.groups, split.unsolved.groups, split.every.groups) == (7609, 2391, 10_000)
    # 721 of 1,000 groups have 2 and the rest 3: standard error sqrt(.721 * .279 / 7609) = 0.00514, so about 0.0101 to
    # each side.
    assert (split.solved.distinct.high - split.solved.distinct.low) / 2 == pytest.approx(1.96 * 0.00514, rel=0.1)


def test_split_by_hand_with_a_short_group_and_failed_parsing() -> None:
    groups = [1, 1, 1, 1, 2, 2, 2, 2, 3, 3]
    classes = [0, 0, 5, 5, 0, 1, 2, -1, 4, 4]
    correct = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    split = split_by_solved(groups, classes, correct)
    assert split.sample_size == 4
    assert split.solved.distinct.value == 2
    assert split.unsolved.distinct.value == 3
    assert (split.unsolved.groups, split.unsolved.left_out) == (2, 1)
    # Group 2: ln 3 + 2/6; group 3: one answer.
    assert split.unsolved.effective.value == pytest.approx((3 * math.exp(1 / 3) + 1) / 2)
    assert split.unsolved.parse_rate.value == pytest.approx(5 / 6)
    assert split.every.parse_rate.value == pytest.approx(9 / 10)


def test_a_run_with_nothing_solved_says_so() -> None:
    split = split_by_solved([1, 1, 2, 2], [0, 1, 0, 0], [0, 0, 0, 0])
    assert split.solved.groups == 0
    assert math.isnan(split.solved.distinct.value)
    assert split.unsolved.distinct.value == 1.5


def test_intervals_resample_problems_not_groups() -> None:
    rng = np.random.default_rng(0)
    distinct = np.repeat(rng.integers(1, 8, 30), 12)
    classes = np.minimum(np.arange(8)[None, :], distinct[:, None] - 1).ravel()
    groups, problems = np.repeat(np.arange(360), 8), np.repeat(np.arange(30), 12 * 8)
    naive = split_by_solved(groups, classes, np.zeros(2880)).unsolved.distinct
    honest = split_by_solved(groups, classes, np.zeros(2880), problems=problems).unsolved.distinct
    assert honest.value == naive.value
    assert honest.high - honest.low > 2.5 * (naive.high - naive.low)


def test_a_group_of_two_problems_is_refused() -> None:
    with pytest.raises(MeasureError, match="more than one problem"):
        split_by_solved([1, 1], [0, 1], [0, 0], problems=["x", "y"])


def test_bad_outcomes_and_unknown_estimators_are_refused() -> None:
    with pytest.raises(MeasureError, match="NaN or infinite"):
        split_by_solved([1, 1], [0, 1], [0, math.nan])
    with pytest.raises(MeasureError, match="Lengths differ"):
        split_by_solved([1, 1], [0, 1], [0])
    with pytest.raises(MeasureError, match="no entropy estimator 'jackknife'"):
        answer_entropy([1], "jackknife")  # type: ignore[arg-type]  # the wrong name is the point
    with pytest.raises(MeasureError, match="not empty"):
        answer_entropy([])


@settings(max_examples=80, deadline=None)
@given(CLASSES)
def test_bounds_of_every_measure(classes: list[int]) -> None:
    parsed = [label for label in classes if label >= 0]
    distinct = int(group_diversity([0] * len(classes), classes).distinct[0])
    assert distinct == len(set(parsed))
    if parsed:
        plug_in = effective_answers(classes, "plug-in")
        assert 1 - 1e-12 <= plug_in <= distinct + 1e-9
        assert plug_in <= effective_answers(classes) + 1e-12 <= 1.65 * len(parsed) + 1e-9
        assert answer_entropy(classes, "chao-shen") >= 0
    assert expected_distinct(classes, len(classes)) == pytest.approx(distinct)


@settings(max_examples=40, deadline=None)
@given(CLASSES, st.integers(1, 3))
def test_failed_parses_change_no_entropy(classes: list[int], failures: int) -> None:
    assert answer_entropy(classes) == pytest.approx(answer_entropy(classes + [-1] * failures), nan_ok=True)


def test_a_million_rows_are_measured() -> None:
    rng = np.random.default_rng(0)
    groups, classes = np.repeat(np.arange(62_500), 16), rng.integers(-1, 50, 1_000_000)
    measured = group_diversity(groups, classes)
    # 50 (1 - (50/51)^16) = 13.58 of 50 answers in 16 draws, each failing to parse with chance 1/51.
    assert measured.distinct.mean() == pytest.approx(13.58, abs=0.03)


def test_real_votes(fixtures: Path) -> None:
    votes = pd.read_parquet(fixtures / "votes" / "consol_gpt4omini_gsm8k_vote40.parquet")
    classes = answer_classes(votes["answer"].astype(object).where(votes["answer"].notna(), None))
    split = split_by_solved(votes["question_id"].to_numpy(), classes, votes["correct"].to_numpy())
    # The source reports that 98.33 % of the 1,318 questions have a right answer among their 40.
    assert split.every.groups == 1318
    assert round(split.solved.groups / split.every.groups, 4) == 0.9833
    assert split.sample_size == 40
    told = votes.assign(key=classes)[classes >= 0].groupby("question_id")["key"]
    distinct = told.nunique()
    solved = votes.groupby("question_id")["correct"].any().reindex(distinct.index)
    assert (votes.groupby("question_id").size() == 40).all()
    assert split.solved.distinct.value == pytest.approx(distinct[solved].mean())
    assert split.unsolved.distinct.value == pytest.approx(distinct[~solved].mean())
    effective = [math.exp(answer_entropy(group.to_numpy())) for _, group in told]
    assert split.every.effective.value == pytest.approx(np.mean(effective))
    # Unsolved questions draw more answers than solved ones.
    assert split.unsolved.distinct.value > 1.5 * split.solved.distinct.value


def arm(answers: dict[str, list[int]], right: int = 99) -> ArmSamples:
    """Return an arm from problem -> answers, where the answer 99 is right."""
    rows = [(problem, answer) for problem, given_answers in answers.items() for answer in given_answers]
    problems, classes = zip(*rows, strict=True)
    return ArmSamples(np.array(problems), np.array(classes), np.array(classes) == right)


def policy(shares: FloatArray, samples: int, seed: int, problems: int = 200) -> ArmSamples:
    """Return samples of one answer distribution on many problems; answer 0 is right."""
    classes = np.random.default_rng(seed).choice(len(shares), size=problems * samples, p=shares)
    return ArmSamples(np.repeat(np.arange(problems), samples), classes, classes == 0)


def test_gap_by_hand() -> None:
    # a: both unsolved, 3 against 1 distinct; b: only the trained arm solves; c: both unsolved, 2 against 2.
    base = arm({"a": [1, 2, 3], "b": [1, 2, 3], "c": [1, 1, 2]})
    trained = arm({"a": [1, 1, 1], "b": [99, 99, 1], "c": [4, 5, 5]})
    found = transfer_gap(trained, base)
    assert (found.sample_size, found.left_out, found.every.problems) == (3, 0, 3)
    assert found.every.base.distinct.value == pytest.approx(8 / 3)
    assert found.every.trained.distinct.value == pytest.approx(5 / 3)
    assert found.every.trained.solved.value == pytest.approx(1 / 3)
    assert found.every.base.solved.value == 0
    # Own sets: base (3 + 3 + 2) / 3, trained (1 + 2) / 2. Shared: a and c, (2 + 0) / 2.
    assert found.every.base.distinct_unsolved.value == pytest.approx(8 / 3)
    assert found.every.trained.distinct_unsolved.value == pytest.approx(3 / 2)
    assert found.every.own.value == pytest.approx(8 / 3 - 3 / 2)
    assert found.every.shared.value == pytest.approx(1)
    assert found.every.shared_parsed.value == pytest.approx(1)
    assert found.held_out is None
    assert found.trained_on is None


def test_an_arm_with_more_samples_is_rarefied_not_cut() -> None:
    # Base has 3 samples on a problem, trained 2. Draw 2 of {1, 2, right}: {1,2} is unsolved with 2 answers, the other
    # two draws are
    # solved: weight 1/3, 2 answers given unsolved. On b every draw of {1,1,2} is unsolved, with 2 answers in two draws
    # of three.
    base = arm({"a": [1, 2, 99], "b": [1, 1, 2]})
    trained = arm({"a": [1, 1], "b": [1, 2]})
    found = transfer_gap(trained, base)
    assert found.sample_size == 2
    assert found.every.base.solved.value == pytest.approx((2 / 3 + 0) / 2)
    own_base = (1 / 3 * 2 + 1 * 5 / 3) / (1 / 3 + 1)
    assert found.every.base.distinct_unsolved.value == pytest.approx(own_base)
    assert found.every.own.value == pytest.approx(own_base - 1.5)
    assert found.every.shared.value == pytest.approx((1 / 3 * (2 - 1) + 1 * (5 / 3 - 2)) / (4 / 3))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([-1, 1, 2, 99]), min_size=2, max_size=5), min_size=1, max_size=3),
    st.integers(1, 2),
)
def test_rarefaction_agrees_with_every_subsample(problems: list[list[int]], draws: int) -> None:
    base = {f"p{place}": answers for place, answers in enumerate(problems)}
    found = transfer_gap(arm({name: [1, 1] for name in base}), arm(base), sample_size=draws).every.base
    subsets = [[set(drawn) for drawn in combinations(answers, draws)] for answers in problems]
    unsolved = [fmean(99 not in drawn for drawn in drawns) for drawns in subsets]
    spread = [fmean(len(drawn - {-1}) * (99 not in drawn) for drawn in drawns) for drawns in subsets]
    assert found.solved.value == pytest.approx(1 - fmean(unsolved))
    expected = sum(spread) / sum(unsolved) if sum(unsolved) else math.nan
    assert found.distinct_unsolved.value == pytest.approx(expected, nan_ok=True)


def test_the_same_policy_twice_has_no_gap() -> None:
    shares = np.array([0.02, *[0.098] * 10])
    found = transfer_gap(policy(shares, 8, seed=1), policy(shares, 8, seed=2)).every
    for gap in (found.own, found.shared, found.shared_parsed):
        assert 0 in gap
        assert abs(gap.value) < 0.3
        assert gap.high - gap.low < 1


def test_equal_arms_have_exactly_no_gap() -> None:
    samples = policy(np.array([0.05, *[0.095] * 10]), 8, seed=1)
    found = transfer_gap(samples, samples).every
    assert found.own.value == found.shared.value == found.shared_parsed.value == 0
    assert 0 in found.shared


def test_one_answer_for_everything_is_the_largest_gap_there_is() -> None:
    base = arm({f"p{place}": list(range(1, 9)) for place in range(20)})
    zero = arm({f"p{place}": [0] * 8 for place in range(20)})
    found = transfer_gap(zero, base).every
    assert found.trained.distinct.value == found.trained.distinct_unsolved.value == 1
    assert found.base.distinct_unsolved.value == 8
    # Of 8 samples none can differ more: 8 - 1.
    assert found.shared.value == found.own.value == 7


def test_more_samples_of_the_same_policy_make_no_gap() -> None:
    shares = np.array([0.01, *[0.0495] * 20])
    raw = [
        len(np.unique(samples.classes[samples.problems == 0]))
        for samples in (policy(shares, 8, 1), policy(shares, 64, 2))
    ]
    assert raw[1] - raw[0] > 5
    found = transfer_gap(policy(shares, 8, seed=1), policy(shares, 64, seed=2)).every
    assert 0 in found.shared
    assert abs(found.shared.value) < 0.3


def test_failing_to_parse_is_reported_and_can_be_taken_out() -> None:
    shares = np.array([0.0, *[0.1] * 10])
    trained, base = policy(shares, 16, seed=1), policy(shares, 16, seed=2)
    lost = np.random.default_rng(0).random(len(trained.classes)) < 0.5
    failing = ArmSamples(trained.problems, np.where(lost, -1, trained.classes), trained.correct)
    found = transfer_gap(failing, base).every
    assert found.trained.parse_rate.value == pytest.approx(0.5, abs=0.02)
    assert found.base.parse_rate.value == 1
    # The policies are equal: the plain gap is all parsing, and at equally many parsed answers it is gone.
    assert found.shared.low > 1.5
    assert 0 in found.shared_parsed
    assert abs(found.shared_parsed.value) < 0.2


def test_harder_leftovers_hide_a_loss_from_the_published_gap() -> None:
    # Easy problems (2 answers) are solved by training; hard ones (8 answers) lose two answers. The published gap
    # compares
    # hard leftovers with a mix and is negative; on the shared set the loss of two shows.
    base = arm({f"easy{i}": [1, 2] * 4 for i in range(30)} | {f"hard{i}": list(range(8)) for i in range(10)})
    trained = arm({f"easy{i}": [99] * 8 for i in range(30)} | {f"hard{i}": [0, 0, 0, 1, 2, 3, 4, 5] for i in range(10)})
    found = transfer_gap(trained, base).every
    assert found.own.value == pytest.approx((30 * 2 + 10 * 8) / 40 - 6)
    assert found.own.value < 0
    assert found.shared.value == 2


def test_held_out_problems_apart() -> None:
    base = arm({"a": [1, 2], "b": [1, 2], "c": [1, 2]})
    trained = arm({"a": [1, 1], "b": [1, 2], "c": [1, 1]})
    found = transfer_gap(trained, base, held_out=["b", "c"])
    assert found.held_out is not None
    assert found.trained_on is not None
    assert found.held_out.problems == 2
    assert found.held_out.shared.value == 0.5
    assert found.trained_on.shared.value == 1
    assert found.every.shared.value == pytest.approx(2 / 3)
    none = transfer_gap(trained, base, held_out=[])
    assert none.held_out is None
    assert none.trained_on == none.every


def test_formatting_of_answers_changes_nothing() -> None:
    plain = ["1/2", "1/2", "3", "4"]
    dressed = ["0.5", "\\frac{1}{2}", "3.0", "$4$"]
    problems, wrong = np.zeros(4, dtype=int), np.zeros(4, dtype=bool)
    base = ArmSamples(problems, answer_classes(["1", "2", "3", "4"]), wrong)
    one, other = (transfer_gap(ArmSamples(problems, answer_classes(form), wrong), base) for form in (plain, dressed))
    assert one.every.trained.distinct.value == other.every.trained.distinct.value == 3
    assert one.every.shared.value == other.every.shared.value == 1


def test_problems_of_one_arm_only_and_too_small_ones_are_left_out() -> None:
    base = arm({"a": [1, 2, 3], "b": [1, 2, 3], "c": [1], "d": [1, 2, 3]})
    trained = arm({"a": [1, 1, 1], "b": [1, 1, 1], "c": [1, 1, 1], "e": [1, 1, 1]})
    found = transfer_gap(trained, base)
    assert (found.sample_size, found.every.problems, found.left_out) == (3, 2, 3)


def test_everything_solved_leaves_nothing_to_compare() -> None:
    found = transfer_gap(arm({"a": [99, 99]}), arm({"a": [99, 1]})).every
    assert math.isnan(found.shared.value)
    assert math.isnan(found.own.value)
    assert (found.shared.low, found.shared.high) == (-2, 2)


def test_bad_input_is_refused() -> None:
    with pytest.raises(MeasureError, match="Lengths differ"):
        ArmSamples([1, 2], [1], [True])
    with pytest.raises(MeasureError, match="No problem has 0 samples in both arms"):
        transfer_gap(arm({"a": [1]}), arm({"b": [1]}))
    with pytest.raises(MeasureError, match="No problem has 5 samples"):
        transfer_gap(arm({"a": [1]}), arm({"a": [1]}), sample_size=5)
    with pytest.raises(MeasureError, match="whole numbers"):
        ArmSamples(["a"], [0.5], [False])


def votes(path: Path) -> ArmSamples:
    table = pd.read_parquet(path)
    return ArmSamples(
        table["question_id"], answer_classes(table["answer"].where(table["answer"].notna(), None)), table["correct"]
    )


def test_two_efforts_of_a_real_model(fixtures: Path) -> None:
    low = votes(fixtures / "votes" / "consol_o3mini_low_aime24_vote40.parquet")
    high = votes(fixtures / "votes" / "consol_o3mini_high_aime24_vote40.parquet")
    found = transfer_gap(high, low)
    # The source reports any-correct rates of 1.0 and 0.9 on the 30 problems: nothing is left that both fail.
    assert (found.sample_size, found.every.problems) == (40, 30)
    assert found.every.trained.solved.value == 1
    assert found.every.base.solved.value == pytest.approx(0.9)
    assert math.isnan(found.every.shared.value)
    # In 4 draws some problems stay unsolved in either arm with a chance that pass@4 gives.
    few = transfer_gap(high, low, sample_size=4).every
    right = [int(low.correct[low.problems == problem].sum()) for problem in np.unique(low.problems)]
    assert few.base.solved.value == pytest.approx(
        fmean(1 - math.comb(40 - count, 4) / math.comb(40, 4) for count in right)
    )
    assert few.trained.solved.value > few.base.solved.value
    assert few.base.distinct.value > few.trained.distinct.value
    assert few.shared.low <= few.shared.value <= few.shared.high
