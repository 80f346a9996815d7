"""What limits is the largest of three parts that add up to what is missing; always a note."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.doctor.evidence.sweeps import PlainSamples, measure_plain_vote, plain_samples
from breadth.doctor.finding import CannotTell, Change, Finding
from breadth.doctor.findings.bottleneck import (
    FINDING,
    ScoreGap,
    cross_fitted_best,
    describe_gap,
    extrapolate_unreachable,
    split_score_gap,
)
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.strategies.best_of_n import BestOfN
from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.measure.intervals import Interval
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome
from breadth.tuning.result import TuningResult

FIVE_OF_EIGHT = np.tile([0, 0, 0, 0, 0, 1, 2, 3], (60, 1))
SAME = np.repeat((np.arange(60) % 5 < 2).astype(np.int64)[:, None], 8, axis=1)
ONE = Policy(strategy=Single())


def values(found: Finding) -> dict[str, float]:
    return {
        fact.name: fact.value.value if isinstance(fact.value, Interval) else float(str(fact.value))
        for fact in found.evidence
    }


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "bottleneck")


def test_a_policy_that_leaves_votes_undone_limits(swept: Any) -> None:
    found = FINDING.check(swept(FIVE_OF_EIGHT, policy=ONE))
    assert isinstance(found, Finding)
    check_outcome(found, "bottleneck")
    assert (found.severity, found.loop, found.confidence) == (Severity.NOTE, "both", "strong")
    # One draw scores 62.5 %, a vote of eight everything: nothing is out of reach, and the policy misses 37.5 points.
    assert (
        found.headline == "The inference policy limits the score: 0% of the questions are out of reach of 8 samples,"
        " and the best policy measured"
        " gains 37.5 points on the policy in use (one plain sample)."
    )
    assert [one.changes for one in found.prescriptions] == [(Change("votes", 8),)]


def test_what_no_draw_gets_right_is_for_training(swept: Any) -> None:
    found = FINDING.check(swept(SAME, policy=Policy(strategy=Vote(8))))
    assert isinstance(found, Finding)
    assert found.headline.startswith(
        "Training limits the score: 40% of the questions are out of reach of 8 samples and 40% of 80 (extrapolated),"
        " and the best policy measured gains 0.0"
    )
    # Every question is always or never right: both fits foretell the same 40 % for 80 draws, so it stays training's.
    assert values(found)["out of reach of 80 samples too, extrapolated"] == pytest.approx(0.4, abs=0.001)
    assert found.confidence == "strong"
    assert found.prescriptions[0].action.startswith("Train for breadth")


GAP = ScoreGap(
    policy=Interval(0.1, 0.05, 0.15),
    selector=Interval(0.06, 0.0, 0.1),
    unreachable=Interval(0.44, 0.4, 0.48),
    largest="out",
    lead=Interval(0.34, 0.3, 0.38),
    samples=80,
    extrapolated=Interval(0.09, 0.06, 0.12),
)
"""44 % out of reach of 8 samples, 9 % of 80: 35 % are a matter of more samples."""


@pytest.mark.parametrize(
    ("extrapolated", "limit", "first", "why"),
    [
        (GAP.extrapolated, "The number of samples limits the score", "Draw more samples, up to 80", "About 35% of"),
        (Interval(0.4, 0.36, 0.44), "Training limits the score", "Train for breadth", "40% of the questions are out"),
        (None, "What no sample solves limits the score", "Train for breadth", "training can, or more samples"),
    ],
)
def test_what_more_samples_reach_is_not_said_to_be_for_training(
    swept: Any, extrapolated: Interval | None, limit: str, first: str, why: str
) -> None:
    evidence = swept(SAME, policy=ONE)
    samples, result = plain_samples(evidence, "bottleneck"), evidence.sweep_result
    assert isinstance(samples, PlainSamples)
    now = measure_plain_vote(samples, 1)
    found = describe_gap(replace(GAP, extrapolated=extrapolated), samples, result, now, known=False)
    assert found.headline.startswith(f"{limit}: 44% of the questions are out of reach of 8 samples")
    assert found.prescriptions[0].action.startswith(first)
    assert why in found.prescriptions[0].why
    # One share is called training's alone, and it is that of 80 samples.
    only = [remedy.why for remedy in found.prescriptions if "only training" in remedy.why]
    assert [text.partition("%")[0] for text in only] == (
        [] if extrapolated is None else [f"{extrapolated.value:.0%}"[:-1]]
    )


def test_right_draws_that_are_outvoted_want_a_judge(swept: Any) -> None:
    # Three right of eight against five wrong alike: any vote loses to one draw (37.5 %), and one of eight is always
    # right.
    found = FINDING.check(swept(np.tile([0, 0, 0, 1, 1, 1, 1, 1], (60, 1)), policy=ONE))
    assert isinstance(found, Finding)
    assert found.headline.startswith("Choosing among the samples limits the score")
    assert "best-of-n" in found.prescriptions[0].action


def test_the_parts_and_the_score_make_up_one(swept: Any, chance: Any) -> None:
    table = chance(np.random.default_rng(0).beta(1, 1, 60), 8, wrong=3)
    for policy in (ONE, Policy(strategy=Vote(4)), None):
        found = FINDING.check(swept(table, {64: table[:, :2]}, policy=policy))
        assert isinstance(found, Finding)
        told = values(found)
        parts = [value for name, value in told.items() if name.startswith(("score", "inference", "training"))]
        assert sum(parts) == pytest.approx(1)
        assert len(parts) == 4


def test_where_nothing_leads_nothing_is_said_to_limit(swept: Any) -> None:
    # Of 60 questions 8 never right, 8 right in one of eight draws, 44 always: 13.3 % out of reach, and 8 x 7/8 / 60 =
    # 11.7 % not chosen.
    table = np.zeros((60, 8), dtype=np.int64)
    table[:8], table[8:16, 1:] = 1, 1
    found = FINDING.check(swept(table, policy=ONE))
    assert isinstance(found, Finding)
    assert found.headline.startswith("Neither loop is shown to limit the score more: 13%")
    assert found.confidence == "likely"


def test_a_policy_that_was_not_measured_leaves_one_draw_to_compare_with(swept: Any) -> None:
    for policy in (None, Policy(strategy=BestOfN(8)), Policy(strategy=Vote(64))):
        found = FINDING.check(swept(FIVE_OF_EIGHT, policy=policy))
        assert isinstance(found, Finding)
        assert found.headline.endswith("gains 37.5 points on one plain sample.")


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        (SAME, {"labelled": False}, "correct answers are not known"),
        (SAME[:, :1], {}, "one sample per question"),
        (SAME[:6], {}, "6 questions"),
    ],
)
def test_what_is_missing_is_said(swept: Any, table: Any, options: dict[str, Any], said: str) -> None:
    found = FINDING.check(swept(table, **options))
    assert isinstance(found, CannotTell)
    check_outcome(found, "bottleneck")
    assert said in found.missing


def test_a_recorded_run_has_no_other_policies(recorded: Any) -> None:
    assert isinstance(FINDING.check(recorded(SAME, Policy(strategy=Vote(8)))), CannotTell)


def test_all_right_and_all_wrong_are_no_crash(swept: Any) -> None:
    for table, share in ((SAME * 0, "0%"), (SAME * 0 + 1, "100%")):
        found = FINDING.check(swept(table, policy=ONE))
        assert isinstance(found, Finding)
        assert f"{share} of the questions are out of reach" in found.headline


def draws(right: Any) -> PlainSamples:
    worth = np.asarray(right, dtype=np.float64)
    return PlainSamples(
        (worth == 0).astype(np.int64), worth, worth, worth, (1, worth.shape[1]), True, Sampling(), "made"
    )


def judged(*options: Any) -> TuningResult:
    made = SimpleNamespace(
        options=[SimpleNamespace(scores=np.asarray(one, dtype=np.float64)) for one in options],
        evidence=SimpleNamespace(plan=SimpleNamespace(seed=0)),
    )
    return cast("TuningResult", made)


def test_an_option_that_is_always_best_is_chosen_everywhere() -> None:
    table = np.column_stack([np.full(20, 0.2), np.linspace(0.5, 1, 20)])
    np.testing.assert_array_equal(cross_fitted_best(table), table[:, 1])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000))
def test_luck_does_not_count(seed: int) -> None:
    # Each option is right on one question only: whatever is best elsewhere is wrong here, so nothing of it is promised.
    assert cross_fitted_best(np.eye(10), seed).sum() <= 2


def test_on_noise_the_promise_is_no_better_than_the_mean() -> None:
    promised = [cross_fitted_best(np.random.default_rng(seed).random((40, 10))).mean() for seed in range(100)]
    assert np.mean(promised) == pytest.approx(0.5, abs=0.01)  # the best of ten columns reads about 0.57


def test_the_parts_add_up_and_the_largest_leads() -> None:
    # Of 20 questions 5 are never right; the policy in use scores 0.4, the best 0.6 on the other 15 and 0 on those.
    right = np.ones((20, 8))
    right[:5], right[5:, 0] = 0, 0
    best = np.where(np.arange(20) < 5, 0.0, 0.6)
    found = split_score_gap(judged(best, best / 2), draws(right), best * 2 / 3, 10)
    assert found.policy.value == pytest.approx(0.75 * 0.2)
    assert found.selector.value == pytest.approx(0.75 * 0.4)
    assert found.unreachable.value == pytest.approx(0.25)
    assert found.lead.value == pytest.approx(0.05)
    assert (found.largest, found.samples) == ("selector", 80)


def test_a_foretelling_keeps_to_what_was_drawn() -> None:
    rng = np.random.default_rng(0)
    # Half of the questions are right half of the time, half never: out of reach of 80 draws is one half.
    chances = np.where(np.arange(200) < 100, 0.5, 0.0)
    found = extrapolate_unreachable(draws(rng.random((200, 8)) < chances[:, None]), 80)
    assert found is not None
    assert 0.5 in found
    assert found.value == pytest.approx(0.5, abs=0.03)
    assert found.low > 0.3


def test_a_foretelling_that_fails_its_test_is_not_told() -> None:
    # The first four draws of each question are never right but on two, the last four always: no fit to the first half
    # foretells that.
    right = np.zeros((100, 8))
    right[:2, :2], right[:, 4:] = 1, 1
    assert extrapolate_unreachable(draws(right), 80) is None


def test_what_has_no_curve_is_not_foretold() -> None:
    assert extrapolate_unreachable(draws(np.ones((20, 8))), 80) is None
    assert extrapolate_unreachable(draws(np.zeros((20, 8))), 80) is None
    assert extrapolate_unreachable(draws(np.eye(20)[:, :3]), 30) is None  # half of three draws are too few to fit
