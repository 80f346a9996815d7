"""Confidence is useless when it is shown not to rank right completions above wrong ones of the same question."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Change, Excluded, Finding
from breadth.doctor.findings.useless_confidence import FINDING
from breadth.inference.policy import Policy
from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.inference.strategies.vote import Vote
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

HALF = np.tile([0, 0, 0, 0, 1, 1, 1, 1], (60, 1))
"""Four right and four wrong on every question."""
CHANCE = np.tile([1.0, 4, 5, 8, 2, 3, 6, 7], (60, 1))
"""Right ones 1, 4, 5, 8 against wrong ones 2, 3, 6, 7: they beat 0 + 2 + 2 + 4 of 16 pairs, half."""
TRUSTING = Policy(strategy=ConfidenceVote(8, trust=True))


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "useless-confidence")


def test_the_gain_at_the_useful_level_is_what_the_reason_says() -> None:
    from scipy.special import ndtr, ndtri

    apart = np.sqrt(2) * ndtri(FINDING.useful)
    assert apart == pytest.approx(0.36, abs=0.005)
    assert ndtr(apart / 2) == pytest.approx(0.57, abs=0.005)


def test_a_ranking_by_chance_is_found(swept: Any) -> None:
    found = FINDING.check(swept(HALF, confidences=CHANCE))
    assert isinstance(found, Finding)
    check_outcome(found, "useless-confidence")
    assert found.severity is Severity.NOTE
    assert "the correct one is more confident in 50%" in found.headline
    assert found.evidence[0].value.value == 0.5  # type: ignore[union-attr]
    assert found.prescriptions[0].changes == (Change("vote_confidence", False),)


def test_it_is_a_warning_where_the_policy_weighs_by_it(swept: Any, recorded: Any) -> None:
    for evidence in (swept(HALF, confidences=CHANCE, policy=TRUSTING), recorded(HALF, TRUSTING, confidences=CHANCE)):
        found = FINDING.check(evidence)
        assert isinstance(found, Finding)
        assert found.severity is Severity.WARNING
    # Without trust and without a gate the vote does not weigh.
    gated = FINDING.check(swept(HALF, confidences=CHANCE, policy=Policy(strategy=ConfidenceVote(8))))
    assert isinstance(gated, Finding)
    assert gated.severity is Severity.NOTE


def test_a_confidence_that_is_lower_where_right_says_so(swept: Any) -> None:
    found = FINDING.check(swept(HALF, confidences=np.where(HALF == 0, 1.0, 2.0)))
    assert isinstance(found, Finding)
    assert found.headline.startswith("Confidence is lower where the answer is correct")


def test_a_confidence_that_ranks_is_left_alone(swept: Any) -> None:
    noise = np.random.default_rng(0).normal(size=HALF.shape)
    assert isinstance(FINDING.check(swept(HALF, confidences=noise + 1.0 * (HALF == 0), policy=TRUSTING)), Excluded)


def test_no_confidences_matter_only_to_who_weighs_by_them(swept: Any) -> None:
    assert FINDING.check(swept(HALF)) is None
    assert FINDING.check(swept(HALF, policy=Policy(strategy=Vote(8)))) is None
    found = FINDING.check(swept(HALF, policy=TRUSTING))
    assert isinstance(found, CannotTell)
    assert found.switch_on.endswith("--logprobs")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (HALF[:14], "useful or not"),  # 14 questions leave 1 - 0.025^(1/14) = 23 points either way
        (HALF * 0, "0 questions have correct and wrong"),
        (HALF * 0 - 1, "0 questions have correct and wrong"),
        (np.vstack([HALF[:7], HALF[7:] * 0]), "7 questions have correct and wrong"),
    ],
)
def test_too_little_cannot_tell(swept: Any, table: Any, said: str) -> None:
    found = FINDING.check(swept(table, confidences=CHANCE[: len(table)]))
    assert isinstance(found, CannotTell)
    check_outcome(found, "useless-confidence")
    assert said in found.missing


def test_a_tie_in_the_agreement_says_neither_right_nor_wrong(swept: Any) -> None:
    found = FINDING.check(swept(HALF, confidences=CHANCE, labelled=False))
    assert isinstance(found, CannotTell)
    assert found.missing.startswith("0 questions")
