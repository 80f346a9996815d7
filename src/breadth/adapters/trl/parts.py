"""A forward pass in parts: sequences of like length together, each part padded to its own longest and not to the batch's."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from breadth.base.errors import SettingsError

Found = tuple[Tensor, Tensor | None, Tensor | None]
"""Log-probs and entropies of the completion tokens, and an auxiliary loss."""
Forward = Callable[[Tensor, Tensor, int], Found]
"""Given tokens, attention mask and how many of the last tokens are scored."""


def check_parts(parts: int, processes: int) -> int:
    """Return the number of parts if it can be used."""
    if parts < 1:
        raise SettingsError(f"BreadthGRPOTrainer got parts = {parts!r}.", "Set parts to 1 or more; 1 is one pass over all sequences.")
    if parts > 1 and processes > 1:
        raise SettingsError(
            f"BreadthGRPOTrainer got parts = {parts} with {processes} processes; several passes before one backward are tried on one only.",
            "Leave parts at 1.",
        )
    return parts


def by_length(forward: Forward, tokens: Tensor, attention: Tensor, scored: int, parts: int) -> Found:
    """Return what one pass over all rows would return, but for the padding: there it is 0.

    Prompts are padded on the left, completions on the right. Where lengths are spread, as those of reasoning are, half of a batch and more
    is padding, and four to eight parts spare most of it; where all are alike, parts only cost.
    """
    lengths = _ends(attention[:, -scored:])
    order = lengths.argsort(stable=True)
    found = [_part(forward, tokens[rows], attention[rows], scored, int(lengths[rows].max())) for rows in order.chunk(parts)]
    back = order.argsort()
    logprobs = torch.cat([one[0] for one in found])[back]
    entropies = [one[1] for one in found if one[1] is not None]
    return logprobs, torch.cat(entropies)[back] if entropies else None, None


def _part(forward: Forward, tokens: Tensor, attention: Tensor, scored: int, longest: int) -> Found:
    kept = max(1, longest)
    spare = scored - kept
    first = int(attention.argmax(1).min())
    begin = max(0, min(first, tokens.shape[1] - scored - 1))  # the token before the first that is scored says how likely that one is
    inside = slice(begin, tokens.shape[1] - spare)
    logprobs, entropies, _ = forward(tokens[:, inside], attention[:, inside], kept)
    return functional.pad(logprobs, (0, spare)), None if entropies is None else functional.pad(entropies, (0, spare)), None


def _ends(mask: Tensor) -> Tensor:
    """Return behind which place of a row nothing is attended to any more."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return torch.where(mask.bool(), places, torch.zeros_like(places)).max(1).values
