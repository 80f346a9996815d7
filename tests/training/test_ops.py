"""Masked arithmetic, ratios, random keys, selections and groups: by hand, and against brute force."""

from __future__ import annotations

import math

import pytest
import torch

from breadth.training import ops
from breadth.training.ops import TokenKeys, sample_tokens, select_largest

NAN = math.nan


def token_keys(rows: torch.Tensor, width: int, seed: int, step: int) -> torch.Tensor:
    places, columns = torch.ones(len(rows), width).nonzero(as_tuple=True)
    return TokenKeys(rows, seed, step).uniform_at(places, columns).reshape(len(rows), width)


def test_masked_takes_garbage_and_its_gradient_away() -> None:
    values = torch.tensor([1.0, NAN, math.inf, 2.0], requires_grad=True)
    mask = torch.tensor([True, False, False, True])
    ops.masked_values(values, mask).sum().backward()
    assert ops.masked_values(values, mask).tolist() == [1.0, 0.0, 0.0, 2.0]
    assert values.grad.tolist() == [1.0, 0.0, 0.0, 1.0]


def test_means_over_a_mask() -> None:
    values, mask = (
        torch.tensor([[1.0, 2.0, NAN], [NAN, NAN, NAN]]),
        torch.tensor([[True, True, False], [False, False, False]]),
    )
    assert float(ops.masked_mean(values, mask)) == 1.5
    assert ops.sequence_mean(values, mask).tolist() == [1.5, 0.0]
    assert float(ops.masked_mean(values, torch.zeros_like(mask))) == 0.0


def test_half_precision_is_widened_and_nothing_else() -> None:
    assert ops.promote_half(torch.zeros(1, dtype=torch.bfloat16)).dtype is torch.float32
    assert ops.promote_half(torch.zeros(1, dtype=torch.float16)).dtype is torch.float32
    assert ops.promote_half(torch.zeros(1, dtype=torch.float64)).dtype is torch.float64


def test_ratios() -> None:
    logprobs = torch.tensor([1.5, 1.0, 0.5], dtype=torch.float64).log()
    assert ops.ratio(logprobs, torch.zeros(3, dtype=torch.float64)).tolist() == pytest.approx(
        [1.5, 1.0, 0.5], abs=1e-12
    )


def test_a_ratio_cannot_overflow() -> None:
    logprobs = torch.tensor([-1.0, -200.0, -math.inf], requires_grad=True)
    moved = ops.ratio(logprobs, torch.tensor([-1e9, 0.0, -1.0]))
    moved.sum().backward()
    assert moved.tolist() == pytest.approx([math.exp(20), math.exp(-20), math.exp(-20)], rel=1e-6)
    assert logprobs.grad.tolist() == [0.0, 0.0, 0.0]


def mixed(number: int) -> int:
    """The splitmix64 mixer in plain integers."""
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) % (1 << 64)
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) % (1 << 64)
    return number ^ (number >> 31)


@pytest.mark.parametrize(
    ("seed", "step", "row", "column"), [(0, 0, 0, 0), (0, 3, 5, 7), (12345, 400, 1 << 33, 8191), (-1, 1, 2, 3)]
)
def test_token_keys_are_the_mixer_in_plain_integers(seed: int, step: int, row: int, column: int) -> None:
    start = mixed((seed * 0x9E3779B97F4A7C15 + step) % (1 << 64))
    key = mixed((mixed((start + row) % (1 << 64)) + column) % (1 << 64))
    assert float(token_keys(torch.tensor([row]), column + 1, seed, step)[0, column]) == (key >> 11) / float(1 << 53)


@pytest.mark.parametrize("numbering", [1, 1000])
def test_token_keys_are_uniform(numbering: int) -> None:
    keys = token_keys(
        numbering * torch.arange(256), 256, 0, 0
    )  # 65536 numbers: the mean of uniform ones is off by 0.0011 at one sigma
    assert bool(((keys >= 0) & (keys < 1)).all())
    assert float(keys.mean()) == pytest.approx(0.5, abs=0.005)
    assert float(keys.var()) == pytest.approx(1 / 12, abs=0.001)
    counts = torch.histc(keys.float(), 64, 0, 1)  # 1024 expected in each, one sigma 32
    assert float(((counts - 1024) ** 2 / 1024).sum()) < 63 + 4 * math.sqrt(2 * 63)
    assert float(keys.mean(0).std()) == pytest.approx(
        math.sqrt(1 / 12 / 256), rel=0.25
    )  # the spread of means over rows and over columns
    assert float(keys.mean(1).std()) == pytest.approx(math.sqrt(1 / 12 / 256), rel=0.25)
    assert len(keys.unique()) == keys.numel()


def test_token_keys_of_neighbours_are_unrelated() -> None:
    rows = torch.arange(128)
    keys = token_keys(rows, 128, 0, 0)
    others = {
        "column": keys.roll(1, 1),
        "row": keys.roll(1, 0),
        "diagonal": keys.T,
        "step": token_keys(rows, 128, 0, 1),
        "seed": token_keys(rows, 128, 1, 0),
    }
    for name, other in others.items():
        correlation = float(torch.corrcoef(torch.stack([keys.flatten(), other.flatten()]))[0, 1])
        assert abs(correlation) < 4 / 128, name  # one sigma is 1 / 128
        assert not torch.equal(keys, other)


def test_token_keys_do_not_depend_on_cut_order_or_width() -> None:
    rows = torch.tensor([4, 0, 9, 2])
    keys = token_keys(rows, 6, 3, 11)
    order = torch.tensor([2, 0, 3, 1])
    assert torch.equal(token_keys(rows[order], 6, 3, 11), keys[order])
    assert torch.equal(torch.cat([token_keys(part, 4, 3, 11) for part in rows.chunk(2)]), keys[:, :4])
    places, columns = torch.tensor([1, 3]), torch.tensor([5, 0])
    assert torch.equal(TokenKeys(rows, 3, 11).uniform_at(places, columns), keys[places, columns])


def brute_force(scores: torch.Tensor, among: torch.Tensor, count: int, keys: torch.Tensor) -> torch.Tensor:
    """Sort all tokens by score, then by key, and take the first."""
    tokens = [(-float(scores[at]), float(keys[at]), at) for at in map(tuple, among.nonzero().tolist())]
    chosen = torch.zeros_like(among)
    for _, _, at in sorted(tokens)[: max(count, 0)]:
        chosen[at] = True
    return chosen


@pytest.mark.parametrize("levels", [1, 2, 5, 10_000])
def test_pick_largest_is_the_sorted_pick_with_many_ties(levels: int) -> None:
    dice = torch.Generator().manual_seed(levels)
    for number in range(8):
        scores = torch.randint(levels, (9, 7), generator=dice).double() - levels / 2
        among = torch.rand(9, 7, generator=dice) < 0.7
        rows = torch.randperm(50, generator=dice)[:9]
        keys = token_keys(rows, 7, 1, number)
        for count in (-1, 0, 1, 5, 20, int(among.sum()) - 1, int(among.sum()), 63, 100):
            found = select_largest(scores, among, count, TokenKeys(rows, 1, number))
            assert torch.equal(found, brute_force(scores, among, count, keys)), (number, count)


def test_pick_largest_does_not_depend_on_order() -> None:
    dice = torch.Generator().manual_seed(5)
    scores, among, rows = (
        torch.randint(3, (8, 6), generator=dice).float(),
        torch.rand(8, 6, generator=dice) < 0.8,
        torch.arange(8),
    )
    order = torch.randperm(8, generator=dice)
    whole = select_largest(scores, among, 11, TokenKeys(rows, 0, 0))
    turned = select_largest(scores[order], among[order], 11, TokenKeys(rows[order], 0, 0))
    assert torch.equal(whole[order], turned)
    assert int(whole.sum()) == 11


def test_pick_largest_ignores_what_is_not_offered() -> None:
    scores = torch.tensor([[9.0, NAN, 1.0, 2.0]])
    among = torch.tensor([[False, False, True, True]])
    assert select_largest(scores, among, 1, TokenKeys(torch.tensor([0]), 0, 0)).tolist() == [
        [False, False, False, True]
    ]


def test_draw_takes_the_smallest_keys() -> None:
    rows, among = torch.tensor([3, 8]), torch.tensor([[True, False, True], [True, True, True]])
    keys = TokenKeys(rows, 0, 4)
    chosen = sample_tokens(among, 2, keys)
    smallest = torch.where(among, token_keys(rows, 3, 0, 4), 2.0).flatten().argsort()[:2]
    assert sorted(chosen.flatten().nonzero().flatten().tolist()) == sorted(smallest.tolist())
    assert torch.equal(sample_tokens(among, 5, keys), among)
    assert torch.equal(sample_tokens(among, 99, keys), among)
    assert not sample_tokens(among, 0, keys).any()
    assert not sample_tokens(torch.zeros_like(among), 2, keys).any()


def test_every_token_is_drawn_equally_often() -> None:
    among = torch.ones(4, 5, dtype=torch.bool)
    rows = torch.arange(4)
    times = sum(sample_tokens(among, 5, TokenKeys(rows, 0, step)).double() for step in range(400))
    # 400 draws of 5 in 20: each token 100 times, one sigma sqrt(400 * 0.25 * 0.75) = 8.7
    assert bool(((times - 100).abs() < 4 * 8.7).all())


@pytest.mark.parametrize(
    ("share", "total", "count"), [(2e-4, 8192, 1), (2e-4, 100, 1), (0.2, 14, 2), (0.0, 10, 0), (0.2, 0, 0), (1.0, 7, 7)]
)
def test_quota(share: float, total: int, count: int) -> None:
    assert ops.share_to_count(share, total) == count


def test_groups_by_hand() -> None:
    values = torch.tensor([1.0, 2.0, 4.0, NAN, 8.0])
    groups, among = torch.tensor([70, 5, 70, 5, 9]), torch.tensor([True, True, True, False, False])
    assert ops.group_sum(values, groups, among).tolist() == [5.0, 2.0, 5.0, 2.0, 0.0]
    assert ops.group_count(groups, among).tolist() == [2.0, 1.0, 2.0, 1.0, 0.0]
    assert ops.group_mean(values, groups, among).tolist() == [2.5, 2.0, 2.5, 2.0, 0.0]


def test_no_groups_at_all() -> None:
    nothing = torch.zeros(0)
    assert ops.group_mean(nothing, nothing.long(), nothing.bool()).shape == (0,)
