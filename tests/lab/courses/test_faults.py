"""Faults, put into a trainer by hand; what they do to a real one is seen in the cases of known truth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from breadth.base.errors import SettingsError
from breadth.lab.courses.faults import Fault, Killed, kill_at


class Trainer:
    def __init__(self) -> None:
        self.args = SimpleNamespace(generation_kwargs=None, temperature=1.0)
        self.generation_kwargs: dict[str, Any] = {"temperature": 1.0}
        self.generation_config = SimpleNamespace(temperature=1.0)
        self._metrics: dict[str, dict[str, list[float]]] = {"train": {}}
        self.logged: list[dict[str, float]] = []
        self.callbacks: list[Any] = []

    def log(self, logs: dict[str, float], start: float | None = None) -> None:
        """As TRL's: what waits is averaged into the log and forgotten."""
        self.logged.append(
            {**logs, **{name: sum(values) / len(values) for name, values in self._metrics["train"].items()}}
        )
        self._metrics["train"].clear()

    def measured(self, entropy: float, mean: float, longest: float) -> None:
        self._metrics["train"] = {
            "entropy": [entropy],
            "completions/mean_length": [mean],
            "completions/max_length": [longest],
        }

    def add_callback(self, callback: Any) -> None:
        self.callbacks.append(callback)


def test_no_fault_changes_nothing() -> None:
    trainer = Trainer()
    Fault().put_into(trainer)
    Fault().put_into_log(trainer)
    assert trainer.generation_config.temperature == 1.0
    trainer.measured(1.0, 1.0, 2.0)
    trainer.log({})
    assert trainer.logged[0]["entropy"] == 1.0


def test_replies_are_drawn_at_another_temperature_than_the_loss_takes() -> None:
    trainer = Trainer()
    Fault(drawn_at=1.5).put_into(trainer)
    assert trainer.generation_config.temperature == trainer.generation_kwargs["temperature"] == 1.5
    assert trainer.args.generation_kwargs == {"temperature": 1.5}
    assert trainer.args.temperature == 1.0


def test_the_mean_over_padding_is_smaller_by_the_share_of_padding() -> None:
    trainer = Trainer()
    Fault(averaged_over_padding=True).put_into_log(trainer)
    # Replies of 10 and 30 tokens at 0.6 nats each: 24 nats over 2 x 30 positions are 0.4.
    trainer.measured(0.6, 20.0, 30.0)
    trainer.log({"loss": 0.1})
    trainer.log({"train_loss": 1.0}, None)
    assert trainer.logged[0]["entropy"] == pytest.approx(0.4)
    assert trainer.logged[1] == {"train_loss": 1.0}


def test_a_run_is_broken_off_at_its_step() -> None:
    trainer = Trainer()
    kill_at(trainer, 3)
    (callback,) = trainer.callbacks
    callback.on_step_begin(None, SimpleNamespace(global_step=2), None)
    with pytest.raises(Killed):
        callback.on_step_begin(None, SimpleNamespace(global_step=3), None)


@pytest.mark.parametrize("wrong", [{"drawn_at": 0.0}, {"restarted_from": 0}])
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        Fault(**wrong)
