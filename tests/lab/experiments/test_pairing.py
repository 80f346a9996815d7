"""Pairs: chosen by the votes beside, inside one regime, joined so that both act; what cannot stand together is passed over."""

from __future__ import annotations

import pytest

from breadth.base.errors import MechanismError
from breadth.lab.experiments.arms import ARMS, ON_POLICY, PLAIN
from breadth.lab.experiments.pairing import ALL_ARMS, best_pair, joined
from breadth.training.mechanism import Regime, name_of
from breadth.training.objective import Objective


def names(first: str, second: str) -> list[str]:
    return [name_of(one) for one in joined(first, second).chain.mechanisms]


def test_both_remedies_stand_in_the_chain() -> None:
    assert names("ucb", "anchor") == ["group-advantage", "outcome-bonus", "clipped-policy", "reference-kl"]
    assert names("anchor", "entropy-bonus") == ["group-advantage", "clipped-policy", "reference-kl", "entropy-bonus"]
    pair = joined("clip-cov", "anchor")
    assert ARMS["clip-cov"].chain.mechanisms[1] in pair.chain.mechanisms  # its own surrogate, without a clip
    assert pair.control == ON_POLICY
    assert joined("kl-cov", "plain").control == PLAIN


def test_what_cannot_be_joined_is_refused() -> None:
    with pytest.raises(MechanismError, match="two regimes"):
        joined("anchor", "kl-cov")
    with pytest.raises(MechanismError, match="surrogate"):
        joined("clip-higher", "gppo")


def test_the_best_two_that_can_be_joined_are_chosen() -> None:
    votes = dict.fromkeys(ARMS, 0.1)
    assert best_pair({**votes, "ucb": 0.3, "anchor": 0.4, ON_POLICY: 0.9}) == ("anchor", "ucb")
    assert best_pair({"clip-higher": 0.5, "gppo": 0.5, "anchor": 0.2, "ucb": 0.1}) == (
        "anchor",
        "ucb",
    )  # two surrogates cannot stand together
    assert best_pair({"anchor": 0.2}) is None


def test_the_pair_that_is_run_can_act_in_its_regime() -> None:
    pair = ALL_ARMS["pair"]
    course = pair.course(0)
    replies = course.prompts * course.group
    assert (
        Objective(pair.chain).explain(Regime(course.updates, replies // course.updates, course.group, 30.0, 1.0)) == ()
    )
