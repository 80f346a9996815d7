"""Check that our hooks are installed in verl, and show what a chain needs to be switched on.

verl logs a plug-in that failed to load at DEBUG only. `self_check` reports which hook is missing and why::

    python -m breadth.adapters.verl.self_check chain.toml

There are two hooks. The trainer (``trainer.v1.trainer_mode=breadth``) runs whole chains: the credit stage where verl
computes advantages, the loss stage in verl's workers with entropy, rows and step boundaries. The policy loss alone
(``loss_mode=breadth`` under verl's own trainers) runs chains whose mechanisms keep no state and read nothing but
log-probs and advantages.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from typing import Any

from breadth.adapters.verl import plugin
from breadth.adapters.verl.conflicts import (
    ACTOR,
    VERL_AVERAGES,
    VERL_VERSIONS,
    check_verl_version,
    refuse_unsupported,
    refuse_without_trainer,
)
from breadth.adapters.verl.loss import LOSS_TARGET, load_chain
from breadth.adapters.verl.registration import (
    LOSS_MODE,
    LOSS_SETTINGS_PATH,
    PLUGIN_GROUP,
    TRAINER_MODES,
    call_policy_loss,
)
from breadth.base.errors import BreadthError, MechanismError
from breadth.training.chain import Chain
from breadth.training.mechanism import Stage
from breadth.training.reduction import Reduction

FUNCTION_SIGNATURES = {
    "verl.workers.utils.losses:ppo_loss": ("config", "model_output", "data", "dp_group"),
    "verl.workers.utils.padding:no_padding_2_padding": ("tensor", "data"),
    "verl.workers.utils.padding:response_to_nested": ("tensor", "response_mask"),
}
"""Functions of verl the policy loss relies on -> their parameters."""
TRAINER_SIGNATURES = {
    "verl.workers.engine_workers:TrainingWorker.train_batch": ("self", "data"),
    "verl.workers.engine_workers:TrainingWorker.train_mini_batch": ("self", "data"),
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._compute_advantage": ("self", "batch", "metrics"),
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._update_actor": ("self", "batch", "metrics"),
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._init_resource_pool_mgr": ("self",),
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._save_checkpoint": ("self",),
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._load_checkpoint": ("self",),
}
"""Methods of verl our trainer and worker override -> their parameters."""


def self_check(*, trainer: bool = True) -> tuple[str, ...]:
    """Check that verl has our hooks and the functions they use; return what is in place, raise on the first problem.

    ``trainer=False`` leaves out the trainer, for machines where only verl's workers can be imported.
    """
    import verl

    check_verl_version(verl.__version__)
    lines = [f"verl {verl.__version__}", check_plugin(), check_signatures(FUNCTION_SIGNATURES), check_registered_loss()]
    return tuple([*lines, check_signatures(TRAINER_SIGNATURES), check_registered_trainers()] if trainer else lines)


def explain_chain(chain: Chain) -> tuple[str, ...]:
    """Return which hooks can run a chain and what to add to verl's command; raise if none can."""
    refuse_unsupported(chain)
    settings = " ".join(
        [f"{LOSS_SETTINGS_PATH}._target_={LOSS_TARGET} +{LOSS_SETTINGS_PATH}.chain=<it>", *required_overrides(chain)]
    )
    whole = f"with our trainer: trainer.v1.trainer_mode={TRAINER_MODES[0]} {settings}"
    try:
        refuse_without_trainer(chain, VERL_AVERAGES[chain.reduction.by], chain.reduction.length)
    except MechanismError as error:
        return whole, f"not with verl's own trainers: {error.problem}"
    return whole, f"with verl's own trainers: {settings}"


def required_overrides(chain: Chain) -> Iterator[str]:
    """Yield the overrides a chain needs in verl's configuration."""
    if not chain.mechanisms_of(Stage.LOSS):
        return
    yield f"{LOSS_SETTINGS_PATH}.loss_mode={LOSS_MODE}"
    if chain.reduction != Reduction():
        yield f"{ACTOR}.loss_agg_mode={VERL_AVERAGES[chain.reduction.by]}"
    if chain.reduction.by == "fixed-length":
        yield f"{ACTOR}.loss_scale_factor={chain.reduction.length or '<largest response length>'}"
    if "loss.entropy" in chain.needs:
        yield f"{ACTOR}.calculate_entropy=true"
    if "loss.reference_logprobs" in chain.needs:
        yield f"{ACTOR}.use_kl_loss=true {ACTOR}.kl_loss_coef=0"


def check_plugin() -> str:
    """Check that verl finds our entry point."""
    found = [entry for entry in metadata.entry_points(group=PLUGIN_GROUP) if entry.value == plugin.__name__]
    if not found:
        raise MechanismError(
            f"No installed package names {plugin.__name__} in the entry-point group {PLUGIN_GROUP}, so verl cannot find"
            " our hooks.",
            f"Install breadth again (pip install breadth), or set VERL_USE_EXTERNAL_MODULES={plugin.__name__} for every"
            " process.",
        )
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    if policy != "auto" and found[0].name not in [name.strip() for name in policy.split(",")]:
        raise MechanismError(
            f"VERL_USE_EXTERNAL_PLUGINS is '{policy}', which keeps verl from loading '{found[0].name}'.",
            f"Unset it, or add {found[0].name} to it.",
        )
    return f"entry point {PLUGIN_GROUP}: {found[0].name}"


def check_registered_loss() -> str:
    """Check that verl's policy loss is ours."""
    registered = import_module("verl.trainer.ppo.core_algos").POLICY_LOSS_REGISTRY.get(LOSS_MODE)
    if registered is not call_policy_loss:
        held = "nothing" if registered is None else f"{registered.__module__}.{registered.__qualname__}"
        raise MechanismError(
            f"verl's policy loss '{LOSS_MODE}' is {held}, not ours.",
            f"Import {plugin.__name__} before training, and see that nothing else registers a loss of that name.",
        )
    return f"policy loss '{LOSS_MODE}'"


def check_registered_trainers() -> str:
    """Check that verl knows our trainers."""
    table = import_or_refuse("verl.trainer.ppo.v1.trainer_base").TRAINER_REGISTRY
    missing = [mode for mode in TRAINER_MODES if not getattr(table.get(mode), "__module__", "").startswith("breadth.")]
    if missing:
        raise MechanismError(
            f"verl knows no trainer of ours under {', '.join(missing)}.",
            f"Import {plugin.__name__} before training, as verl's plug-ins do.",
        )
    return f"trainers {', '.join(TRAINER_MODES)}"


def check_signatures(seams: dict[str, tuple[str, ...]]) -> str:
    """Check that functions of verl still have the parameters we rely on."""
    for place, wanted in seams.items():
        module, path = place.split(":")
        held = import_or_refuse(module)
        for name in path.split("."):
            held = getattr(held, name, None)
        found = () if held is None else tuple(inspect.signature(held).parameters)
        if found != wanted:
            raise MechanismError(
                f"{place} takes {found or 'nothing: it is gone'}; this adapter was written for {wanted}.",
                f'Install a tested verl: pip install "verl=={VERL_VERSIONS[-1]}.*"',
            )
    return f"unchanged in verl: {', '.join(place.split(':')[1] for place in seams)}"


def import_or_refuse(module: str) -> Any:
    """Import a module of verl, or raise with the remedy."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MechanismError(
            f"{module} cannot be imported here: {error}.",
            'Install what verl\'s trainers need: pip install "verl[verl-core]".',
        ) from error


def main(arguments: list[str]) -> int:
    """Check the hooks, and the chain in the given file; return the exit status."""
    try:
        lines = list(self_check())
        lines += explain_chain(load_chain(arguments[0])) if arguments else ()
    except BreadthError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


plugin.install_hooks()  # importing this module installs the hooks, even without the entry point

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
