"""The three reductions by hand, empty rows and all, and that their parts add up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from breadth.base import settings
from breadth.base.errors import MechanismError, SettingsError
from breadth.training import reduction
from breadth.training.reduction import Reduction, Totals

LOSSES = torch.tensor([[1.0, 2.0, 9.0], [3.0, float("nan"), 9.0], [9.0, 9.0, 9.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
"""Two responses of lengths 2 and 1, and an empty row: sums 3 and 3."""


def test_totals_leave_empty_rows_out() -> None:
    totals = Totals.from_mask(MASK)
    assert (float(totals.tokens), float(totals.sequences)) == (3.0, 2.0)
    assert float((totals + totals).tokens) == 6.0
    assert Totals.from_mask(MASK.long()) == totals


def test_totals_count_rows_and_add_up() -> None:
    # One response of three tokens, and three of one token each.
    one, three = Totals.from_mask(torch.ones(1, 3)), Totals.from_mask(torch.ones(3, 1))
    assert (float(one.tokens), float(one.sequences)) == (3.0, 1.0)
    assert one + three + three == Totals(torch.tensor(9.0), torch.tensor(7.0))


def test_a_response_alone_needs_no_dimension_of_rows() -> None:
    losses, mask = torch.tensor([1.0, 2.0, 6.0, 9.0]), torch.tensor([True, True, True, False])
    totals = Totals.from_mask(mask)
    assert totals == Totals(torch.tensor(3.0), torch.tensor(1.0))
    assert [float(Reduction(by)(losses, mask, totals)) for by in ("token-mean", "sequence-mean")] == [3.0, 3.0]


@pytest.mark.parametrize(
    ("reduction", "loss"),
    [
        (Reduction(), 6 / 3),  # (1 + 2 + 3) / 3 tokens
        (Reduction("sequence-mean"), (1.5 + 3.0) / 2),  # mean of the two responses' means
        (Reduction("fixed-length", 10), 6 / 20),  # 2 responses of 10 tokens each
        (Reduction("fixed-length", 1), 6 / 2),
    ],
)
def test_by_hand(reduction: Reduction, loss: float) -> None:
    assert float(reduction(LOSSES, MASK, Totals.from_mask(MASK))) == pytest.approx(loss, abs=1e-12)


@pytest.mark.parametrize("reduction", [Reduction(), Reduction("sequence-mean"), Reduction("fixed-length", 4)])
def test_gradients_and_parts_add_up(reduction: Reduction) -> None:
    losses = LOSSES.nan_to_num().requires_grad_()
    totals = Totals.from_mask(MASK)
    parts = [reduction(losses[row : row + 1], MASK[row : row + 1], totals) for row in range(3)]
    assert sum(parts).item() == pytest.approx(reduction(losses, MASK, totals).item(), abs=1e-12)
    assert parts[2].item() == 0.0
    (gradient,) = torch.autograd.grad(sum(parts), losses)
    each = {"token-mean": [1 / 3, 1 / 3], "sequence-mean": [1 / 4, 1 / 2], "fixed-length": [1 / 8, 1 / 8]}[reduction.by]
    assert gradient.tolist() == [[pytest.approx(each[0])] * 2 + [0.0], [pytest.approx(each[1]), 0.0, 0.0], [0.0] * 3]


@pytest.mark.parametrize("reduction", [Reduction(), Reduction("sequence-mean"), Reduction("fixed-length", 4)])
@pytest.mark.parametrize("totals", [Totals(0.0, 0.0), Totals(torch.tensor(0.0), torch.tensor(0.0))])
def test_nothing_gives_zero(reduction: Reduction, totals: Totals) -> None:
    assert float(reduction(LOSSES, torch.zeros_like(MASK), totals)) == 0.0


def test_totals_may_be_plain_numbers() -> None:
    assert float(Reduction()(LOSSES, MASK, Totals(12.0, 2.0))) == 0.5


def test_a_fixed_length_is_given_or_filled_in() -> None:
    with pytest.raises(MechanismError, match="has no length"):
        Reduction("fixed-length")(LOSSES, MASK, Totals(3.0, 2.0))
    assert Reduction("fixed-length").with_length(512) == Reduction("fixed-length", 512)
    assert Reduction("fixed-length", 7).with_length(512) == Reduction("fixed-length", 7)
    assert Reduction().with_length(512) == Reduction()


def test_bad_settings() -> None:
    with pytest.raises(SettingsError, match="length = 5"):
        Reduction("token-mean", 5)
    with pytest.raises(SettingsError, match="length = 0"):
        Reduction("fixed-length", 0)
    with pytest.raises(SettingsError, match="'sequence-mean'"):
        settings.from_table(Reduction, {"by": "sequence-men"})


def test_a_misspelt_reduction_is_refused() -> None:
    with pytest.raises(SettingsError, match="token-mean"):
        Reduction("token_mean")  # type: ignore[arg-type]  # what is tested


OnTwoRanks = Callable[[Callable[[int], Any]], list[Any]]


def test_a_lone_process_has_its_own() -> None:
    rows = torch.tensor([[1.0, 2.0]])
    assert (reduction.world_size(), reduction.rank()) == (1, 0)
    assert reduction.gather_objects("mine") == ["mine"]
    assert reduction.gather_rows(rows) is rows
    assert reduction.add_over_ranks(rows) is rows


def test_objects_come_in_rank_order(on_two_ranks: OnTwoRanks) -> None:
    told = on_two_ranks(
        lambda rank: (reduction.world_size(), reduction.rank(), reduction.gather_objects({"from": rank}))
    )
    assert told == [(2, 0, [{"from": 0}, {"from": 1}]), (2, 1, [{"from": 0}, {"from": 1}])]


def test_rows_of_other_number_and_width_are_padded_with_zeros(on_two_ranks: OnTwoRanks) -> None:
    parts = [torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[4.0], [5.0]])]
    for gathered in on_two_ranks(lambda rank: reduction.gather_rows(parts[rank])):
        assert gathered.tolist() == [[1.0, 2.0, 3.0], [4.0, 0.0, 0.0], [5.0, 0.0, 0.0]]
    assert parts[1].tolist() == [[4.0], [5.0]]


def test_rows_keep_their_type(on_two_ranks: OnTwoRanks) -> None:
    masks = [torch.tensor([[True, False]]), torch.tensor([[True]])]
    for gathered in on_two_ranks(lambda rank: reduction.gather_rows(masks[rank])):
        assert gathered.dtype is torch.bool
        assert gathered.tolist() == [[True, False], [True, False]]
    numbers = [torch.tensor([7, 8, 9]), torch.tensor([1 << 40])]
    for gathered in on_two_ranks(lambda rank: reduction.gather_rows(numbers[rank])):
        assert gathered.dtype is torch.int64
        assert gathered.tolist() == [7, 8, 9, 1 << 40]


def test_a_rank_without_rows_takes_part(on_two_ranks: OnTwoRanks) -> None:
    parts = [torch.zeros(0, 5), torch.tensor([[1.0, 2.0]])]
    for gathered in on_two_ranks(lambda rank: reduction.gather_rows(parts[rank])):
        assert gathered.tolist() == [[1.0, 2.0, 0.0, 0.0, 0.0]]


def test_sums_leave_the_parts_alone(on_two_ranks: OnTwoRanks) -> None:
    parts = [torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])]
    for total in on_two_ranks(lambda rank: reduction.add_over_ranks(parts[rank])):
        assert total.tolist() == [11.0, 22.0]
    assert parts[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("count", "denominator"), [(0.0, 1.0), (0.5, 1.0), (1.0, 1.0), (1.5, 1.5), (7.0, 7.0)])
def test_a_denominator_is_at_least_one(count: float, denominator: float) -> None:
    assert reduction.clamp_to_one(count) == denominator
    assert float(reduction.clamp_to_one(torch.tensor(count))) == denominator
