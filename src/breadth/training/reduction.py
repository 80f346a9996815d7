"""The reduction: token losses become a scalar here and nowhere else, independent of the split into micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

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
