"""What the fork thermostat remembers between steps, its audit trail included."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

LONGEST = 256
"""Entries the audit trail keeps; the oldest go first."""


@dataclass(frozen=True)
class Action:
    """One entry of the thermostat's audit trail."""

    step: int
    """Optimizer step after which it was taken."""
    what: str
    """What it did."""
    why: str
    """The numbers that made it do so."""


@dataclass(frozen=True)
class Thermostat:
    """What the fork thermostat remembers between steps."""

    steps: int = 0
    """Optimizer steps seen."""
    start: float = 0.0
    """Mean entropy of the forking tokens over the settling steps so far, in nats; the band's reference once they are over."""
    entropy: float = 0.0
    """Mean entropy of the forking tokens in the last step, in nats."""
    threshold: float | None = None
    """Entropy above which the share of forking tokens lay in the last step, in nats; None before the first."""
    push: float = 0.0
    """Integral part of the coefficient."""
    coefficient: float = 0.0
    """Price of one nat of entropy on a forking token: above 0 it is paid for, below 0 it is charged."""
    mood: str = "settling"
    """Settling, inside, raising or lowering."""
    trail: tuple[Action, ...] = ()
    """The last changes of mood, oldest first."""

    def entered(self, mood: str, what: str, why: str) -> Self:
        """Return the state in another mood, with what was done and why in the trail."""
        return replace(self, mood=mood, trail=(*self.trail, Action(self.steps, what, why))[-LONGEST:])
