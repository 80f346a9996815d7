"""The MaxRL advantage: numbers by hand, the objective's gradient by enumeration, bad input, the contract."""

import itertools
import math

import pytest
import torch

from breadth.base.errors import MechanismError, SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.credit.maxrl import MaxRL
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Rollouts, not_none


def _advantages(mechanism: MaxRL, rewards: list[float], correct: list[float] | None = None) -> list[float]:
    record = Rollouts(
        rewards=torch.tensor(rewards, dtype=torch.float64),
        groups=torch.zeros(len(rewards), dtype=torch.long),
        lengths=torch.ones(len(rewards)),
        correct=None if correct is None else torch.tensor(correct),
    )
    return list(not_none(Objective(Chain((mechanism,))).credit(record)[0].advantages).tolist())


def _expected(mechanism: MaxRL, n: int, p: float) -> float:
    """Return the expectation over all outcomes of n tries of the group's mean of A times d log pi / d logit."""
    total = 0.0
    for rewards in itertools.product([0.0, 1.0], repeat=n):
        chance = math.prod(p if one else 1 - p for one in rewards)
        total += (
            chance * sum(a * (r - p) for a, r in zip(_advantages(mechanism, list(rewards)), rewards, strict=True)) / n
        )
    return total


def test_rewards_over_the_success_rate() -> None:
    # two of four: 1 / .5 - 1 = 1; one of four: 1 / .25 - 1 = 3
    assert _advantages(MaxRL(), [1.0, 0.0, 0.0, 1.0]) == [1.0, -1.0, -1.0, 1.0]
    assert _advantages(MaxRL(), [0.0, 1.0, 0.0, 0.0]) == [-1.0, 3.0, -1.0, -1.0]
    assert _advantages(MaxRL(), [1.0, 1.0, 1.0]) == [0.0, 0.0, 0.0]


def test_with_the_control_variate_the_gradient_is_the_objectives() -> None:
    # d/dp of -sum (1-p)^k / k is (1 - (1-p)^N) / p; times p (1-p) for the logit
    n, p = 4, 0.3
    exact = (1 - (1 - p) ** n) * (1 - p)
    assert exact == pytest.approx(0.531930, abs=1e-6)
    assert _expected(MaxRL(), n, p) == pytest.approx(exact, abs=1e-9)


def test_dropping_unsolved_groups_biases_it() -> None:
    assert _expected(MaxRL(all_fail="zero"), 4, 0.3) == pytest.approx(0.459900, abs=1e-6)


@pytest.mark.parametrize(("n", "p"), [(1, 0.4), (2, 0.1), (6, 0.7)])
def test_it_stays_unbiased_for_other_sizes(n: int, p: float) -> None:
    assert _expected(MaxRL(), n, p) == pytest.approx((1 - (1 - p) ** n) * (1 - p), abs=1e-9)


def test_unsolved_groups() -> None:
    assert _advantages(MaxRL(), [0.0] * 3) == [-1.0] * 3
    assert _advantages(MaxRL(), [-1.0] * 3) == [-1.0] * 3
    assert _advantages(MaxRL(all_fail="zero"), [0.0] * 3) == [0.0] * 3


def test_rewards_of_minus_one_and_one() -> None:
    assert _advantages(MaxRL(), [-1.0, 1.0, -1.0, -1.0]) == [-1.0, 3.0, -1.0, -1.0]


def test_unscored_rollouts_are_left_out() -> None:
    assert _advantages(MaxRL(), [math.nan, 1.0, 0.0]) == [0.0, 1.0, -1.0]
    assert _advantages(MaxRL(), [math.nan, math.nan]) == [0.0, 0.0]


def test_shaped_rewards_need_correctness() -> None:
    assert _advantages(MaxRL(), [0.2, 0.9, 0.1], [0.0, 1.0, 0.0]) == [-1.0, 2.0, -1.0]
    with pytest.raises(MechanismError, match="more than two levels"):
        _advantages(MaxRL(), [0.2, 0.9, 0.1])


def test_it_tells_the_share_of_unsolved_problems() -> None:
    record = Rollouts(rewards=torch.tensor([1.0, 0, 0, 0]), groups=torch.tensor([0, 0, 1, 1]), lengths=torch.ones(4))
    _, metrics = Objective(Chain((MaxRL(),))).credit(record)
    assert metrics["maxrl/all_fail"] == 0.5


def test_it_tells_of_groups_of_one() -> None:
    assert MaxRL().no_effect(Regime(group_size=1)) is not None
    assert MaxRL().no_effect(Regime(group_size=8)) is None


@pytest.mark.parametrize("mechanism", [MaxRL(), MaxRL(all_fail="zero")])
def test_contract(mechanism: MaxRL) -> None:
    check_mechanism(mechanism)


def test_a_misspelt_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match="MaxRL got all_fail = 'drop'"):
        MaxRL(all_fail="drop")  # type: ignore[arg-type]  # what a user may write


def test_stats_count_known_rollouts() -> None:
    # three of four are in a group with a success: 3 / 1 - 1 = 2, -1, -1; the group without one gets -1
    record = Rollouts(torch.tensor([1.0, 0, 0, 0, math.nan]), torch.tensor([0, 0, 0, 1, 1]), torch.ones(5)).clean()
    stats = MaxRL().apply(record, None, None).stats
    assert (stats["all_fail"].total, stats["all_fail"].count) == (1, 4)
    assert (stats["size"].total, stats["size"].count) == (5.0, 4)


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(MaxRL, {"all_fail": "control"}, accepted=[{"all_fail": "zero"}], refused=[{"all_fail": "one"}])
