"""The stop rule interface: a frozen dataclass that looks at the state of a vote and says whether it is decided.

And the rules that only count: never stop, a lead over the runner-up, equal answers in a row.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from breadth.base.catalogue import Catalogue, Paper
from breadth.base.errors import MeasureError, require
from breadth.inference.catalogue import STOP_RULES
from breadth.inference.voting import VoteState
from breadth.measure.validate import BoolArray

if TYPE_CHECKING:
    from breadth.inference.stored_votes import Paths


class StopRule(ABC):
    """Decides when a vote may stop. It sees only counts and order of votes, never texts; it holds no state."""

    catalogue: ClassVar[Catalogue] = STOP_RULES
    paper: ClassVar[Paper | None] = None
    """Where it comes from."""
    by_counts: ClassVar[bool] = False
    """Whether it uses only the number of votes and the five largest counts, not their order, for faster replays."""

    @abstractmethod
    def is_decided(self, state: VoteState) -> bool:
        """Return whether to stop sampling; never true before the first vote."""

    def posterior(self, state: VoteState) -> float | None:
        """Return the posterior chance that the leader is the most frequent answer; None for rules without one."""
        del state
        return None

    @property
    def basis(self) -> str:
        """Short description of the posterior."""
        return ""

    def randomize(self, uniform: float) -> StopRule:
        """Return the rule for a task with this uniform number (`task_uniform`); most rules return themselves."""
        del uniform
        return self

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Compute in advance what would block an event loop at the first vote, such as a table. Optional."""

    @abstractmethod
    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Return `is_decided` after every draw of many recorded votes at once: (paths, draws)."""


def leading_answer(arrivals: Sequence[int]) -> int:
    """Return the class with the most votes, of equal ones the first to appear; 0 before the first vote."""
    counts = Counter(arrivals)
    return max(counts, key=counts.__getitem__, default=0)


def samples_to_decide(rule: StopRule, state: VoteState, most: int) -> int:
    """Return the fewest further votes that could decide the vote, if all went to the leader; at most ``most``.

    Starting more samples than this wastes them in the best case (the batching of arXiv 2503.17587).
    """
    label = leading_answer(state.arrivals)
    for extra in range(1, most):
        counts = (state.leader + extra, *state.counts[1:])
        if rule.is_decided(replace(state, counts=counts, arrivals=state.arrivals + (label,) * extra)):
            return extra
    return most


def task_uniform(name: str, seed: int) -> float:
    """Return a number in [0, 1) that is uniform over tasks and always the same for one task."""
    digest = hashlib.blake2b(f"coin\0{seed}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


@dataclass(frozen=True)
class Never(StopRule):
    """Sample up to the strategy's own limit, regardless of the votes."""

    by_counts: ClassVar[bool] = True

    def is_decided(self, state: VoteState) -> bool:
        """Return False."""
        del state
        return False

    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Return False everywhere."""
        return np.zeros(paths.classes.shape, dtype=np.bool_)


@dataclass(frozen=True)
class Lead(StopRule):
    """Stop when the leader is ``votes`` ahead of the runner-up.

    The simplest rule to explain. It is also what ConSol (arXiv 2503.17587) does: with the constants in its code, those
    of a sequential test (p1 = 0.5001, alpha = 0.05, beta = 0.949976), every count needs a lead of exactly three and the
    side of the null hypothesis lies beyond its cap; its mixture form needs three as well. Hence the default. Harm: a
    lead of three means less at 20 votes than at 3, so on hard questions it stops too early.
    """

    paper = Paper("arXiv 2503.17587", "ConSol as its code runs", "its shipped constants amount to a lead of three")

    votes: int = 3
    """How far ahead the leader must be."""

    by_counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self, "votes", self.votes >= 1, "at least one vote")

    def is_decided(self, state: VoteState) -> bool:
        """Compare the leader with the runner-up."""
        return state.leader - state.runner_up >= self.votes

    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Compare all counts at once."""
        return np.asarray(paths.leader - paths.runner_up >= self.votes)


@dataclass(frozen=True)
class UnanimousWindow(StopRule):
    """Cut the votes into windows of ``size``; stop when all votes of one whole window are the same.

    arXiv 2401.10480 (ESC), whose window of five is the default. A candidate without a readable answer does not count
    towards a window. Where we differ: the paper answers with the window's answer; here the answer is always that of all
    votes, so a late unanimous window does not overrule an earlier and larger majority.
    Harm: once a window has split, its remaining votes are wasted; the Beta rule needs fewer for the same agreement.
    """

    paper = Paper("arXiv 2401.10480", "early-stopping self-consistency (windows)")

    size: int = 5
    """Votes in a window."""

    def __post_init__(self) -> None:
        require(self, "size", self.size >= 1, "at least one vote")

    def is_decided(self, state: VoteState) -> bool:
        """Look for a full window of one answer."""
        votes = state.arrivals
        whole = range(self.size, len(votes) + 1, self.size)
        return any(len(set(votes[end - self.size : end])) == 1 for end in whole)

    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Track the length of the last run of equal votes."""
        along = np.zeros(paths.classes.shape, dtype=np.bool_)
        last, run = np.zeros((2, len(along)), dtype=np.int32)
        reached = np.zeros(len(along), dtype=np.bool_)
        for draw, label in paths.iterate_draws():
            voting = label >= 0
            run = np.where(voting, np.where(label == last, run + 1, 1), run)
            last = np.where(voting, label, last)
            reached |= voting & (paths.total[:, draw] % self.size == 0) & (run >= self.size)
            along[:, draw] = reached
        return along


def expected_window_draws(shares: Sequence[float], size: int = 5, most: int = 40) -> float:
    """Return the mean samples that `UnanimousWindow` needs when each answer has its share, with ``most`` at most.

    With Q the chance that a window agrees: sum over windows of size * i * Q (1 - Q)^(i - 1), the last one taking the
    remaining probability (the control scheme of arXiv 2401.10480, which estimates the shares from the first window).
    """
    if size < 1 or most < size or most % size:
        raise MeasureError(f"{most} samples are not whole windows of {size}.", "Give a multiple of the window's size.")
    windows = most // size
    agree = sum(share**size for share in shares)
    early = sum(agree * (1 - agree) ** place * (place + 1) for place in range(windows - 1))
    return float(size * (early + (1 - agree) ** (windows - 1) * windows))
