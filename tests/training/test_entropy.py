"""Which entropy a controller reads, and how entropy is paid for."""

from __future__ import annotations

import math

import pytest
import torch

from breadth.base.errors import MechanismError
from breadth.training.entropy import entropy_price, fields_read, mean_entropy
from breadth.training.records import Batch


def batch_of(*, gradient: bool = True) -> Batch:
    """Return two sequences of 2 and 1 tokens: sampled entropy (0.2 + 0.6 + 0.1) / 3, exact (0.5 + 0.7 + 0.9) / 3."""
    nan = math.nan
    return Batch(
        logprobs=torch.tensor([[-1.0, -2.0], [-3.0, nan]], requires_grad=True),
        advantages=torch.tensor([1.0, -1.0]),
        mask=torch.tensor([[True, True], [True, False]]),
        old_logprobs=torch.tensor([[-0.2, -0.6], [-0.1, nan]]),
        entropy=torch.tensor([[0.5, 0.7], [0.9, nan]], requires_grad=gradient),
    ).cleaned()


def test_the_two_readings() -> None:
    assert mean_entropy(batch_of(), "sampled").value == pytest.approx(0.3, abs=1e-6)
    assert mean_entropy(batch_of(), "exact").value == pytest.approx(0.7, abs=1e-6)
    assert fields_read("sampled") == frozenset()
    assert fields_read("exact") == frozenset({"entropy"})


def test_price_of_entropy() -> None:
    (term,) = entropy_price(batch_of(), 0.1)
    assert term.flatten().tolist() == pytest.approx([-0.05, -0.07, -0.09, 0.0], abs=1e-7)
    assert entropy_price(batch_of(), 0.0) == ()


def test_an_entropy_without_gradient_is_refused_where_it_would_silently_do_nothing() -> None:
    with pytest.raises(MechanismError, match="no gradient"):
        entropy_price(batch_of(gradient=False), 0.1)
    assert entropy_price(batch_of(gradient=False), 0.0) == ()
    assert len(entropy_price(batch_of(gradient=False).detached(), 0.1)) == 1, "an evaluation has no gradient anywhere"


def test_an_exact_reading_without_entropies_is_refused() -> None:
    bare = Batch(torch.zeros(1, 2), torch.zeros(1), torch.ones(1, 2, dtype=torch.bool)).cleaned()
    with pytest.raises(MechanismError):
        mean_entropy(bare, "exact")
