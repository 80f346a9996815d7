"""What a mechanism is by its class alone: stage, state, defaults, name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat, ThermostatState
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Role, Selection, Stage, mechanism_name
from breadth.training.records import Batch, Plan


def test_a_slice_follows_places_and_width() -> None:
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    whole = Selection({"picked": tokens, "score": torch.tensor([10, 20, 30])}, {"threshold": 0.5})
    part = whole.slice_rows(torch.tensor([2, 0]), 2)
    assert part.tokens["picked"].tolist() == [[7, 8], [1, 2]]
    assert part.tokens["score"].tolist() == [30, 10]
    assert part.numbers == {"threshold": 0.5}
    assert whole.tokens["picked"].tolist() == tokens.tolist()


def test_the_slices_of_a_cut_are_the_whole() -> None:
    tokens = torch.arange(24).view(6, 4)
    whole = Selection({"picked": tokens})
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    parts = [whole.slice_rows(places, 4).tokens["picked"] for places in order.chunk(3)]
    assert torch.equal(torch.cat(parts), tokens[order])


def test_an_effect_adds_nothing_by_itself() -> None:
    effect = Effect("record")
    assert (effect.after, effect.terms, effect.stats) == ("record", (), {})


@pytest.mark.parametrize(("updates", "on_policy"), [(None, None), (1, True), (2, False), (8, False)])
def test_on_policy(updates: int | None, on_policy: bool | None) -> None:
    assert Regime(updates_per_generation=updates).on_policy is on_policy


def test_tokens_per_update() -> None:
    assert Regime(sequences_per_update=8, tokens_per_response=250.5).tokens_per_update == 2004.0
    assert Regime(sequences_per_update=8).tokens_per_update is None
    assert Regime(tokens_per_response=100.0).tokens_per_update is None


def test_a_verdict_reads_as_reason_and_remedy() -> None:
    assert str(NoEffect("kl-cov", "no drift.", "Take two steps.")) == "kl-cov: no drift.\n  -> Take two steps."


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
    """Inherits stage and state."""


def test_the_record_decides_the_stage() -> None:
    assert (Watcher.stage, Watcher.state_type) == (Stage.LOSS, Tally)
    assert (Planner.stage, Planner.state_type) == (Stage.PLAN, type(None))
    assert (GroupAdvantage.stage, ClippedPolicy.stage) == (Stage.CREDIT, Stage.LOSS)
    assert (ForkThermostat.stage, ForkThermostat.state_type) == (Stage.LOSS, ThermostatState)
    assert (Sharper.stage, Sharper.state_type) == (Stage.LOSS, Tally)


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
    assert one.no_effect(Regime(updates_per_generation=1)) is None
    with pytest.raises(NotImplementedError):
        Planner().apply(Plan((), ()), None, None)


def test_roles() -> None:
    assert (ClippedPolicy.role, GroupAdvantage.role) == (Role.SURROGATE, Role.ESTIMATOR)


def test_names_come_from_the_catalogue_or_the_class() -> None:
    assert mechanism_name(ForkThermostat()) == "fork-thermostat"
    assert mechanism_name(Watcher()) == "watcher"
