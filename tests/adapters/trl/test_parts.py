"""A pass in parts against a pass over all: the same numbers wherever a token counts, whatever stands in the padding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from breadth.adapters.trl.parts import by_length, check_parts
from breadth.base.errors import SettingsError

PROMPTS = torch.tensor([[9, 9, 3], [9, 4, 5], [9, 9, 6], [7, 8, 2]])
PROMPT_MASK = torch.tensor([[0, 0, 1], [0, 1, 1], [0, 0, 1], [1, 1, 1]])
REPLIES = torch.tensor([[1, 9, 9, 9], [2, 3, 4, 5], [6, 7, 9, 9], [9, 9, 9, 9]])
REPLY_MASK = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])
TOKENS, ATTENTION = torch.cat([PROMPTS, REPLIES], 1), torch.cat([PROMPT_MASK, REPLY_MASK], 1)


class Reader:
    """A stand-in for a model: the number of a token is ten times all before it that are attended to, and itself."""

    def __init__(self) -> None:
        self.widths: list[tuple[int, int]] = []

    def __call__(self, tokens: Tensor, attention: Tensor, scored: int) -> tuple[Tensor, Tensor, None]:
        self.widths.append(tuple(tokens.shape))
        seen = tokens * attention
        found = (10 * (seen.cumsum(1) - seen) + tokens)[:, -scored:].double()
        return found, -found, None


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 9])
def test_parts_give_what_one_pass_gives(parts: int) -> None:
    whole, mask = Reader()(TOKENS, ATTENTION, 4), REPLY_MASK.bool()
    logprobs, entropies, auxiliary = by_length(Reader(), TOKENS, ATTENTION, 4, parts)
    assert torch.equal(logprobs[mask], whole[0][mask])
    assert entropies is not None
    assert torch.equal(entropies[mask], whole[1][mask])
    assert auxiliary is None
    # by hand: the second reply is 2 3 4 5 after 4 5, so 10 * 9 + 2, 10 * 11 + 3, 10 * 14 + 4, 10 * 18 + 5
    assert logprobs[1].tolist() == [92, 113, 144, 185]


def test_each_part_is_as_wide_as_its_longest() -> None:
    reader = Reader()
    by_length(reader, TOKENS, ATTENTION, 4, 2)
    # the empty reply and that of one token, whose prompts need three places; then those of two and four, whose prompts need two
    assert reader.widths == [(2, 3 + 1), (2, 2 + 4)]


def test_gradients_come_back_to_their_rows() -> None:
    scale = torch.ones(4, requires_grad=True, dtype=torch.float64)

    def forward(tokens: Tensor, attention: Tensor, scored: int) -> tuple[Tensor, None, None]:
        rows = torch.tensor([PROMPTS[:, -1].tolist().index(int(one)) for one in tokens[:, -scored - 1]])
        return scale[rows, None] * tokens[:, -scored:], None, None

    logprobs, entropies, _ = by_length(forward, TOKENS, ATTENTION, 4, 2)
    (logprobs * REPLY_MASK).sum().backward()
    assert entropies is None
    assert scale.grad is not None
    assert scale.grad.tolist() == [1, 2 + 3 + 4 + 5, 6 + 7, 0]


@pytest.mark.parametrize(("parts", "processes"), [(0, 1), (-3, 1), (2, 2)])
def test_what_cannot_be_used_is_refused(parts: int, processes: int) -> None:
    with pytest.raises(SettingsError, match="parts"):
        check_parts(parts, processes)
