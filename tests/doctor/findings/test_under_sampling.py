"""Under-sampling is a wider vote that gains for sure over the policy in use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Change, Excluded, Finding
from breadth.doctor.findings.under_sampling import FINDING
from breadth.inference.policy import Policy
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

ONE = Policy(strategy=Single())
FIVE_OF_EIGHT = np.tile([0, 0, 0, 0, 0, 1, 2, 3], (40, 1))
SAME = np.repeat((np.arange(120) % 5 < 2).astype(np.int64)[:, None], 8, axis=1)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "under-sampling")


def test_a_vote_that_would_gain_is_found_with_its_price(swept: Any) -> None:
    found = FINDING.check(swept(FIVE_OF_EIGHT, policy=ONE))
    assert isinstance(found, Finding)
    check_outcome(found, "under-sampling")
    assert found.severity is Severity.WARNING
    # Five of eight right: one draw 62.5 %, a vote of eight 100 %; 700 tokens more pert 100 each.
    assert found.headline == "A vote of 8 scores 100%, the policy in use, one plain sample, 62%."
    assert found.cost == "37.5 points on questions like these, for 700 tokens more per question."
    assert found.prescriptions[0].changes == (Change("votes", 8),)
    # No question differs from the others: 40 of 40 gain 0.375, so at least 0.025^(1/40) = 91.2 % of all do, and the
    # rest may lose all.
    assert found.evidence[0].value.low == pytest.approx(0.912 * 0.375 - 0.088, abs=0.001)  # type: ignore[union-attr]


def test_a_small_gain_is_a_note(swept: Any) -> None:
    # On 12 of 120 questions five of eight are right, on the others all: a gain of 0.1 x 0.375 = 3.75 points, sure and
    # small.
    table = np.vstack([FIVE_OF_EIGHT[:12], np.zeros((108, 8), dtype=np.int64)])
    found = FINDING.check(swept(table, policy=ONE))
    assert isinstance(found, Finding)
    assert found.severity is Severity.NOTE
    assert found.evidence[0].value.value == pytest.approx(0.0375)  # type: ignore[union-attr]


def test_a_policy_that_thinks_long_is_compared_with_votes_too(swept: Any) -> None:
    policy = Policy(strategy=BudgetForcing(cues=0, minimum=256, maximum=256))
    found = FINDING.check(swept(FIVE_OF_EIGHT, {256: np.arange(40)[:, None] % 2}, policy=policy))
    assert isinstance(found, Finding)
    assert found.headline == "A vote of 8 scores 100%, the policy in use, 256 thinking tokens, 50%."


def test_no_gain_is_none(swept: Any) -> None:
    assert isinstance(FINDING.check(swept(SAME, policy=ONE)), Excluded)
    worse = np.tile([0, 0, 0, 1, 1, 1, 1, 1], (40, 1))
    assert isinstance(FINDING.check(swept(worse, policy=ONE)), Excluded)


def test_the_widest_vote_is_enough_where_the_last_doubling_bought_nothing(swept: Any) -> None:
    assert isinstance(FINDING.check(swept(SAME, policy=Policy(strategy=Vote(8)))), Excluded)


@pytest.mark.parametrize(
    ("policy", "table", "said"),
    [
        (None, FIVE_OF_EIGHT, "the policy in use is not known"),
        (Policy(strategy=Vote(8)), FIVE_OF_EIGHT, "no vote wider than 8"),
        (ONE, SAME[:20], "20 questions leave a gain of up to"),
        (
            Policy(strategy=BudgetForcing(cues=0, minimum=99, maximum=99)),
            SAME,
            "forces 99 thinking tokens; budgets measured: none",
        ),
    ],
)
def test_what_is_missing_is_said(swept: Any, policy: Policy | None, table: Any, said: str) -> None:
    found = FINDING.check(swept(table, policy=policy))
    assert isinstance(found, CannotTell)
    check_outcome(found, "under-sampling")
    assert said in found.missing
    assert found.switch_on


def test_a_recorded_vote_cannot_show_wider_ones(recorded: Any) -> None:
    found = FINDING.check(recorded(FIVE_OF_EIGHT, Policy(strategy=Vote(8))))
    assert isinstance(found, CannotTell)
    assert found.switch_on.endswith("--widths 1,8,16")
