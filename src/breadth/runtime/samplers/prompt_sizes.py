"""How many tokens a prompt is likely to have, learned from what servers counted: a draw that is aborted never hears its own count."""

from __future__ import annotations

from breadth.inference.records import text_of
from breadth.runtime.sampler import Draw

FIRST_CHARACTERS = 4.0
"""Characters of a token before anything was learned: the rule of thumb for English."""
TURN = 16
"""Characters that the chat template adds for each message, roughly."""
MOST = 1024
"""Prompts whose count is remembered exactly."""


class PromptSizes:
    """Counts by prompt; for a prompt not seen before, by its characters."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._characters = 0.0
        self._tokens = 0.0

    def estimate(self, draw: Draw) -> int:
        """Return the tokens of a draw's prompt and prefix: as counted before for the very same, else estimated from its length."""
        known = self._known.get(_identity(draw))
        if known is not None:
            return known
        each = self._characters / self._tokens if self._tokens else FIRST_CHARACTERS
        return max(1, round(characters(draw) / max(each, 0.25)))

    def learn(self, draw: Draw, tokens: int) -> None:
        """Take in what a server counted."""
        if tokens < 1:
            return
        if len(self._known) >= MOST:
            self._known.pop(next(iter(self._known)))
        self._known[_identity(draw)] = tokens
        self._characters += characters(draw)
        self._tokens += tokens


def characters(draw: Draw) -> int:
    """Return the characters of a draw's prompt and prefix, the chat template's share included."""
    if isinstance(draw.prompt, str):
        return len(draw.prompt) + len(draw.prefix)
    return len(draw.prefix) + sum(len(text_of(message.get("content"))) + TURN for message in draw.prompt)


def _identity(draw: Draw) -> int:
    if isinstance(draw.prompt, str):
        return hash((draw.prompt, draw.prefix, draw.model))
    return hash((draw.prefix, draw.model, *(text_of(message.get("content")) for message in draw.prompt)))
