"""What an inference policy pays for one question, and which policy is in use."""

from __future__ import annotations

from dataclasses import dataclass, fields

from breadth.base.errors import BreadthError
from breadth.base.settings import from_table
from breadth.doctor.evidence import Evidence
from breadth.doctor.signs.inference_runs import is_recorded
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.inference.strategies.online_confidence_vote import OnlineConfidenceVote
from breadth.inference.strategies.parallel_thinking import ParallelThinking
from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.runs.reader import Run


@dataclass(frozen=True)
class Spending:
    """What a policy pays for one question."""

    width: int = 1
    """Samples at most."""
    budget: int | None = None
    """Thinking tokens it forces; None leaves thinking to the model."""
    early: bool = False
    """Whether it stops when the vote is decided."""

    @property
    def name(self) -> str:
        """What it is, for a sentence."""
        if self.budget is not None:
            return f"{self.budget:,} thinking tokens"
        if self.width == 1:
            return "one plain draw"
        return f"a vote of up to {self.width} that stops early" if self.early else f"a vote of {self.width}"


def spending(policy: Policy, each: float) -> Spending | None:
    """Say what a policy pays for where a draw writes ``each`` tokens; None where it is no vote and forces no thinking.

    A vote by confidence counts as a vote of its width. Thinking that is only capped is not forced: the model may stop
    before.
    """
    match policy.strategy:
        case Single():
            return Spending()
        case Vote(n=width) | ConfidenceVote(n=width):
            return Spending(width)
        case AdaptiveVote(most=width) | OnlineConfidenceVote(most=width):
            return Spending(width, early=width > 1)
        case ParallelThinking(tokens=tokens, most=most):
            return Spending(max(1, min(most, int(tokens / max(each, 1)))))
        case BudgetForcing(minimum=least, maximum=most) if least:
            return Spending(budget=least if most is None else most)
    return None


def policy_in_use(evidence: Evidence) -> Policy | None:
    """Return the policy that was given, else the one that a recorded run says it used; None where neither is known."""
    return evidence.policy if evidence.policy is not None or evidence.run is None else recorded_policy(evidence.run)


def recorded_policy(run: Run) -> Policy | None:
    """Return the policy of a run that the inference loop recorded; None where it is no such run, or the policy cannot be read."""
    try:
        return from_table(Policy, run.header.config["policy"], "policy") if is_recorded(run) else None
    except (BreadthError, AttributeError, TypeError, ValueError):
        return None


def drawn_otherwise(policy: Policy, measured: Policy) -> list[str]:
    """Name what a policy draws otherwise than a sweep did; whether log-probs are asked for changes nothing."""
    told = [
        f"{field.name.replace('_', ' ')} {getattr(policy.sampling, field.name)} in use,"
        f" {getattr(measured.sampling, field.name)} measured"
        for field in fields(Sampling)
        if field.name != "top_logprobs"
        and getattr(policy.sampling, field.name) != getattr(measured.sampling, field.name)
    ]
    told += ["another model"] if policy.model and measured.model and policy.model != measured.model else []
    return told + (["another system prompt"] if policy.system != measured.system else [])
