"""The thermostat's memory: its trail keeps the newest entries and all of it survives a checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace

from breadth.base import settings
from breadth.training.loss.thermostat import LONGEST, Action, Thermostat


def test_the_trail_forgets_the_oldest_first() -> None:
    state = Thermostat()
    for step in range(LONGEST + 3):
        state = replace(state, steps=step).entered("raising", f"action {step}", "because")
    assert len(state.trail) == LONGEST
    assert state.trail[0] == Action(3, "action 3", "because")
    assert state.trail[-1].step == LONGEST + 2
    assert state.mood == "raising"


def test_it_survives_a_checkpoint() -> None:
    state = Thermostat(steps=7, start=0.5, entropy=0.25, threshold=0.125, push=-0.01, coefficient=0.02).entered("lowering", "did", "why")
    assert settings.from_table(Thermostat, json.loads(json.dumps(settings.to_table(state), allow_nan=False))) == state
    assert settings.from_table(Thermostat, settings.to_table(Thermostat())) == Thermostat()
