"""Our entries in verl's registries."""

from __future__ import annotations

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from verl.trainer.ppo import core_algos

from breadth.adapters.verl import registration


def test_the_policy_loss_is_registered_under_its_name_and_twice_is_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(core_algos.POLICY_LOSS_REGISTRY, registration.LOSS_MODE, raising=False)
    registration.register_loss()
    registration.register_loss()
    assert core_algos.get_policy_loss_fn(registration.LOSS_MODE) is registration.call_policy_loss


def test_what_is_registered_is_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breadth.adapters.verl.loss.policy_loss", lambda **arguments: arguments)
    assert registration.call_policy_loss(config=1, log_prob=2) == {"config": 1, "log_prob": 2}


def test_the_trainers_are_registered_under_their_names() -> None:
    v1 = pytest.importorskip(
        "verl.trainer.ppo.v1", reason="verl's trainers and what they need (verl[verl-core]) are not installed"
    )
    registration.register_trainers()
    for mode, verl_mode in zip(registration.TRAINER_MODES, ("sync", "colocate_async"), strict=True):
        assert issubclass(v1.get_trainer_cls(mode), v1.get_trainer_cls(verl_mode))
