"""The flat filter: what it keeps and what it counts, by hand; bad input, the contract."""

import math
from dataclasses import replace
from typing import Literal

import pytest
import torch

from breadth.base.errors import MechanismError, SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.credit.flat_filter import FlatFilter
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.maxrl import MaxRL
from breadth.training.credit.repeat_penalty import RepeatPenalty
from breadth.training.mechanism import Mechanism, Regime
from breadth.training.objective import Objective
from breadth.training.records import Rollouts, not_none

NAN = math.nan


def _rollouts(groups: list[int], correct: list[float] | None, rewards: list[float] | None = None) -> Rollouts:
    marks = None if correct is None else torch.tensor(correct, dtype=torch.float64)
    shaped = marks if rewards is None else torch.tensor(rewards, dtype=torch.float64)
    assert shaped is not None
    return Rollouts(rewards=shaped, groups=torch.tensor(groups), lengths=torch.ones(len(groups)), correct=marks)


def _kept(record: Rollouts, *chain: Mechanism[Rollouts, None]) -> tuple[list[bool], dict[str, float]]:
    after, metrics = Objective(Chain(chain)).credit(record)
    return list(not_none(after.kept).tolist()), {
        name.removeprefix("flat-filter/"): value for name, value in metrics.items()
    }


def test_it_drops_what_is_all_right_or_all_wrong_and_counts_it() -> None:
    record = _rollouts([0, 0, 1, 1, 2, 2, 3, 3], [1, 1, 0, 1, 0, 0, 0, 0])
    kept, metrics = _kept(record, FlatFilter())
    assert kept == [False, False, True, True, False, False, False, False]
    assert metrics["dropped"] == pytest.approx(3 / 4)
    assert metrics["solve_all"] == pytest.approx(1 / 4)
    assert metrics["solve_none"] == pytest.approx(2 / 4)


def test_groups_of_unequal_size_count_alike() -> None:
    _, metrics = _kept(_rollouts([0] * 6 + [1, 1], [0.0] * 7 + [1.0]), FlatFilter())
    assert metrics["dropped"] == pytest.approx(1 / 2)


def test_shaped_rewards_rescue_no_flat_group_by_accuracy() -> None:
    record = _rollouts([0, 0, 1, 1], [0, 0, 0, 1], rewards=[-0.2, -0.1, 0.0, 0.0])
    assert _kept(record, FlatFilter())[0] == [False, False, True, True]
    assert _kept(record, FlatFilter("reward"))[0] == [True, True, False, False]


def test_rewards_that_differ_only_by_rounding_are_flat() -> None:
    tenths = 0.1 + 0.1 + 0.1
    assert tenths != 0.3
    assert _kept(_rollouts([0, 0], None, rewards=[tenths, 0.3]), FlatFilter("reward"))[0] == [False, False]
    assert _kept(_rollouts([0, 0, 0], None, rewards=[0.1] * 3), FlatFilter("reward"))[0] == [False] * 3


def test_equal_rewards_of_a_large_group_in_single_precision_are_flat() -> None:
    record = Rollouts(torch.full((256,), 3.3), torch.zeros(256, dtype=torch.long), torch.ones(256))
    assert not any(_kept(record, FlatFilter("reward"))[0])


def test_groups_of_one_leave_nothing() -> None:
    verdict = FlatFilter().no_effect(Regime(group_size=1))
    assert verdict is not None
    assert "every rollout is dropped" in verdict.reason
    assert FlatFilter("reward").no_effect(Regime(group_size=1)) is not None
    assert FlatFilter("advantage").no_effect(Regime(group_size=1)) is None
    assert FlatFilter().no_effect(Regime(group_size=2)) is None
    assert FlatFilter().no_effect(Regime()) is None


def test_by_the_advantage_a_bonus_is_a_signal() -> None:
    record = replace(_rollouts([0, 0, 0, 1, 1, 1], [0.0] * 6), outcomes=["1", "1", "2", "1", "2", "3"])
    # all wrong: no advantage from the estimator; the first group repeats an answer, the second does not
    chain = (GroupAdvantage(), RepeatPenalty(0.1))
    assert _kept(record, *chain, FlatFilter("advantage"))[0] == [True] * 3 + [False] * 3
    assert _kept(record, *chain, FlatFilter())[0] == [False] * 6
    assert _kept(record, GroupAdvantage(), FlatFilter("advantage"), RepeatPenalty(0.1))[0] == [False] * 6


def test_by_the_advantage_an_equal_push_is_a_signal() -> None:
    assert _kept(_rollouts([0, 0, 1, 1], [0, 0, 1, 1]), MaxRL(), FlatFilter("advantage"))[0] == [
        True,
        True,
        False,
        False,
    ]


def test_by_the_advantage_tokens_outside_the_mask_say_nothing() -> None:
    advantages = torch.tensor([[0.0, 0.0, 9.0], [0.0, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.0]])
    mask = torch.tensor([[True, True, False]] * 4)
    record = replace(_rollouts([0, 0, 1, 1], [1, 0, 1, 0]), advantages=advantages, mask=mask)
    assert _kept(record, FlatFilter("advantage"))[0] == [False, False, True, True]


def test_without_correctness_nothing_is_said_of_solved_problems() -> None:
    _, metrics = _kept(_rollouts([0, 0], None, rewards=[0.0, 1.0]), FlatFilter("reward"))
    assert metrics == {"dropped": 0.0}


def test_unknown_rollouts_say_nothing() -> None:
    kept, metrics = _kept(_rollouts([0, 0, 0, 1, 1, 2, 2], [1, 0, NAN, 1, NAN, NAN, NAN]), FlatFilter())
    assert kept == [True] * 3 + [False] * 4
    assert metrics["dropped"] == pytest.approx(2 / 3)
    assert metrics["solve_all"] == pytest.approx(1 / 2)  # of the two groups anything is known of
    assert metrics["solve_none"] == 0.0


def test_a_group_of_one_is_flat() -> None:
    assert _kept(_rollouts([0, 1, 1], [1, 1, 0]), FlatFilter())[0] == [False, True, True]


def test_what_was_dropped_before_stays_dropped_and_does_not_count() -> None:
    record = replace(_rollouts([0, 0, 1, 1], [0, 1, 0, 1]), kept=torch.tensor([True, False, False, False]))
    kept, metrics = _kept(record, FlatFilter())
    assert kept == [False] * 4
    assert metrics["dropped"] == 1.0  # of one group: the other was gone


def test_nothing_gives_no_share() -> None:
    kept, metrics = _kept(_rollouts([], []), FlatFilter())
    assert kept == []
    assert math.isnan(metrics["dropped"])


def test_it_needs_correctness_only_to_decide_by_it() -> None:
    assert FlatFilter().needs == {"correct"}
    assert FlatFilter("reward").needs == FlatFilter("advantage").needs == frozenset()
    with pytest.raises(MechanismError, match="was not provided"):
        _kept(_rollouts([0, 0], None, rewards=[0.0, 1.0]), FlatFilter())


def test_it_stands_after_the_estimator() -> None:
    with pytest.raises(MechanismError, match="after group-advantage"):
        Chain((FlatFilter(), GroupAdvantage()))


@pytest.mark.parametrize("on", ["correct", "reward", "advantage"])
def test_contract(on: Literal["correct", "reward", "advantage"]) -> None:
    check_mechanism(FlatFilter(on))


def test_a_misspelt_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match="FlatFilter got on = 'accuracy'"):
        FlatFilter(on="accuracy")  # type: ignore[arg-type]  # what a user may write


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        FlatFilter, {"on": "correct"}, accepted=[{"on": "reward"}, {"on": "advantage"}], refused=[{"on": "other"}]
    )


@pytest.mark.parametrize(
    ("gap", "kept"),
    [([0.0, 1.5e-6], False), ([0.0, 2.5e-6], True), ([1000.0, 1000.0015], False), ([1e3, 1000.003], True)],
)
def test_how_far_equal_rewards_may_differ_grows_with_their_size(gap: list[float], kept: bool) -> None:
    # Half the gap against a millionth of 1 + the reward.
    assert _kept(_rollouts([0, 0], None, rewards=gap), FlatFilter("reward"))[0] == [kept] * 2


def test_exactly_the_tolerance_is_no_difference() -> None:
    # r and -r with r = 1e-6 (1 + r), each step rounded to a float.
    edge = 1e-6
    for _ in range(9):
        edge = 1e-6 * (1 + edge)
    above = math.nextafter(math.nextafter(edge, 1), 1)
    record = _rollouts([0, 0, 1, 1], None, rewards=[edge, -edge, above, -above])
    assert _kept(record, FlatFilter("reward"))[0] == [False, False, True, True]


def test_an_advantage_of_a_millionth_is_none() -> None:
    advantages = torch.tensor([1e-6, -1e-6, 1.1e-6, 0.0], dtype=torch.float64)
    record = replace(_rollouts([0, 0, 1, 1], [0, 1, 0, 1]), advantages=advantages)
    assert _kept(record, FlatFilter("advantage"))[0] == [False, False, True, True]
