"""The self-check: says what is in place, and loudly what is not."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

import verl
from verl.trainer.ppo import core_algos
from verl.workers.utils import losses

from breadth.adapters.verl import hook, plugin
from breadth.base.errors import MechanismError
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.loss.kl_cov import KLCov
from breadth.training.reduction import Reduction


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our entry point, as an installed package has it."""
    entry = metadata.EntryPoint("breadth", plugin.__name__, "verl.plugins")
    monkeypatch.setattr(metadata, "entry_points", lambda **_: (entry,))
    monkeypatch.delenv("VERL_USE_EXTERNAL_PLUGINS", raising=False)


@pytest.mark.usefixtures("entered")
def test_it_says_what_is_in_place() -> None:
    said = hook.self_check(trainer=False)
    assert said == (
        f"verl {verl.__version__}",
        "entry point verl.plugins: breadth",
        *(place.split(":")[1] for place in hook.SEAMS),
        "policy loss 'breadth'",
    )


@pytest.mark.usefixtures("entered")
def test_the_trainers_are_part_of_it() -> None:
    pytest.importorskip("verl.trainer.ppo.v1", reason="verl's trainers and what they need (verl[verl-core]) are not installed")
    assert hook.self_check()[-1] == "trainers breadth, breadth_colocate_async"


def test_no_entry_point_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda **_: ())
    with pytest.raises(MechanismError, match=r"entry-point group verl\.plugins") as caught:
        hook.self_check(trainer=False)
    assert "VERL_USE_EXTERNAL_MODULES=breadth.adapters.verl.plugin" in caught.value.remedy


@pytest.mark.usefixtures("entered")
@pytest.mark.parametrize("policy", ["none", "other,another"])
def test_a_switched_off_plugin_is_loud(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    monkeypatch.setenv("VERL_USE_EXTERNAL_PLUGINS", policy)
    with pytest.raises(MechanismError, match="VERL_USE_EXTERNAL_PLUGINS"):
        hook.self_check(trainer=False)
    monkeypatch.setenv("VERL_USE_EXTERNAL_PLUGINS", f"{policy},breadth")
    hook.self_check(trainer=False)


@pytest.mark.usefixtures("entered")
@pytest.mark.parametrize(("registered", "held"), [(None, "nothing"), (core_algos.compute_policy_loss_gpg, "compute_policy_loss_gpg")])
def test_another_loss_of_our_name_is_loud(monkeypatch: pytest.MonkeyPatch, registered: Any, held: str) -> None:
    monkeypatch.setitem(core_algos.POLICY_LOSS_REGISTRY, "breadth", registered)
    with pytest.raises(MechanismError, match=held):
        hook.self_check(trainer=False)


@pytest.mark.usefixtures("entered")
def test_a_changed_verl_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(losses, "ppo_loss", changed)
        with pytest.raises(MechanismError, match=r"ppo_loss takes \('config', 'batch'\)"):
            hook.self_check(trainer=False)
    with monkeypatch.context() as patch:
        patch.delattr(losses, "ppo_loss")
        with pytest.raises(MechanismError, match="it is gone"):
            hook.self_check(trainer=False)
    monkeypatch.setattr(verl, "__version__", "0.10.0")
    with pytest.raises(MechanismError, match=r"verl 0\.10\.0"):
        hook.self_check(trainer=False)


@pytest.mark.usefixtures("entered")
def test_missing_dependencies_of_verls_trainers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: str) -> Any:
        raise ModuleNotFoundError("No module named 'transfer_queue'")

    monkeypatch.setattr(hook, "import_module", refuse)
    with pytest.raises(MechanismError, match="transfer_queue") as caught:
        next(hook._seams(hook.TRAINER_SEAMS))
    assert "verl[verl-core]" in caught.value.remedy


def changed(config: Any, batch: Any) -> None:
    """What ppo_loss might become."""


def test_a_chain_is_told_its_hook() -> None:
    whole, alone = hook.explain(Chain((ClippedPolicy(),), Reduction("sequence-mean")))
    assert whole.startswith("with our trainer: trainer.v1.trainer_mode=breadth actor_rollout_ref.actor.policy_loss._target_=")
    assert whole.endswith("loss_mode=breadth")
    assert alone.startswith("with verl's own trainers: ")
    assert hook.explain(Chain((ClippedPolicy(), ForkThermostat())))[1].startswith("not with verl's own trainers: ")
    assert "loss_mode" not in hook.explain(Chain((GroupAdvantage(),)))[0], "verl's own loss may stay"
    with pytest.raises(MechanismError, match="old_divergence"):
        hook.explain(Chain((ClippedPolicy(), KLCov(divergence="full"))))


def test_the_command_fails_loudly_and_says_more_when_all_is_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "chain.toml"
    path.write_text(Chain((ClippedPolicy(),)).dumps(), encoding="utf-8")
    monkeypatch.setattr(hook, "self_check", lambda: ("verl 0.9.1",))
    assert hook.main([str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "verl 0.9.1"
    assert hook.main([]) == 0
    assert hook.main([str(tmp_path / "nothing.toml")]) == 1
    assert "no recipe, and no file" in capsys.readouterr().err
