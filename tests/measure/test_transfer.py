"""The transfer gap: by hand, by enumeration of subsamples, and under each confound it must withstand."""

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
from breadth.measure.transfer import ArmSamples, transfer_gap
from breadth.measure.validate import FloatArray


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
