"""Changes worded for a model server: fields of a request and flags it is started with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from breadth.doctor.dialects import WordsOnly
from breadth.doctor.finding import Change
from breadth.doctor.knobs import Knobs

Fields = Callable[[Any], Mapping[str, Any]]
"""Value of a change -> fields of the request."""
Flags = Callable[[Any], Sequence[str]]
"""Value of a change -> what the server is started with."""

COMMON = frozenset({"temperature", "top_p", "max_tokens"})
"""Fields that every server has under these names."""


@dataclass(frozen=True)
class ServerWords(WordsOnly):
    """A server's dialect: it has no configuration file to read, and words what the doctor prescribes for inference.

    That is ``thinking_budget`` (tokens), ``votes``, ``max_tokens``, ``top_logprobs``, ``logprobs_raw`` and
    ``loop_guard``, as far as the server can do them, and what every server has.
    """

    trainer: str
    """Name of the server, as in the catalogue of server dialects."""
    fields: Mapping[str, Fields] = field(default_factory=dict)
    """Knob -> fields of the request."""
    flags: Mapping[str, Flags] = field(default_factory=dict)
    """Knob -> flags and variables of the server."""

    def patch(self, changes: Sequence[Change], knobs: Knobs) -> tuple[str, ...]:
        """Word changes as one ``request:`` line of JSON and one ``server:`` line of flags."""
        del knobs
        body: dict[str, Any] = {}
        words: list[str] = []
        for change in changes:
            if change.value is not False:
                body |= {change.knob: change.value} if change.knob in COMMON else {}
                body |= self.fields[change.knob](change.value) if change.knob in self.fields else {}
                words += self.flags[change.knob](change.value) if change.knob in self.flags else []
        request = [f"request: {json.dumps(body)}"] if body else []
        return (*request, *([f"server: {' '.join(dict.fromkeys(words))}"] if words else []))
