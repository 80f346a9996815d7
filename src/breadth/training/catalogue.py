"""Every training mechanism by name, and the module that defines it."""

from typing import TYPE_CHECKING

from breadth.base.catalogue import Catalogue

if TYPE_CHECKING:
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
    from breadth.training.plan.difficulty import Difficulty as Difficulty
    from breadth.training.plan.temperature import Temperature as Temperature

MECHANISMS = Catalogue(
    "mechanisms",
    {
        "group-advantage": "breadth.training.credit.group_advantage:GroupAdvantage",
        "leave-one-out": "breadth.training.credit.leave_one_out:LeaveOneOut",
        "pass-at-k": "breadth.training.credit.pass_at_k:PassAtK",
        "maxrl": "breadth.training.credit.maxrl:MaxRL",
        "brier-reward": "breadth.training.credit.brier_reward:BrierReward",
        "outcome-bonus": "breadth.training.credit.outcome_bonus:OutcomeBonus",
        "repeat-penalty": "breadth.training.credit.repeat_penalty:RepeatPenalty",
        "planning-credit": "breadth.training.credit.planning_credit:PlanningCredit",
        "flat-filter": "breadth.training.credit.flat_filter:FlatFilter",
        "degenerate-guard": "breadth.training.credit.degenerate_guard:DegenerateGuard",
        "rare-success-cap": "breadth.training.credit.rare_success_cap:RareSuccessCap",
        "length-guard": "breadth.training.credit.length_guard:LengthGuard",
        "clipped-policy": "breadth.training.loss.clipped_policy:ClippedPolicy",
        "sequence-ratio": "breadth.training.loss.sequence_ratio:SequenceRatio",
        "gradient-preserving": "breadth.training.loss.gradient_preserving:GradientPreserving",
        "cispo": "breadth.training.loss.cispo:Cispo",
        "clip-cov": "breadth.training.loss.clip_cov:ClipCov",
        "kl-cov": "breadth.training.loss.kl_cov:KLCov",
        "forking-tokens": "breadth.training.loss.forking_tokens:ForkingTokens",
        "entropy-bonus": "breadth.training.loss.entropy_bonus:EntropyBonus",
        "entropy-target": "breadth.training.loss.entropy_target:EntropyTarget",
        "entropy-pi": "breadth.training.loss.entropy_pi:EntropyPI",
        "entropy-advantage": "breadth.training.loss.entropy_advantage:EntropyAdvantage",
        "repo": "breadth.training.loss.repo:Repo",
        "reference-kl": "breadth.training.loss.reference_kl:ReferenceKL",
        "fork-thermostat": "breadth.training.loss.fork_thermostat:ForkThermostat",
        "difficulty": "breadth.training.plan.difficulty:Difficulty",
        "temperature": "breadth.training.plan.temperature:Temperature",
    },
)
"""Name -> "module:Class"; third parties add theirs through the entry-point group ``breadth.mechanisms``."""
