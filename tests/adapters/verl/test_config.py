"""The chain's place in verl's configuration: verl's own Hydra instantiates it, in every form a chain can be named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from hydra.errors import InstantiationException
from verl.trainer.ppo import core_algos
from verl.utils.config import omega_conf_to_dataclass

from breadth.adapters.verl.config import TARGET, BreadthLoss, chain_in, load_chain
from breadth.base.errors import SettingsError
from breadth.training.chain import Chain
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.recipes import RECIPES

CHAIN = Chain((ClippedPolicy(high=0.28),))


def test_verl_builds_it_by_hydra(configured: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "chain.toml"
    path.write_text(CHAIN.dumps(), encoding="utf-8")
    for text, chain in (("thermostat", RECIPES["thermostat"].chain), (str(path), CHAIN), (CHAIN.dumps(), CHAIN)):
        actor = omega_conf_to_dataclass(configured(text).actor_rollout_ref.actor)
        assert isinstance(actor.policy_loss, BreadthLoss)
        assert chain_in(actor.policy_loss) == chain
        assert actor.policy_loss.get("loss_mode") == "breadth"


def test_the_target_is_the_class() -> None:
    module, _, name = TARGET.rpartition(".")
    assert (BreadthLoss.__module__, BreadthLoss.__name__) == (module, name)


def test_verls_own_class_refuses_the_field(configured: Callable[..., Any]) -> None:
    config = configured("thermostat")
    config.actor_rollout_ref.actor.policy_loss._target_ = "verl.workers.config.PolicyLossConfig"
    with pytest.raises(InstantiationException, match="chain"):
        omega_conf_to_dataclass(config.actor_rollout_ref.actor)


def test_building_it_registers_the_loss_even_if_the_plugin_did_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(core_algos.POLICY_LOSS_REGISTRY, "breadth", raising=False)
    BreadthLoss(loss_mode="vanilla", chain="grpo")
    assert "breadth" not in core_algos.POLICY_LOSS_REGISTRY
    BreadthLoss(loss_mode="breadth", chain="grpo")
    assert "breadth" in core_algos.POLICY_LOSS_REGISTRY


@pytest.mark.parametrize("text", ["", "thermostatt", "/nowhere/chain.toml"])
def test_a_chain_that_is_not_there_is_refused_when_verl_reads_its_settings(text: str) -> None:
    with pytest.raises(SettingsError, match="no recipe, and no file") as caught:
        BreadthLoss(loss_mode="breadth", chain=text)
    assert "thermostat" in caught.value.remedy


def test_settings_without_a_chain_say_what_to_add(configured: Callable[..., Any]) -> None:
    with pytest.raises(SettingsError, match="names no chain") as caught:
        chain_in(configured("grpo").critic)
    assert TARGET in caught.value.remedy


def test_a_misspelt_mechanism_is_named() -> None:
    with pytest.raises(Exception, match="clipped-polcy"):
        load_chain('[[mechanisms]]\nkind = "clipped-polcy"\n')
