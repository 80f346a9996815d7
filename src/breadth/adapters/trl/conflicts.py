"""TRL settings that our chain would override or cannot honour, refused at attach with the translation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from breadth.base.errors import MechanismError
from breadth.training.chain import Chain
from breadth.training.credit.flat_filter import FlatFilter
from breadth.training.mechanism import Regime, Role, Stage, mechanism_name

TRL_VERSIONS = ("1.16",)
"""Minor versions of TRL this adapter is tested with."""

LOSS_SETTINGS: dict[str, tuple[Any, Callable[[Any], str]]] = {
    "loss_type": (
        "dapo",
        lambda value: {
            "grpo": "Chain(..., reduction=Reduction('sequence-mean')) with ClippedPolicy()",
            "bnpo": (
                "Chain(..., reduction=Reduction('token-mean')) with ClippedPolicy(): bnpo averages each micro-batch"
                " alone"
            ),
            "dr_grpo": (
                "Chain(..., reduction=Reduction('fixed-length', length=max_completion_length)) with ClippedPolicy()"
            ),
            "cispo": "Cispo(bounds='cap', cap=<epsilon_high>) in the place of ClippedPolicy()",
        }.get(value, "a surrogate of the chain in its place"),
    ),
    "epsilon": (0.2, lambda value: f"ClippedPolicy(low={value:g}, high=...)"),
    "epsilon_high": (
        None,
        lambda value: f"ClippedPolicy(high={value:g}), or with cispo Cispo(bounds='cap', cap={value:g})",
    ),
    "delta": (None, lambda value: f"ClippedPolicy(dual={value:g})"),
    "entropy_coef": (0.0, lambda value: f"EntropyBonus(coefficient={value:g})"),
    "use_adaptive_entropy": (False, lambda _: "EntropyTarget(...) or ForkThermostat()"),
    "top_entropy_quantile": (1.0, lambda value: f"ForkingTokens(share={value:g})"),
    "importance_sampling_level": ("token", lambda _: "SequenceRatio()"),
    "off_policy_mask_threshold": (
        None,
        lambda _: (
            "nothing: no mechanism of ours does this; leave it out or keep TRL's own loss (a chain of the credit stage"
            " only)"
        ),
    ),
}
"""Loss settings of GRPOConfig -> (TRL's default, how the chain says it)."""

ROW_COUNTING = ("grpo", "sapo", "dr_grpo", "luspo")
"""Losses of TRL that divide by the number of responses, whether any of their tokens counts or not."""

CREDIT_SETTINGS: dict[str, tuple[Any, Callable[[Any], str]]] = {
    "scale_rewards": ("group", lambda value: f"GroupAdvantage(scale={'none' if value == 'none' else 'sample'!r})"),
    "multi_objective_aggregation": (
        "sum_then_normalize",
        lambda _: "reward functions that return the aggregate you want",
    ),
}
"""Advantage settings of GRPOConfig -> (TRL's default, how the chain says it)."""


def check_trl_version(version: str) -> None:
    """Refuse a TRL whose private methods this adapter has not been tested with."""
    if not any(version == tested or version.startswith(f"{tested}.") for tested in TRL_VERSIONS):
        raise MechanismError(
            f"TRL {version} is installed; this adapter overrides private methods of TRL and is tested with"
            f" {', '.join(TRL_VERSIONS)} only.",
            f'Install a tested one: pip install "trl=={TRL_VERSIONS[-1]}.*"',
        )


def check_arguments(arguments: Any, chain: Chain) -> None:
    """Refuse settings of GRPOConfig that would be ignored or cannot be honoured under the chain."""
    problems = [*settings_the_chain_replaces(arguments, chain), *settings_not_supported(arguments, chain)]
    if problems:
        told = "\n".join(f"  {setting}: {why}" for setting, why, _ in problems)
        raise MechanismError(
            f"These settings of GRPOConfig do not go with the chain:\n{told}",
            "; ".join(dict.fromkeys(remedy for _, _, remedy in problems)) + ".",
        )


def trl_regime(arguments: Any, processes: int) -> Regime:
    """Return how TRL will run the chain."""
    per_update = arguments.gradient_accumulation_steps
    return Regime(
        updates_per_generation=max(1, arguments.steps_per_generation * arguments.num_iterations // per_update),
        sequences_per_update=arguments.per_device_train_batch_size * per_update * processes,
        group_size=arguments.num_generations,
        # at most: a quota too small for these is too small for any
        tokens_per_response=arguments.max_completion_length,
        temperature=arguments.temperature,
    )


SettingProblem = tuple[str, str, str]


def settings_the_chain_replaces(arguments: Any, chain: Chain) -> Iterator[SettingProblem]:
    """Yield settings that the chain replaces, where the user set them on purpose."""
    tables = [LOSS_SETTINGS] if chain.mechanisms_of(Stage.LOSS) else []
    if any(one.role is Role.ESTIMATOR for one in chain.mechanisms):
        tables.append(CREDIT_SETTINGS)
    for table in tables:
        for setting, (default, translate) in table.items():
            value = getattr(arguments, setting, default)
            if value != default:
                yield (
                    f"{setting}={value!r}",
                    f"the chain decides this; write it there as {translate(value)}",
                    f"Leave {setting} at {default!r}",
                )


def settings_not_supported(arguments: Any, chain: Chain) -> Iterator[SettingProblem]:
    for one in chain.mechanisms_of(Stage.PLAN):
        why = (
            "TRL fixes the sampling temperature at construction and draws as many samples of every prompt, in an order"
            " set in advance"
        )
        yield (
            mechanism_name(one),
            why,
            f"Leave {mechanism_name(one)} out, or change the data set or the temperature between runs",
        )
    if not chain.mechanisms_of(Stage.LOSS):
        yield from _check_dropped_rollouts(arguments, chain)
        return
    if arguments.steps_per_generation % arguments.gradient_accumulation_steps:
        why = (
            f"an optimizer step would reach past a generation ({arguments.steps_per_generation} micro-batches), or hold"
            " some rollouts twice"
        )
        setting = f"gradient_accumulation_steps={arguments.gradient_accumulation_steps}"
        yield setting, why, "Make steps_per_generation a multiple of gradient_accumulation_steps"
    yield from _check_reference(arguments, chain)


def _check_dropped_rollouts(arguments: Any, chain: Chain) -> Iterator[SettingProblem]:
    """TRL's own losses by response go on dividing by the rollouts that were dropped."""
    dropping = [mechanism_name(one) for one in chain.mechanisms if isinstance(one, FlatFilter)]
    if dropping and arguments.loss_type in ROW_COUNTING:
        why = f"it divides by all responses, those that {dropping[0]} drops included"
        yield (
            f"loss_type={arguments.loss_type!r}",
            why,
            "Leave loss_type at 'dapo', or put the policy loss into the chain",
        )


def _check_reference(arguments: Any, chain: Chain) -> Iterator[SettingProblem]:
    """TRL loads a reference policy only when its own beta is above zero: then beta must say what the chain says."""
    wanted = [one for one in chain.mechanisms_of(Stage.LOSS) if "reference_logprobs" in one.needs]
    coefficient = getattr(wanted[0], "coefficient", None) if wanted else 0.0
    if wanted and arguments.beta == 0:
        why = f"{mechanism_name(wanted[0])} needs the reference policy, which TRL loads only with beta above 0"
        yield "beta=0.0", why, f"Set beta={coefficient!r}, the coefficient of {mechanism_name(wanted[0])}"
    elif arguments.beta not in (0, coefficient):
        why = (
            "the chain decides the divergence from the reference policy"
            if not wanted
            else f"{mechanism_name(wanted[0])} has the coefficient {coefficient}"
        )
        yield f"beta={arguments.beta}", why, "Set beta to 0" if not wanted else f"Set beta={coefficient}"
    if (
        wanted
        and not getattr(arguments, "use_bias_correction_kl", True)
        and getattr(wanted[0], "estimator", "k3") != "k3"
    ):
        why = "the chain decides the estimator; without the correction TRL's is ReferenceKL(estimator='k3')"
        yield "use_bias_correction_kl=False", why, "Leave use_bias_correction_kl at True"
