"""Difficulty: train on the problems the policy solves sometimes; put the others off, and never throw one away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal, get_args

from breadth.base.checks import require
from breadth.base.errors import MechanismError
from breadth.base.stats import Counts, Max, Mean
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Selection
from breadth.training.records import Plan

ProblemStatus = Literal["candidate", "active", "deferred", "easy"]
"""Where a problem stands: not yet judged, trained on, put off as too hard, or put off as too easy."""

FAILED_PILOTS_TO_FLAG = 2
"""Failed pilots in a row after which a problem is flagged for another wording or a hint."""


@dataclass(frozen=True)
class ProblemState:
    """What is known of one problem."""

    status: ProblemStatus = "candidate"
    """What its last pilot made of it."""
    rollouts: int = 0
    """Rollouts of the pilot under way."""
    correct: int = 0
    """Correct ones among them."""
    failures: int = 0
    """Pilots in a row that ended below the band."""
    since: int = 0
    """Generation in which the last pilot ended."""

    @property
    def is_flagged(self) -> bool:
        """Whether it failed two pilots in a row."""
        return self.failures >= FAILED_PILOTS_TO_FLAG


@dataclass(frozen=True)
class DifficultyState:
    """Every problem that was ever sampled."""

    problems: Mapping[str, ProblemState] = field(default_factory=dict)
    """Problem -> its standing; a problem not in it is a candidate."""

    def problems_to_rewrite(self) -> tuple[str, ...]:
        """Return the problems that failed two pilots in a row: rewrite them or give a hint."""
        return tuple(sorted(problem for problem, one in self.problems.items() if one.is_flagged))


def status_shares(standings: Sequence[ProblemState]) -> dict[str, Mean]:
    """Return the share of problems in each stage, and of those flagged, as stats."""
    stages, total = Counter(one.status for one in standings), len(standings)
    shares = {stage: Mean(stages[stage], total) for stage in get_args(ProblemStatus)}
    return shares | {"flagged": Mean(sum(one.is_flagged for one in standings), total)}


def problem_uniform(problem: str, seed: int, step: int) -> float:
    """Return a uniform number in [0, 1) decided by problem, seed and generation alone."""
    digest = blake2b(f"{seed}/{step}/{problem}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / float(1 << 53)


@dataclass(frozen=True)
class Difficulty(Mechanism[Plan, DifficultyState]):
    """Sample a problem while the policy solves it sometimes; come back later to those it never or nearly always solves.

    Every ``pilot`` rollouts of a problem, over as many generations as they take, decide by their share p of correct
    ones::

        candidate -> active     low <= p <= high     sampled, and judged again every pilot
                     deferred   p < low              left out; sampled again after ``retry`` generations
                     easy       p > high             left out; drawn for review with probability ``review`` each
                     generation

    Nothing is deleted: p = 0 in a few rollouts means unknown; of such MATH problems 10 to 23 % are reported to be
    solved when decoding is perturbed. After two failed pilots in a row a problem is flagged (``Standings.flagged``) and
    still retried. Pilots are ordinary training rollouts: the trainer's sample counts are kept, those of problems left
    out become 0. When nothing would be left to sample, the plan stays as it was.

    The state machine is ours, and so are ``retry`` and ``review``; the other numbers are Pilot-Commit's (pilots of 16,
    skip above 0.75, defer below 1/8), as reported by others.

    Harm: the accuracy logged in training becomes that of the chosen problems and cannot be compared between runs. Items
    solved by a lax checker look easy or active: this is no check of the data.
    """

    pilot: int = 16
    """Rollouts that decide; 16 in Pilot-Commit."""
    low: float = 0.125
    """Least share of correct rollouts to train on."""
    high: float = 0.75
    """Largest share of correct rollouts to train on."""
    retry: int = 100
    """Generations until a deferred problem is tried again: about an epoch of yours."""
    review: float = 0.02
    """Chance of an easy problem to be sampled in a generation."""

    def __post_init__(self) -> None:
        require(self, "pilot", self.pilot >= 1, "1 or more")
        require(self, "low", 0 <= self.low <= self.high, "a number from 0 to at most high")
        require(self, "high", self.high <= 1, "a number of at most 1")
        require(self, "retry", self.retry >= 1, "1 or more")
        require(self, "review", 0 <= self.review <= 1, "a number from 0 to 1")

    def init(self) -> DifficultyState:
        """Every problem is a candidate."""
        return DifficultyState()

    def apply(self, batch: Plan, state: DifficultyState, selection: Selection | None) -> Effect[Plan]:
        """Take in the generation that ended, and leave out the problems that are put off."""
        standings = self._learn(state.problems, batch.results, batch.step)
        known = [standings.get(problem, ProblemState()) for problem in batch.problems]
        wanted = [
            self._should_sample(problem_state, problem, batch)
            for problem_state, problem in zip(known, batch.problems, strict=True)
        ]
        samples = tuple(count if chosen else 0 for count, chosen in zip(batch.samples, wanted, strict=True))
        exhausted = any(batch.samples) and not any(samples)
        stats = {
            **status_shares(known),
            "exhausted": Max(float(exhausted)),
            "rollouts": Counts({problem: drawn for problem, (drawn, _) in batch.results.items()}),
            "solved": Counts({problem: correct for problem, (_, correct) in batch.results.items()}),
            "clock": Counts({"generation": batch.step}),
        }
        return Effect(batch if exhausted else replace(batch, samples=samples), stats=stats)

    def update(self, state: DifficultyState, stats: Mapping[str, Any]) -> DifficultyState:
        """Keep what the generation that ended has shown."""
        if "rollouts" not in stats:
            return state
        solved = stats["solved"].by_label
        seen = {problem: (int(drawn), int(solved[problem])) for problem, drawn in stats["rollouts"].by_label.items()}
        return DifficultyState(self._learn(state.problems, seen, int(stats["clock"].by_label["generation"])))

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Say so when the band holds every share, so that nothing is ever left out."""
        if self.low == 0 and self.high == 1:
            return NoEffect(
                "difficulty",
                "its band from 0 to 1 holds every problem.",
                "Narrow it, e.g. low = 0.125 and high = 0.75.",
            )
        return None

    def _learn(
        self, standings: Mapping[str, ProblemState], seen: Mapping[str, tuple[int, int]], step: int
    ) -> dict[str, ProblemState]:
        problems = dict(standings)
        for problem, (rollouts, correct) in seen.items():
            if not 0 <= correct <= rollouts:
                raise MechanismError(
                    f"A plan says that {correct} of {rollouts} rollouts of {problem!r} were correct.",
                    "Count the rollouts and the correct ones among them.",
                )
            if rollouts:
                problems[problem] = self._advance_pilot(problems.get(problem, ProblemState()), rollouts, correct, step)
        return problems

    def _advance_pilot(self, state: ProblemState, rollouts: int, correct: int, step: int) -> ProblemState:
        """Add rollouts to a problem's pilot; a full pilot decides its stage and starts the next."""
        rollouts, correct = state.rollouts + rollouts, state.correct + correct
        if rollouts < self.pilot:
            return replace(state, rollouts=rollouts, correct=correct)
        share = correct / rollouts
        if share < self.low:
            return ProblemState("deferred", failures=state.failures + 1, since=step)
        return ProblemState("easy" if share > self.high else "active", since=step)

    def _should_sample(self, state: ProblemState, problem: str, plan: Plan) -> bool:
        """Whether to sample a problem: always while a pilot of it is under way."""
        if state.status in ("candidate", "active") or state.rollouts:
            return True
        if state.status == "deferred":
            return plan.step - state.since >= self.retry
        return problem_uniform(problem, plan.seed, plan.step) < self.review
