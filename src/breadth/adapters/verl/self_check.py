"""Our chains inside verl: what to switch on, and the check that it is on.

verl logs a plug-in that failed to load at DEBUG only, so nobody sees it. `self_check` looks, and says which hook is
missing and why::

    python -m breadth.adapters.verl.self_check chain.toml

Two hooks. The trainer (``trainer.v1.trainer_mode=breadth``) runs whole chains: the credit seat where verl computes
advantages, the loss seat in verl's workers with entropy, rows and step boundaries. The policy loss alone
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
from breadth.adapters.verl.conflicts import ACTOR, TESTED, VERL_AVERAGES, check_version, refuse_alone, refuse_unfed
from breadth.adapters.verl.loss import TARGET, load_chain
from breadth.adapters.verl.registration import GROUP, LOSS_MODE, PLACE, TRAINER_MODES, policy_loss
from breadth.base.errors import BreadthError, MechanismError
from breadth.training.chain import Chain
from breadth.training.mechanism import Stage
from breadth.training.reduction import Reduction

SEAMS = {
    "verl.workers.utils.losses:ppo_loss": ("config", "model_output", "data", "dp_group"),
    "verl.workers.utils.padding:no_padding_2_padding": ("tensor", "data"),
    "verl.workers.utils.padding:response_to_nested": ("tensor", "response_mask"),
}
"""Functions of verl the policy loss relies on -> their parameters."""
TRAINER_SEAMS = {
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
    """Look whether verl has our hooks and the places they hang on; returns what is in place, raises on the first thing that is not.

    ``trainer=False`` leaves out the trainer, for machines where only verl's workers can be imported.
    """
    import verl

    check_version(verl.__version__)
    said = [f"verl {verl.__version__}", _plugin(), _seams(SEAMS), _loss()]
    return tuple([*said, _seams(TRAINER_SEAMS), _trainers()] if trainer else said)


def explain(chain: Chain) -> tuple[str, ...]:
    """Say which hook can run a chain, and what to add to verl's command; raises when neither can."""
    refuse_unfed(chain)
    settings = " ".join([f"{PLACE}._target_={TARGET} +{PLACE}.chain=<it>", *_settings(chain)])
    whole = f"with our trainer: trainer.v1.trainer_mode={TRAINER_MODES[0]} {settings}"
    try:
        refuse_alone(chain, VERL_AVERAGES[chain.reduction.by], chain.reduction.length)
    except MechanismError as error:
        return whole, f"not with verl's own trainers: {error.problem}"
    return whole, f"with verl's own trainers: {settings}"


def _settings(chain: Chain) -> Iterator[str]:
    """Yield what a chain asks of verl's configuration."""
    if not chain.seated(Stage.LOSS):
        return
    yield f"{PLACE}.loss_mode={LOSS_MODE}"
    if chain.reduction != Reduction():
        yield f"{ACTOR}.loss_agg_mode={VERL_AVERAGES[chain.reduction.by]}"
    if chain.reduction.by == "fixed-length":
        yield f"{ACTOR}.loss_scale_factor={chain.reduction.length or '<largest response length>'}"
    if "loss.entropy" in chain.needs:
        yield f"{ACTOR}.calculate_entropy=true"
    if "loss.reference_logprobs" in chain.needs:
        yield f"{ACTOR}.use_kl_loss=true {ACTOR}.kl_loss_coef=0"


def _plugin() -> str:
    found = [entry for entry in metadata.entry_points(group=GROUP) if entry.value == plugin.__name__]
    if not found:
        raise MechanismError(
            f"No installed package names {plugin.__name__} in the entry-point group {GROUP}, so verl cannot find our"
            " hooks.",
            f"Install breadth again (pip install breadth), or set VERL_USE_EXTERNAL_MODULES={plugin.__name__} for every"
            " process.",
        )
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    if policy != "auto" and found[0].name not in [name.strip() for name in policy.split(",")]:
        raise MechanismError(
            f"VERL_USE_EXTERNAL_PLUGINS is '{policy}', which keeps verl from loading '{found[0].name}'.",
            f"Unset it, or add {found[0].name} to it.",
        )
    return f"entry point {GROUP}: {found[0].name}"


def _loss() -> str:
    registered = import_module("verl.trainer.ppo.core_algos").POLICY_LOSS_REGISTRY.get(LOSS_MODE)
    if registered is not policy_loss:
        held = "nothing" if registered is None else f"{registered.__module__}.{registered.__qualname__}"
        raise MechanismError(
            f"verl's policy loss '{LOSS_MODE}' is {held}, not ours.",
            f"Import {plugin.__name__} before training, and see that nothing else registers a loss of that name.",
        )
    return f"policy loss '{LOSS_MODE}'"


def _trainers() -> str:
    table = _imported("verl.trainer.ppo.v1.trainer_base").TRAINER_REGISTRY
    missing = [mode for mode in TRAINER_MODES if not getattr(table.get(mode), "__module__", "").startswith("breadth.")]
    if missing:
        raise MechanismError(
            f"verl knows no trainer of ours under {', '.join(missing)}.",
            f"Import {plugin.__name__} before training, as verl's plug-ins do.",
        )
    return f"trainers {', '.join(TRAINER_MODES)}"


def _seams(seams: dict[str, tuple[str, ...]]) -> str:
    for place, wanted in seams.items():
        module, path = place.split(":")
        held = _imported(module)
        for name in path.split("."):
            held = getattr(held, name, None)
        found = () if held is None else tuple(inspect.signature(held).parameters)
        if found != wanted:
            raise MechanismError(
                f"{place} takes {found or 'nothing: it is gone'}; this adapter was written for {wanted}.",
                f'Install a tested verl: pip install "verl=={TESTED[-1]}.*"',
            )
    return f"unchanged in verl: {', '.join(place.split(':')[1] for place in seams)}"


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MechanismError(
            f"{module} cannot be imported here: {error}.",
            'Install what verl\'s trainers need: pip install "verl[verl-core]".',
        ) from error


def main(arguments: list[str]) -> int:
    """Check the hooks, and the chain in the file named; returns the exit status."""
    try:
        said = list(self_check())
        said += explain(load_chain(arguments[0])) if arguments else ()
    except BreadthError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in said))
    return 0


plugin.arm()  # whoever imports this module wants the hooks, entry point or not

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
