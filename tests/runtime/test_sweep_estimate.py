"""What a sweep will cost, by hand."""

from __future__ import annotations

import pytest

from breadth.base.errors import SettingsError
from breadth.inference.budget import Spend
from breadth.inference.policy import Policy
from breadth.inference.sweep_plan import SweepPlan, forced_arms, plain_arm
from breadth.inference.thinking import PLAIN
from breadth.runtime.sweep_estimate import affordable, estimate, needed

PLAN = SweepPlan(Policy(), (plain_arm((1, 8)), *forced_arms([64], PLAIN, 2)), (1, 8), 10)
PILOT = {0: [Spend(1, 10, 0, 20, 1.0, 0.1), Spend(1, 10, 4, 40, 3.0, 0.3)], 1: [Spend(3, 90, 0, 70, 5.0, 0.5)]}


def test_one_question_takes_each_arm_s_mean_times_its_draws() -> None:
    # Plain: 8 x (1, 10, 2, 30, 2 s, 0.2); forced: 2 x (3, 90, 0, 70, 5 s, 0.5).
    each = needed(PLAN, PILOT)
    assert (each.calls, each.input_tokens, each.cached_tokens, each.output_tokens) == (8 + 6, 80 + 180, 16, 240 + 140)
    assert (each.seconds, each.money) == pytest.approx((16.0 + 10.0, 1.6 + 1.0))


def test_what_is_missing_is_scaled_and_shared_over_streams() -> None:
    told = estimate(PLAN, needed(PLAN, PILOT), 50, Spend(3), of=12, at_once=4, pilot=3)
    # 100 samples of which 50 are there: five questions' worth; 26 s each over four streams.
    assert (told.samples, told.drawn, told.questions, told.of) == (100, 50, 10, 12)
    assert told.coming.output_tokens == 5 * 380
    assert told.coming.calls == 70
    assert told.coming.seconds == pytest.approx(5 * 26 / 4)
    assert told.spent == Spend(3)


def test_nothing_is_to_come_when_all_is_there() -> None:
    assert estimate(PLAN, needed(PLAN, PILOT), 100, Spend(), of=10, at_once=4, pilot=3).coming == Spend()
    # More may be there from an attempt with a higher ceiling: of these 100 samples it is all.
    assert estimate(PLAN, needed(PLAN, PILOT), 160, Spend(), of=10, at_once=4, pilot=3).drawn == 100


def test_a_ceiling_pays_for_nine_tenths_of_itself() -> None:
    each = Spend(output_tokens=100)
    assert affordable(PLAN, each, 50, 2000) == 18
    assert affordable(PLAN, each, 10, 2000) == 10
    assert affordable(PLAN, each, 50, None) == 50
    with pytest.raises(SettingsError, match="about 100"):
        affordable(PLAN, each, 50, 300)
