"""Stop rules replayed over stored samples: savings and losses, with a library only from enough questions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from breadth.inference.stopping.posterior import BetaLead
from breadth.inference.stopping.risk import Risk
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.tuning.evidence import SweepEvidence
from breadth.tuning.policy_fit import FULL_VOTE, fit_confidence, fit_stop

Made = Callable[..., SweepEvidence]


def test_unanimous_votes_stop_as_early_as_each_rule_can(made: Made) -> None:
    fit = fit_stop(made([[0] * 8] * 10), 8)
    # 1 - 2^-(n+1) reaches 0.8, 0.9, 0.95, 0.99 at 2, 3, 4, 6 votes.
    draws = {option.name: option.draws.value for option in fit.tried}
    assert draws == {"Beta lead 0.8": 2, "Beta lead 0.9": 3, "Beta lead 0.95": 4, "Beta lead 0.99": 6, FULL_VOTE: 8}
    assert fit.chosen.name == "Beta lead 0.8"
    assert fit.chosen.strategy == AdaptiveVote(8, 8, BetaLead(0.8))
    assert fit.chosen.tokens == 20
    assert fit.chosen.score.value == fit.chosen.agreement.value == 1


def test_a_rule_that_loses_is_not_taken(made: Made) -> None:
    # Right answers lead by 5 to 3 at the end. A rule that stops at two or three equal votes may stop at wrong ones;
    # 0.95 takes
    # four equal votes, or a lead that three wrong ones never have.
    fit = fit_stop(made([[0, 0, 0, 0, 0, 1, 1, 1]] * 30), 8)
    early = next(option for option in fit.tried if option.name == "Beta lead 0.8")
    assert early.change.difference.value < -0.05
    assert fit.chosen.name == "Beta lead 0.95"
    assert fit.chosen.score.value == 1


def test_a_library_is_fitted_where_there_are_enough_questions(made: Made) -> None:
    rng = np.random.default_rng(0)
    table = [rng.choice([0, 1, 2], 8, p=[0.7, 0.2, 0.1]).tolist() for _ in range(40)]
    fit = fit_stop(made(table), 8)
    (stated,) = [option for option in fit.tried if option.name == "risk 5%"]
    assert isinstance(stated.strategy, AdaptiveVote)
    assert isinstance(stated.strategy.stop, Risk)
    assert stated.strategy.stop.library.questions == 40
    assert stated.draws.value < 8
    assert 1 - stated.agreement.low > 0.02  # some of the forty end otherwise, about as many as stated
    assert stated.agreement.value == pytest.approx(0.95, abs=0.05)
    assert not [option for option in fit_stop(made(table[:39]), 8).tried if option.name.startswith("risk")]


def test_hard_questions_count_with_the_tokens_they_write(made: Made) -> None:
    # Half the questions are unanimous at 10 tokens a sample, half split evenly over eight answers at 90: those draw all
    # eight.
    evidence = made([[0] * 8] * 10 + [list(range(8))] * 10)
    evidence.plain.tokens[:] = np.repeat([10.0, 90.0], 10)[:, None]
    fit = fit_stop(evidence, 8)
    tokens = {option.name: option.tokens for option in fit.tried}
    assert tokens["Beta lead 0.95"] == pytest.approx((4 * 10 + 8 * 90) / 2)
    assert tokens[FULL_VOTE] == pytest.approx((8 * 10 + 8 * 90) / 2)


def test_the_draws_of_the_whole_vote_are_known_without_an_interval(made: Made) -> None:
    (whole,) = [option for option in fit_stop(made([[0] * 8] * 10), 8).tried if option.name == FULL_VOTE]
    assert (whole.draws.low, whole.draws.value, whole.draws.high) == (8, 8, 8)


def drawn(
    surer: float, right: float, questions: int = 60, seed: int = 0
) -> tuple[list[list[int]], np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    rng = np.random.default_rng(seed)
    classes = (rng.random((questions, 8)) >= right).astype(int)
    return classes.tolist(), 10 + rng.normal(size=classes.shape) + surer * (classes == 0)


def test_without_log_probs_there_is_nothing_to_say(made: Made) -> None:
    assert fit_confidence(made([[0, 1]] * 20), 2) is None


def test_a_confidence_that_tells_nothing_leaves_the_gate_shut(made: Made) -> None:
    classes, sure = drawn(0.0, 0.5)
    fit = fit_confidence(made(classes, confidences=sure), 8)
    assert fit is not None
    assert not fit.gate.open
    assert fit.strategy is None
    assert fit.change is None


def test_a_confidence_that_tells_right_from_wrong_is_used_where_it_gains(made: Made) -> None:
    classes, sure = drawn(6.0, 0.4)
    fit = fit_confidence(made(classes, confidences=sure), 4)
    assert fit is not None
    assert fit.gate.open
    assert fit.gate.evidence == "labelled"
    assert fit.change is not None
    assert fit.change.difference.low > 0
    assert fit.strategy == ConfidenceVote(4, gate=fit.gate)


def test_an_open_gate_without_a_gain_keeps_the_plain_vote(made: Made) -> None:
    classes, sure = drawn(3.0, 0.97)
    fit = fit_confidence(made(classes, confidences=sure, labelled=False), 8)
    assert fit is not None
    assert fit.gate.open
    assert fit.gate.evidence == "self-consistent"
    assert fit.strategy is None


def test_a_single_draw_has_no_vote_to_weigh(made: Made) -> None:
    classes, sure = drawn(6.0, 0.4)
    fit = fit_confidence(made(classes, confidences=sure), 1)
    assert fit is not None
    assert fit.gate.open
    assert fit.strategy is None
