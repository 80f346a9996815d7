"""The coin of a task."""

from __future__ import annotations

import numpy as np

from breadth.inference.coins import coin


def test_coins_are_uniform_fixed_and_differ_by_name_and_seed() -> None:
    tossed = np.array([coin(f"question {number}", 3) for number in range(4000)])
    assert tossed.min() >= 0
    assert tossed.max() < 1
    # Largest gap between the shares and the diagonal: 1.63 / sqrt(n) is exceeded once in a hundred (Kolmogorov).
    assert np.abs(np.sort(tossed) - np.arange(4000) / 4000).max() < 1.63 / np.sqrt(4000)
    assert coin("a", 1) == coin("a", 1)
    assert len({coin("a", 1), coin("a", 2), coin("b", 1), coin("", 1)}) == 4
