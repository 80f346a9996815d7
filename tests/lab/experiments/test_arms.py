"""Arms: each can act in its regime, differs from its control, and is written as TOML and read back."""

from __future__ import annotations

import pytest

from breadth.base.errors import MechanismError
from breadth.lab.experiments.arms import ALL_ARMS, ON_POLICY, PLAIN, SINGLE_ARMS, best_pair, join_arms
from breadth.lab.grpo import OFF_POLICY_UPDATES
from breadth.training.chain import Chain
from breadth.training.mechanism import Regime, mechanism_name
from breadth.training.objective import Objective

REMEDIES = [name for name in SINGLE_ARMS if name not in (ON_POLICY, PLAIN)]


def regime(name: str) -> Regime:
    course = SINGLE_ARMS[name].grpo_run(0)
    replies = course.prompts * course.group
    return Regime(course.updates, replies // course.updates, course.group, 30.0, 1.0)


@pytest.mark.parametrize("name", REMEDIES)
def test_every_remedy_can_act_in_its_regime(name: str) -> None:
    assert Objective(SINGLE_ARMS[name].chain).explain(regime(name)) == ()


@pytest.mark.parametrize("name", ["clip-higher", "gppo", "kl-cov"])
def test_those_that_take_several_updates_could_not_act_on_policy(name: str) -> None:
    assert SINGLE_ARMS[name].updates == OFF_POLICY_UPDATES
    on_policy = Regime(1, 128, 16, 30.0, 1.0)
    assert Objective(SINGLE_ARMS[name].chain).explain(on_policy)


def test_the_control_has_the_same_regime_and_reduction() -> None:
    for arm in SINGLE_ARMS.values():
        control = SINGLE_ARMS[arm.control]
        assert control.updates == arm.updates
        assert control.chain.reduction == arm.chain.reduction
    assert {name for name, arm in SINGLE_ARMS.items() if arm.chain == SINGLE_ARMS[arm.control].chain} == {
        ON_POLICY,
        PLAIN,
    }


@pytest.mark.parametrize("name", SINGLE_ARMS)
def test_chains_are_read_back_as_they_were(name: str) -> None:
    assert Chain.loads(SINGLE_ARMS[name].chain.dumps()) == SINGLE_ARMS[name].chain


def names(first: str, second: str) -> list[str]:
    return [mechanism_name(one) for one in join_arms(first, second).chain.mechanisms]


def test_both_remedies_stand_in_the_chain() -> None:
    assert names("ucb", "anchor") == ["group-advantage", "outcome-bonus", "clipped-policy", "reference-kl"]
    assert names("anchor", "entropy-bonus") == ["group-advantage", "clipped-policy", "reference-kl", "entropy-bonus"]
    pair = join_arms("clip-cov", "anchor")
    assert SINGLE_ARMS["clip-cov"].chain.mechanisms[1] in pair.chain.mechanisms  # its own surrogate, without a clip
    assert pair.control == ON_POLICY
    assert join_arms("kl-cov", "plain").control == PLAIN


def test_what_cannot_be_joined_is_refused() -> None:
    with pytest.raises(MechanismError, match="two regimes"):
        join_arms("anchor", "kl-cov")
    with pytest.raises(MechanismError, match="surrogate"):
        join_arms("clip-higher", "gppo")


def test_the_best_two_that_can_be_joined_are_chosen() -> None:
    votes = dict.fromkeys(SINGLE_ARMS, 0.1)
    assert best_pair({**votes, "ucb": 0.3, "anchor": 0.4, ON_POLICY: 0.9}) == ("anchor", "ucb")
    assert best_pair({"clip-higher": 0.5, "gppo": 0.5, "anchor": 0.2, "ucb": 0.1}) == (
        "anchor",
        "ucb",
    )  # two surrogates cannot stand together
    assert best_pair({"anchor": 0.2}) is None


def test_the_pair_that_is_run_can_act_in_its_regime() -> None:
    pair = ALL_ARMS["pair"]
    course = pair.grpo_run(0)
    replies = course.prompts * course.group
    assert (
        Objective(pair.chain).explain(Regime(course.updates, replies // course.updates, course.group, 30.0, 1.0)) == ()
    )
