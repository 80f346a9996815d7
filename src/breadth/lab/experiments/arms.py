"""The arms of the remedies experiment: the chain, regime and control of each, and the choice of a pair to combine.

The pair is chosen on validation problems, neither trained on nor held out, and joined into one chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from breadth.base.errors import MechanismError
from breadth.lab.demo.plan import ANCHOR
from breadth.lab.grpo import OFF_POLICY_LEARNING_RATE, OFF_POLICY_UPDATES, GrpoRun
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.outcome_bonus import OutcomeBonus
from breadth.training.credit.repeat_penalty import RepeatPenalty
from breadth.training.loss.clip_cov import ClipCov
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.entropy_bonus import EntropyBonus
from breadth.training.loss.entropy_target import EntropyTarget
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.loss.forking_tokens import ForkingTokens
from breadth.training.loss.gradient_preserving import GradientPreserving
from breadth.training.loss.kl_cov import KLCov
from breadth.training.loss.reference_kl import ReferenceKL
from breadth.training.mechanism import Mechanism, Role, Stage

ON_POLICY, PLAIN = "on-policy", "plain"
"""The two controls: plain GRPO with one update per generation and with several."""


@dataclass(frozen=True)
class RemedyArm:
    """One remedy, or a control."""

    chain: Chain
    """What runs."""
    description: str
    """In a few words, with what differs from the published setting."""
    updates: int = 1
    """Optimizer steps per generation."""

    def grpo_run(self, seed: int, **others: Any) -> GrpoRun:
        """Return its GRPO run: the same number of generations per regime, at the learning rate best for plain."""
        regime = {} if self.updates == 1 else {"learning_rate": OFF_POLICY_LEARNING_RATE}
        run = GrpoRun(self.chain, **{**regime, **others, "updates": self.updates, "seed": seed})
        return replace(run, steps=run.steps * self.updates)

    @property
    def control(self) -> str:
        """The plain arm of the same regime."""
        return ON_POLICY if self.updates == 1 else PLAIN


def grpo_chain(*more: Mechanism, clip: Mechanism | None = None, credit: tuple[Mechanism, ...] = ()) -> Chain:  # type: ignore[type-arg]  # of any stage
    """Return GRPO with something added; all arms average over tokens, so that they differ in the remedy alone."""
    return Chain((GroupAdvantage(), *credit, clip or ClippedPolicy(), *more))


SINGLE_ARMS: dict[str, RemedyArm] = {
    ON_POLICY: RemedyArm(grpo_chain(), "plain GRPO, strictly on-policy"),
    PLAIN: RemedyArm(grpo_chain(), f"plain GRPO, {OFF_POLICY_UPDATES} updates per generation", OFF_POLICY_UPDATES),
    "clip-higher": RemedyArm(
        grpo_chain(clip=ClippedPolicy(high=0.28)), "upper clip 0.28 (DAPO); needs several updates", OFF_POLICY_UPDATES
    ),
    "gppo": RemedyArm(
        grpo_chain(clip=GradientPreserving()),
        "bounded gradients through the clip; needs several updates",
        OFF_POLICY_UPDATES,
    ),
    "kl-cov": RemedyArm(
        grpo_chain(KLCov(), clip=ClippedPolicy(low=1.0, high=float("inf"))),
        "KL-Cov as published; needs several updates",
        OFF_POLICY_UPDATES,
    ),
    "clip-cov": RemedyArm(
        grpo_chain(ClipCov(share=2e-3), clip=ClippedPolicy(low=1.0, high=1.0)),
        "Clip-Cov; share 0.002, ten times the published: a batch here has a few thousand tokens",
    ),
    "entropy-bonus": RemedyArm(grpo_chain(EntropyBonus(coefficient=0.01)), "0.01 for every nat of every token"),
    "entropy-target": RemedyArm(
        grpo_chain(EntropyTarget(target_share=0.7, increment=0.005, largest=0.2)),
        "held at 0.7 of the start; increments of TRL's port, as runs are short",
    ),
    "forking": RemedyArm(grpo_chain(ForkingTokens()), "policy loss on the fifth of the tokens with the most entropy"),
    "ucb": RemedyArm(grpo_chain(credit=(OutcomeBonus(),)), "bonus for answers seldom given before"),
    "batch-penalty": RemedyArm(
        grpo_chain(credit=(RepeatPenalty(),)), "penalty for answers that others of the group give"
    ),
    "anchor": RemedyArm(
        grpo_chain(ReferenceKL(ANCHOR)), f"{ANCHOR} for every nat away from the base: the protected arm of the demo"
    ),
    "thermostat": RemedyArm(grpo_chain(ForkThermostat()), "entropy of the forking tokens held in a band"),
    "planning-thermostat": RemedyArm(
        grpo_chain(ForkThermostat(forks="planning")),
        "the same on the tokens that plan, which the lab knows and others must guess",
    ),
}
"""Every arm by name, controls first."""


CHOSEN_PAIR = ("anchor", "ucb")
"""Chosen by `breadth lab run remedies --seeds 5` over the single arms."""


def best_pair(votes: Mapping[str, float]) -> tuple[str, str] | None:
    """Return the two joinable arms of one regime with the best validation votes together, the better one first.

    The vote at the corners' token budget is also the rule that chose the coefficient of the anchor: score, breadth and
    short replies in one number. None where no two can be joined.
    """
    found = {pair: votes[pair[0]] + votes[pair[1]] for pair in _joinable(votes)}
    best = max(found, key=lambda pair: found[pair], default=None)
    return None if best is None else (max(best, key=lambda name: votes[name]), min(best, key=lambda name: votes[name]))


def join_arms(first: str, second: str) -> RemedyArm:
    """Return both remedies as one arm; raises a MechanismError where they cannot be joined."""
    first_arm, second_arm = SINGLE_ARMS[first], SINGLE_ARMS[second]
    if first_arm.updates != second_arm.updates:
        raise MechanismError(
            f"{first} and {second} are of two regimes.", "Join arms with as many updates a generation."
        )
    added = [*mechanisms_beyond_control(first_arm), *mechanisms_beyond_control(second_arm)]
    own = [mechanism for mechanism in added if mechanism.role is Role.SURROGATE]
    surrogate = own or [
        mechanism for mechanism in SINGLE_ARMS[first_arm.control].chain.mechanisms if mechanism.role is Role.SURROGATE
    ]
    credit = [*_estimator(first_arm), *(mechanism for mechanism in added if mechanism.stage is Stage.CREDIT)]
    terms = [mechanism for mechanism in added if mechanism.stage is Stage.LOSS and mechanism.role is not Role.SURROGATE]
    return replace(first_arm, chain=Chain((*credit, *surrogate, *terms)), description=f"{first} and {second} together")


def _joinable(votes: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    singles = [name for name in SINGLE_ARMS if name in votes and name not in (ON_POLICY, PLAIN)]
    for pair in combinations(singles, 2):
        try:
            join_arms(*pair)
        except MechanismError:
            continue
        yield pair


def mechanisms_beyond_control(arm: RemedyArm) -> list[Mechanism]:  # type: ignore[type-arg]  # of any stage
    """Return what an arm has that its control has not."""
    control = SINGLE_ARMS[arm.control].chain.mechanisms
    return [mechanism for mechanism in arm.chain.mechanisms if mechanism not in control]


def _estimator(arm: RemedyArm) -> list[Mechanism]:  # type: ignore[type-arg]  # of any stage
    return [mechanism for mechanism in arm.chain.mechanisms if mechanism.role is Role.ESTIMATOR]


ALL_ARMS: dict[str, RemedyArm] = {**SINGLE_ARMS, "pair": join_arms(*CHOSEN_PAIR)}
"""All arms that are run: the controls, every remedy by itself, and two together."""
