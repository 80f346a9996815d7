"""The loss stage as verl's policy loss:

verl's own worker loss with a chain equals the bare Objective and verl's vanilla loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("verl", reason="verl is not installed")

from hydra.errors import InstantiationException
from verl.trainer.ppo import core_algos
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import FSDPActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

from breadth.adapters.verl.loss import (
    LOSS_TARGET,
    STATES_FILE,
    BreadthLoss,
    LossStage,
    chain_from_settings,
    load_chain,
    load_states,
    resume_objective,
    save_states,
    stage_loss,
)
from breadth.base.errors import BrokenFileError, MechanismError, SettingsError
from breadth.training.chain import Chain
from breadth.training.loss.clip_cov import ClipCov
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.loss.forking_tokens import ForkingTokens
from breadth.training.objective import Objective
from breadth.training.recipes import RECIPES
from breadth.training.reduction import Reduction, Totals

CHAIN = Chain((ClippedPolicy(high=0.28),))


def test_verl_builds_it_by_hydra(configured: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "chain.toml"
    path.write_text(CHAIN.dumps(), encoding="utf-8")
    for text, chain in (("thermostat", RECIPES["thermostat"].chain), (str(path), CHAIN), (CHAIN.dumps(), CHAIN)):
        actor = omega_conf_to_dataclass(configured(text).actor_rollout_ref.actor)
        assert isinstance(actor.policy_loss, BreadthLoss)
        assert chain_from_settings(actor.policy_loss) == chain
        assert actor.policy_loss.get("loss_mode") == "breadth"


def test_the_target_is_the_class() -> None:
    module, _, name = LOSS_TARGET.rpartition(".")
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
    with pytest.raises(SettingsError, match="not a recipe, and not a file") as caught:
        BreadthLoss(loss_mode="breadth", chain=text)
    assert "thermostat" in caught.value.remedy


def test_settings_without_a_chain_say_what_to_add(configured: Callable[..., Any]) -> None:
    with pytest.raises(SettingsError, match="names no chain") as caught:
        chain_from_settings(configured("grpo").critic)
    assert LOSS_TARGET in caught.value.remedy


def test_a_misspelt_mechanism_is_named() -> None:
    with pytest.raises(Exception, match="clipped-polcy"):
        load_chain('[[mechanisms]]\nkind = "clipped-polcy"\n')


pytest.importorskip("verl", reason="verl is not installed")


ACTIVE = ForkThermostat(settle=1, floor=1.2, ceiling=1.3)
"""A thermostat whose band the bigram's entropy is never in, so that it acts from the second step on."""
VERL = ClippedPolicy(low=0.2, high=0.2, dual=3.0)
"""The surrogate of verl's vanilla loss."""


def actor(chain: Chain | str, **settings: Any) -> Any:
    text = chain if isinstance(chain, str) else chain.dumps()
    return FSDPActorConfig(
        rollout_n=4,
        ppo_micro_batch_size_per_gpu=1,
        policy_loss=BreadthLoss(loss_mode="breadth", chain=text),
        **settings,
    )


def vanilla(**settings: Any) -> Any:
    return FSDPActorConfig(rollout_n=4, ppo_micro_batch_size_per_gpu=1, policy_loss=PolicyLossConfig(), **settings)


def worker_loss(
    loss: Any, policy: Any, data: Any, *, dp_size: int = 1, tokens: int | None = None
) -> tuple[float, list[float]]:
    """Run verl's worker loss over two micro-batches; returns the summed loss and gradient."""
    policy.table.grad = None
    total = 0.0
    for rows in ([0, 1, 2], [3, 4, 5, 6, 7]):
        micro = tu.index_select_tensor_dict(data, torch.tensor(rows))
        tu.assign_non_tensor(micro, dp_size=dp_size, batch_num_tokens=tokens, global_batch_size=8)
        part, _ = loss(model_output=policy.output(micro), data=micro, dp_group=None)
        part.backward()
        total += float(part.detach())
    return total, policy.table.grad.flatten().tolist()


def whole(chain: Chain, policy: Any, data: Any, **fields: Any) -> tuple[float, list[float]]:
    policy.table.grad = None
    objective = Objective(chain)
    batch = replace(policy.batch(data), **fields)
    objective.begin(batch)
    loss = objective.loss(batch)
    loss.backward()
    return float(loss.detach()), policy.table.grad.flatten().tolist()


def close(left: Any, right: Any) -> None:
    torch.testing.assert_close(torch.tensor(left), torch.tensor(right), atol=1e-6, rtol=1e-6)


def test_two_ranks_of_verls_engine_train_as_the_bare_objective_over_a_restart(trains_alike: Callable[..., Any]) -> None:
    surveying = Chain((VERL, ClipCov(share=0.2, lower=0.01), ForkingTokens(share=0.4), ACTIVE))
    plain, surveyed = trains_alike("stage", [Chain((VERL, ACTIVE)), surveying])
    for told in (plain[0], surveyed[0]):
        assert told["states"][-1]["fork-thermostat"]["coefficient"] > 0, (
            "the thermostat must act, or the test shows nothing"
        )
    assert [step.get("breadth/stale") for step in plain[0]["steps"]] == [None] * 12
    assert [step["breadth/stale"] for step in surveyed[0]["steps"]] == [0.0, 1.0, 1.0, 1.0] * 3


def test_alone_it_equals_verls_vanilla_loss_and_the_bare_objective(bigram: Any) -> None:
    data, policy = bigram.generation(), bigram.Bigram(seed=1)
    tokens = int(data["response_mask"].values().sum())
    ours = worker_loss(partial(ppo_loss, actor(Chain((VERL,)))), policy, data, tokens=tokens)
    close(ours[0], worker_loss(partial(ppo_loss, vanilla()), policy, data, tokens=tokens)[0])
    close(ours[1], worker_loss(partial(ppo_loss, vanilla()), policy, data, tokens=tokens)[1])
    bare = whole(Chain((VERL,)), policy, data)
    close(ours[0], bare[0])
    close(ours[1], bare[1])


@pytest.mark.parametrize(
    ("reduction", "settings"),
    [
        (Reduction("sequence-mean"), {"loss_agg_mode": "seq-mean-token-mean"}),
        (Reduction("fixed-length", 6), {"loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": 6}),
        (Reduction("fixed-length"), {"loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": 6}),
    ],
)
def test_verls_other_averages_are_ours(bigram: Any, reduction: Reduction, settings: dict[str, Any]) -> None:
    data, policy = bigram.generation(), bigram.Bigram(seed=1)
    ours = worker_loss(partial(ppo_loss, actor(Chain((VERL,), reduction), **settings)), policy, data, tokens=1)
    theirs = worker_loss(partial(ppo_loss, vanilla(**settings)), policy, data, tokens=1)
    close(ours[0], theirs[0])
    close(ours[1], theirs[1])


def test_the_loss_is_scaled_by_the_data_parallel_size_as_verls_is(bigram: Any) -> None:
    data, policy = bigram.generation(), bigram.Bigram(seed=1)
    once = worker_loss(partial(ppo_loss, actor(Chain((VERL,)))), policy, data, dp_size=1, tokens=100)
    four = worker_loss(partial(ppo_loss, actor(Chain((VERL,)))), policy, data, dp_size=4, tokens=100)
    close(four[0], 4 * once[0])
    close(four[1], [4 * value for value in once[1]])


def test_verls_own_terms_stay_beside_the_chain(bigram: Any) -> None:
    data, policy = bigram.generation(), bigram.Bigram(seed=1)
    tokens = int(data["response_mask"].values().sum())
    with_bonus, without = (
        worker_loss(partial(ppo_loss, actor(Chain((VERL,)), entropy_coeff=c)), policy, data, tokens=tokens)[0]
        for c in (0.1, 0.0)
    )
    batch = policy.batch(data)
    bonus = float((batch.entropy.detach() * batch.mask).sum() / tokens)
    close(with_bonus, without - 0.1 * bonus)


def test_a_sequence_without_tokens_is_no_response_in_the_stage_and_one_in_verl(bigram: Any) -> None:
    """Verl divides by the size of the mini-batch, empty responses included.

    The stage counts responses, as the bare Objective.
    """
    data, policy = bigram.generation(), bigram.Bigram(seed=1)
    empty = data["response_mask"].unbind()
    data["response_mask"] = bigram.nested([mask * (row != 4) for row, mask in enumerate(empty)])
    chain, settings = Chain((VERL,), Reduction("sequence-mean")), {"loss_agg_mode": "seq-mean-token-mean"}
    alone = worker_loss(partial(ppo_loss, actor(chain, **settings)), policy, data, tokens=1)[0]
    stage = LossStage(chain)
    stage.begin(data)
    fed = worker_loss(partial(stage_loss, config=actor(chain, **settings), stage=stage), policy, data, tokens=1)[0]
    close(fed, whole(chain, policy, data)[0])
    close(alone, fed * 7 / 8)


def test_copies_of_a_sequence_count_once(bigram: Any) -> None:
    stage = LossStage(Chain((VERL,)), replicas=2)
    seen: list[Totals] = []
    stage.objective.begin = seen.append  # type: ignore[method-assign,assignment]  # what it would ask the ranks to add up
    stage.begin(bigram.generation())
    tokens = float(bigram.generation()["response_mask"].values().sum())
    assert [(float(one.tokens), float(one.sequences)) for one in seen] == [(tokens / 2, 4.0)]


def test_nothing_outside_the_mask_matters(bigram: Any) -> None:
    data, policy = bigram.generation(), bigram.Bigram(seed=1)
    tokens = int(data["response_mask"].values().sum())
    clean = worker_loss(partial(ppo_loss, actor(Chain((VERL,)))), policy, data, tokens=tokens)
    for field in ("advantages", "old_log_probs", "rollout_is_weights"):
        data[field].values()[data["response_mask"].values() == 0] = torch.nan
    dirty = worker_loss(partial(ppo_loss, actor(Chain((VERL,)))), policy, data, tokens=tokens)
    assert dirty == clean


@pytest.mark.parametrize(
    ("mechanism", "reason"),
    [(ForkThermostat(), "fork-thermostat reads entropy"), (ClipCov(), "clip-cov looks at the whole batch first")],
)
def test_alone_it_refuses_what_verl_does_not_hand_over(bigram: Any, mechanism: Any, reason: str) -> None:
    data, policy = bigram.generation(), bigram.Bigram(seed=1)
    with pytest.raises(MechanismError, match=reason) as caught:
        worker_loss(partial(ppo_loss, actor(Chain((VERL, mechanism)))), policy, data, tokens=10)
    assert "trainer.v1.trainer_mode=breadth" in caught.value.remedy


def test_the_feed_ends_with_the_loss(bigram: Any) -> None:
    data, policy = bigram.generation(), bigram.Bigram(seed=1)
    chain = Chain((VERL, ACTIVE))
    stage = LossStage(chain)
    stage.begin(data)
    worker_loss(partial(stage_loss, config=actor(chain), stage=stage), policy, data, tokens=10)
    with pytest.raises(MechanismError, match="reads entropy"):
        worker_loss(partial(ppo_loss, actor(chain)), policy, data, tokens=10)


def test_the_chain_may_be_a_file(bigram: Any, tmp_path: Path) -> None:
    path = tmp_path / "chain.toml"
    path.write_text(Chain((VERL,)).dumps(), encoding="utf-8")
    data, policy = bigram.generation(), bigram.Bigram(seed=1)
    assert worker_loss(partial(ppo_loss, actor(str(path))), policy, data, tokens=9) == worker_loss(
        partial(ppo_loss, actor(Chain((VERL,)))), policy, data, tokens=9
    )


def test_it_stands_in_verls_registry() -> None:
    assert core_algos.get_policy_loss_fn("breadth").__module__ == "breadth.adapters.verl.registration"


def test_what_is_saved_is_restored(tmp_path: Path) -> None:
    first, second = (Objective(Chain((ClippedPolicy(), ForkThermostat()))) for _ in range(2))
    first.step = 11
    save_states(tmp_path / "global_step_4", {"loss": first.state()})
    resume_objective(second, load_states(tmp_path / "global_step_4")["loss"])
    assert second.state() == first.state()
    assert [path.name for path in (tmp_path / "global_step_4").iterdir()] == [STATES_FILE]


def test_a_checkpoint_without_a_state_is_enough_only_for_a_chain_that_keeps_none(tmp_path: Path) -> None:
    assert load_states(tmp_path) == {}
    resume_objective(Objective(Chain((ClippedPolicy(),))), None)
    with pytest.raises(MechanismError, match="fork-thermostat"):
        resume_objective(Objective(Chain((ClippedPolicy(), ForkThermostat()))), None)


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / STATES_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(BrokenFileError, match=r"breadth\.json"):
        load_states(tmp_path)
