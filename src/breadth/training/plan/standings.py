"""What is known of each problem: the state of the difficulty mechanism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal, get_args

from breadth.base.stats import Mean

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
