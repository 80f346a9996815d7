"""The entropy histogram against exact quantiles and tail means."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from breadth.training.histogram import BINS, LARGEST, SMALLEST, EntropyHistogram


def histogram(values: list[float], mask: list[bool] | None = None) -> EntropyHistogram:
    kept = torch.ones(1, len(values), dtype=torch.bool) if mask is None else torch.tensor([mask])
    return EntropyHistogram.of(torch.tensor([values]), kept)


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_threshold_and_mean_of_the_top_are_those_of_the_sorted_values(share: float, seed: int) -> None:
    dice = np.random.default_rng(seed)
    entropies = dice.gamma(0.3, 0.8, 5000)
    threshold, mean = EntropyHistogram.of(torch.from_numpy(entropies)[None], torch.ones(1, 5000, dtype=torch.bool)).top(share)
    ordered = np.sort(entropies)[::-1]
    wanted = round(share * 5000)
    # the mean is exact but for the part of one bin (3 %) that the share cuts through
    assert mean == pytest.approx(ordered[:wanted].mean(), rel=2e-3)
    assert threshold == pytest.approx(ordered[wanted - 1], rel=0.035, abs=SMALLEST)


def test_the_top_of_everything_is_the_plain_mean() -> None:
    assert histogram([0.1, 0.2, 0.6]).top(1.0)[1] == pytest.approx(0.3, abs=1e-7)


def test_a_cut_bin_counts_in_part() -> None:
    # top 3 of 5 values in two bins: both 2.0 and half of the two 1.0 would be 2.5 values; 0.6 * 5 = 3 -> (2 + 2 + 1) / 3
    threshold, mean = histogram([1.0, 1.0, 2.0, 2.0, 0.001]).top(0.6)
    assert threshold == 1.0
    assert mean == pytest.approx(5 / 3, abs=1e-9)
    # 0.5 * 5 = 2.5 values: (2 + 2 + 0.5 * 1) / 2.5
    assert histogram([1.0, 1.0, 2.0, 2.0, 0.001]).top(0.5)[1] == pytest.approx(4.5 / 2.5, abs=1e-9)


def test_nothing_counted_has_no_top() -> None:
    threshold, mean = histogram([1.0, 2.0], [False, False]).top(0.2)
    assert threshold == math.inf
    assert math.isnan(mean)


def test_what_the_mask_leaves_out_is_not_counted() -> None:
    garbage = histogram([0.5, math.nan, 1e9], [True, False, False])
    assert sum(garbage.value) == 1.0
    assert garbage.top(1.0) == (0.5, 0.5)


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
    threshold, mean = EntropyHistogram.of(entropy, torch.ones_like(entropy, dtype=torch.bool)).top(0.2)
    assert threshold == mean == float(entropy[0, 0].float())


def test_the_ends_of_the_range_hold_what_lies_beyond() -> None:
    ends = histogram([0.0, SMALLEST / 2, 2 * LARGEST]).value
    assert (ends[0], ends[BINS - 1], sum(ends)) == (2.0, 1.0, 3.0)


def test_bins_are_about_three_per_cent_wide() -> None:
    width = (LARGEST / SMALLEST) ** (1 / (BINS - 2))
    assert width == pytest.approx(1.0330, abs=1e-4)
    entropies = torch.tensor([[0.30, 0.32]])
    assert max(EntropyHistogram.of(entropies, torch.ones_like(entropies, dtype=torch.bool)).value) == 1.0
