"""What is prescribed for verl works in verl:

Hydra composes it over verl's own tree, our chains load, and our trainer accepts them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.configs import flatten_table, read_table
from breadth.adapters.verl.config import SETTINGS
from breadth.adapters.verl.patch import CHAIN
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig

ACTOR, LOSS = "actor_rollout_ref.actor", "actor_rollout_ref.actor.policy_loss"
USER: dict[str, Any] = {
    "data.train_batch_size": 64,
    "data.max_prompt_length": 512,
    "data.max_response_length": 1024,
    "actor_rollout_ref.rollout.n": 8,
    "actor_rollout_ref.rollout.max_model_len": 1536,
    f"{ACTOR}.ppo_mini_batch_size": 64,
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": 2,
    f"{ACTOR}.clip_ratio_high": 0.28,
    f"{ACTOR}.clip_ratio_c": 10.0,
    f"{ACTOR}.entropy_coeff": 0.001,
    "algorithm.adv_estimator": "grpo",
}


def patched(*changes: Change, **settings: Any) -> tuple[str, ...]:
    return SETTINGS.patch(changes, SETTINGS.translate({**USER, **settings}))


def overrides(lines: tuple[str, ...]) -> list[str]:
    """Return the Hydra overrides among the lines: up to a chain's file, without comments."""
    end = lines.index("# chain.toml:") if "# chain.toml:" in lines else len(lines)
    return [line for line in lines[:end] if not line.startswith("#")]


def chain(lines: tuple[str, ...]) -> str:
    return "\n".join(lines[lines.index("# chain.toml:") + 1 :])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Change("clip_high", 0.28), [f"{ACTOR}.clip_ratio_high=0.28"]),
        (Change("updates", 4), [f"{ACTOR}.ppo_mini_batch_size=16"]),  # 64 / 4
        (Change("updates", 3), [f"{ACTOR}.ppo_mini_batch_size=16"]),  # 21 does not divide 64; 16 does
        (Change("updates", 1), [f"{ACTOR}.ppo_mini_batch_size=64"]),
        (Change("updates", 128), [f"{ACTOR}.ppo_epochs=128"]),  # more than there are prompts
        (Change("kl", 0.001), [f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef=0.001"]),
        (Change("learning_rate", 3e-7), [f"{ACTOR}.optim.lr=3e-07"]),
        (
            Change("max_completion_length", 2048),
            ["data.max_response_length=2048", "actor_rollout_ref.rollout.max_model_len=2560"],
        ),
        (Change("max_completion_length", 1024), ["data.max_response_length=1024"]),
        (
            Change("dynamic_sampling", True),
            ["algorithm.filter_groups.enable=True", "algorithm.filter_groups.metric=reward"],
        ),
        (Change("logs_rollouts", True), ["trainer.rollout_data_dir=rollouts"]),
        (Change("top_k", 0), ["actor_rollout_ref.rollout.top_k=-1"]),
        (Change("mask_truncated", True), []),  # verl has no such setting
        (Change("kl_given", 1), []),
        (Change("votes", 4), []),
    ],
    ids=str,
)
def test_every_change_as_overrides(change: Change, expected: list[str]) -> None:
    assert list(patched(change)) == expected


def test_an_epoch_more_is_taken_back_where_mini_batches_do_it() -> None:
    assert patched(Change("updates", 1), **{f"{ACTOR}.ppo_epochs": 3}) == (
        f"{ACTOR}.ppo_mini_batch_size=64",
        f"{ACTOR}.ppo_epochs=1",
    )
    assert SETTINGS.patch([Change("updates", 4)], TrainerConfig()) == (f"{ACTOR}.ppo_epochs=4",)


def test_a_shaped_reward_is_filtered_by_accuracy() -> None:
    shaped = {"reward_model.overlong_buffer.enable": True, "reward_model.reward_manager": "dapo"}
    assert overrides(patched(Change("dynamic_sampling", True), **shaped))[1] == "algorithm.filter_groups.metric=acc"


CHANGES = [
    Change("clip_high", 0.28),
    Change("clip_low", 0.1),
    Change("updates", 4),
    Change("kl", 0.001),
    Change("group", 16),
    Change("prompts", 128),
    Change("learning_rate", 1e-7),
    Change("entropy_bonus", 0.0001),
    Change("max_completion_length", 4096),
    Change("temperature", 1.0),
    Change("top_p", 1.0),
    Change("top_k", 0),
    Change("repetition_penalty", 1.0),
    Change("dual_clip", 3.0),
    Change("dynamic_sampling", True),
    Change("dynamic_sampling", False),
    Change("correct_mismatch", True),
    Change("correct_mismatch", False),
    Change("logs_rollouts", True),
    Change("length_penalty", True),
    Change("aggregation", "token-mean"),
    Change("chain", "kl_cov"),
    Change("chain", "clip_cov"),
    Change("chain", "thermostat"),
    Change("entropy_target", 0.35),
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_override_exists_in_verl_s_tree_and_plus_only_adds(change: Change) -> None:
    verl = pytest.importorskip("verl")
    tree = dict(
        flatten_table(
            read_table(
                Path(verl.__file__).parent / "trainer" / "config" / "_generated_ppo_trainer.yaml", exponents=True
            )
        )
    )
    for line in overrides(patched(change)):
        name = line.partition("=")[0]
        assert (name.lstrip("+") in tree) == (not name.startswith("+")), line


def composed(lines: tuple[str, ...]) -> Any:
    hydra = pytest.importorskip("hydra")
    pytest.importorskip("verl")
    base = [f"{name}={value}" for name, value in USER.items()]
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return hydra.compose("ppo_trainer", overrides=[*base, *overrides(lines)])


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_hydra_composes_it_and_reading_it_again_says_what_was_meant(change: Change) -> None:
    config = composed(patched(change))
    from omegaconf import OmegaConf

    found = SETTINGS.translate(OmegaConf.to_container(config))
    if change.setting in (
        "clip_high",
        "clip_low",
        "updates",
        "kl",
        "group",
        "max_completion_length",
        "top_p",
        "top_k",
        "dual_clip",
        "dynamic_sampling",
        "length_penalty",
    ):
        assert getattr(found, change.setting) == change.value
    if change.setting in ("correct_mismatch", "logs_rollouts"):
        assert getattr(found, change.setting) is change.value


def test_the_chain_that_holds_entropy_loads_with_the_user_s_clip_and_our_trainer_accepts_it() -> None:
    pytest.importorskip("torch")
    lines = patched(Change("entropy_adaptive", True), Change("entropy_target", 0.35))
    from breadth.adapters.verl.conflicts import refuse_conflicts
    from breadth.training.chain import Chain
    from breadth.training.loss.clipped_policy import ClippedPolicy
    from breadth.training.loss.entropy_target import EntropyTarget

    made = Chain.loads(chain(lines))
    assert made.mechanisms[1:] == (ClippedPolicy(low=0.2, high=0.28), EntropyTarget(target=0.35))
    config = composed(lines)
    assert config.actor_rollout_ref.actor.policy_loss.chain == CHAIN
    assert config.actor_rollout_ref.actor.entropy_coeff == 0  # else entropy is paid for twice
    refuse_conflicts(made, config)


def test_advantages_of_a_critic_stay_where_they_are() -> None:
    pytest.importorskip("torch")
    from breadth.training.chain import Chain

    lines = patched(Change("entropy_target", 0.35), **{"algorithm.adv_estimator": "gae"})
    kinds = [type(one).__name__ for one in Chain.loads(chain(lines)).mechanisms]
    assert kinds == ["ClippedPolicy", "EntropyTarget"]


@pytest.mark.parametrize("recipe", ["thermostat", "forking", "guarded", "passk", "kl_cov"])
def test_recipes_run_under_our_trainer_with_what_is_prescribed(recipe: str) -> None:
    pytest.importorskip("torch")
    from breadth.adapters.verl.conflicts import refuse_conflicts
    from breadth.training.recipes import resolve_chain

    lines = patched(Change("chain", recipe), **{f"{ACTOR}.ppo_micro_batch_size_per_gpu": 1})
    assert f"+{LOSS}.chain={recipe}" in lines
    refuse_conflicts(resolve_chain(recipe), composed(lines))


def test_verl_s_own_kl_cov_comes_with_the_paper_s_numbers_where_it_can_rank() -> None:
    assert patched(Change("chain", "kl_cov")) == (
        f"{LOSS}.loss_mode=kl_cov",
        f"{LOSS}.kl_cov_ratio=0.002",
        f"{LOSS}.ppo_kl_coef=1.0",
    )
    alone = patched(Change("chain", "kl_cov"), **{f"{ACTOR}.ppo_micro_batch_size_per_gpu": 1})
    assert f"{LOSS}.loss_mode=breadth" in alone


def test_a_penalty_that_is_set_up_only_needs_its_manager() -> None:
    assert patched(Change("length_penalty", True), **{"reward.reward_kwargs.overlong_buffer_cfg.enable": True}) == (
        "reward.reward_manager.name=dapo",
    )
    assert "++reward.reward_kwargs.overlong_buffer_cfg.len=256" in patched(
        Change("length_penalty", True)
    )  # a quarter of 1024
