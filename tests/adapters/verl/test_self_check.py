"""The self-check: says what is in place, and loudly what is not."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import verl
from verl.trainer.ppo import core_algos
from verl.workers.utils import losses

from breadth.adapters.verl import plugin
from breadth.adapters.verl import self_check as hook
from breadth.base.errors import MechanismError
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.loss.kl_cov import KLCov
from breadth.training.loss.reference_kl import ReferenceKL
from breadth.training.reduction import Reduction

pytest.importorskip("verl", reason="verl is not installed")


def entries(monkeypatch: pytest.MonkeyPatch, *ours: metadata.EntryPoint) -> None:
    """Let these be all entry points of verl's group; the other groups stay."""
    others = metadata.entry_points
    monkeypatch.setattr(
        metadata, "entry_points", lambda **asked: ours if asked == {"group": "verl.plugins"} else others(**asked)
    )


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our entry point, as an installed package has it."""
    entries(monkeypatch, metadata.EntryPoint("breadth", plugin.__name__, "verl.plugins"))
    monkeypatch.delenv("VERL_USE_EXTERNAL_PLUGINS", raising=False)


@pytest.mark.usefixtures("entered")
def test_it_says_what_is_in_place() -> None:
    version, entry, seams, loss = hook.self_check(trainer=False)
    assert (version, entry, loss) == (
        f"verl {verl.__version__}",
        "entry point verl.plugins: breadth",
        "policy loss 'breadth'",
    )
    assert seams == "unchanged in verl: ppo_loss, no_padding_2_padding, response_to_nested"


@pytest.mark.usefixtures("entered")
def test_the_trainers_are_part_of_it() -> None:
    pytest.importorskip(
        "verl.trainer.ppo.v1", reason="verl's trainers and what they need (verl[verl-core]) are not installed"
    )
    assert hook.self_check()[-1] == "trainers breadth, breadth_colocate_async"


def test_no_entry_point_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    entries(monkeypatch)
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
@pytest.mark.parametrize(
    ("registered", "held"), [(None, "nothing"), (core_algos.compute_policy_loss_gpg, "compute_policy_loss_gpg")]
)
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
        hook.check_signatures(hook.TRAINER_SIGNATURES)
    assert "verl[verl-core]" in caught.value.remedy


def changed(config: Any, batch: Any) -> None:
    """What ppo_loss might become."""


def test_a_chain_is_told_its_hook() -> None:
    whole, alone = hook.explain_chain(Chain((ClippedPolicy(),), Reduction("sequence-mean")))
    assert whole.startswith(
        "with our trainer: trainer.v1.trainer_mode=breadth actor_rollout_ref.actor.policy_loss._target_="
    )
    assert whole.endswith("loss_mode=breadth actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean")
    assert alone.startswith("with verl's own trainers: ")
    whole, alone = hook.explain_chain(
        Chain((ClippedPolicy(), ForkThermostat(), ReferenceKL()), Reduction("fixed-length", 64))
    )
    assert (
        "loss_scale_factor=64 actor_rollout_ref.actor.calculate_entropy=true actor_rollout_ref.actor.use_kl_loss=true"
        in whole
    )
    assert alone.startswith("not with verl's own trainers: ")
    assert "loss_mode" not in hook.explain_chain(Chain((GroupAdvantage(),)))[0], "verl's own loss may stay"
    with pytest.raises(MechanismError, match="old_divergence"):
        hook.explain_chain(Chain((ClippedPolicy(), KLCov(divergence="full"))))


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
    assert "not a recipe, and not a file" in capsys.readouterr().err
