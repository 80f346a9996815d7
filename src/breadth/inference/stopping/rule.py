"""What a stop rule is: a frozen dataclass that looks at where a vote stands and says whether it is decided."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from breadth.base.catalogue import Catalogue
from breadth.inference.voting import VoteState
from breadth.measure.validate import BoolArray

if TYPE_CHECKING:
    from breadth.inference.stored_votes import Paths


STOP_RULES = Catalogue(
    "stop_rules",
    {
        "never": "breadth.inference.stopping.never:Never",
        "beta-lead": "breadth.inference.stopping.beta_lead:BetaLead",
        "dirichlet": "breadth.inference.stopping.dirichlet:Dirichlet",
        "lead": "breadth.inference.stopping.lead:Lead",
        "window": "breadth.inference.stopping.window:UnanimousWindow",
        "sprt": "breadth.inference.stopping.sprt:Sprt",
        "certificate": "breadth.inference.stopping.certificate:Certificate",
        "shapes": "breadth.inference.stopping.shapes:Shapes",
        "risk": "breadth.inference.stopping.risk:Risk",
    },
)
"""Stop rules by name."""


class StopRule(ABC):
    """Says when a vote is decided. It sees only counts and order of votes, never texts; it holds no state."""

    catalogue: ClassVar[Catalogue] = STOP_RULES
    by_counts: ClassVar[bool] = False
    """Whether it looks only at the number of votes and the five largest counts, not at their order: replays are faster
    then.
    """

    @abstractmethod
    def is_decided(self, standing: VoteState) -> bool:
        """Say whether to stop drawing. Never true before the first vote."""

    def posterior(self, standing: VoteState) -> float | None:
        """Return the chance, by this rule's own model, that the leader is what the model answers most often; None without a model."""
        del standing
        return None

    @property
    def basis(self) -> str:
        """Say in a few words where the posterior comes from."""
        return ""

    def randomize(self, coin: float) -> StopRule:
        """Return the rule for a task with this coin (0 to below 1, drawn once a task): itself, unless it treats some tasks differently."""
        del coin
        return self

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Work out beforehand what would hold up an event loop at the first vote, a table say; it works without, later."""

    @abstractmethod
    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Say the same after every vote of many recorded votes at once: (paths, draws), equal to ``decided`` at each."""


def leading_answer(arrivals: Sequence[int]) -> int:
    """Return the answer with the most votes, of equal ones the first to appear; 0 before the first vote."""
    counts = Counter(arrivals)
    return max(counts, key=counts.__getitem__, default=0)


def samples_to_decide(rule: StopRule, standing: VoteState, most: int) -> int:
    """Return how many further votes could decide the vote at the earliest, if all went to the leader; ``most`` if more than that.

    Starting more draws than this wastes them in the best case (the batching of arXiv 2503.17587).
    """
    label = leading_answer(standing.arrivals)
    for extra in range(1, most):
        counts = (standing.leader + extra, *standing.counts[1:])
        if rule.is_decided(replace(standing, counts=counts, arrivals=standing.arrivals + (label,) * extra)):
            return extra
    return most


def task_uniform(name: str, seed: int) -> float:
    """Return a number from 0 to below 1, uniform over tasks and always the same for one task."""
    digest = hashlib.blake2b(f"coin\0{seed}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)
