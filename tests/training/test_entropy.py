"""Which entropy a controller reads, and how entropy is paid for."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from breadth.base.errors import MechanismError
from breadth.training.entropy import (
    ENTROPY_BINS,
    MAX_ENTROPY,
    MIN_ENTROPY,
    EntropyHistogram,
    entropy_bonus_terms,
    fields_for,
    mean_entropy,
)
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
    ).clean()


def test_the_two_readings() -> None:
    assert mean_entropy(batch_of(), "sampled").value == pytest.approx(0.3, abs=1e-6)
    assert mean_entropy(batch_of(), "exact").value == pytest.approx(0.7, abs=1e-6)
    assert fields_for("sampled") == frozenset()
    assert fields_for("exact") == frozenset({"entropy"})


def test_price_of_entropy() -> None:
    (term,) = entropy_bonus_terms(batch_of(), 0.1)
    assert term.flatten().tolist() == pytest.approx([-0.05, -0.07, -0.09, 0.0], abs=1e-7)
    assert entropy_bonus_terms(batch_of(), 0.0) == ()


def test_an_entropy_without_gradient_is_refused_where_it_would_silently_do_nothing() -> None:
    with pytest.raises(MechanismError, match="no gradient"):
        entropy_bonus_terms(batch_of(gradient=False), 0.1)
    assert entropy_bonus_terms(batch_of(gradient=False), 0.0) == ()
    assert len(entropy_bonus_terms(batch_of(gradient=False).detach(), 0.1)) == 1, (
        "an evaluation has no gradient anywhere"
    )


def test_an_exact_reading_without_entropies_is_refused() -> None:
    bare = Batch(torch.zeros(1, 2), torch.zeros(1), torch.ones(1, 2, dtype=torch.bool)).clean()
    with pytest.raises(MechanismError):
        mean_entropy(bare, "exact")


def histogram(values: list[float], mask: list[bool] | None = None) -> EntropyHistogram:
    kept = torch.ones(1, len(values), dtype=torch.bool) if mask is None else torch.tensor([mask])
    return EntropyHistogram.from_tokens(torch.tensor([values]), kept)


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_threshold_and_mean_of_the_top_are_those_of_the_sorted_values(share: float, seed: int) -> None:
    dice = np.random.default_rng(seed)
    entropies = dice.gamma(0.3, 0.8, 5000)
    threshold, mean = EntropyHistogram.from_tokens(
        torch.from_numpy(entropies)[None], torch.ones(1, 5000, dtype=torch.bool)
    ).top_share(share)
    ordered = np.sort(entropies)[::-1]
    wanted = round(share * 5000)
    # the mean is exact but for the part of one bin (3 %) that the share cuts through
    assert mean == pytest.approx(ordered[:wanted].mean(), rel=2e-3)
    assert threshold == pytest.approx(ordered[wanted - 1], rel=0.035, abs=MIN_ENTROPY)


def test_the_top_of_everything_is_the_plain_mean() -> None:
    assert histogram([0.1, 0.2, 0.6]).top_share(1.0)[1] == pytest.approx(0.3, abs=1e-7)


def test_a_cut_bin_counts_in_part() -> None:
    # top 3 of 5 values in two bins: both 2.0 and half of the two 1.0 would be 2.5 values; 0.6 * 5 = 3 -> (2 + 2 + 1) /
    # 3
    threshold, mean = histogram([1.0, 1.0, 2.0, 2.0, 0.001]).top_share(0.6)
    assert threshold == 1.0
    assert mean == pytest.approx(5 / 3, abs=1e-9)
    # 0.5 * 5 = 2.5 values: (2 + 2 + 0.5 * 1) / 2.5
    assert histogram([1.0, 1.0, 2.0, 2.0, 0.001]).top_share(0.5)[1] == pytest.approx(4.5 / 2.5, abs=1e-9)


def test_nothing_counted_has_no_top() -> None:
    threshold, mean = histogram([1.0, 2.0], [False, False]).top_share(0.2)
    assert threshold == math.inf
    assert math.isnan(mean)


def test_what_the_mask_leaves_out_is_not_counted() -> None:
    garbage = histogram([0.5, math.nan, 1e9], [True, False, False])
    assert sum(garbage.value) == 1.0
    assert garbage.top_share(1.0) == (0.5, 0.5)


def test_parts_add_up_as_tensors_and_as_lists() -> None:
    whole, left, right = histogram([0.1, 0.4, 0.7, 0.0]), histogram([0.1, 0.4]), histogram([0.7, 0.0])
    assert (left + right).plain() == whole.plain()
    assert left.plain() + right.plain() == whole.plain()
    assert whole.plain().plain() == whole.plain()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [3, 100, 1000, 4097])
def test_the_mean_of_equal_entropies_is_that_entropy(dtype: torch.dtype, count: int) -> None:
    # a mean one rounding above would make no token of a uniform policy a fork
    entropy = torch.full((1, count), 3.0, dtype=dtype).log()
    threshold, mean = EntropyHistogram.from_tokens(entropy, torch.ones_like(entropy, dtype=torch.bool)).top_share(0.2)
    assert threshold == mean == float(entropy[0, 0].float())


def test_the_ends_of_the_range_hold_what_lies_beyond() -> None:
    ends = histogram([0.0, MIN_ENTROPY / 2, 2 * MAX_ENTROPY]).value
    assert (ends[0], ends[ENTROPY_BINS - 1], sum(ends)) == (2.0, 1.0, 3.0)


def test_bins_are_about_three_per_cent_wide() -> None:
    width = (MAX_ENTROPY / MIN_ENTROPY) ** (1 / (ENTROPY_BINS - 2))
    assert width == pytest.approx(1.0330, abs=1e-4)
    entropies = torch.tensor([[0.30, 0.32]])
    assert max(EntropyHistogram.from_tokens(entropies, torch.ones_like(entropies, dtype=torch.bool)).value) == 1.0
