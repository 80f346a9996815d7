"""Replies summed up by hand, and both ways of answering on a real, tiny model."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from breadth.lab import records
from breadth.lab.evaluation.extended_vs_parallel import BothWays, Replies
from breadth.lab.evaluation.training_log import TrainingLog
from breadth.lab.smollm2.evaluation import Breadth, RungArm, answer_sums, breadth_of, measure
from breadth.lab.smollm2.experiment import RungPlan, Sum
from breadth.lab.smollm2.policy import Policy, Reply
from breadth.runs.reader import Run


def reply(text: str, nats: float, *, ended: bool = True) -> Reply:
    tokens = len(text) + ended
    return Reply([1] * tokens, np.full(tokens, nats, np.float32), text, ended)


@pytest.fixture(scope="module")
def by_hand() -> Breadth:
    first = [reply("110", 0.5), reply("110", 0.5), reply("111", 1.0), reply("85+25", 0.25, ended=False)]
    second = [reply("6", 0.0), reply("7", 0.0), reply("7", 0.0), reply("7", 0.0)]
    return breadth_of([Sum((37, 48, 25)), Sum((1, 2, 3))], [first, second], (1, 2, 4))


def test_coverage_by_hand(by_hand: Breadth) -> None:
    # Two of four right, then one of four. pass@2: 1 - (2 choose 2) / (4 choose 2) = 5/6; 1 - (3 choose 2) / 6 = 1/2.
    assert by_hand.measured.at(1).passed == pytest.approx((0.5, 0.25))
    assert by_hand.measured.at(2).passed == pytest.approx((5 / 6, 0.5))
    assert by_hand.measured.at(4).passed == pytest.approx((1.0, 1.0))
    assert by_hand.measured.at(4).majority == pytest.approx((1.0, 0.0))


def test_breadth_by_hand(by_hand: Breadth) -> None:
    # The first problem has 4 + 4 + 4 + 5 = 17 tokens with 2 + 2 + 4 + 1.25 = 9.25 nats; the second 8 tokens with none.
    assert by_hand.measured.entropy.value == pytest.approx(9.25 / 25)
    assert by_hand.measured.tokens.value == pytest.approx(25 / 8)
    assert by_hand.distinct.value == 2.0  # 110, 111; 6, 7
    assert by_hand.cut == 1 / 8
    assert by_hand.measured.formed == 7 / 8
    # Shares (2/3, 1/3) of three answers, and (1/4, 3/4) of four; Miller-Madow adds 1/6 and 1/8.
    first = math.log(3) - 2 / 3 * math.log(2) + 1 / 6
    second = math.log(4) - 3 / 4 * math.log(3) + 1 / 8
    assert by_hand.measured.answer_entropy.value == pytest.approx((first + second) / 2)


def test_to_json_and_back(by_hand: Breadth) -> None:
    again = records.loads(Breadth, records.dumps(by_hand))
    assert (again.distinct, again.cut, again.measured.curve) == (by_hand.distinct, by_hand.cut, by_hand.measured.curve)
    assert math.isnan(again.measured.planning.value)


def test_replies_are_in_the_run_folder_once(policy: Policy, plan: RungPlan, tmp_path: Path) -> None:
    found = measure(policy, plan, tmp_path, 2)
    assert records.dumps(measure(policy, plan, tmp_path, 2)) == records.dumps(found)
    rows = (
        Run.open(tmp_path)
        .query("SELECT split, step, correct, answer, reference FROM rollouts JOIN problems USING (problem)")
        .to_pylist()
    )
    assert len(rows) == plan.problems * plan.samples
    assert {(row["split"], row["step"]) for row in rows} == {("eval", 2)}
    assert all(row["correct"] == (row["answer"] == row["reference"]) for row in rows)
    assert np.mean([row["correct"] for row in rows]) == pytest.approx(found.measured.at(1).pass_rate.value)
    assert 0 < found.measured.at(1).pass_rate.value < 1


def test_both_ways_at_equal_tokens(policy: Policy, plan: RungPlan) -> None:
    both = answer_sums(policy, plan)
    long, vote = np.array(both.extended.tokens), np.array(both.parallel.tokens)
    assert long.shape == vote.shape == (plan.asked, 1)
    # Exactly twenty tokens of thinking, and at most the twelve kept for the answer behind them.
    assert (long >= plan.thinking).all()
    assert (long <= plan.thinking + plan.longest).all()
    assert (vote <= long).all()
    # An answer takes four tokens, so that several voted.
    assert (vote > 4).all()
    assert records.dumps(answer_sums(policy, plan)) == records.dumps(both)


def test_to_json_and_back_and_to_the_corners() -> None:
    import numpy as np

    said = Reply([5, 1], np.array([0.5, 0.0], np.float32), "6", ended=True)
    both = BothWays(
        9, Replies((("6",),), ((True,),), ((10,),), ((10,),)), Replies((("7",),), ((False,),), ((4,),), ((10,),))
    )
    arm = RungArm(
        breadth_of([Sum((1, 2, 3))], [[said, said]], (1, 2)), both, TrainingLog((1,), (0.5,), (0.25,), (0.0,), (1.0,))
    )
    again = records.loads(RungArm, records.dumps(arm))
    assert (again.both_ways, again.training, again.breadth.distinct) == (
        arm.both_ways,
        arm.training,
        arm.breadth.distinct,
    )
    assert again.arm.measured.at(2).passed == (1.0,)
    assert again.arm.both_ways == both
