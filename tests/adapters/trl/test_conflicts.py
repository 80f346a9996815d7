"""Settings of GRPOConfig that do not go with a chain: each is named, explained and translated."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from breadth.adapters.trl.conflicts import LOSS_SETTINGS, check_arguments, check_trl_version, trl_regime
from breadth.base.errors import MechanismError
from breadth.training.chain import Chain
from breadth.training.credit.flat_filter import FlatFilter
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.repeat_penalty import RepeatPenalty
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.reference_kl import ReferenceKL
from breadth.training.plan.difficulty import Difficulty
from breadth.training.plan.temperature import Temperature

DEFAULTS: dict[str, Any] = {
    **{name: default for name, (default, _) in LOSS_SETTINGS.items()},
    "scale_rewards": "group",
    "multi_objective_aggregation": "sum_then_normalize",
    "beta": 0.0,
    "gradient_accumulation_steps": 2,
    "steps_per_generation": 2,
    "num_iterations": 1,
    "per_device_train_batch_size": 4,
    "num_generations": 8,
    "max_completion_length": 100,
    "temperature": 0.9,
}
LOSS = Chain((ClippedPolicy(),))
CREDIT = Chain((GroupAdvantage(),))


def arguments(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**(DEFAULTS | changes))


def refused(chain: Chain, **changes: Any) -> str:
    with pytest.raises(MechanismError) as caught:
        check_arguments(arguments(**changes), chain)
    return str(caught.value)


def test_the_defaults_of_trl_go_with_every_chain() -> None:
    for chain in (LOSS, CREDIT, Chain((GroupAdvantage(), ClippedPolicy(high=math.inf)))):
        check_arguments(arguments(), chain)


def test_the_defaults_written_down_are_trls() -> None:
    trl = pytest.importorskip("trl")
    fields = trl.GRPOConfig.__dataclass_fields__
    for name, (default, _) in LOSS_SETTINGS.items():
        assert fields[name].default == default, name


@pytest.mark.parametrize(
    ("changes", "translation"),
    [
        ({"epsilon": 0.1}, "ClippedPolicy(low=0.1"),
        ({"epsilon_high": 0.28}, "ClippedPolicy(high=0.28)"),
        ({"delta": 3.0}, "ClippedPolicy(dual=3)"),
        ({"entropy_coef": 0.01}, "EntropyBonus(coefficient=0.01)"),
        ({"use_adaptive_entropy": True}, "EntropyTarget(...) or ForkThermostat()"),
        ({"top_entropy_quantile": 0.2}, "ForkingTokens(share=0.2)"),
        ({"importance_sampling_level": "sequence"}, "SequenceRatio()"),
        ({"loss_type": "dr_grpo"}, "Reduction('fixed-length', length=max_completion_length)"),
        ({"loss_type": "cispo"}, "Cispo(bounds='cap'"),
        ({"loss_type": "sapo"}, "a surrogate of the chain"),
    ],
    ids=str,
)
def test_a_loss_setting_is_translated(changes: dict[str, Any], translation: str) -> None:
    told = refused(LOSS, **changes)
    assert translation in told
    assert f"Leave {next(iter(changes))} at" in told
    check_arguments(arguments(**changes), CREDIT)  # without a loss of ours, TRL's own settings hold


def test_several_conflicts_are_told_at_once() -> None:
    told = refused(LOSS, epsilon_high=0.28, entropy_coef=0.1, beta=0.5)
    assert "epsilon_high" in told
    assert "entropy_coef" in told
    assert "beta=0.5" in told


def test_scaling_of_rewards_conflicts_only_with_an_estimator() -> None:
    assert "GroupAdvantage(scale='none')" in refused(CREDIT, scale_rewards="none")
    check_arguments(arguments(scale_rewards="none"), Chain((RepeatPenalty(),)))


def test_the_plan_stage_is_refused_with_the_reason() -> None:
    for mechanism in (Difficulty(), Temperature(1.0, 0.6, 100)):
        assert "fixes the sampling temperature at construction" in refused(Chain((mechanism, *LOSS.mechanisms)))


def test_the_reference_policy_needs_the_same_coefficient() -> None:
    chain = LOSS.plus(ReferenceKL(0.04))
    assert "Set beta=0.04" in refused(chain)
    assert "Set beta=0.04" in refused(chain, beta=0.1)
    check_arguments(arguments(beta=0.04), chain)
    assert "ReferenceKL(estimator='k3')" in refused(chain, beta=0.04, use_bias_correction_kl=False)
    check_arguments(arguments(beta=0.04, use_bias_correction_kl=False), LOSS.plus(ReferenceKL(0.04, "k3")))
    assert "Set beta to 0" in refused(LOSS, beta=0.04)
    check_arguments(arguments(beta=0.04), CREDIT)


def test_an_optimizer_step_may_not_span_generations() -> None:
    assert "multiple of gradient_accumulation_steps" in refused(LOSS, gradient_accumulation_steps=3)
    assert "contain some rollouts twice" in refused(LOSS, gradient_accumulation_steps=4, num_iterations=2)
    check_arguments(arguments(steps_per_generation=4, num_iterations=2), LOSS)


def test_trls_losses_by_response_cannot_drop_groups() -> None:
    dropping = CREDIT.plus(FlatFilter())
    assert "divides by all responses" in refused(dropping, loss_type="grpo")
    check_arguments(arguments(), dropping)
    check_arguments(arguments(loss_type="grpo"), CREDIT)


@pytest.mark.parametrize("version", ["1.9.0", "1.15.9", "1.17.0", "1.160.0", "2.0.0"])
def test_an_unknown_version_is_refused(version: str) -> None:
    with pytest.raises(MechanismError, match=f"TRL {version} is installed"):
        check_trl_version(version)
    check_trl_version("1.16.0")
    check_trl_version("1.16.3")


def test_the_regime_by_hand() -> None:
    regime = trl_regime(arguments(steps_per_generation=8, num_iterations=2), processes=3)
    assert regime.updates_per_generation == 8  # 8 micro-batches twice, 2 to an optimizer step
    assert regime.sequences_per_update == 4 * 2 * 3
    assert regime.group_size == 8
    assert regime.temperature == 0.9
    assert regime.tokens_per_update == 24 * 100
    assert trl_regime(arguments(), processes=1).on_policy
