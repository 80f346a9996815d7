"""The pass@k advantage: the numbers of the paper's formula, unbiasedness by enumeration, bad input, the contract."""

import itertools
import math

import pytest
import torch

from breadth.base.errors import MechanismError, SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.leave_one_out import LeaveOneOut
from breadth.training.credit.pass_at_k import PassAtK, all_fail_probability
from breadth.training.mechanism import Mechanism, Regime
from breadth.training.objective import Objective
from breadth.training.records import Rollouts, not_none


def _advantages(
    mechanism: Mechanism[Rollouts, None], rewards: list[float], correct: list[float] | None = None
) -> list[float]:
    record = Rollouts(
        rewards=torch.tensor(rewards, dtype=torch.float64),
        groups=torch.zeros(len(rewards), dtype=torch.long),
        lengths=torch.ones(len(rewards)),
        correct=None if correct is None else torch.tensor(correct),
    )
    return list(not_none(Objective(Chain((mechanism,))).credit(record)[0].advantages).tolist())


def _group(n: int, c: int) -> list[float]:
    return [1.0] * c + [0.0] * (n - c)


def _moments(mechanism: PassAtK, n: int, p: float) -> tuple[float, float]:
    """Return mean and variance of the estimate:

    the group's mean of A times d log pi / d logit, over all outcomes of n tries.
    """
    first = second = 0.0
    for c in range(n + 1):
        chance = math.comb(n, c) * p**c * (1 - p) ** (n - c)
        rewards = _group(n, c)
        estimate = sum(a * (r - p) for a, r in zip(_advantages(mechanism, rewards, rewards), rewards, strict=True)) / n
        first, second = first + chance * estimate, second + chance * estimate**2
    return first, second - first**2


@pytest.mark.parametrize(
    ("n", "c", "k", "success", "failure"),
    [
        (8, 2, 1, 1.732051, -0.577350),
        (8, 2, 2, 1.074172, -0.358057),
        (8, 2, 4, 0.522233, -0.174078),
        (8, 1, 4, 1.0, -0.142857),
        (8, 4, 4, 0.120386, -0.120386),
        (8, 5, 4, 0.0, 0.0),
    ],
)
def test_normalised_numbers(n: int, c: int, k: int, success: float, failure: float) -> None:
    # the numbers are without the 1e-6 beside the deviation; with it the advantages are up to 4e-6 smaller
    found = _advantages(PassAtK(k=k, epsilon=1e-12), _group(n, c))
    assert found == pytest.approx([success] * c + [failure] * (n - c), abs=1e-6)
    assert sum(found) == pytest.approx(0.0, abs=1e-9)
    assert _advantages(PassAtK(k=k), _group(n, c)) == pytest.approx(found, abs=5e-6)


@pytest.mark.parametrize(("n", "c", "k"), [(8, 3, 2), (6, 1, 5), (16, 7, 4)])
def test_normalised_is_the_papers_formula_with_both_binomials(n: int, c: int, k: int) -> None:
    rho = 1 - math.comb(n - c, k) / math.comb(n, k)
    deviation = math.sqrt(rho * (1 - rho)) + 1e-6
    success = (1 - rho) / deviation
    failure = (1 - rho - math.comb(n - c - 1, k - 1) / math.comb(n - 1, k - 1)) / deviation
    assert _advantages(PassAtK(k=k), _group(n, c)) == pytest.approx([success] * c + [failure] * (n - c), abs=1e-9)


def test_one_try_is_the_group_advantage_with_the_population_deviation() -> None:
    rewards = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    expected = _advantages(GroupAdvantage(scale="population"), rewards)
    assert _advantages(PassAtK(k=1), rewards) == pytest.approx(expected, abs=1e-9)
    expected = _advantages(LeaveOneOut(), rewards)
    assert _advantages(PassAtK(k=1, form="unbiased"), rewards) == pytest.approx(expected, abs=1e-9)


def test_rewards_of_minus_one_and_one_are_no_trap() -> None:
    expected = _advantages(PassAtK(k=4), _group(8, 2))
    assert _advantages(PassAtK(k=4), [1.0] * 2 + [-1.0] * 6) == expected
    assert all(advantage not in (-1.0, 1.0) for advantage in expected)


def test_correctness_decides_where_rewards_are_shaped() -> None:
    shaped = [0.9, 1.1, 0.05, 0.0, 0.1, -0.2, 0.0, 0.3]
    assert _advantages(PassAtK(k=4), shaped, _group(8, 2)) == _advantages(PassAtK(k=4), _group(8, 2))
    with pytest.raises(MechanismError, match="more than two levels"):
        _advantages(PassAtK(k=4), shaped)


def test_unscored_rollouts_are_left_out() -> None:
    found = _advantages(PassAtK(k=4), [math.nan, *_group(8, 2), math.nan])
    assert found == [0.0, *_advantages(PassAtK(k=4), _group(8, 2)), 0.0]


@pytest.mark.parametrize("form", ["normalised", "unbiased"])
def test_a_group_smaller_than_k_gets_nothing(form: str) -> None:
    mechanism = PassAtK(k=4, form="unbiased" if form == "unbiased" else "normalised")
    assert _advantages(mechanism, [1.0, 0.0, 0.0]) == [0.0] * 3
    assert _advantages(mechanism, [1.0, 0.0, 0.0, math.nan]) == [0.0] * 4


def test_flat_groups_get_exactly_nothing() -> None:
    for mechanism in (PassAtK(k=4), PassAtK(k=4, form="unbiased")):
        assert _advantages(mechanism, [1.0] * 8, [1.0] * 8) == [0.0] * 8
        assert _advantages(mechanism, [0.0] * 8, [0.0] * 8) == [0.0] * 8


def test_unbiased_weights_without_baseline() -> None:
    # n = 4, k = 2, one success: weights k/n = 1/2 and (1/2)(1 - C(2,1)/C(3,1)) = 1/6; the loss averages over n, so A is
    # n times that
    found = _advantages(PassAtK(k=2, form="unbiased", baseline=False), _group(4, 1))
    assert [one / 4 for one in found] == pytest.approx([0.5, 0.166667, 0.166667, 0.166667], abs=1e-6)


def test_unbiased_weights_with_baseline() -> None:
    # n = 4, k = 2, two successes: another try of the others fails for 2 of 3 (success) or 1 of 3 (failure).
    # success: 2 (1 - 1/3) = 4/3; failure: 2 ((1 - 1/3) - (1 - 1/3)) = 0
    assert _advantages(PassAtK(k=2, form="unbiased"), _group(4, 2)) == pytest.approx([4 / 3, 4 / 3, 0.0, 0.0], abs=1e-9)


@pytest.mark.parametrize(
    ("n", "k", "p", "gradient"), [(4, 2, 0.3, 0.294), (5, 3, 0.2, 0.3072), (4, 4, 0.3, None), (3, 1, 0.4, None)]
)
@pytest.mark.parametrize("baseline", [False, True])
def test_unbiased_by_enumeration(n: int, k: int, p: float, gradient: float | None, baseline: bool) -> None:
    """The expectation is d pass@k / d logit = k (1 - p)^(k - 1) p (1 - p), with and without the baseline."""
    exact = k * (1 - p) ** k * p
    if gradient is not None:
        assert exact == pytest.approx(gradient, abs=1e-9)
    assert _moments(PassAtK(k=k, form="unbiased", baseline=baseline), n, p)[0] == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize(("n", "k"), [(8, 2), (8, 4), (16, 4), (8, 8)])
@pytest.mark.parametrize("p", [0.05, 0.2, 0.5, 0.8])
def test_the_baseline_lowers_the_variance_of_several_tries(n: int, k: int, p: float) -> None:
    with_it = _moments(PassAtK(k=k, form="unbiased"), n, p)[1]
    assert with_it < _moments(PassAtK(k=k, form="unbiased", baseline=False), n, p)[1]


def test_unbiased_against_every_single_outcome() -> None:
    """The same without counting: all 2^4 outcomes in their order, and pass@2 of the others looked up by hand."""
    p, n, k, total = 0.3, 4, 2, 0.0
    for rewards in itertools.product([0.0, 1.0], repeat=n):
        chance = math.prod(p if one else 1 - p for one in rewards)
        found = _advantages(PassAtK(k=k, form="unbiased", baseline=False), list(rewards), list(rewards))
        for place, reward in enumerate(rewards):
            others = rewards[:place] + rewards[place + 1 :]
            by_hand = k * sum(max(reward, other) for other in others) / len(others)
            assert found[place] == pytest.approx(by_hand, abs=1e-9)
            total += chance * found[place] * (reward - p) / n
    assert total == pytest.approx(0.294, abs=1e-9)


def test_metrics() -> None:
    record = Rollouts(
        rewards=torch.tensor(_group(8, 2) + _group(8, 5)), groups=torch.arange(16) // 8, lengths=torch.ones(16)
    )
    _, metrics = Objective(Chain((PassAtK(k=4),))).credit(record)
    # pass@4 of 2 in 8 is .785714, of 5 in 8 it is 1 (3 failures); the second group is silent
    assert metrics["pass-at-k/pass_at_k"] == pytest.approx((0.785714 + 1) / 2, abs=1e-6)
    assert metrics["pass-at-k/silent"] == pytest.approx(0.5)


def test_it_tells_of_groups_too_small_for_k() -> None:
    assert PassAtK(k=4).no_effect(Regime(group_size=4)) is not None
    assert PassAtK(k=4).no_effect(Regime(group_size=5)) is None
    assert PassAtK(k=4, form="unbiased").no_effect(Regime(group_size=3)) is not None
    assert PassAtK(k=4, form="unbiased").no_effect(Regime(group_size=4)) is None
    assert PassAtK(k=4).no_effect(Regime()) is None


def test_settings_are_checked() -> None:
    with pytest.raises(SettingsError, match="k = 0"):
        PassAtK(k=0)
    with pytest.raises(SettingsError, match="epsilon"):
        PassAtK(epsilon=0.0)


@pytest.mark.parametrize(
    "mechanism", [PassAtK(k=2), PassAtK(k=2, form="unbiased"), PassAtK(k=3, form="unbiased", baseline=False)]
)
def test_contract(mechanism: PassAtK) -> None:
    check_mechanism(mechanism)


def test_a_misspelt_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match="PassAtK got form = 'paper'"):
        PassAtK(form="paper")  # type: ignore[arg-type]  # what a user may write


def test_one_try_of_a_group_of_one_has_no_others_to_be_compared_with() -> None:
    for rewards in ([1.0], [0.0], [1.0, math.nan]):
        correct = [0.0 if math.isnan(one) else one for one in rewards]
        assert _advantages(PassAtK(k=1, form="unbiased"), rewards, correct) == [0.0] * len(rewards)
    assert _advantages(PassAtK(k=1, form="unbiased", baseline=False), [1.0], [1.0]) == [1.0]
    assert PassAtK(k=1, form="unbiased").no_effect(Regime(group_size=1)) is not None
    assert PassAtK(k=1, form="unbiased", baseline=False).no_effect(Regime(group_size=1)) is None


def test_stats_of_groups_with_exactly_k_with_more_and_with_fewer() -> None:
    # k = 2. One of two: pass@2 is 1, all silent. One of three: 1 - C(2,2) / C(3,2) = 2/3, nobody silent. One alone is
    # too few to tell, and silent. Each group counts once.
    record = Rollouts(
        torch.tensor([1.0, 0, 1, 0, 0, 1], dtype=torch.float64), torch.tensor([0, 0, 1, 1, 1, 2]), torch.ones(6)
    ).clean()
    effect = PassAtK(k=2).apply(record, None, None)
    assert effect.stats["pass_at_k"].value == pytest.approx((1 + 2 / 3) / 2)
    assert effect.stats["pass_at_k"].count == pytest.approx(2)
    assert (effect.stats["silent"].total, effect.stats["silent"].count) == (3, 6)
    advantages = not_none(effect.after.advantages).tolist()
    assert advantages[:2] == [0.0, 0.0]
    assert advantages[5] == 0.0
    assert advantages[2] == pytest.approx(math.sqrt(1 / 2), abs=1e-5)  # (1/3) / sqrt(2/9)


def test_the_unbiased_form_by_hand_with_k_of_three() -> None:
    # One of four. The success: 3 (1 - 0), as the others would all fail. A failure: with it 2 of 3 pairs pass, and
    # without it too: 0.
    mechanism = PassAtK(k=3, form="unbiased")
    assert _advantages(mechanism, [1.0, 0.0, 0.0, 0.0]) == pytest.approx([3.0, 0.0, 0.0, 0.0])
    # Without the baseline a failure gets 3 times 2/3.
    plain = PassAtK(k=3, form="unbiased", baseline=False)
    assert _advantages(plain, [1.0, 0.0, 0.0, 0.0]) == pytest.approx([3.0, 2.0, 2.0, 2.0])


def test_exactly_as_many_rollouts_as_a_form_needs() -> None:
    assert [PassAtK(k=3).min_group_size(), PassAtK(k=3, form="unbiased").min_group_size()] == [4, 3]
    assert PassAtK(k=1, form="unbiased").min_group_size() == 2
    assert PassAtK(k=1, form="unbiased", baseline=False).min_group_size() == 1
    assert _advantages(PassAtK(k=2, form="unbiased"), [1.0, 0.0])[0] == pytest.approx(2.0)
    for mechanism, size in ((PassAtK(k=3), 4), (PassAtK(k=3, form="unbiased"), 3)):
        assert mechanism.no_effect(Regime(group_size=size)) is None
        assert mechanism.no_effect(Regime(group_size=size - 1)) is not None


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        PassAtK,
        {"k": 4, "form": "normalised", "epsilon": 1e-06, "baseline": True},
        accepted=[{"k": 1}, {"epsilon": 1e-12}],
        refused=[{"k": 0}, {"epsilon": 0.0}, {"form": "other"}],
    )


def test_with_k_of_one_a_group_of_one_counts_and_is_silent() -> None:
    # Three of four: misses 1/4, so a success gets sqrt(1/4 / (3/4)) and the only failure three times that off.
    record = Rollouts(
        torch.tensor([1.0, 1, 1, 1, 0], dtype=torch.float64), torch.tensor([0, 1, 1, 1, 1]), torch.ones(5)
    ).clean()
    effect = PassAtK(k=1, epsilon=1e-12).apply(record, None, None)
    success = math.sqrt(1 / 3)
    assert not_none(effect.after.advantages).tolist() == pytest.approx([0.0, *[success] * 3, -3 * success])
    assert (effect.stats["pass_at_k"].total, effect.stats["pass_at_k"].count) == (pytest.approx(1 + 3 / 4), 2)
    assert (effect.stats["silent"].total, effect.stats["silent"].count) == (1, 5)


def test_the_chance_that_all_fail_with_tries_of_each_its_own() -> None:
    # 1; 2/4; (3 * 2) / (5 * 4); (3 * 2 * 1) / (5 * 4 * 3); only two failures, three tries: 0
    columns = [(3, 5, 0), (2, 4, 1), (3, 5, 2), (3, 5, 3), (2, 4, 3)]
    fails, total, tries = torch.tensor(columns, dtype=torch.float64).unbind(1)
    assert all_fail_probability(fails, total, tries).tolist() == pytest.approx([1.0, 0.5, 0.3, 0.1, 0.0])
    nothing = torch.zeros(0, dtype=torch.float64)
    assert all_fail_probability(nothing, nothing, nothing).tolist() == []
