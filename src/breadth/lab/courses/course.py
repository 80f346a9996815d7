"""One course of reinforcement learning: everything that decides what a GRPO run on the reasoner does."""

from __future__ import annotations

from dataclasses import dataclass

from breadth.base.checks import require
from breadth.lab.task.problems import LEVELS, Level, Problem, draw_problems
from breadth.lab.task.tasks import held_out
from breadth.training.chain import Chain

TRAINED_SEED, BESIDE_SEED = 77, 78
"""Seeds of the problems that are trained on, and of those beside them; none of either is held out."""
SEVERAL, SEVERAL_RATE = 4, 3e-4
"""Updates a generation where remedies act only on a policy that has moved, and the rate there, by
`breadth lab run choices-several`.
"""


@dataclass(frozen=True)
class Course:
    """Settings of a run.

    Two courses that differ in nothing but the chain are the same experiment with and without a remedy.
    """

    chain: Chain
    """Advantages and loss."""
    steps: int = 120
    """Optimizer steps."""
    rate: float = 1e-3
    """Learning rate, constant after five steps."""
    prompts: int = 8
    """Problems of a generation."""
    group: int = 16
    """Replies to each."""
    updates: int = 1
    """Optimizer steps a generation; 1 is strictly on-policy."""
    problems: int = 128
    """Problems trained on, in all."""
    level: Level = "medium"
    """How long they are."""
    longest: int = 96
    """Tokens of a reply at most; a longer one is cut and gets nothing."""
    seed: int = 0
    """Of the order of the problems and of what is drawn."""

    def __post_init__(self) -> None:
        for field in ("steps", "prompts", "updates", "problems", "longest"):
            require(self, field, getattr(self, field) >= 1, "1 or more")
        require(self, "group", self.group >= 2, "2 or more, to be compared with each other")
        require(self, "rate", 0 < self.rate < 1, "a number above 0, below 1")
        require(self, "level", self.level in LEVELS, f"one of {', '.join(LEVELS)}")
        require(
            self,
            "prompts",
            self.prompts * self.group % self.updates == 0,
            "so many that prompts x group divides into the updates",
        )
        require(self, "seed", self.seed >= 0, "0 or more")

    def beside(self, count: int, prime: int) -> list[Problem]:
        """List problems that are neither trained on nor held out: what a choice between courses may be made on."""
        taken = {*held_out(prime, self.level), *self.trained_on(prime)}
        return draw_problems(count, prime, self.level, BESIDE_SEED, frozenset(taken))

    def trained_on(self, prime: int) -> list[Problem]:
        """List the problems trained on: the same for every seed, none of them held out."""
        return draw_problems(self.problems, prime, self.level, TRAINED_SEED, frozenset(held_out(prime, self.level)))
