"""Catalogues of the inference loop: strategies, stop rules, allocators and halt rules by name, loaded when used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from breadth.base.catalogue import Catalogue

if TYPE_CHECKING:
    from breadth.inference.allocation import Elimination as Elimination
    from breadth.inference.allocation import GreedyMarginal as GreedyMarginal
    from breadth.inference.allocation import RoundRobin as RoundRobin
    from breadth.inference.halting import ClosedBrace as ClosedBrace
    from breadth.inference.halting import Loop as Loop
    from breadth.inference.halting import LowConfidence as LowConfidence
    from breadth.inference.halting import Phrase as Phrase
    from breadth.inference.stopping.posterior import BetaLead as BetaLead
    from breadth.inference.stopping.posterior import Dirichlet as Dirichlet
    from breadth.inference.stopping.risk import Risk as Risk
    from breadth.inference.stopping.rule import Lead as Lead
    from breadth.inference.stopping.rule import Never as Never
    from breadth.inference.stopping.rule import UnanimousWindow as UnanimousWindow
    from breadth.inference.stopping.sequential import Certificate as Certificate
    from breadth.inference.stopping.sequential import Sprt as Sprt
    from breadth.inference.stopping.shapes import Shapes as Shapes
    from breadth.inference.strategies.adaptive_vote import AdaptiveVote as AdaptiveVote
    from breadth.inference.strategies.batch_exploration import BatchExploration as BatchExploration
    from breadth.inference.strategies.best_of_n import BestOfN as BestOfN
    from breadth.inference.strategies.budget_forcing import BudgetForcing as BudgetForcing
    from breadth.inference.strategies.cascade import Cascade as Cascade
    from breadth.inference.strategies.confidence_vote import ConfidenceVote as ConfidenceVote
    from breadth.inference.strategies.early_exit import EarlyExit as EarlyExit
    from breadth.inference.strategies.online_confidence_vote import OnlineConfidenceVote as OnlineConfidenceVote
    from breadth.inference.strategies.panel import Panel as Panel
    from breadth.inference.strategies.parallel_thinking import ParallelThinking as ParallelThinking
    from breadth.inference.strategies.prompt_variation import PromptVariation as PromptVariation
    from breadth.inference.strategies.revision import Revision as Revision
    from breadth.inference.strategies.single import Single as Single
    from breadth.inference.strategies.split import Split as Split
    from breadth.inference.strategies.vote import Vote as Vote

STRATEGIES = Catalogue(
    "strategies",
    {
        "single": "breadth.inference.strategies.single:Single",
        "vote": "breadth.inference.strategies.vote:Vote",
        "adaptive-vote": "breadth.inference.strategies.adaptive_vote:AdaptiveVote",
        "best-of-n": "breadth.inference.strategies.best_of_n:BestOfN",
        "confidence-vote": "breadth.inference.strategies.confidence_vote:ConfidenceVote",
        "online-confidence-vote": "breadth.inference.strategies.online_confidence_vote:OnlineConfidenceVote",
        "budget-forcing": "breadth.inference.strategies.budget_forcing:BudgetForcing",
        "early-exit": "breadth.inference.strategies.early_exit:EarlyExit",
        "parallel-thinking": "breadth.inference.strategies.parallel_thinking:ParallelThinking",
        "revision": "breadth.inference.strategies.revision:Revision",
        "split": "breadth.inference.strategies.split:Split",
        "batch-exploration": "breadth.inference.strategies.batch_exploration:BatchExploration",
        "prompt-variation": "breadth.inference.strategies.prompt_variation:PromptVariation",
        "panel": "breadth.inference.strategies.panel:Panel",
        "cascade": "breadth.inference.strategies.cascade:Cascade",
    },
)
"""Strategies by name."""


STOP_RULES = Catalogue(
    "stop_rules",
    {
        "never": "breadth.inference.stopping.rule:Never",
        "beta-lead": "breadth.inference.stopping.posterior:BetaLead",
        "dirichlet": "breadth.inference.stopping.posterior:Dirichlet",
        "lead": "breadth.inference.stopping.rule:Lead",
        "window": "breadth.inference.stopping.rule:UnanimousWindow",
        "sprt": "breadth.inference.stopping.sequential:Sprt",
        "certificate": "breadth.inference.stopping.sequential:Certificate",
        "shapes": "breadth.inference.stopping.shapes:Shapes",
        "risk": "breadth.inference.stopping.risk:Risk",
    },
)
"""Stop rules by name."""


ALLOCATORS = Catalogue(
    "allocators",
    {
        "elimination": "breadth.inference.allocation:Elimination",
        "round-robin": "breadth.inference.allocation:RoundRobin",
        "greedy": "breadth.inference.allocation:GreedyMarginal",
    },
)
"""Allocators by name."""


HALTS = Catalogue(
    "halts",
    {
        "loop": "breadth.inference.halting:Loop",
        "low-confidence": "breadth.inference.halting:LowConfidence",
        "phrase": "breadth.inference.halting:Phrase",
        "closed-brace": "breadth.inference.halting:ClosedBrace",
    },
)
"""Halt rules by name."""
