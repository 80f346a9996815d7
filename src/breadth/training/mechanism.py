"""The Mechanism: a frozen dataclass of hyper-parameters with pure methods; its effect on a record; the regime it runs in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Generic, Self, TypeVar, get_args, get_origin

import torch

from breadth.base.catalogue import Catalogue
from breadth.training.catalogue import MECHANISMS
from breadth.training.records import Batch, Plan, Rollouts

RecordT = TypeVar("RecordT")
StateT = TypeVar("StateT")


@dataclass(frozen=True)
class Effect(Generic[RecordT]):
    """What one mechanism did to one record."""

    after: RecordT
    """The record the next mechanism sees."""
    terms: tuple[torch.Tensor, ...] = ()
    """(B, T) losses to add to each token's policy loss; not multiplied by the batch's weights. Loss stage only."""
    stats: Mapping[str, Any] = field(default_factory=dict)
    """Name -> Mean, Max, Counts or another stat that adds up over micro-batches and ranks. Detached."""


@dataclass(frozen=True)
class Selection:
    """What a survey of the whole batch decided, to be handed to each micro-batch as its slice."""

    tokens: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Name -> (N, T) or (N,) decision for each token or sequence of the whole batch."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Name -> one number for the whole batch."""

    def slice_rows(self, places: torch.Tensor, width: int) -> Self:
        """Return the slice for the sequences at these places of the whole batch, in their order."""
        return type(self)(
            {
                name: value[places][..., :width] if value.ndim == 2 else value[places]
                for name, value in self.tokens.items()
            },
            self.numbers,
        )


@dataclass(frozen=True)
class Regime:
    """The circumstances of a run that are known before it starts. Leave unknown what is not known."""

    updates_per_generation: int | None = None
    """Optimizer steps taken on the rollouts of one generation."""
    sequences_per_update: int | None = None
    """Responses in one optimizer step, over all ranks."""
    group_size: int | None = None
    """Rollouts of one problem in one generation."""
    tokens_per_response: float | None = None
    """Response tokens to expect, or at most; without it quotas of tokens cannot be judged."""
    temperature: float | None = None
    """Sampling temperature."""

    @property
    def on_policy(self) -> bool | None:
        """Whether every update is strictly on-policy: one optimizer step a generation, so the ratio is always exactly 1."""
        return None if self.updates_per_generation is None else self.updates_per_generation <= 1

    @property
    def tokens_per_update(self) -> float | None:
        """Response tokens in one optimizer step, over all ranks."""
        if self.sequences_per_update is None or self.tokens_per_response is None:
            return None
        return self.sequences_per_update * self.tokens_per_response


@dataclass(frozen=True)
class NoEffect:
    """A mechanism that cannot act, or not as its settings say, in this regime."""

    mechanism: str
    """Its name in the catalogue."""
    reason: str
    """Why it cannot act."""
    remedy: str
    """What to change so that it can."""

    def __str__(self) -> str:
        return f"{self.mechanism}: {self.reason}\n  -> {self.remedy}"


ON_POLICY_REMEDY = (
    "Take several optimizer steps per generation (TRL: steps_per_generation above gradient_accumulation_steps, or"
    " num_iterations > 1; verl: ppo_mini_batch_size below train_batch_size), or use a mechanism that acts on-policy,"
    " e.g. fork-thermostat."
)
"""The remedy most drift-driven mechanisms share."""


class Stage(Enum):
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


_STAGES = {Plan: Stage.PLAN, Rollouts: Stage.CREDIT, Batch: Stage.LOSS}


class Mechanism(Generic[RecordT, StateT]):
    """One remedy.

    Subclass it as a frozen dataclass, ``class Mine(Mechanism[Batch, None])``: record and state type in the brackets.

    Most mechanisms write only ``apply``. Methods are pure: they write into nothing they are given.
    """

    catalogue: ClassVar[Catalogue] = MECHANISMS
    """Where mechanisms are known by name; a plug-in adds its own through the entry-point group ``breadth.mechanisms``.
    """
    stage: ClassVar[Stage]
    """Where it acts; follows from the record type."""
    state_type: ClassVar[Any]
    """Its state: None, or a frozen dataclass of plain numbers that survives JSON."""
    role: ClassVar[Role | None] = None
    """The one place of the chain it takes, if any."""
    precedes: ClassVar[Role | None] = None
    """The role it must stand before: what shapes advantages precedes the surrogate, what shapes rewards the estimator.
    """
    follows: ClassVar[Role | None] = None
    """The role it must stand after: what adds to advantages follows the estimator, what reads the clip the surrogate.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is Mechanism:
                record, state = get_args(base)
                cls.stage, cls.state_type = _STAGES[record], state

    @property
    def needs(self) -> frozenset[str]:
        """Optional fields of the record it reads, ``entropy.gradient`` where it pays for entropy; refused at attach if nobody has them."""
        return frozenset()

    @property
    def surveys(self) -> bool:
        """Whether it looks at the whole batch before the first micro-batch."""
        return type(self).survey is not Mechanism.survey

    def init(self) -> StateT:
        """Return the state before the first step."""
        return None  # type: ignore[return-value]  # the state type of a mechanism without state is None

    def survey(self, whole: RecordT, state: StateT) -> Selection | None:
        """Look at the optimizer's whole batch over all ranks, without gradient, as the mechanisms before this one left it."""
        return None

    def apply(self, batch: RecordT, state: StateT, selection: Selection | None) -> Effect[RecordT]:
        """Act on one micro-batch (loss), one generation's rollouts (credit) or one plan."""
        raise NotImplementedError

    def update(self, state: StateT, stats: Mapping[str, Any]) -> StateT:
        """Return the next state from the stats of the period that just ended, summed over micro-batches and ranks."""
        return state

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Say why the mechanism cannot act in a regime, or None when it can or nothing is known against it."""
        return None


def mechanism_name(mechanism: Mechanism[Any, Any]) -> str:
    """Return a mechanism's name in the catalogue, or its class name in lower case when it is in none."""
    return MECHANISMS.name_of(type(mechanism)) or type(mechanism).__name__.lower()
