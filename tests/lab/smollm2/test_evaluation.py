"""Replies summed up by hand, and both ways of answering on a real, tiny model."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from breadth.lab import records
from breadth.lab.evaluation.extended_vs_parallel import ExtendedVsParallel, FinalAnswers
from breadth.lab.evaluation.training_log import TrainingLog
from breadth.lab.smollm2.evaluation import SmolLM2Arm, SumsEval, answer_sums, evaluate_sums, summarize_sum_replies
from breadth.lab.smollm2.experiment import SmolLM2Plan, Sum
from breadth.lab.smollm2.policy import SmolLM2Policy, SumReply
from breadth.runs.reader import Run


def reply(text: str, nats: float, *, ended: bool = True) -> SumReply:
    tokens = len(text) + ended
    return SumReply([1] * tokens, np.full(tokens, nats, np.float32), text, ended)


@pytest.fixture(scope="module")
def by_hand() -> SumsEval:
    first = [reply("110", 0.5), reply("110", 0.5), reply("111", 1.0), reply("85+25", 0.25, ended=False)]
    second = [reply("6", 0.0), reply("7", 0.0), reply("7", 0.0), reply("7", 0.0)]
    return summarize_sum_replies([Sum((37, 48, 25)), Sum((1, 2, 3))], [first, second], (1, 2, 4))


def test_coverage_by_hand(by_hand: SumsEval) -> None:
    # Two of four right, then one of four. pass@2: 1 - (2 choose 2) / (4 choose 2) = 5/6; 1 - (3 choose 2) / 6 = 1/2.
    assert by_hand.policy.scores_at(1).pass_at_k == pytest.approx((0.5, 0.25))
    assert by_hand.policy.scores_at(2).pass_at_k == pytest.approx((5 / 6, 0.5))
    assert by_hand.policy.scores_at(4).pass_at_k == pytest.approx((1.0, 1.0))
    assert by_hand.policy.scores_at(4).majority_at_k == pytest.approx((1.0, 0.0))


def test_breadth_by_hand(by_hand: SumsEval) -> None:
    # The first problem has 4 + 4 + 4 + 5 = 17 tokens with 2 + 2 + 4 + 1.25 = 9.25 nats; the second 8 tokens with none.
    assert by_hand.policy.entropy.value == pytest.approx(9.25 / 25)
    assert by_hand.policy.tokens.value == pytest.approx(25 / 8)
    assert by_hand.distinct.value == 2.0  # 110, 111; 6, 7
    assert by_hand.truncated == 1 / 8
    assert by_hand.policy.well_formed == 7 / 8
    # Shares (2/3, 1/3) of three answers, and (1/4, 3/4) of four; Miller-Madow adds 1/6 and 1/8.
    first = math.log(3) - 2 / 3 * math.log(2) + 1 / 6
    second = math.log(4) - 3 / 4 * math.log(3) + 1 / 8
    assert by_hand.policy.answer_entropy.value == pytest.approx((first + second) / 2)


def test_to_json_and_back(by_hand: SumsEval) -> None:
    again = records.record_from_json(SumsEval, records.record_to_json(by_hand))
    assert (again.distinct, again.truncated, again.policy.curve) == (
        by_hand.distinct,
        by_hand.truncated,
        by_hand.policy.curve,
    )
    assert math.isnan(again.policy.planning.value)


def test_replies_are_in_the_run_folder_once(policy: SmolLM2Policy, plan: SmolLM2Plan, tmp_path: Path) -> None:
    found = evaluate_sums(policy, plan, tmp_path, 2)
    assert records.record_to_json(evaluate_sums(policy, plan, tmp_path, 2)) == records.record_to_json(found)
    rows = (
        Run.open(tmp_path)
        .query("SELECT split, step, correct, answer, reference FROM rollouts JOIN problems USING (problem)")
        .to_pylist()
    )
    assert len(rows) == plan.problems * plan.samples
    assert {(row["split"], row["step"]) for row in rows} == {("eval", 2)}
    assert all(row["correct"] == (row["answer"] == row["reference"]) for row in rows)
    assert np.mean([row["correct"] for row in rows]) == pytest.approx(found.policy.scores_at(1).pass_rate.value)
    assert 0 < found.policy.scores_at(1).pass_rate.value < 1


def test_both_ways_at_equal_tokens(policy: SmolLM2Policy, plan: SmolLM2Plan) -> None:
    both = answer_sums(policy, plan)
    long, vote = np.array(both.extended.tokens), np.array(both.parallel.tokens)
    assert long.shape == vote.shape == (plan.compared_problems, 1)
    # Exactly twenty tokens of thinking, and at most the twelve kept for the answer behind them.
    assert (long >= plan.thinking).all()
    assert (long <= plan.thinking + plan.max_completion_length).all()
    assert (vote <= long).all()
    # An answer takes four tokens, so that several voted.
    assert (vote > 4).all()
    assert records.record_to_json(answer_sums(policy, plan)) == records.record_to_json(both)


def test_to_json_and_back_and_to_the_corners() -> None:
    import numpy as np

    said = SumReply([5, 1], np.array([0.5, 0.0], np.float32), "6", ended=True)
    both = ExtendedVsParallel(
        9,
        FinalAnswers((("6",),), ((True,),), ((10,),), ((10,),)),
        FinalAnswers((("7",),), ((False,),), ((4,),), ((10,),)),
    )
    arm = SmolLM2Arm(
        summarize_sum_replies([Sum((1, 2, 3))], [[said, said]], (1, 2)),
        both,
        TrainingLog((1,), (0.5,), (0.25,), (0.0,), (1.0,)),
    )
    again = records.record_from_json(SmolLM2Arm, records.record_to_json(arm))
    assert (again.answers, again.training, again.sums.distinct) == (
        arm.answers,
        arm.training,
        arm.sums.distinct,
    )
    assert again.arm.policy.scores_at(2).pass_at_k == (1.0,)
    assert again.arm.answers == both
