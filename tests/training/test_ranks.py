"""What ranks share: alone, and between two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from breadth.training import ranks

OnTwoRanks = Callable[[Callable[[int], Any]], list[Any]]


def test_a_lone_process_has_its_own() -> None:
    rows = torch.tensor([[1.0, 2.0]])
    assert (ranks.world_size(), ranks.rank()) == (1, 0)
    assert ranks.gather_objects("mine") == ["mine"]
    assert ranks.gather_rows(rows) is rows
    assert ranks.add_over_ranks(rows) is rows


def test_objects_come_in_rank_order(on_two_ranks: OnTwoRanks) -> None:
    told = on_two_ranks(lambda rank: (ranks.world_size(), ranks.rank(), ranks.gather_objects({"from": rank})))
    assert told == [(2, 0, [{"from": 0}, {"from": 1}]), (2, 1, [{"from": 0}, {"from": 1}])]


def test_rows_of_other_number_and_width_are_padded_with_zeros(on_two_ranks: OnTwoRanks) -> None:
    parts = [torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[4.0], [5.0]])]
    for gathered in on_two_ranks(lambda rank: ranks.gather_rows(parts[rank])):
        assert gathered.tolist() == [[1.0, 2.0, 3.0], [4.0, 0.0, 0.0], [5.0, 0.0, 0.0]]
    assert parts[1].tolist() == [[4.0], [5.0]]


def test_rows_keep_their_type(on_two_ranks: OnTwoRanks) -> None:
    masks = [torch.tensor([[True, False]]), torch.tensor([[True]])]
    for gathered in on_two_ranks(lambda rank: ranks.gather_rows(masks[rank])):
        assert gathered.dtype is torch.bool
        assert gathered.tolist() == [[True, False], [True, False]]
    numbers = [torch.tensor([7, 8, 9]), torch.tensor([1 << 40])]
    for gathered in on_two_ranks(lambda rank: ranks.gather_rows(numbers[rank])):
        assert gathered.dtype is torch.int64
        assert gathered.tolist() == [7, 8, 9, 1 << 40]


def test_a_rank_without_rows_takes_part(on_two_ranks: OnTwoRanks) -> None:
    parts = [torch.zeros(0, 5), torch.tensor([[1.0, 2.0]])]
    for gathered in on_two_ranks(lambda rank: ranks.gather_rows(parts[rank])):
        assert gathered.tolist() == [[1.0, 2.0, 0.0, 0.0, 0.0]]


def test_sums_leave_the_parts_alone(on_two_ranks: OnTwoRanks) -> None:
    parts = [torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])]
    for total in on_two_ranks(lambda rank: ranks.add_over_ranks(parts[rank])):
        assert total.tolist() == [11.0, 22.0]
    assert parts[0].tolist() == [1.0, 2.0]
