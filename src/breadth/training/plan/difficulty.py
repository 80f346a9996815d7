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

Stage = Literal["candidate", "active", "deferred", "easy"]
"""Where a problem stands: not yet judged, trained on, put off as too hard, or put off as too easy."""

FAILURES = 2
"""Failed pilots in a row after which a problem is flagged for another wording or a hint."""


@dataclass(frozen=True)
class Standing:
    """What is known of one problem."""

    stage: Stage = "candidate"
    """What its last pilot made of it."""
    drawn: int = 0
    """Rollouts of the pilot under way."""
    correct: int = 0
    """Correct ones among them."""
    failures: int = 0
    """Pilots in a row that ended below the band."""
    since: int = 0
    """Generation in which the last pilot ended."""

    @property
    def flagged(self) -> bool:
        """Whether it failed two pilots in a row."""
        return self.failures >= FAILURES


@dataclass(frozen=True)
class Standings:
    """Every problem that was ever sampled."""

    problems: Mapping[str, Standing] = field(default_factory=dict)
    """Problem -> its standing; a problem not in it is a candidate."""

    def flagged(self) -> tuple[str, ...]:
        """Return the problems that failed two pilots in a row: rewrite them or give a hint."""
        return tuple(sorted(problem for problem, one in self.problems.items() if one.flagged))


def shares_of(standings: Sequence[Standing]) -> dict[str, Mean]:
    """Return the share of problems in each stage, and of those flagged, as stats."""
    stages, total = Counter(one.stage for one in standings), len(standings)
    shares = {stage: Mean(stages[stage], total) for stage in get_args(Stage)}
    return shares | {"flagged": Mean(sum(one.flagged for one in standings), total)}


def lot(problem: str, seed: int, step: int) -> float:
    """Return a uniform number in [0, 1) decided by problem, seed and generation alone."""
    digest = blake2b(f"{seed}/{step}/{problem}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / float(1 << 53)


@dataclass(frozen=True)
class Difficulty(Mechanism[Plan, Standings]):
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

    def init(self) -> Standings:
        """Every problem is a candidate."""
        return Standings()

    def apply(self, batch: Plan, state: Standings, selection: Selection | None) -> Effect[Plan]:
        """Take in the generation that ended, and leave out the problems that are put off."""
        standings = self._learned(state.problems, batch.seen, batch.step)
        known = [standings.get(problem, Standing()) for problem in batch.problems]
        wanted = [self._wanted(one, problem, batch) for one, problem in zip(known, batch.problems, strict=True)]
        samples = tuple(count if chosen else 0 for count, chosen in zip(batch.samples, wanted, strict=True))
        exhausted = any(batch.samples) and not any(samples)
        stats = {
            **shares_of(known),
            "exhausted": Max(float(exhausted)),
            "rollouts": Counts({problem: drawn for problem, (drawn, _) in batch.seen.items()}),
            "solved": Counts({problem: correct for problem, (_, correct) in batch.seen.items()}),
            "clock": Counts({"generation": batch.step}),
        }
        return Effect(batch if exhausted else replace(batch, samples=samples), stats=stats)

    def update(self, state: Standings, stats: Mapping[str, Any]) -> Standings:
        """Keep what the generation that ended has shown."""
        if "rollouts" not in stats:
            return state
        solved = stats["solved"].by_label
        seen = {problem: (int(drawn), int(solved[problem])) for problem, drawn in stats["rollouts"].by_label.items()}
        return Standings(self._learned(state.problems, seen, int(stats["clock"].by_label["generation"])))

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Say so when the band holds every share, so that nothing is ever left out."""
        if self.low == 0 and self.high == 1:
            return NoEffect(
                "difficulty",
                "its band from 0 to 1 holds every problem.",
                "Narrow it, e.g. low = 0.125 and high = 0.75.",
            )
        return None

    def _learned(
        self, standings: Mapping[str, Standing], seen: Mapping[str, tuple[int, int]], step: int
    ) -> dict[str, Standing]:
        learned = dict(standings)
        for problem, (drawn, correct) in seen.items():
            if not 0 <= correct <= drawn:
                raise MechanismError(
                    f"A plan says that {correct} of {drawn} rollouts of {problem!r} were correct.",
                    "Count the rollouts and the correct ones among them.",
                )
            if drawn:
                learned[problem] = self._judged(learned.get(problem, Standing()), drawn, correct, step)
        return learned

    def _judged(self, one: Standing, drawn: int, correct: int, step: int) -> Standing:
        """Add rollouts to a problem's pilot; a full pilot decides its stage and starts the next."""
        drawn, correct = one.drawn + drawn, one.correct + correct
        if drawn < self.pilot:
            return replace(one, drawn=drawn, correct=correct)
        share = correct / drawn
        if share < self.low:
            return Standing("deferred", failures=one.failures + 1, since=step)
        return Standing("easy" if share > self.high else "active", since=step)

    def _wanted(self, one: Standing, problem: str, plan: Plan) -> bool:
        """Whether to sample a problem: always while a pilot of it is under way."""
        if one.stage in ("candidate", "active") or one.drawn:
            return True
        if one.stage == "deferred":
            return plan.step - one.since >= self.retry
        return lot(problem, plan.seed, plan.step) < self.review
