"""Over-sampling is a narrower vote that is as good, for sure, and a policy that pays for more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Change, Excluded, Finding
from breadth.doctor.findings.over_sampling import FINDING
from breadth.inference.policy import Policy
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.best_of_n import BestOfN
from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome
from breadth.tuning import choice

SAME = np.repeat((np.arange(120) % 5 < 2).astype(np.int64)[:, None], 8, axis=1)
"""Every question has one answer only; 40 % are wrong."""
FIVE_OF_EIGHT = np.tile([0, 0, 0, 0, 0, 1, 2, 3], (40, 1))
"""Five draws right, three wrong in three ways: a vote of eight is always right, one draw on 62.5 %."""


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "over-sampling")
    assert FINDING.margin == choice.SCORE_TOLERANCE


def test_a_vote_on_draws_that_all_agree_pays_seven_eighths_for_nothing(swept: Any) -> None:
    found = FINDING.check(swept(SAME, policy=Policy(strategy=Vote(8))))
    assert isinstance(found, Finding)
    check_outcome(found, "over-sampling")
    assert found.severity is Severity.WARNING
    assert (
        found.headline == "The policy in use, a vote of 8, writes 800 tokens per question;"
        " one plain sample loses less than 5 points with"
        " 100."
    )
    assert found.evidence[2].value == pytest.approx(7 / 8)
    assert found.prescriptions[0].changes == (Change("votes", 1),)


def test_a_vote_that_loses_to_one_draw_is_found_too(swept: Any) -> None:
    # 3 of 8 right, 5 wrong in the same way: one draw scores 0.375, a vote of eight 0.
    found = FINDING.check(swept(np.tile([0, 0, 0, 1, 1, 1, 1, 1], (40, 1)), policy=Policy(strategy=Vote(8))))
    assert isinstance(found, Finding)
    assert "one plain sample scores more with 100" in found.headline


def test_a_vote_that_gains_is_left_alone(swept: Any) -> None:
    assert isinstance(FINDING.check(swept(FIVE_OF_EIGHT, policy=Policy(strategy=Vote(8)))), Excluded)
    assert isinstance(FINDING.check(swept(FIVE_OF_EIGHT)), Excluded)
    assert isinstance(FINDING.check(swept(SAME, policy=Policy(strategy=Single()))), Excluded)


def test_a_middle_width_may_be_enough(swept: Any) -> None:
    # Seven of eight right on every question: a vote of three or more never loses. By hand: two wrong in four is
    # impossible with one wrong.
    table = np.tile([0, 0, 0, 0, 0, 0, 0, 1], (120, 1))
    found = FINDING.check(swept(table, policy=Policy(strategy=Vote(8))))
    assert isinstance(found, Finding)
    assert found.prescriptions[0].changes == (Change("votes", 4),)
    assert len(found.prescriptions) == 2
    assert found.severity is Severity.WARNING  # half of the tokens


def test_what_a_vote_that_stops_early_really_draws_is_charged(swept: Any) -> None:
    found = FINDING.check(swept(SAME, policy=Policy(strategy=AdaptiveVote(8, width=1))))
    assert isinstance(found, Finding)
    # The Beta rule at 0.95 stops after four that agree (0.96875): 400 tokens.
    assert "a vote of up to 8 that stops early, writes 400 tokens" in found.headline
    assert found.evidence[2].value == pytest.approx(3 / 4)


def test_without_a_policy_it_is_a_note_on_the_widest(swept: Any) -> None:
    found = FINDING.check(swept(SAME))
    assert isinstance(found, Finding)
    assert found.severity is Severity.NOTE
    assert found.headline.startswith("The widest measured vote, a vote of 8")


def test_a_recorded_vote_is_judged_by_its_own_draws(recorded: Any) -> None:
    found = FINDING.check(recorded(SAME, Policy(strategy=Vote(8))))
    assert isinstance(found, Finding)
    assert found.severity is Severity.WARNING
    assert isinstance(FINDING.check(recorded(FIVE_OF_EIGHT, Policy(strategy=Vote(8)))), Excluded)


def test_agreement_is_enough_where_right_answers_are_not_known(swept: Any) -> None:
    assert isinstance(FINDING.check(swept(SAME, labelled=False, policy=Policy(strategy=Vote(8)))), Finding)


@pytest.mark.parametrize(
    ("policy", "questions", "said"),
    [
        (Policy(strategy=Vote(8)), 20, "20 questions leave open"),
        (Policy(strategy=Vote(16)), 40, "draws up to 16; each question has 8"),
        (Policy(strategy=BestOfN(8)), 40, "(best-of-n) is neither a vote"),
        (Policy(strategy=Vote(8), system="Be brief."), 40, "another system prompt"),
    ],
)
def test_what_is_missing_is_said(swept: Any, policy: Policy, questions: int, said: str) -> None:
    found = FINDING.check(swept(SAME[:questions], policy=policy))
    assert isinstance(found, CannotTell)
    check_outcome(found, "over-sampling")
    assert said in found.missing


def test_answers_that_cannot_be_read_are_no_crash(swept: Any) -> None:
    found = FINDING.check(swept(SAME * 0 - 1, policy=Policy(strategy=Vote(8))))
    assert isinstance(found, Finding)  # nothing is right at any width, and eight draws are paid for
