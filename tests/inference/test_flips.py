"""The flip matrix, and changes of answer in a chain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.inference.flips import FlipMatrix, changes, flip_matrix


def test_flips_by_hand() -> None:
    # Right R, wrong W: W R R W | R None R | (one answer, no step) | (none)
    chains: list[list[str | None]] = [["1", "4", "4", "5"], ["4", None, "4"], ["4"], []]
    flips = flip_matrix(chains, ["4"] * 4)
    assert flips == FlipMatrix(right_to_wrong=2, wrong_to_right=2, stayed_right=1, stayed_wrong=0)
    assert (flips.steps, flips.net) == (5, 0)
    assert flip_matrix([["1", "2", "2"]], ["4"]) == FlipMatrix(stayed_wrong=2)
    assert flip_matrix([], []) == FlipMatrix()


@given(st.lists(st.lists(st.sampled_from(["4", "5", None]), min_size=1, max_size=6), max_size=4))
def test_the_counts_sum_to_the_steps_and_the_net_is_the_gain(chains: list[list[str | None]]) -> None:
    flips = flip_matrix(chains, ["4"] * len(chains))
    assert flips.steps == sum(len(chain) - 1 for chain in chains)
    assert flips.net == sum((chain[-1] == "4") - (chain[0] == "4") for chain in chains)


def test_changes_and_returns() -> None:
    assert changes(["4", "5", "4", "4", None, "4", "6"]) == (3, 1)
    assert changes(["4", None, "4"]) == (0, 0)
    assert changes([]) == (0, 0)


def test_each_chain_needs_its_truth() -> None:
    with pytest.raises(MeasureError, match="1 chains and 2 truths"):
        flip_matrix([["4"]], ["4", "5"])
