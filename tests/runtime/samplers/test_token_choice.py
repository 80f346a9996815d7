"""Tokens are drawn as the settings say: greedy, cut, punished, and the same again with the same seed."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from breadth.inference.records import Sampling

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")

from breadth.runtime.samplers.token_choice import chosen_token  # noqa: E402 - only where torch is

PLAIN = Sampling(temperature=1.0, top_p=1.0)
LOGITS = [math.log(share) for share in (0.5, 0.3, 0.15, 0.05)]


def drawn(sampling: Sampling, count: int = 400, prompt: tuple[int, ...] = (), written: tuple[int, ...] = ()) -> Counter[int]:
    generator = torch.Generator().manual_seed(0)
    return Counter(chosen_token(torch.tensor(LOGITS), sampling, prompt, written, generator) for _ in range(count))


def test_shares_are_those_of_the_model() -> None:
    counts = drawn(PLAIN, 4000)
    for token, share in enumerate((0.5, 0.3, 0.15, 0.05)):
        assert counts[token] / 4000 == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 4000))


def test_temperature_sharpens_and_zero_is_greedy() -> None:
    assert drawn(replace(PLAIN, temperature=0.0)) == {0: 400}
    # At 0.5 shares are squared: .25, .09, .0225, .0025 of .365 in all.
    assert drawn(replace(PLAIN, temperature=0.5), 4000)[0] / 4000 == pytest.approx(0.25 / 0.365, abs=0.03)


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 9}, {0, 1, 2, 3}),
        ({"top_p": 0.5}, {0}),
        ({"top_p": 0.6}, {0, 1}),
        ({"top_p": 0.81}, {0, 1, 2}),
        ({"min_p": 0.5}, {0, 1}),
        ({"min_p": 0.2}, {0, 1, 2}),
        ({"top_k": 3, "top_p": 0.9}, {0, 1, 2}),
    ],
)
def test_cuts(cut: dict[str, Any], kept: set[int]) -> None:
    assert set(drawn(replace(PLAIN, **cut))) == kept


def test_penalties() -> None:
    greedy = replace(PLAIN, temperature=0.0)
    # ln .5 = -0.69 doubled is -1.39, below ln .3 = -1.20.
    assert drawn(replace(greedy, repetition_penalty=2.0), 1, prompt=(0,)) == {1: 1}
    assert drawn(replace(greedy, presence_penalty=1.0), 1, prompt=(0,)) == {0: 1}, "only the reply counts"
    assert drawn(replace(greedy, presence_penalty=1.0), 1, written=(0, 0)) == {1: 1}
    # 0.2 once leaves -0.89; three times -1.29, below -1.20.
    assert drawn(replace(greedy, frequency_penalty=0.2), 1, written=(0,)) == {0: 1}
    assert drawn(replace(greedy, frequency_penalty=0.2), 1, written=(0, 0, 0)) == {1: 1}
