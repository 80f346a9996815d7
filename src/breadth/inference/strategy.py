"""The strategy interface: a frozen dataclass that turns a task into a run, and the catalogue of all strategies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from breadth.base.catalogue import Catalogue
from breadth.inference.records import Run, Task

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


class Strategy(ABC):
    """A frozen dataclass whose fields are the settings; calling it on a task gives the run.

    A run does no I/O and all its randomness comes from ``task.seed``. Its generator yields `Ask`, `Fork` or `Judge`, is
    sent the results and returns an `Answer`; when it is sent an empty list it returns the best answer so far.
    """

    catalogue: ClassVar[Catalogue] = STRATEGIES
    needs: ClassVar[frozenset[str]] = frozenset()
    """Requirements: logprobs, confidences, prefix, judge. A sampler or store that lacks one is refused at the start."""

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Compute in advance what would block an event loop at the first task, such as a stop rule's table. Optional."""

    @abstractmethod
    def __call__(self, task: Task) -> Run:
        """Return the run of this strategy on a task."""
