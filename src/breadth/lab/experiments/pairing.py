"""Which two remedies are tried together: chosen on problems neither trained on nor held out, joined into one chain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from breadth.base.errors import MechanismError
from breadth.lab.experiments.arms import ARMS, ON_POLICY, PLAIN, Arm
from breadth.training.chain import Chain
from breadth.training.mechanism import Mechanism, Role, Stage

PAIR = ("anchor", "ucb")
"""Chosen by `breadth lab run remedies --seeds 5` over the single arms."""


def best_pair(votes: Mapping[str, float]) -> tuple[str, str] | None:
    """Return the two single arms of one regime that can be joined and whose votes beside are best together; the better one first.

    The vote for the tokens of the corners is the rule by which the price of the anchor was chosen: score, breadth and
    short replies in one number. None where no two can be joined.
    """
    found = {pair: votes[pair[0]] + votes[pair[1]] for pair in _joinable(votes)}
    best = max(found, key=lambda pair: found[pair], default=None)
    return None if best is None else (max(best, key=lambda name: votes[name]), min(best, key=lambda name: votes[name]))


def joined(first: str, second: str) -> Arm:
    """Return both remedies as one arm; raises a MechanismError where they cannot be joined."""
    one, other = ARMS[first], ARMS[second]
    if one.updates != other.updates:
        raise MechanismError(
            f"{first} and {second} are of two regimes.", "Join arms with as many updates a generation."
        )
    added = [*_added(one), *_added(other)]
    own = [mechanism for mechanism in added if mechanism.role is Role.SURROGATE]
    surrogate = own or [
        mechanism for mechanism in ARMS[one.control].chain.mechanisms if mechanism.role is Role.SURROGATE
    ]
    credit = [*_estimator(one), *(mechanism for mechanism in added if mechanism.stage is Stage.CREDIT)]
    terms = [mechanism for mechanism in added if mechanism.stage is Stage.LOSS and mechanism.role is not Role.SURROGATE]
    return replace(one, chain=Chain((*credit, *surrogate, *terms)), what=f"{first} and {second} together")


def _joinable(votes: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    singles = [name for name in ARMS if name in votes and name not in (ON_POLICY, PLAIN)]
    for pair in combinations(singles, 2):
        try:
            joined(*pair)
        except MechanismError:
            continue
        yield pair


def _added(arm: Arm) -> list[Mechanism]:  # type: ignore[type-arg]  # of any seat
    """Return what an arm has that its control has not."""
    control = ARMS[arm.control].chain.mechanisms
    return [mechanism for mechanism in arm.chain.mechanisms if mechanism not in control]


def _estimator(arm: Arm) -> list[Mechanism]:  # type: ignore[type-arg]  # of any seat
    return [mechanism for mechanism in arm.chain.mechanisms if mechanism.role is Role.ESTIMATOR]


ALL_ARMS: dict[str, Arm] = {**ARMS, "pair": joined(*PAIR)}
"""All arms that are run: the controls, every remedy by itself, and two together."""
