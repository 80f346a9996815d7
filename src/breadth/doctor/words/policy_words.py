"""Changes worded for our own policy.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from breadth.doctor.dialects import WordsOnly
from breadth.doctor.finding import Change
from breadth.doctor.knobs import Knobs

PLACES: Mapping[str, tuple[str, str]] = {
    "thinking_budget": ("sampling", "thinking_tokens"),
    "max_tokens": ("sampling", "max_tokens"),
    "top_logprobs": ("sampling", "top_logprobs"),
    "temperature": ("sampling", "temperature"),
    "top_p": ("sampling", "top_p"),
}
"""Knob -> table and key; whether log-probs are raw is the server's business."""


@dataclass(frozen=True)
class PolicyWords(WordsOnly):
    """Words what the doctor prescribes for inference as tables of a policy."""

    trainer = "policy"
    """Name in the catalogue."""

    def patch(self, changes: Sequence[Change], knobs: Knobs) -> tuple[str, ...]:
        """Word changes as TOML, each table once: to be merged into the policy, or a policy of its own."""
        del knobs
        tables: dict[str, dict[str, str]] = {}
        for change in changes:
            for table, key, value in _settings(change):
                tables.setdefault(table, {})[key] = value
        return tuple(
            line
            for table, pairs in tables.items()
            for line in (f"[{table}]", *(f"{key} = {pairs[key]}" for key in pairs))
        )


def _settings(change: Change) -> list[tuple[str, str, str]]:
    """Return table, key and value of each setting that a change takes."""
    value = change.value
    if change.knob in PLACES:
        return [(*PLACES[change.knob], f"{value:g}" if isinstance(value, float) and value % 1 else str(int(value)))]
    if change.knob == "votes":
        return [("strategy", "kind", '"single"')] if value == 1 else _votes(int(value))
    if change.knob == "vote_confidence" and not value:
        return [("strategy", "kind", '"adaptive-vote"')]
    return [("halt", "kind", '"loop"')] if change.knob == "loop_guard" and value else []


def _votes(most: int) -> list[tuple[str, str, str]]:
    """Draw as many at most, and stop when the vote is decided."""
    return [("strategy", "kind", '"adaptive-vote"'), ("strategy", "most", str(most))]


SETTINGS = PolicyWords()
"""The dialect of the catalogue."""
