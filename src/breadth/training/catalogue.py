"""Every training mechanism by name, and the module that defines it."""

from breadth.base.catalogue import Catalogue

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
