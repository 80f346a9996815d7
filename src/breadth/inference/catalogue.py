"""Catalogues of the inference loop: strategies, stop rules, allocators and halt rules by name, loaded when used."""

from __future__ import annotations

from breadth.base.catalogue import Catalogue

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
        "never": "breadth.inference.stopping.never:Never",
        "beta-lead": "breadth.inference.stopping.beta_lead:BetaLead",
        "dirichlet": "breadth.inference.stopping.dirichlet:Dirichlet",
        "lead": "breadth.inference.stopping.lead:Lead",
        "window": "breadth.inference.stopping.window:UnanimousWindow",
        "sprt": "breadth.inference.stopping.sprt:Sprt",
        "certificate": "breadth.inference.stopping.certificate:Certificate",
        "shapes": "breadth.inference.stopping.shapes:Shapes",
        "risk": "breadth.inference.stopping.risk:Risk",
    },
)
"""Stop rules by name."""


ALLOCATORS = Catalogue(
    "allocators",
    {
        "elimination": "breadth.inference.allocation.elimination:Elimination",
        "round-robin": "breadth.inference.allocation.round_robin:RoundRobin",
        "greedy": "breadth.inference.allocation.greedy:GreedyMarginal",
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
