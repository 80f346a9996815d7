"""A vote without diversity is one draw paid for several times; whether a selector could help is told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Change, Excluded, Finding
from breadth.doctor.findings.vote_without_diversity import FINDING
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome
from breadth.tuning import choice, verdicts

SAME = np.repeat((np.arange(120) % 5 < 2).astype(np.int64)[:, None], 8, axis=1)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "vote-without-diversity")
    assert (FINDING.margin, FINDING.unread) == (choice.SCORE_TOLERANCE, verdicts.MAX_UNREAD)


def test_one_answer_to_a_question_needs_training(swept: Any) -> None:
    found = FINDING.check(swept(SAME))
    assert isinstance(found, Finding)
    check_outcome(found, "vote-without-diversity")
    assert found.severity is Severity.WARNING
    assert found.headline == "100% of the questions get only one answer in 8 samples, and 40% are wrong in all of them."
    facts = {fact.name: fact.value for fact in found.evidence}
    assert facts["different answers in 8 samples"] == 1.0
    assert [one.action.split(":")[0] for one in found.prescriptions] == ["Train for breadth"]


def test_greedy_draws_are_told_to_vary_first(swept: Any) -> None:
    found = FINDING.check(swept(SAME, sampling=Sampling(temperature=0.0)))
    assert isinstance(found, Finding)
    assert found.prescriptions[0].changes == (Change("temperature", 0.7),)


def test_right_answers_that_are_outvoted_want_a_selector(swept: Any) -> None:
    # Half of the questions have one wrong of eight, half one right of eight: a vote of eight is worth one draw, 50 %,
    # and pass@8 is 100 %.
    table = np.where(np.arange(200)[:, None] % 2, np.arange(8) < 1, np.arange(8) > 0).astype(np.int64)
    found = FINDING.check(swept(table))
    assert isinstance(found, Finding)
    assert found.severity is Severity.NOTE
    assert found.headline == "A vote of 8 is worth one sample, although one of them is correct 50 points more often."
    assert "best-of-n" in found.prescriptions[0].action


def test_a_model_that_is_right_everywhere_is_left_alone(swept: Any) -> None:
    assert isinstance(FINDING.check(swept(np.zeros((120, 8), dtype=np.int64))), Excluded)
    nearly = np.zeros((120, 8), dtype=np.int64)
    nearly[:3] = 1  # 2.5 % wrong in every sample
    assert isinstance(FINDING.check(swept(nearly)), Excluded)


def test_a_vote_that_changes_the_score_is_no_failure(swept: Any, chance: Any) -> None:
    assert isinstance(FINDING.check(swept(np.tile([0, 0, 0, 0, 0, 1, 2, 3], (60, 1)))), Excluded)
    assert isinstance(FINDING.check(swept(chance(np.full(60, 0.5), 8))), Excluded)


def test_few_questions_prove_no_agreement(swept: Any) -> None:
    # 40 questions without a difference leave 1 - 0.0125^(1/40) = 10 % of all questions open.
    found = FINDING.check(swept(SAME[:40]))
    assert isinstance(found, CannotTell)
    assert found.undecided


def test_a_recorded_vote_is_enough(recorded: Any) -> None:
    found = FINDING.check(recorded(SAME, Policy(strategy=Vote(8))))
    assert isinstance(found, Finding)
    assert found.evidence[0].note.startswith("120 questions x 8 recorded samples")


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        (SAME * 0 - 1, {}, "no answer could be read in 100%"),
        (SAME[:, :2], {}, "2 comparable samples"),
        (SAME, {"labelled": False}, "correct answers are not known"),
        (SAME[:5], {}, "5 questions"),
    ],
)
def test_what_is_missing_is_said(swept: Any, table: Any, options: dict[str, Any], said: str) -> None:
    found = FINDING.check(swept(table, **options))
    assert isinstance(found, CannotTell)
    check_outcome(found, "vote-without-diversity")
    assert said in found.missing


def test_single_recorded_draws_cannot_tell(recorded: Any) -> None:
    assert isinstance(FINDING.check(recorded(SAME[:, :1], Policy(strategy=Single()))), CannotTell)
