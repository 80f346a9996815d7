"""Arms: each can act in its regime, differs from its control, and is written as TOML and read back."""

from __future__ import annotations

import pytest

from breadth.lab.courses.course import SEVERAL
from breadth.lab.experiments.arms import ARMS, ON_POLICY, PLAIN
from breadth.training.chain import Chain
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective

REMEDIES = [name for name in ARMS if name not in (ON_POLICY, PLAIN)]


def regime(name: str) -> Regime:
    course = ARMS[name].course(0)
    replies = course.prompts * course.group
    return Regime(course.updates, replies // course.updates, course.group, 30.0, 1.0)


@pytest.mark.parametrize("name", REMEDIES)
def test_every_remedy_can_act_in_its_regime(name: str) -> None:
    assert Objective(ARMS[name].chain).explain(regime(name)) == ()


@pytest.mark.parametrize("name", ["clip-higher", "gppo", "kl-cov"])
def test_those_that_take_several_updates_could_not_act_on_policy(name: str) -> None:
    assert ARMS[name].updates == SEVERAL
    on_policy = Regime(1, 128, 16, 30.0, 1.0)
    assert Objective(ARMS[name].chain).explain(on_policy)


def test_the_control_has_the_same_regime_and_reduction() -> None:
    for arm in ARMS.values():
        control = ARMS[arm.control]
        assert control.updates == arm.updates
        assert control.chain.reduction == arm.chain.reduction
    assert {name for name, arm in ARMS.items() if arm.chain == ARMS[arm.control].chain} == {ON_POLICY, PLAIN}


@pytest.mark.parametrize("name", ARMS)
def test_chains_are_read_back_as_they_were(name: str) -> None:
    assert Chain.loads(ARMS[name].chain.dumps()) == ARMS[name].chain
