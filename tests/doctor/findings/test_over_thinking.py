"""Over-thinking is a fall proven on the same questions, up to what the policy in use thinks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Change, Excluded, Finding
from breadth.doctor.findings.over_thinking import FINDING
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.measure.validate import IntArray
from breadth.report.sections import Severity
from breadth.runs.reader import Run
from breadth.testing.findings import check_finding, check_outcome


def first_right(right: int, questions: int = 40, samples: int = 1) -> IntArray:
    """Answers of which the first so many questions are right."""
    return np.repeat((np.arange(questions) >= right).astype(np.int64)[:, None], samples, axis=1)


def think(tokens: int) -> Policy:
    return Policy(strategy=BudgetForcing(cues=0, minimum=tokens, maximum=tokens))


CURVE = {64: first_right(24), 128: first_right(36), 256: first_right(16)}
PLAIN = first_right(20, samples=4)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "over-thinking")


def test_a_proven_fall_is_found_with_its_cost(swept: Any) -> None:
    found = FINDING.check(swept(PLAIN, CURVE))
    assert isinstance(found, Finding)
    check_outcome(found, "over-thinking")
    assert found.severity is Severity.WARNING
    assert (
        found.headline
        == "Thinking past the optimum lowers the score: accuracy falls from 90% at 128 thinking tokens to 40% at 256."
    )
    # Forced arms write their budget and four tokens of answer: 260 - 132; 36/40 - 16/40.
    assert found.cost == "128 tokens per question more than at the best budget, for 50.0 points less."
    assert found.prescriptions[0].changes == (Change("thinking_budget", 128),)


@pytest.mark.parametrize(
    ("fallen", "severity"), [(8, Severity.WARNING), (7, Severity.NOTE), (5, Severity.NOTE), (4, None), (0, None)]
)
def test_how_sure_it_is_decides(swept: Any, fallen: int, severity: Severity | None) -> None:
    # Two budgets and k questions that fall: p = 2^-k, which is 0.0039 for 8, 0.0078 for 7, 0.031 for 5 and 0.0625 for
    # 4.
    found = FINDING.check(swept(PLAIN, {64: first_right(30), 128: first_right(30 - fallen)}))
    assert (found.severity if isinstance(found, Finding) else None) == severity


def test_a_rise_and_a_flat_curve_are_no_fall(swept: Any) -> None:
    assert isinstance(
        FINDING.check(swept(PLAIN, {64: first_right(10), 128: first_right(20), 256: first_right(30)})), Excluded
    )
    alternating = np.arange(40)[:, None] % 2
    assert isinstance(FINDING.check(swept(PLAIN, {64: alternating, 128: 1 - alternating})), Excluded)


def test_with_a_policy_only_what_it_thinks_counts(swept: Any) -> None:
    past = FINDING.check(swept(PLAIN, CURVE, policy=think(256)))
    assert isinstance(past, Finding)
    assert past.headline.startswith("The policy in use thinks past the optimum: accuracy falls from 90% at 128")
    assert isinstance(FINDING.check(swept(PLAIN, CURVE, policy=think(128))), Excluded)
    assert FINDING.check(swept(PLAIN, CURVE, policy=Policy(strategy=Vote(4)))) is None


def test_one_draw_as_it_comes_may_think_too_long_too(swept: Any) -> None:
    # Plain draws write 300 tokens and are right on 20 of 40, those cut at 128 on 36; the budget of 512 is not in use
    # and not asked.
    curve = {64: first_right(24), 128: first_right(36), 512: first_right(40)}
    found = FINDING.check(swept(PLAIN, curve, tokens=300, policy=Policy(strategy=Single())))
    assert isinstance(found, Finding)
    assert found.headline.endswith("from 90% at 128 thinking tokens to 50% without a cap, with 300 tokens.")
    shorter = {64: first_right(10), 128: first_right(36)}
    assert isinstance(FINDING.check(swept(PLAIN, shorter, tokens=100, policy=Policy(strategy=Single()))), Excluded)


def test_a_policy_that_draws_otherwise_says_nothing_about_the_sweep(swept: Any) -> None:
    other = Policy(strategy=think(128).strategy, sampling=Sampling(temperature=1.0))
    found = FINDING.check(swept(PLAIN, CURVE, policy=other))
    assert isinstance(found, Finding)
    assert found.headline.startswith("Thinking past the optimum lowers the score")


def test_what_cannot_act_on_the_server_is_not_prescribed(swept: Any) -> None:
    no_way = FINDING.check(swept(PLAIN, CURVE, server={"thinking_cap": "no", "prefix": "no"}))
    assert isinstance(no_way, Finding)
    assert not any(change.setting == "thinking_budget" for one in no_way.prescriptions for change in one.changes)
    outside = FINDING.check(swept(PLAIN, CURVE, server={"thinking_cap": "no", "prefix": "yes", "speculative": "yes"}))
    assert isinstance(outside, Finding)
    assert "budget-forcing" in outside.prescriptions[0].why
    assert "speculative" in outside.prescriptions[0].side_effect


def test_a_vote_for_the_same_tokens_comes_first_where_it_is_better(swept: Any) -> None:
    # One plain draw in eight is wrong, another one each time: a vote of two draws is right as often as one, 7/8; the
    # trace at 256 on 16/40.
    plain = np.where(np.arange(8) == np.arange(40)[:, None] % 8, 1 + np.arange(40)[:, None] % 3, 0)
    curve = {64: first_right(24), 128: first_right(30), 256: first_right(16)}
    found = FINDING.check(swept(plain, curve))
    assert isinstance(found, Finding)
    assert [one.changes for one in found.prescriptions] == [(Change("votes", 2),), (Change("thinking_budget", 128),)]


def test_agreement_stands_in_for_right_answers(swept: Any) -> None:
    found = FINDING.check(swept(PLAIN * 0, CURVE, labelled=False))
    assert isinstance(found, Finding)
    assert "agreement falls" in found.headline


def test_what_is_missing_is_said(swept: Any, recorded: Any) -> None:
    for evidence, said in (
        (swept(PLAIN), "fewer than two thinking budgets"),
        (
            swept(PLAIN[:11], {64: first_right(5, 11), 128: first_right(2, 11)}),
            "11 questions have samples; 12 are needed",
        ),
        (recorded(PLAIN, Policy(strategy=Vote(4))), "thinking was not varied"),
    ):
        found = FINDING.check(evidence)
        assert isinstance(found, CannotTell)
        assert said in found.missing
        assert "breadth tune" in found.switch_on


def test_a_sweep_that_was_cut_short_is_no_crash(swept: Any) -> None:
    evidence = swept(PLAIN, CURVE)
    for path in evidence.run.rollout_files[:1]:
        path.unlink()
    found = FINDING.check(type(evidence)("cut", Run.open(evidence.run.folder)))
    assert isinstance(found, CannotTell)
    assert found.missing == "the sweep has no question with all its samples"
