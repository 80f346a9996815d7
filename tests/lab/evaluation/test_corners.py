"""The four corners by hand: every accuracy, margin and interaction of four problems worked out in the comments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from breadth.base.errors import MeasureError
from breadth.lab import records
from breadth.lab.evaluation.corners import (
    BaseAndArms,
    Corners,
    EvaluatedArm,
    PairedEffect,
    claims_table,
    compare_corners,
    policies_table,
)
from breadth.lab.evaluation.evaluate import PolicyEval, ScoresAtK
from breadth.lab.evaluation.extended_vs_parallel import ExtendedVsParallel, FinalAnswers
from breadth.measure.intervals import Interval

NONE = Interval(0.0, 0.0, 0.0)


def replies(right: list[int], tokens: int, allowed: int) -> FinalAnswers:
    """Two repeats of four problems, of which so many are right; the wrong ones answer differently."""
    rows = [tuple(place < count for place in range(2)) for count in right]
    answers = tuple(tuple("1" if one else f"no {place}" for place, one in enumerate(row)) for row in rows)
    return FinalAnswers(answers, tuple(rows), ((tokens,) * 2,) * 4, ((allowed,) * 2,) * 4)


def arm(
    extended: list[int], parallel: list[int], passed: tuple[float, ...], covered: tuple[float, ...]
) -> EvaluatedArm:
    curve = (ScoresAtK(1, passed, passed), ScoresAtK(8, covered, (0.5, 0.5, 1.0, 1.0)))
    measured = PolicyEval(8, curve, NONE, NONE, NONE, NONE, NONE, 1.0, {}, "( 1 + 1 ) * 1 =", ())
    return EvaluatedArm(measured, ExtendedVsParallel(100, replies(extended, 102, 102), replies(parallel, 51, 102)))


PLAIN = arm([0, 0, 1, 1], [0, 1, 1, 2], (0.0, 0.25, 0.5, 0.5), (0.0, 1.0, 1.0, 1.0))
PROTECTED = arm([0, 1, 1, 0], [1, 2, 2, 2], (0.0, 0.25, 0.25, 0.5), (1.0, 1.0, 1.0, 1.0))


@pytest.fixture
def table() -> Corners:
    return compare_corners([PLAIN], [PROTECTED], k=8, votes=8)


def test_the_corners(table: Corners) -> None:
    # Right of 2 x 4 answers: plain 2 and 4, protected 2 and 7.
    assert (table.plain_extended.accuracy.value, table.plain_parallel.accuracy.value) == (0.25, 0.5)
    assert (table.protected_extended.accuracy.value, table.protected_parallel.accuracy.value) == (0.25, 0.875)
    assert (table.problems, table.repeats, table.seeds, table.thinking) == (4, 2, 1, 100)
    assert (table.plain_extended.tokens, table.plain_extended.saved) == (102.0, 0.0)
    assert (table.plain_parallel.tokens, table.plain_parallel.saved) == (51.0, 0.5)


def test_the_arms(table: Corners) -> None:
    # pass@1: 1.25 / 4 and 1 / 4; pass@8: 3 / 4 and 4 / 4; maj@8: 3 / 4.
    assert (table.plain.pass_1.value, table.protected.pass_1.value) == (0.3125, 0.25)
    assert (table.plain.pass_k.value, table.protected.pass_k.value) == (0.75, 1.0)
    assert table.plain.majority.value == 0.75
    assert (table.pass_1_change.value.value, table.pass_k_kept.value.value) == (-0.0625, 0.25)


def test_the_effects(table: Corners) -> None:
    # Vote less long thought: 0.5 - 0.25 and 0.875 - 0.25; protected minus plain: 0 and 0.375; the difference of
    # differences: 0.375.
    assert table.vote_when_plain.value.value == 0.25
    assert table.vote_when_protected.value.value == 0.625
    assert table.protection_when_extended.value.value == 0.0
    assert table.protection_when_parallel.value.value == 0.375
    assert table.interaction.value.value == pytest.approx(0.375)
    # Plain gains on problems 2 and 4, half an answer each; of the four ways to toss their signs two are as large: 2 /
    # 4.
    assert table.vote_when_plain.p_value == pytest.approx(0.5)
    # Protected gains on all four; of sixteen ways two are as large.
    assert table.vote_when_protected.p_value == pytest.approx(2 / 16)
    assert table.interaction.over_seeds is None


def test_answer_entropy_is_nothing_where_repeats_agree(table: Corners) -> None:
    # Two different answers have ln 2 and Miller-Madow's (2 - 1) / (2 * 2); plain by vote: two of four problems disagree
    # in
    # themselves (one right, one wrong), one is wrong twice in different ways, one right twice: three of four.
    assert table.plain_parallel.answer_entropy.value == pytest.approx(0.75 * (0.693147 + 0.25), abs=1e-4)


def test_several_seeds() -> None:
    # A second seed in which protection does nothing: by vote the protected gain 0.375 and 0, so 0.1875 on average;
    # Student's t with
    # one degree of freedom reaches 12.706 * (0.375 / sqrt 2) / sqrt 2 = 2.382 to each side.
    table = compare_corners([PLAIN, PLAIN], [PROTECTED, PLAIN], k=8, votes=8)
    effect = table.protection_when_parallel
    assert effect.over_seeds is not None
    assert effect.value.value == effect.over_seeds.value == pytest.approx(0.1875)
    assert effect.over_seeds.high == pytest.approx(0.1875 + 2.382, abs=1e-3)
    assert not effect.is_significant
    assert table.seeds == 2


@pytest.mark.parametrize(
    ("over_problems", "over_seeds", "shows"),
    [
        ((0.1, 0.3), None, True),
        ((-0.1, 0.3), None, False),
        ((0.1, 0.3), (-0.1, 0.5), False),
        ((-0.3, -0.1), (-0.2, -0.1), True),
    ],
)
def test_an_effect_shows_where_no_interval_holds_nothing(
    over_problems: tuple[float, float], over_seeds: tuple[float, float] | None, shows: bool
) -> None:
    seeds = None if over_seeds is None else Interval(0.2, *over_seeds)
    assert PairedEffect(Interval(0.2, *over_problems), 0.01, seeds).is_significant is shows


def test_json_and_back(table: Corners) -> None:
    assert records.record_from_json(Corners, records.record_to_json(table)) == table


def test_arms_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(MeasureError, match="1 plain and 0 protected"):
        compare_corners([PLAIN], [], k=8, votes=8)
    other = replace(PROTECTED, answers=replace(PROTECTED.answers, thinking=50))
    with pytest.raises(MeasureError, match="same problems"):
        compare_corners([PLAIN], [other], k=8, votes=8)
    with pytest.raises(MeasureError, match="k = 64"):
        compare_corners([PLAIN], [PROTECTED], k=64, votes=8)


PROBLEMS = 20


def measured(one: float, all_of_them: int, entropy: float) -> PolicyEval:
    """Every problem has the same pass@1; so many have a right reply among eight."""
    once = (one,) * PROBLEMS
    covered = tuple(float(place < all_of_them) for place in range(PROBLEMS))
    width = Interval(entropy, entropy, entropy)
    return PolicyEval(
        8,
        (ScoresAtK(1, once, once), ScoresAtK(8, covered, once)),
        width,
        width,
        width,
        width,
        width,
        1.0,
        {},
        "1 =",
        (),
    )


def replies_of_corners_claims(right: int) -> FinalAnswers:
    rows = tuple((place < right,) for place in range(PROBLEMS))
    return FinalAnswers(tuple(("1",) for _ in rows), rows, ((10,),) * PROBLEMS, ((10,),) * PROBLEMS)


def arm_of_corners_claims(found: PolicyEval, long: int, vote: int) -> EvaluatedArm:
    return EvaluatedArm(found, ExtendedVsParallel(96, replies_of_corners_claims(long), replies_of_corners_claims(vote)))


BASE = measured(0.2, 19, 1.0)
PLAIN_CORNERS_CLAIMS = [
    arm_of_corners_claims(measured(0.3, 9, 0.40), 2, 8),
    arm_of_corners_claims(measured(0.32, 10, 0.44), 2, 8),
]
PROTECTED_CORNERS_CLAIMS = [
    arm_of_corners_claims(measured(0.4, 17, 0.6), 2, 16),
    arm_of_corners_claims(measured(0.42, 18, 0.6), 2, 17),
]
FOUND = BaseAndArms(BASE, PLAIN_CORNERS_CLAIMS, PROTECTED_CORNERS_CLAIMS)


def check(found: BaseAndArms, claim: str, number: float, verdict: str) -> None:
    table = claims_table(found, compare_corners(found.plain, found.protected, k=8, votes=8))
    (row,) = (row for row in table.rows if row[0] == claim)
    assert isinstance(row[1], Interval)
    assert row[1].value == pytest.approx(number)
    assert row[2] == verdict


def test_what_shows() -> None:
    # Student's t of two seeds reaches 12.7 times half their distance to either side of the mean
    check(FOUND, "plain training lowers pass@8", -0.475, "shows")  # 0.025 to either side of it: t reaches 0.32
    check(
        FOUND, "plain training leaves less than half of the base's entropy (share left)", 0.42, "does not show"
    )  # t reaches 0.25
    check(FOUND, "a vote beats one long thought after plain training", 0.3, "shows")
    check(FOUND, "pass@8 of protected is above plain's", 0.4, "shows")  # 8 of 20 more at both seeds
    check(FOUND, "pass@8 of protected is above the base's", -0.075, "does not show")


def test_a_claim_that_fails_is_not_said_to_show() -> None:
    swapped = replace(FOUND, plain=PROTECTED_CORNERS_CLAIMS, protected=PLAIN_CORNERS_CLAIMS)
    check(swapped, "pass@8 of protected is above plain's", -0.4, "does not show")
    check(swapped, "protection adds to the vote", -0.425, "does not show")


def test_the_policies() -> None:
    rows = policies_table(FOUND, 8, 8).rows
    assert [row[0] for row in rows] == ["base", "plain GRPO", "protected"]
    assert [row[1].value for row in rows] == pytest.approx([0.2, 0.31, 0.41])  # type: ignore[union-attr]  # intervals
    assert [row[3].value for row in rows] == pytest.approx([0.95, 0.475, 0.875])  # type: ignore[union-attr]  # intervals
