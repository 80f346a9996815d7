"""What the teacher knows of sums and products modulo a prime: most facts firmly, some only shakily."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from breadth.base.checks import require
from breadth.measure.validate import BoolArray, FloatArray, IntArray

SIGNS = ("+", "*")
"""The two tables, by the sign of their operation."""
RIVALS = (0.5, 0.3, 0.2)
"""How a shaky fact's belief is shared among the false values it is mistaken for."""


@dataclass(frozen=True)
class Facts:
    """Two tables of facts.

    A firm fact is always recalled right; a shaky one seldom, mostly as one of three false values of its own.

    ``3 + 5`` and ``5 + 3`` are two facts: one may be firm and the other shaky, so the order in which operands are taken
    matters as the route does. The chance of recalling v for a shaky fact is ``right`` if v is the truth, ``believed``
    times (0.5, 0.3, 0.2) if v is one of the three rivals, plus what is left spread evenly over all values.
    """

    prime: int = 29
    """Numbers are 0 to one below this; sums and products are taken modulo it."""
    shaky: float = 0.45
    """Share of facts that are shaky."""
    right: float = 0.03
    """Chance that a shaky fact is recalled right, beyond the even spread."""
    believed: float = 0.85
    """Chance that a shaky fact is recalled as one of its three rivals."""
    seed: int = 0
    """Decides which facts are shaky and what they are mistaken for."""

    def __post_init__(self) -> None:
        require(
            self,
            "prime",
            self.prime >= 5 and all(self.prime % divisor for divisor in range(2, self.prime)),
            "a prime from 5 up",
        )
        require(self, "shaky", 0 <= self.shaky <= 1, "a share from 0 to 1")
        require(self, "right", 0 <= self.right <= 1, "a chance from 0 to 1")
        require(self, "believed", 0 <= self.believed <= 1 - self.right + 1e-12, "a chance, with 'right' at most 1")
        require(self, "seed", self.seed >= 0, "0 or more")

    @cached_property
    def truth(self) -> IntArray:
        """The right values: by table (in the order of `SIGNS`), first and second operand."""
        numbers = np.arange(self.prime)
        return np.stack([np.add.outer(numbers, numbers), np.multiply.outer(numbers, numbers)]) % self.prime

    @cached_property
    def firm(self) -> BoolArray:
        """Which facts are firm, by table and operands."""
        return np.random.default_rng((self.seed, 11)).random(self.truth.shape) >= self.shaky

    @cached_property
    def chances(self) -> FloatArray:
        """The chance of each value being recalled, by table, operands and value."""
        rng = np.random.default_rng((self.seed, 12))
        table = np.zeros((*self.truth.shape, self.prime))
        for place in np.ndindex(self.truth.shape):
            right = self.truth[place]
            false = rng.choice(self.prime - 1, len(RIVALS), replace=False)
            if not self.firm[place]:
                table[place] = max(0.0, 1 - self.right - self.believed) / self.prime
                table[(*place, false + (false >= right))] += self.believed * np.array(RIVALS)
            table[(*place, right)] += 1.0 if self.firm[place] else self.right
        return table

    @cached_property
    def _cumulative(self) -> FloatArray:
        return np.cumsum(self.chances, -1)

    def value(self, sign: str, first: int, second: int) -> int:
        """Return the right value of an operation."""
        return int(self.truth[SIGNS.index(sign), first, second])

    def is_firm(self, sign: str, first: int, second: int) -> bool:
        """Say whether this fact, in this order, is firm."""
        return bool(self.firm[SIGNS.index(sign), first, second])

    def recall(self, sign: str, first: int, second: int, rng: np.random.Generator) -> int:
        """Return what comes to the teacher's mind."""
        found = np.searchsorted(self._cumulative[SIGNS.index(sign), first, second], rng.random(), side="right")
        return min(int(found), self.prime - 1)
