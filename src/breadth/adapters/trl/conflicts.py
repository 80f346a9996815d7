"""TRL settings that our chain overrides or cannot support; refused at attach, with the translation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from breadth.adapters.trl.config import ROW_COUNTING_LOSSES
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
            "cispo": "Cispo(bounds='cap', cap=<epsilon_high>) instead of ClippedPolicy()",
        }.get(value, "a surrogate of the chain"),
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
            "nothing: no mechanism of ours does this; leave it out or keep TRL's own loss (use only the credit stage)"
        ),
    ),
}
"""Loss settings of GRPOConfig -> (TRL's default, the same in a chain)."""

CREDIT_SETTINGS: dict[str, tuple[Any, Callable[[Any], str]]] = {
    "scale_rewards": ("group", lambda value: f"GroupAdvantage(scale={'none' if value == 'none' else 'sample'!r})"),
    "multi_objective_aggregation": (
        "sum_then_normalize",
        lambda _: "reward functions that return the aggregate you want",
    ),
}
"""Advantage settings of GRPOConfig -> (TRL's default, the same in a chain)."""


def check_trl_version(version: str) -> None:
    """Refuse a TRL whose private methods this adapter has not been tested with."""
    if not any(version == tested or version.startswith(f"{tested}.") for tested in TRL_VERSIONS):
        raise MechanismError(
            f"TRL {version} is installed; this adapter overrides private methods of TRL and is tested with"
            f" {', '.join(TRL_VERSIONS)} only.",
            f'Install a tested one: pip install "trl=={TRL_VERSIONS[-1]}.*"',
        )


def check_arguments(arguments: Any, chain: Chain) -> None:
    """Refuse settings of GRPOConfig that the chain would ignore or cannot support."""
    problems = [*settings_the_chain_replaces(arguments, chain), *settings_not_supported(arguments, chain)]
    if problems:
        lines = "\n".join(f"  {setting}: {why}" for setting, why, _ in problems)
        raise MechanismError(
            f"These settings of GRPOConfig conflict with the chain:\n{lines}",
            "; ".join(dict.fromkeys(remedy for _, _, remedy in problems)) + ".",
        )


def trl_regime(arguments: Any, processes: int) -> Regime:
    """Return the regime in which TRL will run the chain."""
    per_update = arguments.gradient_accumulation_steps
    return Regime(
        updates_per_generation=max(1, arguments.steps_per_generation * arguments.num_iterations // per_update),
        sequences_per_update=arguments.per_device_train_batch_size * per_update * processes,
        group_size=arguments.num_generations,
        # an upper bound: a share too small for it is too small for any
        tokens_per_response=arguments.max_completion_length,
        temperature=arguments.temperature,
    )


SettingProblem = tuple[str, str, str]


def settings_the_chain_replaces(arguments: Any, chain: Chain) -> Iterator[SettingProblem]:
    """Yield settings of the user that the chain replaces."""
    tables = [LOSS_SETTINGS] if chain.mechanisms_of(Stage.LOSS) else []
    if any(mechanism.role is Role.ESTIMATOR for mechanism in chain.mechanisms):
        tables.append(CREDIT_SETTINGS)
    for table in tables:
        for setting, (default, translate) in table.items():
            value = getattr(arguments, setting, default)
            if value != default:
                yield (
                    f"{setting}={value!r}",
                    f"the chain sets this; write it there as {translate(value)}",
                    f"Leave {setting} at {default!r}",
                )


def settings_not_supported(arguments: Any, chain: Chain) -> Iterator[SettingProblem]:
    """Yield mechanisms and settings that TRL cannot combine."""
    for mechanism in chain.mechanisms_of(Stage.PLAN):
        why = (
            "TRL fixes the sampling temperature at construction, and samples every prompt equally often in a fixed"
            " order"
        )
        yield (
            mechanism_name(mechanism),
            why,
            f"Leave {mechanism_name(mechanism)} out, or change the data set or the temperature between runs",
        )
    if not chain.mechanisms_of(Stage.LOSS):
        yield from _check_dropped_rollouts(arguments, chain)
        return
    if arguments.steps_per_generation % arguments.gradient_accumulation_steps:
        why = (
            f"an optimizer step would span generations ({arguments.steps_per_generation} micro-batches), or contain"
            " some rollouts twice"
        )
        setting = f"gradient_accumulation_steps={arguments.gradient_accumulation_steps}"
        yield setting, why, "Make steps_per_generation a multiple of gradient_accumulation_steps"
    yield from _check_reference(arguments, chain)


def _check_dropped_rollouts(arguments: Any, chain: Chain) -> Iterator[SettingProblem]:
    """Yield a loss of TRL that still divides by dropped rollouts."""
    dropping = [mechanism_name(mechanism) for mechanism in chain.mechanisms if isinstance(mechanism, FlatFilter)]
    if dropping and arguments.loss_type in ROW_COUNTING_LOSSES:
        why = f"it divides by all responses, including those that {dropping[0]} drops"
        yield (
            f"loss_type={arguments.loss_type!r}",
            why,
            "Leave loss_type at 'dapo', or put the policy loss into the chain",
        )


def _check_reference(arguments: Any, chain: Chain) -> Iterator[SettingProblem]:
    """Yield a beta that differs from the chain: TRL loads a reference policy only if beta is above zero."""
    wanted = [mechanism for mechanism in chain.mechanisms_of(Stage.LOSS) if "reference_logprobs" in mechanism.needs]
    coefficient = getattr(wanted[0], "coefficient", None) if wanted else 0.0
    if wanted and arguments.beta == 0:
        why = f"{mechanism_name(wanted[0])} needs the reference policy, which TRL loads only with beta above 0"
        yield "beta=0.0", why, f"Set beta={coefficient!r}, the coefficient of {mechanism_name(wanted[0])}"
    elif arguments.beta not in (0, coefficient):
        why = (
            "the chain sets the KL to the reference policy"
            if not wanted
            else f"{mechanism_name(wanted[0])} has the coefficient {coefficient}"
        )
        yield f"beta={arguments.beta}", why, "Set beta to 0" if not wanted else f"Set beta={coefficient}"
    if (
        wanted
        and not getattr(arguments, "use_bias_correction_kl", True)
        and getattr(wanted[0], "estimator", "k3") != "k3"
    ):
        why = "the chain sets the estimator; without the correction TRL's is ReferenceKL(estimator='k3')"
        yield "use_bias_correction_kl=False", why, "Leave use_bias_correction_kl at True"
