"""The Mechanism: a frozen dataclass whose fields are the hyper-parameters, with pure methods over one record."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

from breadth.base.catalogue import Catalogue
from breadth.training.catalogue import MECHANISMS
from breadth.training.effect import Effect, Selection
from breadth.training.records import Batch, Plan, Rollouts
from breadth.training.regime import Inert, Regime

R = TypeVar("R")
S = TypeVar("S")


class Seat(Enum):
    """Where in the loop a mechanism acts, by the record it acts on and its period."""

    PLAN = "plan"
    """What to sample; once per generation."""
    CREDIT = "credit"
    """Rewards to advantages, rollouts kept or dropped; once per generation."""
    LOSS = "loss"
    """Token weights, one surrogate, extra terms; per micro-batch, updated per optimizer step."""


class Role(Enum):
    """A place in a chain that exactly one mechanism takes."""

    SURROGATE = "surrogate"
    """Sets the policy loss of each token and says which it clipped."""
    ESTIMATOR = "estimator"
    """Sets the advantages from the rewards."""


_SEATS = {Plan: Seat.PLAN, Rollouts: Seat.CREDIT, Batch: Seat.LOSS}


class Mechanism(Generic[R, S]):
    """One remedy. Subclass it as a frozen dataclass, ``class Mine(Mechanism[Batch, None])``: record and state type in the brackets.

    Most mechanisms write only ``apply``. Methods are pure: they write into nothing they are given.
    """

    catalogue: ClassVar[Catalogue] = MECHANISMS
    """Where mechanisms are known by name; a plug-in adds its own through the entry-point group ``breadth.mechanisms``."""
    seat: ClassVar[Seat]
    """Where it acts; follows from the record type."""
    state_type: ClassVar[Any]
    """Its state: None, or a frozen dataclass of plain numbers that survives JSON."""
    role: ClassVar[Role | None] = None
    """The one place of the chain it takes, if any."""
    precedes: ClassVar[Role | None] = None
    """The role it must stand before: what shapes advantages precedes the surrogate, what shapes rewards the estimator."""
    follows: ClassVar[Role | None] = None
    """The role it must stand after: what adds to advantages follows the estimator, what reads the clip the surrogate."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is Mechanism:
                record, state = get_args(base)
                cls.seat, cls.state_type = _SEATS[record], state

    @property
    def needs(self) -> frozenset[str]:
        """Optional fields of the record it reads, ``entropy.gradient`` where it pays for entropy; refused at attach if nobody has them."""
        return frozenset()

    @property
    def surveys(self) -> bool:
        """Whether it looks at the whole batch before the first micro-batch."""
        return type(self).survey is not Mechanism.survey

    def init(self) -> S:
        """Return the state before the first step."""
        return None  # type: ignore[return-value]  # the state type of a mechanism without state is None

    def survey(self, whole: R, state: S) -> Selection | None:
        """Look at the optimizer's whole batch over all ranks, without gradient, as the mechanisms before this one left it."""
        return None

    def apply(self, batch: R, state: S, selection: Selection | None) -> Effect[R]:
        """Act on one micro-batch (loss), one generation's rollouts (credit) or one plan."""
        raise NotImplementedError

    def update(self, state: S, stats: Mapping[str, Any]) -> S:
        """Return the next state from the stats of the period that just ended, summed over micro-batches and ranks."""
        return state

    def inert(self, regime: Regime) -> Inert | None:
        """Say why the mechanism cannot act in a regime, or None when it can or nothing is known against it."""
        return None


def name_of(mechanism: Mechanism[Any, Any]) -> str:
    """Return a mechanism's name in the catalogue, or its class name in lower case when it is in none."""
    return MECHANISMS.name_of(type(mechanism)) or type(mechanism).__name__.lower()
