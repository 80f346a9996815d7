"""Tokens shared out to traces side by side."""

from __future__ import annotations

import numpy as np
import pytest

from breadth.inference.token_purse import TokenPurse


def test_the_pilot_gets_everything_up_to_its_longest() -> None:
    assert TokenPurse(1000).offer(1, 4096) == (1, 1000)
    assert TokenPurse(1000).offer(1, 300) == (1, 300)


def test_several_start_with_room_for_twice_the_mean_each() -> None:
    purse = TokenPurse(1000)
    purse.give(1, 1000)
    purse.settle(100)
    assert (purse.free, purse.mean, purse.out) == (900, 100, [])
    assert purse.offer(8, 4096) == (4, 225)  # 900 // 200 = 4
    assert purse.offer(2, 4096) == (2, 450)
    assert purse.offer(0, 4096) == (0, 0)


def test_the_last_gets_what_is_left_if_a_mean_trace_fits() -> None:
    purse = TokenPurse(250, spent=100, ended=1)
    assert purse.offer(8, 4096) == (1, 150)
    purse.spent = 151
    assert purse.offer(8, 4096) == (0, 0)


def test_the_smallest_cap_that_fits_is_released() -> None:
    purse = TokenPurse(1000, out=[300, 100, 200])
    purse.settle(150)
    assert purse.out == [300, 100]
    purse.settle(50)
    assert purse.out == [300]
    purse.settle(999)  # a server that went beyond its cap
    assert purse.out == []
    purse.settle(1)
    assert (purse.spent, purse.ended) == (1200, 4)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_lengths_no_more_is_written_than_there_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    purse, out = TokenPurse(3000), list[int]()
    while True:
        count, cap = purse.offer(8 - len(purse.out) if purse.ended else 1, 4096)
        if not count and not out:
            break
        purse.give(count, cap)
        out += [cap] * count
        ended = out.pop(int(rng.integers(len(out))))  # any of them, whatever the purse believes
        purse.settle(min(ended, int(rng.geometric(1 / 150))))
        assert purse.spent + sum(out) <= 3000
    assert purse.spent <= 3000
    assert purse.spent > 2000
