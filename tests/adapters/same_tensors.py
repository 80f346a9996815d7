"""The tensors every side of the conformance suite gets, and the bare Objective on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from breadth.training.chain import Chain
from breadth.training.objective import Objective
from breadth.training.records import Batch

ROWS, WIDTH = 8, 12
DRIFTS = (0.0, 0.05, 0.5, 2.0)
"""Spread of log(current / old): strictly on-policy, a later update, far off, hopelessly off."""


@dataclass(frozen=True)
class Tokens:
    """One optimizer step's batch, before it is cut; positions outside the mask hold numbers that must not matter."""

    logprobs: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    mask: Tensor
    entropy: Tensor
    reference: Tensor
    weights: Tensor | None = None
    """Correction for the sampler."""

    @property
    def lengths(self) -> list[int]:
        """Response lengths: up to the last token that counts, and one for a response in which none does."""
        places = torch.arange(1, self.mask.shape[1] + 1)
        return [int(length) for length in (self.mask * places).max(1).values.clamp(min=1)]

    def cut(self, parts: int) -> list[list[int]]:
        """Return which rows each of the micro-batches holds."""
        return [piece.tolist() for piece in torch.arange(len(self.mask)).chunk(parts)]

    def batch(self, logprobs: Tensor, entropy: Tensor, rows: list[int] | slice = slice(None)) -> Batch:
        """Return some rows as our record."""
        return Batch(
            logprobs[rows],
            self.advantages[rows],
            self.mask[rows],
            old_logprobs=self.old_logprobs[rows],
            rows=torch.arange(len(self.mask))[rows],
            entropy=entropy[rows],
            reference_logprobs=self.reference[rows],
            weights=None if self.weights is None else self.weights[rows],
        )


@dataclass(frozen=True)
class Outcome:
    """What a loss is held to: its value, and its gradient by each log-probability and each entropy."""

    loss: float
    by_logprob: Tensor
    by_entropy: Tensor

    @classmethod
    def of(cls, loss: float, logprobs: Tensor, entropy: Tensor) -> Outcome:
        """Read the gradients off the leaves."""
        return cls(
            loss, *(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.clone() for leaf in (logprobs, entropy))
        )

    def gap(self, other: Outcome) -> float:
        """Return the largest difference of loss or gradient."""
        pairs = ((self.by_logprob, other.by_logprob), (self.by_entropy, other.by_entropy))
        return max(abs(self.loss - other.loss), *(float((one - two).abs().max()) for one, two in pairs))


def tokens(
    drift: float = 0.5, *, seed: int = 0, by_token: bool = False, rows: int = ROWS, width: int = WIDTH
) -> Tokens:
    """Draw float64 tensors: ragged responses with tool output inside some, advantages of both signs and zero."""
    dice = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=dice, dtype=torch.float64)

    logprobs = -normal(rows, width).square() - 1e-3
    lengths = torch.randint(3, width + 1, (rows,), generator=dice)
    lengths[0] = width
    mask = torch.arange(width) < lengths[:, None]
    mask[::3, 1] = False
    advantages = normal(rows, width if by_token else 1).expand(rows, width).clone()
    advantages[-1] = 0.0
    one_a_response = advantages if by_token else advantages[:, 0]
    old = torch.where(mask, logprobs + drift * normal(rows, width), 7.0)
    entropy = normal(rows, width).square().float().double()  # exact in float32, in which TRL ranks them
    return Tokens(logprobs, old, one_a_response, mask, entropy, logprobs + 0.3 * normal(rows, width))


def leaves(data: Tokens) -> tuple[Tensor, Tensor]:
    """Return the tensors that carry the gradient."""
    return data.logprobs.clone().requires_grad_(), data.entropy.clone().requires_grad_()


def bare(chain: Chain, data: Tokens, parts: int = 1, *, surveyed: Tokens | None = None) -> Outcome:
    """Run a chain with nothing around it; ``surveyed`` is what a survey looks at when it is not the batch itself."""
    objective, (logprobs, entropy) = Objective(chain), leaves(data)
    seen = surveyed or data
    objective.begin(seen.batch(seen.logprobs, seen.entropy))
    losses = [objective.loss(data.batch(logprobs, entropy, rows)) for rows in data.cut(parts)]
    total = torch.stack(losses).sum()
    total.backward()
    objective.finish()
    return Outcome.of(float(total.detach()), logprobs, entropy)


def unchanged(data: Tokens) -> Tokens:
    """Return the batch as the policy of the generation saw it: what a survey inside verl looks at."""
    return replace(data, logprobs=data.old_logprobs)


def close(one: Outcome, other: Outcome, within: float = 1e-12) -> None:
    """Hold two outcomes to each other, in loss and gradient; and neither to nothing."""
    assert one.gap(other) < within, f"off by {one.gap(other):.3g}: loss {one.loss:.9g} and {other.loss:.9g}"
    assert float(one.by_logprob.abs().max()) > 0, "an agreement in which nothing moves shows nothing"


def changed(data: Tokens, **tensors: Any) -> Tokens:
    """Return the tensors with some in place of others."""
    return replace(data, **tensors)
