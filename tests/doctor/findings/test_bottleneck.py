"""What limits is the largest of three parts that add up to what is missing; always a note."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Change, Finding
from breadth.doctor.findings.bottleneck import FINDING
from breadth.inference.policy import Policy
from breadth.inference.strategies.best_of_n import BestOfN
from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.measure.intervals import Interval
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_said

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
    check_said(found, "bottleneck")
    assert (found.severity, found.loop, found.confidence) == (Severity.NOTE, "both", "strong")
    # One draw scores 62.5 %, a vote of eight everything: nothing is out of reach, and the policy misses 37.5 points.
    assert (
        found.headline
        == "The inference policy limits: 0% of the questions are out of reach of 8 draws, and the best policy measured"
        " gains 37.5 points on the policy in use (one plain draw)."
    )
    assert [one.changes for one in found.prescriptions] == [(Change("votes", 8),)]


def test_what_no_draw_gets_right_is_for_training(swept: Any) -> None:
    found = FINDING.check(swept(SAME, policy=Policy(strategy=Vote(8))))
    assert isinstance(found, Finding)
    assert found.headline.startswith(
        "Training limits: 40% of the questions are out of reach of 8 draws, and the best policy measured gains 0.0"
    )
    # Every question is always or never right: both fits foretell the same 40 % for 80 draws, so it stays training's.
    assert values(found)["out of reach of 80 draws, foretold"] == pytest.approx(0.4, abs=0.001)
    assert found.confidence == "strong"
    assert found.prescriptions[0].action.startswith("Train for breadth")


def test_right_draws_that_are_outvoted_want_a_judge(swept: Any) -> None:
    # Three right of eight against five wrong alike: any vote loses to one draw (37.5 %), and one of eight is always
    # right.
    found = FINDING.check(swept(np.tile([0, 0, 0, 1, 1, 1, 1, 1], (60, 1)), policy=ONE))
    assert isinstance(found, Finding)
    assert found.headline.startswith("Choosing among the draws limits")
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
    assert found.headline.startswith("No loop is shown to limit more than the other: 13%")
    assert found.confidence == "likely"


def test_a_policy_that_was_not_measured_leaves_one_draw_to_compare_with(swept: Any) -> None:
    for policy in (None, Policy(strategy=BestOfN(8)), Policy(strategy=Vote(64))):
        found = FINDING.check(swept(FIVE_OF_EIGHT, policy=policy))
        assert isinstance(found, Finding)
        assert found.headline.endswith("gains 37.5 points on one plain draw.")


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        (SAME, {"labelled": False}, "right answers are not known"),
        (SAME[:, :1], {}, "one draw of a question"),
        (SAME[:6], {}, "6 questions"),
    ],
)
def test_what_is_missing_is_said(swept: Any, table: Any, options: dict[str, Any], said: str) -> None:
    found = FINDING.check(swept(table, **options))
    assert isinstance(found, CannotTell)
    check_said(found, "bottleneck")
    assert said in found.missing


def test_a_recorded_run_has_no_other_policies(recorded: Any) -> None:
    assert isinstance(FINDING.check(recorded(SAME, Policy(strategy=Vote(8)))), CannotTell)


def test_all_right_and_all_wrong_are_no_crash(swept: Any) -> None:
    for table, share in ((SAME * 0, "0%"), (SAME * 0 + 1, "100%")):
        found = FINDING.check(swept(table, policy=ONE))
        assert isinstance(found, Finding)
        assert f"{share} of the questions are out of reach" in found.headline
