"""Tells the trainer which tokens of a reply plan: the lab knows it from the grammar, where others must guess."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breadth.lab.task.grammar import Role, roles_of


@dataclass(frozen=True)
class PlanningMarks:
    """Marks the planning tokens of Routes; what `BreadthGRPOTrainer` takes as its grams."""

    def marks(self, text: str, offsets: Sequence[tuple[int, int]]) -> list[bool]:
        """Say for each token, given the (start, end) of its characters in the text, whether it plans; a token is one word."""
        words = [text[start:end].strip() for start, end in offsets]
        return [role is Role.PLANNING for role in roles_of(words)]
