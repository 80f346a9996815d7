"""The Mechanism: a frozen dataclass of hyper-parameters with pure methods, its Effect, and the Regime it runs in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Generic, Self, TypeVar, get_args, get_origin

import torch

from breadth.base.catalogue import Catalogue, Paper
from breadth.training.catalogue import MECHANISMS
from breadth.training.records import Batch, Plan, Rollouts
from breadth.training.reduction import ReductionKind

RecordT = TypeVar("RecordT")
StateT = TypeVar("StateT")


@dataclass(frozen=True)
class Effect(Generic[RecordT]):
    """What one mechanism did to one record."""

    after: RecordT
    """The record the next mechanism sees."""
    terms: tuple[torch.Tensor, ...] = ()
    """(B, T) losses added to each token's policy loss, not multiplied by the batch's weights. Loss stage only."""
    stats: Mapping[str, Any] = field(default_factory=dict)
    """Name -> Mean, Max, Counts or another additive stat (over micro-batches and ranks). Detached."""


@dataclass(frozen=True)
class Selection:
    """What a survey of the whole batch decided; each micro-batch gets its slice."""

    tokens: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Name -> (N, T) or (N,) decision for each token or sequence of the whole batch."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Name -> one number for the whole batch."""

    def slice_rows(self, indices: torch.Tensor, width: int) -> Self:
        """Return the slice for the sequences at these indices of the whole batch, in this order."""
        return type(self)(
            {
                name: value[indices][..., :width] if value.ndim == 2 else value[indices]
                for name, value in self.tokens.items()
            },
            self.numbers,
        )


@dataclass(frozen=True)
class Regime:
    """What is known about a run before it starts. None means unknown."""

    updates_per_generation: int | None = None
    """Optimizer steps taken on the rollouts of one generation."""
    sequences_per_update: int | None = None
    """Responses in one optimizer step, over all ranks."""
    group_size: int | None = None
    """Rollouts of one problem in one generation."""
    tokens_per_response: float | None = None
    """Expected or maximum response tokens; without it, shares of tokens cannot be checked."""
    temperature: float | None = None
    """Sampling temperature."""

    @property
    def on_policy(self) -> bool | None:
        """Whether every update is strictly on-policy: one optimizer step per generation, so the ratio is exactly 1."""
        return None if self.updates_per_generation is None else self.updates_per_generation <= 1

    @property
    def tokens_per_update(self) -> float | None:
        """Response tokens in one optimizer step, over all ranks."""
        if self.sequences_per_update is None or self.tokens_per_response is None:
            return None
        return self.sequences_per_update * self.tokens_per_response


@dataclass(frozen=True)
class NoEffect:
    """A mechanism that has no effect, or not the one its settings describe, in this regime."""

    mechanism: str
    """Its name in the catalogue."""
    reason: str
    """Why it has no effect."""
    remedy: str
    """What to change so that it has one."""

    def __str__(self) -> str:
        return f"{self.mechanism}: {self.reason}\n  -> {self.remedy}"


ON_POLICY_REMEDY = (
    "Take several optimizer steps per generation (TRL: steps_per_generation above gradient_accumulation_steps, or"
    " num_iterations > 1; verl: ppo_mini_batch_size below train_batch_size), or use a mechanism that acts on-policy,"
    " e.g. fork-thermostat."
)
"""The remedy shared by mechanisms that depend on the ratio to the old policy."""


class Stage(Enum):
    """Where in the loop a mechanism acts, by the record it acts on and its period."""

    PLAN = "plan"
    """What to sample; once per generation."""
    CREDIT = "credit"
    """Rewards to advantages, rollouts kept or dropped; once per generation."""
    LOSS = "loss"
    """Token weights, one surrogate, extra terms; per micro-batch, updated per optimizer step."""


class Role(Enum):
    """A function in the chain that at most one mechanism has."""

    SURROGATE = "surrogate"
    """Sets the policy loss of each token and says which it clipped."""
    ESTIMATOR = "estimator"
    """Sets the advantages from the rewards."""


_STAGES = {Plan: Stage.PLAN, Rollouts: Stage.CREDIT, Batch: Stage.LOSS}


@dataclass(frozen=True)
class RecipeTable:
    """A named chain, as the file of the mechanism at its centre lists it; `breadth.training.recipes` builds it."""

    mechanisms: tuple[Mapping[str, Any], ...]
    """The settings of its mechanisms in order, each with its ``kind``."""
    paper: str
    """Where it comes from: an arXiv id, or ``ours``."""
    note: str
    """What the paper does beyond the chain, or what to know before using it."""
    reduction: ReductionKind = "token-mean"
    """How token losses become the loss."""


CLIP_HIGHER: Mapping[str, Any] = {"kind": "clipped-policy", "low": 0.2, "high": 0.28}
"""DAPO's clip, in a recipe."""
UNCLIPPED: Mapping[str, Any] = {"kind": "clipped-policy", "low": 1.0, "high": math.inf}
"""The policy loss without a clip, in a recipe."""


class Mechanism(Generic[RecordT, StateT]):
    """One change to the training loop.

    Subclass it as a frozen dataclass, ``class Mine(Mechanism[Batch, None])``, with record and state type in brackets.
    Most mechanisms define only ``apply``. Methods are pure: they never modify their arguments.
    """

    catalogue: ClassVar[Catalogue] = MECHANISMS
    """Mechanisms by name; plug-ins add theirs through the entry-point group ``breadth.mechanisms``."""
    paper: ClassVar[Paper | None] = None
    """Where it comes from."""
    neutral: ClassVar[Mapping[str, Any] | None] = None
    """Settings that switch it off, which the contract checks; None where none do."""
    example: ClassVar[Mapping[str, Any]] = {}
    """Settings of an example, where a field has no default."""
    recipes: ClassVar[Mapping[str, RecipeTable]] = {}
    """Name -> a chain with this mechanism at its centre."""
    stage: ClassVar[Stage]
    """Where it acts; follows from the record type."""
    state_type: ClassVar[Any]
    """Type of its state: None, or a frozen dataclass of plain numbers that can be stored as JSON."""
    role: ClassVar[Role | None] = None
    """Its role in the chain, if any."""
    precedes: ClassVar[Role | None] = None
    """The role it must come before: the surrogate if it shapes advantages, the estimator if it shapes rewards."""
    follows: ClassVar[Role | None] = None
    """The role it must come after: the estimator if it adds to advantages, the surrogate if it reads the clip."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is Mechanism:
                record, state = get_args(base)
                cls.stage, cls.state_type = _STAGES[record], state

    @property
    def needs(self) -> frozenset[str]:
        """Optional fields of the record it reads; ``entropy.gradient`` if its loss needs the gradient of the entropy.

        An adapter that cannot provide one of them refuses the chain at attach.
        """
        return frozenset()

    @property
    def surveys(self) -> bool:
        """Whether it needs to see the whole batch before the first micro-batch."""
        return type(self).survey is not Mechanism.survey

    def init(self) -> StateT:
        """Return the state before the first step."""
        return None  # type: ignore[return-value]  # the state type of a mechanism without state is None

    def survey(self, whole: RecordT, state: StateT) -> Selection | None:
        """Look at the whole batch over all ranks, without gradient, after the mechanisms before this one."""
        return None

    def apply(self, batch: RecordT, state: StateT, selection: Selection | None) -> Effect[RecordT]:
        """Act on one micro-batch (loss), one generation's rollouts (credit) or one plan."""
        raise NotImplementedError

    def update(self, state: StateT, stats: Mapping[str, Any]) -> StateT:
        """Return the next state from the stats of the last period, summed over micro-batches and ranks."""
        return state

    def upgrade_state(self, table: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a saved state with today's keys; override it when a field of the state is renamed."""
        return table

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Return why the mechanism has no effect in a regime; None if it has one or that is unknown."""
        return None


def mechanism_name(mechanism: Mechanism[Any, Any]) -> str:
    """Return a mechanism's name in the catalogue, or its class name in lower case if it is not listed."""
    return MECHANISMS.name_of(type(mechanism)) or type(mechanism).__name__.lower()
