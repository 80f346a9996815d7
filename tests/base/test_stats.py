"""Parts add up to the whole, however the batch was cut."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from breadth.base.stats import Counts, Max, Mean, add_up

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20)


def test_mean_of_unequal_parts_is_not_the_mean_of_means() -> None:
    # lengths 1 and 3 with values +1 and -1 per token: (1 - 3) / 4, not (1 - 1) / 2
    assert (Mean(1.0, 1) + Mean(-3.0, 3)).value == -0.5


@given(NUMBERS, st.integers(0, 20))
def test_cutting_changes_nothing(values: list[float], cut: int) -> None:
    def part(chunk: list[float]) -> dict[str, Mean | Max]:
        return {"mean": Mean(math.fsum(chunk), len(chunk)), "max": Max(max(chunk, default=-math.inf))}

    whole, parts = part(values), add_up([part(values[:cut]), part(values[cut:])])
    assert parts["mean"].value == pytest.approx(whole["mean"].value, abs=1e-6)
    assert parts["max"].value == whole["max"].value


def test_nothing_counted_is_nan_and_no_error() -> None:
    assert math.isnan(Mean().value)
    assert Max().value == -math.inf
    assert add_up([]) == {}


def test_a_nan_stays_visible() -> None:
    assert math.isnan((Max(1.0) + Max(math.nan)).value)
    assert math.isnan((Max(math.nan) + Max(1.0)).value)


def test_counts_merge_by_label() -> None:
    assert (Counts({"a": 1, "b": 2}) + Counts({"b": 3, None: 1})).value == {"a": 1, "b": 5, None: 1}


def test_a_name_missing_from_a_part_counts_as_nothing() -> None:
    assert add_up([{"a": Mean(1.0, 1)}, {"b": Mean(2.0, 1)}]) == {"a": Mean(1.0, 1), "b": Mean(2.0, 1)}


def test_tensors_stay_tensors_until_read() -> None:
    total = Mean(torch.tensor(3.0), torch.tensor(2)) + Mean(torch.tensor(1.0), torch.tensor(2))
    assert isinstance(total.total, torch.Tensor)
    assert total.value == 1.0
    largest = Max() + Max(torch.tensor(2.5)) + Max(torch.tensor(1.5)) + Max(0.5)
    assert isinstance(largest.largest, torch.Tensor)
    assert largest.value == 2.5
    assert math.isnan((Max(torch.tensor(math.nan)) + Max(3.0)).value)
