"""What a mechanism is by its class alone: seat, state, defaults, name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.effect import Effect, Selection
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.loss.thermostat import Thermostat
from breadth.training.mechanism import Mechanism, Role, Seat, name_of
from breadth.training.records import Batch, Plan
from breadth.training.regime import Regime


@dataclass(frozen=True)
class Tally:
    """A state."""

    seen: int = 0


@dataclass(frozen=True)
class Watcher(Mechanism[Batch, Tally]):
    """Does nothing."""

    def apply(self, batch: Batch, state: Tally, selection: Selection | None) -> Effect[Batch]:
        return Effect(batch)


@dataclass(frozen=True)
class Planner(Mechanism[Plan, None]):
    """Only surveys."""

    def survey(self, whole: Plan, state: None) -> Selection:
        return Selection()


class Sharper(Watcher):
    """Inherits seat and state."""


def test_the_record_decides_the_seat() -> None:
    assert (Watcher.seat, Watcher.state_type) == (Seat.LOSS, Tally)
    assert (Planner.seat, Planner.state_type) == (Seat.PLAN, type(None))
    assert (GroupAdvantage.seat, ClippedPolicy.seat) == (Seat.CREDIT, Seat.LOSS)
    assert (ForkThermostat.seat, ForkThermostat.state_type) == (Seat.LOSS, Thermostat)
    assert (Sharper.seat, Sharper.state_type) == (Seat.LOSS, Tally)


def test_a_record_that_is_none_of_ours_is_refused() -> None:
    with pytest.raises(KeyError):

        class Wrong(Mechanism[int, None]):
            """Acts on a number."""


def test_most_mechanisms_write_only_apply() -> None:
    one = Watcher()
    assert one.needs == frozenset()
    assert one.role is one.precedes is one.follows is None
    assert not one.surveys
    assert Planner().surveys
    assert one.init() is None
    assert one.update(Tally(3), {}) == Tally(3)
    assert one.inert(Regime(updates_per_generation=1)) is None
    with pytest.raises(NotImplementedError):
        Planner().apply(Plan((), ()), None, None)


def test_roles() -> None:
    assert (ClippedPolicy.role, GroupAdvantage.role) == (Role.SURROGATE, Role.ESTIMATOR)


def test_names_come_from_the_catalogue_or_the_class() -> None:
    assert name_of(ForkThermostat()) == "fork-thermostat"
    assert name_of(Watcher()) == "watcher"
