"""Tokens shared out to traces that run side by side, so that together they can never write more than there are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

SLACK = 2
"""Mean lengths that a trace may at least take while others share the tokens with it: few traces are twice as long as the mean."""


@dataclass
class TokenPurse:
    """What is left of a number of tokens, and the caps of the traces that are out."""

    total: int
    """Tokens there were."""
    spent: int = 0
    """Tokens written by traces that have ended."""
    ended: int = 0
    """Traces that have ended."""
    out: list[int] = field(default_factory=list)
    """Caps of the traces that are out."""

    @property
    def free(self) -> int:
        """Tokens neither written nor promised."""
        return self.total - self.spent - sum(self.out)

    @property
    def mean(self) -> int:
        """Mean length of the traces so far, rounded up; 1 before the first."""
        return max(1, math.ceil(self.spent / self.ended)) if self.ended else 1

    def offer(self, most: int, longest: int) -> tuple[int, int]:
        """Return how many traces to start, at most ``most``, and the cap of each, at most ``longest``; (0, 0) when none fits.

        One is started as soon as a trace of mean length fits, and gets all that is free; several only with room for twice the mean each.
        """
        if most < 1 or self.free < self.mean:
            return 0, 0
        count = max(1, min(most, self.free // (SLACK * self.mean)))
        return count, min(self.free // count, longest)

    def give(self, count: int, cap: int) -> None:
        """Promise a cap to each of some traces."""
        self.out += [cap] * count

    def settle(self, tokens: int) -> None:
        """Take in a trace that has ended.

        Which one it was is not known: the smallest cap it can have had is released, so that what is promised is never underrated.
        """
        able = [cap for cap in self.out if cap >= tokens] or self.out
        if able:
            self.out.remove(min(able))
        self.spent += tokens
        self.ended += 1
