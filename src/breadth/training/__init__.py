"""Mechanisms that keep a policy broad during RL training, independent of any trainer (needs the extra ``train``).

``from breadth.training import Chain, KLCov`` works for every mechanism of the catalogue. A name is loaded on first
use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from breadth.base.errors import TRAIN_PACKAGES, MissingExtraError
from breadth.training.catalogue import MECHANISMS as MECHANISMS

if TYPE_CHECKING:
    from breadth.training.catalogue import *  # noqa: F403 - every part of the catalogues
    from breadth.training.chain import Chain as Chain
    from breadth.training.mechanism import Effect as Effect
    from breadth.training.mechanism import Mechanism as Mechanism
    from breadth.training.mechanism import NoEffect as NoEffect
    from breadth.training.mechanism import Regime as Regime
    from breadth.training.mechanism import Role as Role
    from breadth.training.mechanism import Selection as Selection
    from breadth.training.mechanism import Stage as Stage
    from breadth.training.objective import Objective as Objective
    from breadth.training.recipes import RECIPES as RECIPES
    from breadth.training.recipes import Recipe as Recipe
    from breadth.training.recipes import resolve_chain as resolve_chain
    from breadth.training.records import Batch as Batch
    from breadth.training.records import Plan as Plan
    from breadth.training.records import Rollouts as Rollouts
    from breadth.training.records import not_none as not_none
    from breadth.training.reduction import Reduction as Reduction
    from breadth.training.reduction import Totals as Totals

_MODULES = {
    "Batch": "breadth.training.records",
    "Chain": "breadth.training.chain",
    "Effect": "breadth.training.mechanism",
    "Mechanism": "breadth.training.mechanism",
    "NoEffect": "breadth.training.mechanism",
    "Objective": "breadth.training.objective",
    "Plan": "breadth.training.records",
    "RECIPES": "breadth.training.recipes",
    "Recipe": "breadth.training.recipes",
    "Reduction": "breadth.training.reduction",
    "Regime": "breadth.training.mechanism",
    "Role": "breadth.training.mechanism",
    "Rollouts": "breadth.training.records",
    "Stage": "breadth.training.mechanism",
    "Selection": "breadth.training.mechanism",
    "Totals": "breadth.training.reduction",
    "resolve_chain": "breadth.training.recipes",
    "not_none": "breadth.training.records",
}
_MODULES |= {name: module for module, _, name in (entry.partition(":") for entry in MECHANISMS.entries.values())}

__all__ = ["MECHANISMS", *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'breadth.training' has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        if error.name in TRAIN_PACKAGES:
            raise MissingExtraError(name, "train") from error
        raise


def __dir__() -> list[str]:
    return sorted(__all__)
