"""The policy in use on the questions that were measured: what it scores and what it costs there."""

from __future__ import annotations

from dataclasses import dataclass

from breadth.base.settings import to_table
from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import CannotTell
from breadth.doctor.signs.inference_runs import TUNE
from breadth.doctor.signs.spending import Spending, drawn_otherwise, policy_in_use, spending
from breadth.doctor.signs.sweeps import Draws, sweep
from breadth.inference.policy import Policy
from breadth.inference.replay import replay
from breadth.inference.stored_votes import StoredVotes
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.tuning.evidence import Floats
from breadth.tuning.tuned import Tuned


@dataclass(frozen=True, eq=False)
class InUse:
    """A policy, measured."""

    spending: Spending
    """What it pays for."""
    scores: Floats
    """Its score on each question."""
    tokens: float
    """Tokens it writes for a question."""

    @property
    def score(self) -> float:
        """Its mean score."""
        return float(self.scores.mean())


def in_use(evidence: Evidence, drawn: Draws, finding: str) -> InUse | CannotTell | None:
    """Measure the policy in use on the samples; None where no policy is known, and why not where they cannot tell of it."""
    policy, judged = policy_in_use(evidence), sweep(evidence)
    if policy is None:
        return None
    spent = spending(policy, float(drawn.tokens.mean()))
    if spent is None:
        kind = to_table(policy.strategy).get("kind", "one of your own")
        return CannotTell(
            finding,
            f"the policy in use ({kind}) is neither a vote nor thinking forced to a budget, and was not measured",
        )
    other = [] if judged is None else drawn_otherwise(policy, judged.evidence.plan.policy)
    if other:
        missing = f"the sweep was not drawn as the policy in use draws: {', '.join(other)}"
        return CannotTell(finding, missing, f"{TUNE} --policy FILE, with the policy in use")
    if spent.budget is not None:
        return _forced(spent, judged, finding)
    if spent.width > drawn.each:
        missing = (
            f"the policy in use draws up to {spent.width}; of every question {drawn.each} comparable samples are there"
        )
        return CannotTell(
            finding, missing, f"{TUNE} --widths {','.join(map(str, sorted({*drawn.widths, spent.width})))}"
        )
    return _stopping(spent, policy, drawn) if spent.early else vote_of(drawn, spent.width)


def vote_of(drawn: Draws, width: int) -> InUse:
    """Return a plain vote as if it were in use."""
    return InUse(Spending(width), drawn.votes([width])[:, 0], width * float(drawn.tokens.mean()))


def _forced(spent: Spending, judged: Tuned | None, finding: str) -> InUse | CannotTell:
    arms = () if judged is None else judged.evidence.serial
    arm = next((arm for arm in arms if arm.arm.budget == spent.budget), None)
    if arm is None:
        there = ", ".join(f"{one.arm.budget:,}" for one in arms) or "none"
        missing = f"the policy in use forces {spent.name}; budgets measured: {there}"
        return CannotTell(finding, missing, f"{TUNE} --budgets {spent.budget}")
    return InUse(spent, arm.worth.mean(axis=1), float(arm.tokens.mean()))


def _stopping(spent: Spending, policy: Policy, drawn: Draws) -> InUse:
    """Replay a vote that stops early; draws in flight when it is decided are charged whole.

    A weighing by confidence is left out.
    """
    votes = StoredVotes.of_classes(drawn.classes, correct=drawn.worth, tokens=drawn.tokens)
    strategy = policy.strategy if isinstance(policy.strategy, AdaptiveVote) else AdaptiveVote(spent.width)
    played = replay(votes, {"in use": strategy}).outcomes["in use"].by_question
    return InUse(spent, played["accuracy"], float((played["started"] * drawn.tokens.mean(axis=1)).mean()))
