"""The inference loop: how to spend breadth on a question, without I/O and independent of any server.

``from breadth.inference import AdaptiveVote, Policy, Task, replay`` works for every strategy, stop rule, allocator and
halt rule of the catalogues and for the main records; a name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from breadth.inference.catalogue import ALLOCATORS as ALLOCATORS
from breadth.inference.catalogue import HALTS as HALTS
from breadth.inference.catalogue import STOP_RULES as STOP_RULES
from breadth.inference.catalogue import STRATEGIES as STRATEGIES

if TYPE_CHECKING:
    from breadth.inference.allocation import Allocator as Allocator
    from breadth.inference.allocation import Grant as Grant
    from breadth.inference.allocation import Progress as Progress
    from breadth.inference.catalogue import *  # noqa: F403 - every part of the catalogues
    from breadth.inference.confidence import ConfidenceGate as ConfidenceGate
    from breadth.inference.confidence import Gauge as Gauge
    from breadth.inference.confidence import fit_gate as fit_gate
    from breadth.inference.halting import Halt as Halt
    from breadth.inference.policy import Policy as Policy
    from breadth.inference.records import Answer as Answer
    from breadth.inference.records import Ask as Ask
    from breadth.inference.records import Budget as Budget
    from breadth.inference.records import Candidate as Candidate
    from breadth.inference.records import Fork as Fork
    from breadth.inference.records import Judge as Judge
    from breadth.inference.records import Prices as Prices
    from breadth.inference.records import Prompt as Prompt
    from breadth.inference.records import Reading as Reading
    from breadth.inference.records import Run as Run
    from breadth.inference.records import Sampling as Sampling
    from breadth.inference.records import Spend as Spend
    from breadth.inference.records import Task as Task
    from breadth.inference.stopping.rule import StopRule as StopRule
    from breadth.inference.stopping.shapes import ShapeLibrary as ShapeLibrary
    from breadth.inference.stored_replay import replay as replay
    from breadth.inference.stored_votes import StoredVotes as StoredVotes
    from breadth.inference.strategies.cascade import CascadeStage as CascadeStage
    from breadth.inference.strategies.early_exit import Trial as Trial
    from breadth.inference.strategies.prompt_variation import Variant as Variant
    from breadth.inference.strategy import Strategy as Strategy
    from breadth.inference.strategy import SyncDriver as SyncDriver
    from breadth.inference.sweep_plan import Arm as Arm
    from breadth.inference.sweep_plan import SweepPlan as SweepPlan
    from breadth.inference.thinking import UNMARKED_THINKING as UNMARKED_THINKING
    from breadth.inference.thinking import Thinking as Thinking
    from breadth.inference.voting import Poll as Poll
    from breadth.inference.voting import VoteState as VoteState
    from breadth.inference.voting import best_scored as best_scored
    from breadth.inference.voting import majority as majority
    from breadth.inference.voting import weighted_best as weighted_best

_PLACES = {
    "Allocator": "breadth.inference.allocation",
    "Answer": "breadth.inference.records",
    "Arm": "breadth.inference.sweep_plan",
    "Ask": "breadth.inference.records",
    "Budget": "breadth.inference.records",
    "Candidate": "breadth.inference.records",
    "CascadeStage": "breadth.inference.strategies.cascade",
    "ConfidenceGate": "breadth.inference.confidence",
    "Fork": "breadth.inference.records",
    "Gauge": "breadth.inference.confidence",
    "Grant": "breadth.inference.allocation",
    "Halt": "breadth.inference.halting",
    "Judge": "breadth.inference.records",
    "Policy": "breadth.inference.policy",
    "Poll": "breadth.inference.voting",
    "Prices": "breadth.inference.records",
    "Progress": "breadth.inference.allocation",
    "Prompt": "breadth.inference.records",
    "Reading": "breadth.inference.records",
    "Run": "breadth.inference.records",
    "Sampling": "breadth.inference.records",
    "ShapeLibrary": "breadth.inference.stopping.shapes",
    "Spend": "breadth.inference.records",
    "StopRule": "breadth.inference.stopping.rule",
    "StoredVotes": "breadth.inference.stored_votes",
    "Strategy": "breadth.inference.strategy",
    "SweepPlan": "breadth.inference.sweep_plan",
    "SyncDriver": "breadth.inference.strategy",
    "Task": "breadth.inference.records",
    "Thinking": "breadth.inference.thinking",
    "Trial": "breadth.inference.strategies.early_exit",
    "UNMARKED_THINKING": "breadth.inference.thinking",
    "Variant": "breadth.inference.strategies.prompt_variation",
    "VoteState": "breadth.inference.voting",
    "best_scored": "breadth.inference.voting",
    "fit_gate": "breadth.inference.confidence",
    "majority": "breadth.inference.voting",
    "replay": "breadth.inference.stored_replay",
    "weighted_best": "breadth.inference.voting",
}
_PLACES |= {
    name: module
    for catalogue in (STRATEGIES, STOP_RULES, ALLOCATORS, HALTS)
    for module, _, name in (place.partition(":") for place in catalogue.entries.values())
}

__all__ = ["ALLOCATORS", "HALTS", "STOP_RULES", "STRATEGIES", *sorted(_PLACES)]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'breadth.inference' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
