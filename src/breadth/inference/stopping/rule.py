"""The stop rule interface: a frozen dataclass that looks at the state of a vote and says whether it is decided."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from breadth.base.catalogue import Catalogue, Paper
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
