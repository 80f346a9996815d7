"""Tuning blind: a known hump is found within its interval, a known vote too, and the policy runs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from breadth.base.settings import dump, load
from breadth.inference.policy import Policy
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.inference.strategies.single import Single
from breadth.runs.reader import Run
from breadth.runtime.driver import Driver
from breadth.testing.strategies import HumpModel
from breadth.tuning.result import analyze_sweep

Swept = Callable[..., Path]


def hump(words: int) -> float:
    """Rise from 0.1 at 8 words to 0.9 at 128 and fall to 0.5 at 256."""
    return float(np.interp(math.log2(max(words, 1)), [3, 5, 7, 8], [0.1, 0.5, 0.9, 0.5]))


def answered(policy: Policy, accuracy: Callable[[int], float] = lambda _: 1.0) -> str | None:
    model = HumpModel(accuracy, {"What is 1 + 1?": "2"})
    solved = asyncio.run(Driver(model).solve(policy.strategy, policy.task("What is 1 + 1?")))
    return solved.answer.answer


def test_a_known_hump_is_found_blind(swept: Swept) -> None:
    found = [analyze_sweep(Run.open(swept(hump, seed=seed))) for seed in range(3)]
    held = 0
    for result in found:
        assert (result.choice.outcome, result.choice.option.budget) == ("better", 128)
        assert result.hump is not None
        assert result.hump.is_positive
        assert result.hump.peak == 128
        # 128 tokens are three pieces of 32 words and 4 tokens of answer, and 20 words more: 116 words.
        held += (hump(116) in result.choice.score) + (hump(116) - hump(32) in result.choice.gain.difference)
    assert held >= 5  # of six intervals at 95 %, two or more miss with a chance of 3 %


def test_the_policy_is_a_file_that_runs(swept: Swept, tmp_path: Path) -> None:
    result = analyze_sweep(Run.open(swept(hump)))
    dump(result.policy, tmp_path / "policy.toml")
    policy = Policy.parse(str(tmp_path / "policy.toml"))
    assert policy == load(Policy, tmp_path / "policy.toml") == result.policy
    assert isinstance(policy.strategy, BudgetForcing)
    assert (policy.strategy.minimum, policy.strategy.maximum) == (128, 128)
    assert answered(policy) == "2"


def test_where_wrong_answers_scatter_a_vote_is_chosen_and_stops_early(swept: Swept) -> None:
    result = analyze_sweep(Run.open(swept(lambda _: 0.45, common_error_share=0.15, budgets=(32, 128), draws=2)))
    assert (result.choice.outcome, result.choice.option.width) == ("better", 8)
    assert result.stop is not None
    assert result.stops_early is not None
    assert result.stops_early.tokens < result.choice.option.cost
    assert isinstance(result.policy.strategy, AdaptiveVote)
    assert result.policy.strategy.most == 8
    assert result.hump is not None
    assert not result.hump.is_positive
    pair = result.equal[-1]
    assert (pair.budget, pair.width) == (128, 3)
    assert pair.difference.difference.low > 0
    assert answered(result.policy) == "2"


def test_without_labels_the_same_vote_is_found(swept: Swept) -> None:
    result = analyze_sweep(
        Run.open(swept(lambda _: 0.45, common_error_share=0.15, budgets=(32, 128), draws=2, labelled=False))
    )
    assert not result.evidence.labelled
    assert result.choice.option.width == 8


def test_where_nothing_helps_one_plain_draw_is_kept(swept: Swept) -> None:
    result = analyze_sweep(Run.open(swept(lambda _: 0.5, budgets=(64, 128), draws=2)))
    assert result.choice.outcome != "better"
    assert result.choice.option.cost <= result.choice.default.cost
    assert result.policy.strategy == Single()


def test_few_questions_keep_one_plain_draw(swept: Swept) -> None:
    result = analyze_sweep(Run.open(swept(hump, 6)))
    assert result.choice.outcome == "cannot tell"
    assert result.policy.strategy == Single()


def test_only_widths_where_thinking_cannot_be_forced(swept: Swept) -> None:
    result = analyze_sweep(Run.open(swept(lambda _: 0.45, common_error_share=0.15, offers=frozenset({"seed"}))))
    assert result.hump is None
    assert result.equal == ()
    assert result.choice.option.width == 8


def test_confidence_is_used_where_it_is_shown_to_help(swept: Swept) -> None:
    result = analyze_sweep(
        Run.open(swept(lambda _: 0.35, common_error_share=0.4, confidence_gap=8.0, budgets=(), draws=1))
    )
    assert result.choice.option.width == 8
    assert result.confidence is not None
    assert result.confidence.gate.open
    assert result.policy.strategy == ConfidenceVote(8, gate=result.confidence.gate)
    assert result.policy.sampling.top_logprobs == 20
    assert result.stops_early is None


def test_log_probs_are_not_asked_for_by_a_policy_that_does_not_look_at_them(swept: Swept) -> None:
    result = analyze_sweep(
        Run.open(swept(lambda _: 0.45, common_error_share=0.15, confidence_gap=0.0, budgets=(), draws=1))
    )
    assert result.confidence is not None
    assert not result.confidence.gate.open
    assert isinstance(result.policy.strategy, AdaptiveVote)
    assert result.policy.sampling.top_logprobs == 0


def test_the_same_folder_gives_the_same_policy(swept: Swept) -> None:
    run = Run.open(swept(hump, 20))
    assert analyze_sweep(run).policy == analyze_sweep(Run.open(run.folder)).policy


@pytest.mark.parametrize("questions", [1, 2])
def test_one_or_two_questions_are_no_crash(swept: Swept, questions: int) -> None:
    result = analyze_sweep(Run.open(swept(hump, questions, draws=1)))
    assert result.choice.outcome == "cannot tell"
    assert all(traits.entropy is None for traits in result.traits)


def test_where_plain_replies_never_come_to_an_answer_cutting_them_is_found(swept: Swept) -> None:
    # The model thinks beyond its cap, so plain replies state nothing; cut, it answers.
    result = analyze_sweep(Run.open(swept(lambda _: 1.0, 15, budgets=(8, 16), draws=2, natural_length=2000)))
    assert result.evidence.plain.truncated.all()
    assert (result.evidence.plain.classes == -1).all()
    assert result.choice.default.score == 0
    assert (result.choice.outcome, result.choice.option.budget) == ("cheaper", 8)
