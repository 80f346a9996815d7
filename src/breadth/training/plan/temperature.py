"""A temperature schedule: sample hotter or cooler as training goes on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from breadth.base.checks import require
from breadth.base.stats import Mean
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Selection
from breadth.training.records import Plan


@dataclass(frozen=True)
class Temperature(Mechanism[Plan, None]):
    """Move the sampling temperature from one value to another over a number of generations, then hold it.

    ``T = start + (end - start) * x`` with ``x = generation / over``, at most 1; ``shape="cosine"`` takes
    ``(1 - cos(pi x)) / 2`` for x, slow at both ends. There is no default schedule, for we vetted none: the runs behind
    the other mechanisms here hold one temperature.

    Harm: log-probabilities and entropies must be taken at the temperature that sampled, or every ratio is one between
    two different policies; TRL and verl divide by the one they were built with. Entropies at different temperatures
    cannot be compared, so a controller of entropy beside a schedule chases it. Hotter samples are more diverse and more
    often wrong.
    """

    start: float
    """Temperature of the first generation."""
    end: float
    """Temperature from generation ``over`` on."""
    over: int
    """Generations the way takes."""
    shape: Literal["linear", "cosine"] = "linear"
    """How it goes there."""

    def __post_init__(self) -> None:
        for field in ("start", "end"):
            require(self, field, 0 < getattr(self, field) < math.inf, "a finite number above 0")
        require(self, "over", self.over >= 1, "1 or more")
        require(self, "shape", self.shape in ("linear", "cosine"), "'linear' or 'cosine'")

    def apply(self, batch: Plan, state: None, selection: Selection | None) -> Effect[Plan]:
        """Set the temperature of this generation."""
        way = min(max(batch.step, 0) / self.over, 1.0)
        if self.shape == "cosine":
            way = (1 - math.cos(math.pi * way)) / 2
        temperature = self.end if way == 1 else self.start + (self.end - self.start) * way
        return Effect(replace(batch, temperature=temperature), stats={"temperature": Mean(temperature, 1)})

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Say so when the way leads from the trainer's temperature to itself."""
        if self.start == self.end == regime.temperature:
            return NoEffect(
                "temperature",
                f"it starts and ends at the trainer's own temperature, {self.start:g}.",
                "Set another end, or leave it out.",
            )
        return None
