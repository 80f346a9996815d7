"""What verl cannot feed and settings that do not go with a chain: refused, with the override that helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed")

from breadth.adapters.verl.conflicts import (
    VERL_AVERAGES,
    check_verl_version,
    refuse_conflicts,
    refuse_unsupported,
    refuse_without_trainer,
    verl_regime,
)
from breadth.base.errors import MechanismError
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.planning_credit import PlanningCredit
from breadth.training.loss.clip_cov import ClipCov
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.loss.kl_cov import KLCov
from breadth.training.loss.reference_kl import ReferenceKL
from breadth.training.plan.temperature import Temperature
from breadth.training.recipes import RECIPES
from breadth.training.reduction import Reduction

ACTOR = "actor_rollout_ref.actor"
CLIP = ClippedPolicy()
ENTROPY = f"{ACTOR}.calculate_entropy=true"
Compose = Callable[..., Any]


@pytest.mark.parametrize("version", ["0.9.0", "0.9.1", "0.9"])
def test_tested_versions_pass(version: str) -> None:
    check_verl_version(version)


@pytest.mark.parametrize("version", ["0.8.2", "0.10.0", "1.0.0"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(MechanismError, match=version) as caught:
        check_verl_version(version)
    assert "pip install" in caught.value.remedy


@pytest.mark.parametrize(
    ("chain", "overrides", "problem", "remedy"),
    [
        (Chain((CLIP, ForkThermostat())), [], "fork-thermostat reads the entropy", f"{ACTOR}.calculate_entropy=true"),
        (Chain((CLIP, ReferenceKL())), [], "reference log-probs", f"{ACTOR}.kl_loss_coef=0"),
        (Chain((CLIP,)), [f"{ACTOR}.policy_loss.loss_mode=vanilla"], "loss_mode is 'vanilla'", "loss_mode=breadth"),
        (Chain((GroupAdvantage(),)), [], "no policy loss to run", "vanilla"),
        (
            Chain((CLIP,), Reduction("sequence-mean")),
            [],
            "averages by sequence-mean, verl by token-mean",
            "loss_agg_mode=seq-mean-token-mean",
        ),
        (
            Chain((CLIP,), Reduction("fixed-length", 512)),
            [f"{ACTOR}.loss_agg_mode=seq-mean-token-sum-norm"],
            "divides by 512 tokens, verl by the width of each micro-batch",
            "loss_scale_factor=512",
        ),
        (Chain((CLIP,)), [f"{ACTOR}.clip_ratio_high=0.28"], "clip_ratio_high=0.28 would be ignored", "low, high, dual"),
        (Chain((CLIP,)), [f"{ACTOR}.strategy=veomni"], "not in veomni", "fsdp2"),
        (
            Chain((CLIP, ClipCov())),
            [f"{ACTOR}.ulysses_sequence_parallel_size=2"],
            "clip-cov would see every sequence 2 times",
            "=1",
        ),
        (
            Chain((GroupAdvantage(), CLIP)),
            ["algorithm.adv_estimator=gae"],
            "group-advantage replaces",
            "adv_estimator=grpo",
        ),
        (
            Chain((CLIP, ClipCov())),
            ["+algorithm.rollout_correction.bypass_mode=true"],
            "bypass mode",
            "bypass_mode=false",
        ),
        (Chain((CLIP, Temperature(1.0, 1.2, 10))), [], "temperature decides what to sample", "data.sampler.class_path"),
        (Chain((CLIP, KLCov(divergence="full"))), [], "kl-cov reads old_divergence", "Objective"),
        (Chain((PlanningCredit(), CLIP)), [], "planning-credit reads planning", "TRL"),
    ],
)
def test_what_does_not_go_is_refused_with_the_way_that_does(
    configured: Compose, chain: Chain, overrides: list[str], problem: str, remedy: str
) -> None:
    overrides = [one.replace("+", "++") for one in overrides]
    with pytest.raises(MechanismError) as caught:
        refuse_conflicts(chain, configured("grpo", *overrides))
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy


def test_all_problems_are_told_at_once(configured: Compose) -> None:
    with pytest.raises(MechanismError) as caught:
        refuse_conflicts(
            Chain((CLIP, ForkThermostat(), Temperature(1.0, 1.2, 10))), configured("grpo", f"{ACTOR}.clip_ratio_c=5")
        )
    assert [word in caught.value.problem for word in ("entropy", "sample", "clip_ratio_c")] == [True] * 3


@pytest.mark.parametrize(
    "name",
    ["dapo", "rloo", "cispo", "clip_cov", "kl_cov", "gppo", "ce_gppo", "forking", "maxrl", "thermostat", "guarded"],
)
def test_our_recipes_run_with_the_trainer(configured: Compose, name: str) -> None:
    chain = RECIPES[name].chain
    chain = replace(chain, reduction=chain.reduction.with_length(512))
    settings = [f"{ACTOR}.loss_agg_mode={VERL_AVERAGES[chain.reduction.by]}"]
    settings += [f"{ACTOR}.loss_scale_factor=512"] if chain.reduction.by == "fixed-length" else []
    refuse_conflicts(chain, configured(name, ENTROPY, *settings))
    refuse_unsupported(chain)


def test_a_chain_of_the_credit_stage_goes_with_any_loss_of_verl(configured: Compose) -> None:
    refuse_conflicts(
        Chain((GroupAdvantage(),)),
        configured("grpo", f"{ACTOR}.strategy=veomni", f"{ACTOR}.clip_ratio_high=0.28", loss_mode="vanilla"),
    )


@pytest.mark.parametrize(
    ("mechanism", "reason"),
    [
        (GroupAdvantage(), "acts on rollouts"),
        (ClipCov(), "whole batch"),
        (ForkThermostat(), "reads entropy"),
        (Temperature(1.0, 1.2, 10), "what to sample"),
    ],
)
def test_the_policy_loss_alone_refuses_what_verl_does_not_hand_over(mechanism: Any, reason: str) -> None:
    with pytest.raises(MechanismError, match=reason):
        refuse_without_trainer(Chain((CLIP, mechanism)), "token-mean", None)
    refuse_without_trainer(Chain((CLIP,)), "token-mean", None)


def test_the_regime_is_verls(configured: Compose) -> None:
    config = configured(
        "grpo", "data.train_batch_size=1024", f"{ACTOR}.ppo_mini_batch_size=256", f"{ACTOR}.ppo_epochs=2"
    )
    regime = verl_regime(config)
    assert (regime.updates_per_generation, regime.sequences_per_update, regime.group_size, regime.temperature) == (
        8,
        1024,
        4,
        1.0,
    )
