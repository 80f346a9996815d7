"""The result of tuning: every measurement on a sweep's run folder, and the policy that follows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from breadth.inference.policy import Policy
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.inference.strategy import Strategy
from breadth.measure.paired_tests import HumpTest, hump_test
from breadth.runs.reader import Run
from breadth.tuning.choice import (
    EqualTokensComparison,
    Option,
    OptionChoice,
    choose,
    compare_at_equal_tokens,
    list_options,
)
from breadth.tuning.evidence import ArmTraits, SweepEvidence, arm_traits, read_evidence
from breadth.tuning.policy_fit import ConfidenceFit, StopFit, StopOption, fit_confidence, fit_stop


@dataclass(frozen=True, eq=False)
class TuningResult:
    """What a sweep measured, and the policy chosen from it."""

    evidence: SweepEvidence
    """Samples of the sweep."""
    options: tuple[Option, ...]
    """Options to choose from, cheapest first."""
    choice: OptionChoice
    """Chosen option, and why."""
    hump: HumpTest | None
    """Whether the score falls again as thinking is extended; None with fewer than two budgets."""
    equal: tuple[EqualTokensComparison, ...]
    """Longer thinking against more samples at equal tokens."""
    traits: tuple[ArmTraits, ...]
    """Description of each arm's samples."""
    stop: StopFit | None
    """When the chosen vote may stop early; None when it is no vote, or one of two, which never can."""
    confidence: ConfidenceFit | None
    """Whether confidence may be used; None when no log-probs were asked for."""
    policy: Policy
    """Policy that `solve` and `serve` run."""

    def __repr__(self) -> str:
        score = f"{self.score:.0%} {self.evidence.score_name} at {self.cost:,.0f} tokens per question"
        return f"<TuningResult {self.choice.option.name}: {score}>"

    @property
    def stops_early(self) -> StopOption | None:
        """The stop rule of the policy; None when it never stops early."""
        stop = self.stop.chosen if self.stop is not None else None
        return (
            stop
            if stop is not None and stop.strategy == self.policy.strategy and isinstance(stop.strategy, AdaptiveVote)
            else None
        )

    @property
    def score(self) -> float:
        """Expected score of the policy: that of the option, with the change by stopping early.

        A gain by confidence is not counted.
        """
        change = self.stops_early.change.difference.value if self.stops_early is not None else 0.0
        return float(np.clip(self.choice.score.value + change, 0, 1))

    @property
    def cost(self) -> float:
        """Tokens the policy writes for a question."""
        return self.stops_early.tokens if self.stops_early is not None else self.choice.option.cost


def analyze_sweep(run: Run) -> TuningResult:
    """Evaluate a sweep from its run folder; the same folder gives the same policy."""
    evidence = read_evidence(run)
    options = list_options(evidence)
    choice = choose(options, seed=evidence.plan.seed)
    vote = choice.option.budget is None and choice.option.width > 1
    stop = fit_stop(evidence, choice.option.width) if vote and choice.option.width > 2 else None
    confidence = fit_confidence(evidence, choice.option.width if vote else 1)
    strategy = stop.chosen.strategy if stop is not None else choice.option.strategy
    if confidence is not None and confidence.strategy is not None:
        strategy = confidence.strategy
    return TuningResult(
        evidence,
        options,
        choice,
        check_for_hump(evidence),
        compare_at_equal_tokens(evidence),
        arm_traits(evidence),
        stop,
        confidence,
        build_policy(evidence.plan.policy, strategy),
    )


def build_policy(measured: Policy, strategy: Strategy) -> Policy:
    """Return the sweep's policy with the chosen strategy; log-probs are requested only when it uses them."""
    wanted = measured.sampling.top_logprobs if isinstance(strategy, ConfidenceVote) else 0
    return replace(measured, strategy=strategy, sampling=replace(measured.sampling, top_logprobs=wanted))


def check_for_hump(evidence: SweepEvidence) -> HumpTest | None:
    """Test whether the score falls again as thinking is extended; None with fewer than two budgets."""
    if len(evidence.serial) < 2:
        return None
    budgets = [arm.arm.budget or 0 for arm in evidence.serial]
    return hump_test(
        budgets, np.column_stack([arm.scores.mean(axis=1) for arm in evidence.serial]), seed=evidence.plan.seed
    )
