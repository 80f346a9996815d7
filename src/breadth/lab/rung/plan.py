"""Everything the second rung can be tuned by, in one place: how both arms are trained and how all policies are measured."""

from __future__ import annotations

from dataclasses import dataclass

from breadth.base.checks import require
from breadth.lab.rung.sums import MOST, POOL


@dataclass(frozen=True)
class RungPlan:
    """Sizes chosen for two slow cores and three quarters of an hour."""

    steps: int = 40
    """Optimizer steps of each arm, one a generation: strictly on-policy."""
    rate: float = 1e-5
    """Learning rate of both arms, constant after five steps.

    Published GRPO runs on this very model take 5e-6 to 2e-5 with Adam
    (model cards and the course of TRL's makers); larger models take 1e-6. Not tuned here: forty steps are too dear for
    a sweep."""
    prompts: int = 4
    """Problems of a generation."""
    group: int = 8
    """Replies to each."""
    parts: int = 2
    """Parts a generation is cut into for the backward pass: half the memory for activations, the same gradient."""
    trained: int = 160
    """Problems trained on, in all: each is met once in forty steps."""
    longest: int = 16
    """Tokens of a reply at most; adding step by step takes eleven. All replies of a step are trained at the length of
    the longest.
    """
    problems: int = 48
    """Held-out problems that pass@k is measured on."""
    samples: int = 32
    """Replies to each."""
    votes: int = 8
    """Replies that maj@k is told of."""
    asked: int = 32
    """Held-out problems that are answered both ways."""
    thinking: int = 96
    """Tokens of the long thought: about nine attempts one after the other."""
    repeats: int = 1
    """Answers to each problem, each way."""
    seed: int = 0
    """Of training and of every draw."""

    def __post_init__(self) -> None:
        for field in ("steps", "prompts", "parts", "longest", "samples", "thinking", "repeats"):
            require(self, field, getattr(self, field) >= 1, "1 or more")
        for field, most in {"trained": MOST, "problems": POOL, "asked": POOL}.items():
            require(self, field, 1 <= getattr(self, field) <= most, f"from 1 to {most}")
        require(self, "rate", 0 < self.rate < 1, "a number above 0, below 1")
        require(self, "group", self.group >= 2, "2 or more, to be compared with each other")
        require(
            self, "parts", self.prompts * self.group % self.parts == 0, "so many that prompts x group divides into them"
        )
        require(self, "votes", self.votes <= self.samples, "a number of replies, at most the samples")
        require(self, "seed", self.seed >= 0, "0 or more")

    @property
    def ks(self) -> tuple[int, ...]:
        """The k of pass@k."""
        return tuple(sorted({1, self.votes, self.samples}))
