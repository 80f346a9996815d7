"""The chain's place in verl's configuration: the policy-loss settings of the actor, with one field more.

verl builds ``actor_rollout_ref.actor.policy_loss`` with Hydra from its ``_target_``, in the driver and in every worker, so a class of ours
there is all that is needed::

    actor_rollout_ref.actor.policy_loss._target_=breadth.adapters.verl.config.BreadthLoss
    +actor_rollout_ref.actor.policy_loss.chain=chain.toml
    actor_rollout_ref.actor.policy_loss.loss_mode=breadth
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from verl.workers.config import PolicyLossConfig

from breadth.adapters.verl.registration import LOSS_MODE, register_loss
from breadth.base.errors import SettingsError
from breadth.training.chain import Chain
from breadth.training.recipes import RECIPES, chain_of

PLACE = "actor_rollout_ref.actor.policy_loss"
"""Where these settings stand in verl's configuration."""
TARGET = "breadth.adapters.verl.config.BreadthLoss"
"""What ``_target_`` must say."""


@dataclass
class BreadthLoss(PolicyLossConfig):  # type: ignore[misc]  # verl is untyped
    """Verl's settings of the policy loss, with the chain to run.

    Building it reads the chain and registers the loss, whether or not verl loaded the plug-in.
    """

    chain: str = ""
    """Name of a recipe, path of a chain's TOML file, or the TOML text itself; every process of the run reads it."""

    def __post_init__(self) -> None:
        load_chain(self.chain)
        if self.loss_mode == LOSS_MODE:
            register_loss()


def chain_in(policy_loss: Any) -> Chain:
    """Return the chain that verl's policy-loss settings name, as a dataclass or as Hydra's table."""
    text = policy_loss.get("chain", None)
    if text is None:
        raise SettingsError(
            f"{PLACE} names no chain.", f"Add {PLACE}._target_={TARGET} and +{PLACE}.chain=<recipe, or path of a chain's TOML file>."
        )
    return load_chain(str(text))


@lru_cache
def load_chain(text: str) -> Chain:
    """Return the chain of a recipe by name, of a TOML file by path, or of TOML text."""
    if "\n" in text:
        return Chain.loads(text)
    if text not in RECIPES and not (text and Path(text).is_file()):
        raise SettingsError(
            f"{PLACE}.chain is '{text}': no recipe, and no file that this process can read from {Path.cwd()}.",
            f"Give a recipe ({', '.join(RECIPES)}), or the absolute path of a chain's TOML file that every node of the run sees.",
        )
    return chain_of(text)
