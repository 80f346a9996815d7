"""The repeat penalty: numbers by hand, bad input, the contract."""

import math
from dataclasses import replace

import pytest
import torch

from breadth.base.errors import MechanismError, SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.credit.repeat_penalty import RepeatPenalty
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Rollouts, not_none


def _rollouts(
    outcomes: list[str | None], groups: list[int] | None = None, rewards: list[float] | None = None
) -> Rollouts:
    count = len(outcomes)
    return Rollouts(
        rewards=torch.tensor(rewards or [0.0] * count, dtype=torch.float64),
        groups=torch.tensor(groups or [0] * count),
        lengths=torch.ones(count),
        outcomes=outcomes,
    )


def _change(record: Rollouts, coefficient: float = 1.0) -> list[float]:
    return list(not_none(RepeatPenalty(coefficient).apply(record.clean(), None, None).after.advantages).tolist())


def test_numbers() -> None:
    # "7" is given by 3 others of 8: 3/8; "5" by one: 1/8
    record = _rollouts(["7", "7", "7", "5", "9", "5", "7", "3"])
    expected = [-0.375, -0.375, -0.375, -0.125, 0, -0.125, -0.375, 0]
    assert _change(record) == pytest.approx(expected, abs=1e-6)
    assert _change(record, 0.1) == pytest.approx([0.1 * one for one in expected], abs=1e-6)


def test_distinct_answers_cost_nothing() -> None:
    assert _change(_rollouts(["1", "2", "3"])) == [0.0, 0.0, 0.0]


def test_unparsable_answers_equal_nothing() -> None:
    assert _change(_rollouts([None, None, "1", "1"])) == pytest.approx([0, 0, -0.25, -0.25], abs=1e-6)


def test_only_the_own_group_counts() -> None:
    assert _change(_rollouts(["1", "1", "1", "2"], [0, 1, 0, 1])) == pytest.approx([-0.5, 0, -0.5, 0], abs=1e-6)


def test_unscored_rollouts_neither_pay_nor_count() -> None:
    assert _change(_rollouts(["1", "1", "1"], rewards=[math.nan, 0.0, 0.0])) == pytest.approx([0, -0.5, -0.5], abs=1e-6)


def test_token_advantages_pay_on_every_token() -> None:
    record = replace(_rollouts(["1", "1"]), advantages=torch.ones(2, 3, dtype=torch.float64))
    assert torch.tensor(_change(record)).flatten().tolist() == pytest.approx([0.5] * 6, abs=1e-6)


def test_metrics() -> None:
    _, metrics = Objective(Chain((RepeatPenalty(),))).credit(_rollouts(["1", "1", "2", None]))
    assert metrics["repeat-penalty/penalty"] == pytest.approx(0.125, abs=1e-6)
    assert metrics["repeat-penalty/repeated"] == pytest.approx(0.5)


def test_as_many_answers_as_rollouts() -> None:
    with pytest.raises(MechanismError, match="There are 2 rollouts, but 1 outcomes"):
        _change(replace(_rollouts(["a", "b"]), outcomes=["a"]))


def test_settings_and_regime() -> None:
    with pytest.raises(SettingsError, match="coefficient"):
        RepeatPenalty(-1.0)
    assert RepeatPenalty().no_effect(Regime(group_size=1)) is not None
    assert RepeatPenalty().no_effect(Regime(group_size=2)) is None


def test_contract() -> None:
    check_mechanism(RepeatPenalty())


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(RepeatPenalty, {"coefficient": 0.1}, accepted=[{"coefficient": 0.0}], refused=[{"coefficient": -0.1}])
