"""What verl cannot provide to a chain, and settings of verl that conflict with it; refused at attach, with remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from breadth.adapters.verl.registration import LOSS_MODE, LOSS_SETTINGS_PATH, TRAINER_MODES
from breadth.base.errors import MechanismError
from breadth.training.chain import Chain
from breadth.training.entropy import ENTROPY_GRADIENT
from breadth.training.mechanism import Mechanism, Regime, Role, Stage, mechanism_name
from breadth.training.reduction import Reduction

VERL_VERSIONS = ("0.9",)
"""Minor versions of verl this adapter is tested with."""
ACTOR = "actor_rollout_ref.actor"
"""Where verl keeps the actor's settings."""
PROVIDED_FIELDS = {
    "credit": {"mask", "entropy", "correct", "problems", "outcomes", "texts", "truncated"},
    "loss": {"entropy", ENTROPY_GRADIENT, "old_entropy", "reference_logprobs"},
}
"""Stage -> optional fields our trainer provides; the policy loss alone provides none."""
SUPPORTED_ENGINES = ("fsdp", "fsdp2")
"""Engines of verl in which our worker runs the loss stage."""
CLIP_DEFAULTS = {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 3.0}
"""Clip settings of the actor -> verl's default; the chain's surrogate has its own."""

VERL_AVERAGES = {
    "token-mean": "token-mean",
    "sequence-mean": "seq-mean-token-mean",
    "fixed-length": "seq-mean-token-sum-norm",
}
"""A chain's reduction -> verl's loss_agg_mode."""

ChainProblem = tuple[str, str]
"""(problem, remedy)."""


def check_verl_version(version: str) -> None:
    """Refuse a verl whose private methods this adapter has not been tested with."""
    if not any(version == tested or version.startswith(f"{tested}.") for tested in VERL_VERSIONS):
        raise MechanismError(
            f"verl {version} is installed; this adapter overrides methods of verl that may change, and knows"
            f" {', '.join(VERL_VERSIONS)}.",
            f'Install a tested one: pip install "verl=={VERL_VERSIONS[-1]}.*"',
        )


def refuse_without_trainer(chain: Chain, loss_agg_mode: str, loss_scale_factor: int | None) -> None:
    """Refuse a chain that needs our trainer: verl passes a policy loss no entropy, rows or step boundaries."""
    _raise(
        [
            *trainer_only_mechanisms(chain),
            *plan_mechanisms(chain),
            *reduction_problems(chain.reduction, loss_agg_mode, loss_scale_factor),
        ]
    )


def refuse_unsupported(chain: Chain) -> None:
    """Refuse a chain that cannot run in verl under any configuration."""
    _raise([*plan_mechanisms(chain), *missing_fields(chain)])


def refuse_conflicts(chain: Chain, config: Any) -> None:
    """Refuse a chain that our trainer cannot run under verl's configuration."""
    actor = config.actor_rollout_ref.actor
    problems = [*plan_mechanisms(chain), *missing_fields(chain), *loss_mode_problems(chain, actor)]
    if chain.mechanisms_of(Stage.LOSS):
        problems += [
            *reduction_problems(chain.reduction, actor.loss_agg_mode, actor.get("loss_scale_factor")),
            *clip_problems(actor),
        ]
        problems += [*field_problems(chain, config), *engine_problems(chain, config)]
    _raise([*problems, *critic_problems(chain, config), *bypass_problems(chain, config)])


def verl_regime(config: Any) -> Regime:
    """Return the regime in which verl will run the chain."""
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    return Regime(
        updates_per_generation=max(1, config.data.train_batch_size // actor.ppo_mini_batch_size) * actor.ppo_epochs,
        sequences_per_update=actor.ppo_mini_batch_size * rollout.n,
        group_size=rollout.n,
        temperature=rollout.temperature,
    )


def _raise(problems: Iterable[ChainProblem]) -> None:
    found = list(problems)
    if found:
        lines = "\n".join(f"  {problem}" for problem, _ in found)
        raise MechanismError(
            f"verl cannot run this chain as it is configured:\n{lines}",
            " ".join(dict.fromkeys(remedy for _, remedy in found)),
        )


def trainer_only_mechanisms(chain: Chain) -> Iterator[ChainProblem]:
    """Yield mechanisms that a policy loss alone cannot run."""
    remedy = f"Use our trainer, which provides all of this: trainer.v1.trainer_mode={TRAINER_MODES[0]}."
    for mechanism in chain.mechanisms:
        if mechanism.stage is Stage.CREDIT:
            yield (
                f"{mechanism_name(mechanism)} acts on rollouts and their groups, which a policy loss never sees.",
                remedy,
            )
        elif lacks := _what_policy_loss_lacks(mechanism):
            yield f"{mechanism_name(mechanism)} {lacks}, which a policy loss does not get.", remedy


def _what_policy_loss_lacks(mechanism: Mechanism[Any, Any]) -> str | None:
    if mechanism.needs:
        return f"reads {', '.join(sorted(mechanism.needs))}"
    if mechanism.surveys:
        return "looks at the whole batch first"
    return "keeps a state from step to step" if mechanism.init() is not None else None


def plan_mechanisms(chain: Chain) -> Iterator[ChainProblem]:
    """Yield mechanisms of the plan stage."""
    for mechanism in chain.mechanisms_of(Stage.PLAN):
        yield (
            (
                f"{mechanism_name(mechanism)} decides what to sample, but verl's sampler and agent loops decide that"
                " before the trainer runs."
            ),
            f"Leave {mechanism_name(mechanism)} out, and call Objective.plan from a sampler of your own"
            " (data.sampler.class_path).",
        )


def missing_fields(chain: Chain) -> Iterator[ChainProblem]:
    """Yield fields of the chain that verl does not compute."""
    for field, names in chain.needs.items():
        stage, name = field.split(".", 1)
        if stage in PROVIDED_FIELDS and name not in PROVIDED_FIELDS[stage]:
            remedy = "Leave it out here; our TRL trainer, or your own loop around Objective, can provide it."
            yield f"{', '.join(names)} reads {name}, which verl {VERL_VERSIONS[-1]} does not compute.", remedy


def loss_mode_problems(chain: Chain, actor: Any) -> Iterator[ChainProblem]:
    """Yield a loss_mode that does not fit the chain."""
    mode = actor.policy_loss.loss_mode
    if chain.mechanisms_of(Stage.LOSS) and mode != LOSS_MODE:
        yield (
            f"the chain has a policy loss, but {LOSS_SETTINGS_PATH}.loss_mode is '{mode}'.",
            f"Set {LOSS_SETTINGS_PATH}.loss_mode={LOSS_MODE}.",
        )
    if not chain.mechanisms_of(Stage.LOSS) and mode == LOSS_MODE:
        yield (
            "the chain has no policy loss to run.",
            f"Set {LOSS_SETTINGS_PATH}.loss_mode to one of verl's own, e.g. vanilla, or add one to the chain.",
        )


def reduction_problems(reduction: Reduction, mode: str, factor: int | None) -> Iterator[ChainProblem]:
    """Yield a reduction that differs from verl's: its own terms (entropy_coeff, KL loss) and metrics use its mode."""
    same = VERL_AVERAGES[reduction.by]
    if mode != same:
        yield (
            f"the chain averages by {reduction.by}, verl by {mode}.",
            f"Set {ACTOR}.loss_agg_mode={same}, or change the chain's reduction.",
        )
    elif reduction.by == "fixed-length" and factor != reduction.length:
        length = reduction.length or "<largest response length>"
        why = f"the chain divides by {length} tokens, verl by {factor or 'the width of each micro-batch'}."
        yield why, f"Set {ACTOR}.loss_scale_factor={length}."


def clip_problems(actor: Any) -> Iterator[ChainProblem]:
    """Yield clip settings that would be ignored."""
    for setting, default in CLIP_DEFAULTS.items():
        value = actor.get(setting, default)
        if value is not None and value != default:
            remedy = (
                f"Leave {ACTOR}.{setting} at {default}, and set the bounds of the chain's surrogate (low, high, dual)."
            )
            yield f"{ACTOR}.{setting}={value} would be ignored: the chain's surrogate sets the clip.", remedy


def field_problems(chain: Chain, config: Any) -> Iterator[ChainProblem]:
    """Yield fields that verl computes only with other settings."""
    actor = config.actor_rollout_ref.actor
    if "loss.entropy" in chain.needs and not (actor.calculate_entropy or actor.entropy_coeff):
        yield (
            f"{', '.join(chain.needs['loss.entropy'])} reads the entropy, which verl does not compute.",
            f"Set {ACTOR}.calculate_entropy=true.",
        )
    if "loss.reference_logprobs" in chain.needs and not (actor.use_kl_loss or config.algorithm.use_kl_in_reward):
        names = ", ".join(chain.needs["loss.reference_logprobs"])
        remedy = (
            f"Set {ACTOR}.use_kl_loss=true and {ACTOR}.kl_loss_coef=0: verl then computes them and adds no term of"
            " its own."
        )
        yield f"{names} reads reference log-probs, and verl runs no reference policy.", remedy


def engine_problems(chain: Chain, config: Any) -> Iterator[ChainProblem]:
    """Yield engines and parallelism that our worker does not support."""
    actor = config.actor_rollout_ref.actor
    if actor.strategy not in SUPPORTED_ENGINES:
        remedy = (
            f"Set {ACTOR}.strategy=fsdp2, or run a chain without state on {LOSS_SETTINGS_PATH}.loss_mode={LOSS_MODE}"
            " under verl's own trainer."
        )
        yield f"our worker runs in verl's engines {' and '.join(SUPPORTED_ENGINES)}, not in {actor.strategy}.", remedy
    parallel = max(
        int(actor.get("ulysses_sequence_parallel_size", 1) or 1),
        int((actor.get("fsdp_config") or {}).get("ulysses_sequence_parallel_size", 1) or 1),
    )
    surveyors = [mechanism_name(mechanism) for mechanism in chain.mechanisms_of(Stage.LOSS) if mechanism.surveys]
    if surveyors and parallel > 1:
        why = f"{', '.join(surveyors)} would see every sequence {parallel} times under sequence parallelism."
        yield why, f"Set {ACTOR}.ulysses_sequence_parallel_size=1."
    distillation = config.get("distillation")
    if distillation and distillation.get("enabled", False):
        yield (
            "with distillation verl runs another worker loss.",
            "Set distillation.enabled=false, or use a chain of the credit stage only.",
        )


def critic_problems(chain: Chain, config: Any) -> Iterator[ChainProblem]:
    """Yield an estimator that would replace the critic's advantages."""
    estimators = [mechanism_name(mechanism) for mechanism in chain.mechanisms if mechanism.role is Role.ESTIMATOR]
    if estimators and config.algorithm.adv_estimator == "gae":
        yield (
            f"{estimators[0]} replaces the advantages that verl's critic is trained for.",
            "Set algorithm.adv_estimator=grpo, or leave it out.",
        )


def bypass_problems(chain: Chain, config: Any) -> Iterator[ChainProblem]:
    """Yield mechanisms that bypass mode breaks."""
    correction = config.algorithm.get("rollout_correction")
    if not (correction and correction.get("bypass_mode", False)):
        return
    readers = [
        mechanism_name(mechanism)
        for mechanism in chain.mechanisms
        if "old_entropy" in mechanism.needs or (mechanism.stage is Stage.CREDIT and "entropy" in mechanism.needs)
    ]
    readers += [mechanism_name(mechanism) for mechanism in chain.mechanisms_of(Stage.LOSS) if mechanism.surveys]
    if readers:
        why = (
            f"in bypass mode verl does not score the rollouts before the update, which {', '.join(readers)} relies on."
        )
        yield why, "Set algorithm.rollout_correction.bypass_mode=false."
