"""The names under which verl finds our hooks, and their registration in verl."""

from __future__ import annotations

from importlib import import_module
from typing import Any

PLUGIN_GROUP = "verl.plugins"
"""The entry-point group that verl scans."""
LOSS_MODE = "breadth"
"""Name of the policy loss: ``actor_rollout_ref.actor.policy_loss.loss_mode=breadth``."""
LOSS_SETTINGS_PATH = "actor_rollout_ref.actor.policy_loss"
"""Path of these settings in verl's configuration."""
TRAINER_MODES = ("breadth", "breadth_colocate_async")
"""Names of the trainers (``trainer.v1.trainer_mode=breadth``): verl's ``sync`` and ``colocate_async`` with a chain."""


def call_policy_loss(**arguments: Any) -> Any:
    """Run the chain's loss stage. verl's registry contains this function, so registering does not import torch."""
    return import_module("breadth.adapters.verl.loss").policy_loss(**arguments)


def register_loss() -> None:
    """Add the policy loss to verl's registry."""
    import_module("verl.trainer.ppo.core_algos").register_policy_loss(LOSS_MODE)(call_policy_loss)


def register_trainers() -> None:
    """Add the trainers to verl's registry; importing their module does so."""
    import_module("breadth.adapters.verl.trainer")
