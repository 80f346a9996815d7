"""The settings of the demo: its two arms, how they are trained and how they are evaluated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from breadth.base.errors import require
from breadth.lab.task.problems import LEVELS, Level

if TYPE_CHECKING:
    from breadth.lab.grpo import GrpoRun
    from breadth.training.chain import Chain

ArmName = Literal["plain", "protected"]
ARMS: tuple[ArmName, ...] = ("plain", "protected")
"""The two ways of training."""


ANCHOR = 0.15
"""Price of a nat away from the base in the protected arm; chosen among 0.05, 0.15 and 0.4 by `breadth lab run choices`.
"""


def arm_chain(arm: ArmName) -> Chain:
    """Return the training chain of an arm."""
    return chain_with_anchor(0.0 if arm == "plain" else ANCHOR)


def chain_with_anchor(coefficient: float) -> Chain:
    """Return plain GRPO with a KL penalty towards the base (0: none); the arms differ in nothing else."""
    from breadth.training.chain import Chain
    from breadth.training.credit.group_advantage import GroupAdvantage
    from breadth.training.loss.clipped_policy import ClippedPolicy
    from breadth.training.loss.reference_kl import ReferenceKL

    plain = Chain((GroupAdvantage(), ClippedPolicy()))
    return plain.plus(ReferenceKL(coefficient)) if coefficient else plain


@dataclass(frozen=True)
class DemoPlan:
    """Sizes of a demo."""

    steps: int = 100
    """Optimizer steps per arm, as many as five minutes allow; plain does best with 120 (`breadth lab run choices`)."""
    learning_rate: float = 1e-3
    """Learning rate of both arms: the best for plain of those tried there."""
    prompts: int = 8
    """Problems per generation."""
    group: int = 16
    """Replies per problem."""
    updates: int = 1
    """Optimizer steps per generation."""
    train_problems: int = 128
    """Training problems."""
    max_completion_length: int = 96
    """Maximum tokens of a reply in training."""
    problems: int = 100
    """Held-out problems for all evaluations."""
    skipped: int = 0
    """Held-out problems skipped before these."""
    samples: int = 64
    """Replies per problem for pass@k, of the base and of both arms."""
    votes: int = 8
    """Replies that maj@k votes over."""
    budgets: tuple[int, ...] = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    """Numbers of thinking tokens, enforced exactly, at which accuracy is measured."""
    budget_samples: int = 8
    """Replies per problem at each budget."""
    thinking: int = 192
    """Thinking tokens of the long thought in the four corners: room for about seven replies of usual length."""
    repeats: int = 4
    """Answers per problem in each corner."""
    level: Level = "medium"
    """Level of the problems."""
    seed: int = 0
    """Seed of training and of all sampling."""

    def __post_init__(self) -> None:
        for field in ("steps", "problems", "samples", "budget_samples", "thinking", "repeats"):
            require(self, field, getattr(self, field) >= 1, "1 or more")
        require(self, "votes", 1 <= self.votes <= self.samples, "a number of replies, at most the samples")
        require(
            self, "budgets", len(self.budgets) >= 2 and self.budgets[0] >= 1, "two budgets or more, from 1 token up"
        )
        require(self, "budgets", self.budgets == tuple(sorted(set(self.budgets))), "each budget once, in rising order")
        require(self, "level", self.level in LEVELS, f"one of {', '.join(LEVELS)}")
        require(self, "skipped", self.skipped >= 0, "0 or more")
        require(self, "seed", self.seed >= 0, "0 or more")

    @property
    def ks(self) -> tuple[int, ...]:
        """The k of pass@k: powers of two up to the samples, the votes, and the samples themselves."""
        from breadth.measure.pass_at_k import chart_ks

        return tuple(sorted({*chart_ks(self.samples), self.votes}))

    def grpo_run(self, arm: ArmName) -> GrpoRun:
        """Return the GRPO run of an arm."""
        from breadth.lab.grpo import GrpoRun

        return GrpoRun(
            arm_chain(arm),
            steps=self.steps,
            learning_rate=self.learning_rate,
            prompts=self.prompts,
            group=self.group,
            updates=self.updates,
            problems=self.train_problems,
            level=self.level,
            max_completion_length=self.max_completion_length,
            seed=self.seed,
        )


FULL_DEMO = DemoPlan()
"""At most five minutes on two slow cores."""
FAST_DEMO = DemoPlan(
    steps=44,
    group=8,
    train_problems=24,
    problems=40,
    samples=32,
    budgets=(8, 16, 32, 64, 128, 256),
    budget_samples=4,
    repeats=2,
)
"""Under ninety seconds: fewer problems to train on, so the policy narrows in few steps; wider intervals."""
