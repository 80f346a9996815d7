"""What the entropy mechanisms share: which entropy a controller reads, and how entropy is paid for in the loss."""

from __future__ import annotations

from typing import Literal, TypeAlias

from torch import Tensor

from breadth.base.errors import MechanismError
from breadth.base.stats import Mean
from breadth.training.ops import masked
from breadth.training.records import Batch, required

Reading: TypeAlias = Literal["sampled", "exact"]
"""Which entropy a controller reads.

``sampled``: the mean of -old_logprobs over the trained tokens: needs no logits, and is right on average for the policy that sampled, at
its temperature and without top-p or top-k; it does not move between the updates of one generation. ``exact``: the mean of the current
policy's entropies. The two differ in one batch, so a chain says which it reads instead of taking what is there: the same chain does the
same in every trainer.
"""


GRADIENT = "entropy.gradient"
"""What a mechanism needs beyond the entropy when its loss pays for it: the entropy with its gradient."""


def fields_read(reads: Reading) -> frozenset[str]:
    """Return the optional fields of a batch that a reading needs."""
    return frozenset({"entropy"}) if reads == "exact" else frozenset()


def mean_entropy(batch: Batch, reads: Reading) -> Mean:
    """Return the mean entropy per trained token, in nats, as a stat that adds up."""
    values = required(batch.entropy) if reads == "exact" else -required(batch.old_logprobs)
    return Mean(masked(values.detach(), batch.mask).sum(), batch.mask.sum())


def entropy_price(batch: Batch, coefficient: float) -> tuple[Tensor, ...]:
    """Return the loss term that pays ``coefficient`` for one nat of entropy on each token; none at all when it is zero.

    An entropy without a gradient would make the payment do nothing, so it is refused.
    """
    if coefficient == 0:
        return ()
    entropy = required(batch.entropy)
    if batch.logprobs.requires_grad and not entropy.requires_grad:
        raise MechanismError(
            "The entropies of the batch carry no gradient, so paying for entropy would change nothing.",
            "Compute them with gradient, e.g. by breadth.training.logits.entropy_and_logprobs.",
        )
    return (-coefficient * entropy,)
