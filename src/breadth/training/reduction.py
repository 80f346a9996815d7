"""How tokens become one number, and how numbers are summed over ranks; a single process gets its own values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import torch
import torch.distributed as dist
from torch import Tensor

from breadth.base.errors import MechanismError, SettingsError, suggestion
from breadth.training.ops import masked_values

ReductionKind: TypeAlias = Literal["token-mean", "sequence-mean", "fixed-length"]
"""What is averaged over."""


@dataclass(frozen=True)
class Totals:
    """Tokens and sequences of the optimizer's whole batch, over all micro-batches and ranks: the denominators."""

    tokens: Tensor | float
    """Tokens that count."""
    sequences: Tensor | float
    """Sequences with at least one token that counts."""

    @classmethod
    def from_mask(cls, mask: Tensor) -> Totals:
        """Count the tokens and sequences of one part of the batch."""
        mask = mask.bool()
        return cls(mask.sum().float(), mask.any(-1).sum().float())

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.tokens + other.tokens, self.sequences + other.sequences)


@dataclass(frozen=True)
class Reduction:
    """How the whole batch is averaged. Each micro-batch returns its part of the average; the parts add up.

    ``token-mean`` gives every token the same weight (DAPO, 2503.14476); ``sequence-mean`` every response, so tokens of
    long responses count less (GRPO, 2402.03300); ``fixed-length`` divides by responses times ``length`` (Dr. GRPO,
    2503.20783). Sequences without a counted token are not responses here; TRL and verl's workers count them.
    """

    by: ReductionKind = "token-mean"
    """What is averaged over."""
    length: int | None = None
    """Length assumed for every response by ``fixed-length``; None: the trainer's maximum response length."""

    def __post_init__(self) -> None:
        if self.by not in get_args(ReductionKind):
            raise SettingsError(
                f"There is no reduction by {self.by!r}.",
                suggestion(str(self.by), get_args(ReductionKind), "reductions"),
            )
        if self.by != "fixed-length" and self.length is not None:
            raise SettingsError(
                f"A reduction by {self.by} got length = {self.length}.", "Give a length for fixed-length only."
            )
        if self.length is not None and self.length < 1:
            raise SettingsError(
                f"A reduction got length = {self.length}.", "Give the maximum response length, 1 or more."
            )

    def with_length(self, max_length: int) -> Reduction:
        """Return the reduction with the trainer's maximum response length, if it needs one and has none."""
        return replace(self, length=max_length) if self.by == "fixed-length" and self.length is None else self

    def __call__(self, losses: Tensor, mask: Tensor, totals: Totals) -> Tensor:
        """Return this part's share of the whole batch's average; 0 if no token counts."""
        if self.by == "token-mean":
            return masked_values(losses, mask).sum() / clamp_to_one(totals.tokens)
        if self.by == "sequence-mean":
            means = masked_values(losses, mask).sum(-1) / mask.sum(-1).clamp(min=1)
            return means.sum() / clamp_to_one(totals.sequences)
        if self.length is None:
            raise MechanismError(
                "A fixed-length reduction has no length.",
                "Give one, or let the adapter fill in the trainer's by with_length().",
            )
        return masked_values(losses, mask).sum() / (clamp_to_one(totals.sequences) * float(self.length))


def clamp_to_one(count: Tensor | float) -> Tensor | float:
    """Return a denominator of at least 1."""
    return count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1.0)


def world_size() -> int:
    """Return the number of processes that train together."""
    return dist.get_world_size() if is_distributed() else 1


def rank() -> int:
    """Return this process's rank."""
    return dist.get_rank() if is_distributed() else 0


def gather_objects(thing: Any) -> list[Any]:
    """Return every rank's object, in rank order, on every rank."""
    if world_size() == 1:
        return [thing]
    gathered: list[Any] = [None] * world_size()
    dist.all_gather_object(gathered, thing)
    return gathered


def gather_rows(values: Tensor) -> Tensor:
    """Return every rank's (rows, ...) tensor as one, in rank order; a second dimension is zero-padded to the widest."""
    if world_size() == 1:
        return values
    shapes = gather_objects(tuple(values.shape))
    rows, width = max(shape[0] for shape in shapes), max(shape[1] if len(shape) > 1 else 1 for shape in shapes)
    padded = values.new_zeros((rows, width) if values.ndim == 2 else (rows,))
    if values.ndim == 2:
        padded[: values.shape[0], : values.shape[1]] = values
    else:
        padded[: values.shape[0]] = values
    sent = padded.to(torch.uint8) if padded.dtype is torch.bool else padded
    gathered = [torch.empty_like(sent) for _ in shapes]
    dist.all_gather(gathered, sent.contiguous())
    return torch.cat([part[: shape[0]].to(values.dtype) for part, shape in zip(gathered, shapes, strict=True)])


def add_over_ranks(values: Tensor) -> Tensor:
    """Return the sum of every rank's tensor."""
    if world_size() == 1:
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total


def is_distributed() -> bool:
    """Whether torch.distributed runs."""
    return bool(dist.is_available() and dist.is_initialized())
