"""A schedule of the sampling temperature."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Selection
from breadth.training.records import Plan


@dataclass(frozen=True)
class Temperature(Mechanism[Plan, None]):
    """Move the sampling temperature from one value to another over a number of generations, then hold it.

    ``T = start + (end - start) * x`` with ``x = generation / over``, at most 1; ``shape="cosine"`` takes
    ``(1 - cos(pi x)) / 2`` for x, slow at both ends. There is no default schedule, because we tested none: the runs
    behind the other mechanisms use one temperature.

    Harm: log-probabilities and entropies must be computed at the sampling temperature, or every ratio compares two
    different policies; TRL and verl use the temperature they were constructed with. Entropies at different temperatures
    cannot be compared, so an entropy controller would follow the schedule. Samples at a higher temperature are more
    diverse and more often wrong.
    """

    neutral: ClassVar[Mapping[str, Any]] = {"start": 1.0, "end": 1.0}
    example: ClassVar[Mapping[str, Any]] = {"start": 1.0, "end": 1.2, "over": 100}

    start: float
    """Temperature of the first generation."""
    end: float
    """Temperature from generation ``over`` on."""
    over: int
    """Generations of the schedule."""
    shape: Literal["linear", "cosine"] = "linear"
    """Shape of the schedule."""

    def __post_init__(self) -> None:
        for field in ("start", "end"):
            require(self, field, 0 < getattr(self, field) < math.inf, "a finite number above 0")
        require(self, "over", self.over >= 1, "1 or more")
        require(self, "shape", self.shape in ("linear", "cosine"), "'linear' or 'cosine'")

    def apply(self, batch: Plan, state: None, selection: Selection | None) -> Effect[Plan]:
        """Set the temperature of this generation."""
        progress = min(max(batch.step, 0) / self.over, 1.0)
        if self.shape == "cosine":
            progress = (1 - math.cos(math.pi * progress)) / 2
        temperature = self.end if progress == 1 else self.start + (self.end - self.start) * progress
        return Effect(replace(batch, temperature=temperature), stats={"temperature": Mean(temperature, 1)})

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report a schedule that stays at the trainer's own temperature."""
        if self.start == self.end == regime.temperature:
            return NoEffect(
                "temperature",
                f"it starts and ends at the trainer's own temperature, {self.start:g}.",
                "Set another end, or leave it out.",
            )
        return None
