"""Selections are handed to each micro-batch as its slice, in its own order and width."""

from __future__ import annotations

import torch

from breadth.training.effect import Effect, Selection


def test_a_slice_follows_places_and_width() -> None:
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    whole = Selection({"picked": tokens, "score": torch.tensor([10, 20, 30])}, {"threshold": 0.5})
    part = whole.at(torch.tensor([2, 0]), 2)
    assert part.tokens["picked"].tolist() == [[7, 8], [1, 2]]
    assert part.tokens["score"].tolist() == [30, 10]
    assert part.numbers == {"threshold": 0.5}
    assert whole.tokens["picked"].tolist() == tokens.tolist()


def test_the_slices_of_a_cut_are_the_whole() -> None:
    tokens = torch.arange(24).view(6, 4)
    whole = Selection({"picked": tokens})
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    parts = [whole.at(places, 4).tokens["picked"] for places in order.chunk(3)]
    assert torch.equal(torch.cat(parts), tokens[order])


def test_an_effect_adds_nothing_by_itself() -> None:
    effect = Effect("record")
    assert (effect.after, effect.terms, effect.stats) == ("record", (), {})
