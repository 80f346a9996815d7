"""Mechanisms that keep a policy broad during RL training, independent of any trainer (needs the extra ``train``).

``from breadth.training import Chain, KLCov`` works for every mechanism of the catalogue. A name is loaded on first
use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from breadth.base.errors import TRAIN_PACKAGES, MissingExtraError
from breadth.training.catalogue import MECHANISMS as MECHANISMS

if TYPE_CHECKING:
    from breadth.training.chain import Chain as Chain
    from breadth.training.credit.brier_reward import BrierReward as BrierReward
    from breadth.training.credit.degenerate_guard import DegenerateGuard as DegenerateGuard
    from breadth.training.credit.flat_filter import FlatFilter as FlatFilter
    from breadth.training.credit.group_advantage import GroupAdvantage as GroupAdvantage
    from breadth.training.credit.leave_one_out import LeaveOneOut as LeaveOneOut
    from breadth.training.credit.length_guard import LengthGuard as LengthGuard
    from breadth.training.credit.maxrl import MaxRL as MaxRL
    from breadth.training.credit.outcome_bonus import OutcomeBonus as OutcomeBonus
    from breadth.training.credit.pass_at_k import PassAtK as PassAtK
    from breadth.training.credit.planning_credit import PlanningCredit as PlanningCredit
    from breadth.training.credit.rare_success_cap import RareSuccessCap as RareSuccessCap
    from breadth.training.credit.repeat_penalty import RepeatPenalty as RepeatPenalty
    from breadth.training.loss.cispo import Cispo as Cispo
    from breadth.training.loss.clip_cov import ClipCov as ClipCov
    from breadth.training.loss.clipped_policy import ClippedPolicy as ClippedPolicy
    from breadth.training.loss.entropy_advantage import EntropyAdvantage as EntropyAdvantage
    from breadth.training.loss.entropy_bonus import EntropyBonus as EntropyBonus
    from breadth.training.loss.entropy_pi import EntropyPI as EntropyPI
    from breadth.training.loss.entropy_target import EntropyTarget as EntropyTarget
    from breadth.training.loss.fork_thermostat import ForkThermostat as ForkThermostat
    from breadth.training.loss.forking_tokens import ForkingTokens as ForkingTokens
    from breadth.training.loss.gradient_preserving import GradientPreserving as GradientPreserving
    from breadth.training.loss.kl_cov import KLCov as KLCov
    from breadth.training.loss.reference_kl import ReferenceKL as ReferenceKL
    from breadth.training.loss.repo import Repo as Repo
    from breadth.training.loss.sequence_ratio import SequenceRatio as SequenceRatio
    from breadth.training.mechanism import Effect as Effect
    from breadth.training.mechanism import Mechanism as Mechanism
    from breadth.training.mechanism import NoEffect as NoEffect
    from breadth.training.mechanism import Regime as Regime
    from breadth.training.mechanism import Role as Role
    from breadth.training.mechanism import Selection as Selection
    from breadth.training.mechanism import Stage as Stage
    from breadth.training.objective import Objective as Objective
    from breadth.training.plan.difficulty import Difficulty as Difficulty
    from breadth.training.plan.temperature import Temperature as Temperature
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
