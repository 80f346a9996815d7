"""What breadth's lab found for each remedy: the change of pass@1 and pass@64 against plain GRPO on held-out problems.

Over five training seeds, each paired with the plain run of the same seed and the same number of updates per
generation; intervals are Student's t over seeds, 95 %, not corrected for the number of remedies. The table is written
by ``python tools/write_lab_effects.py`` from the data of `docs/results/lab.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from breadth.measure.intervals import Interval


class LabRank(IntEnum):
    """Order of remedies by what the lab found."""

    KEEPS_BREADTH = 0
    """pass@64 is significantly higher, pass@1 not significantly lower."""
    NOT_MEASURED = 1
    """The lab has not tried it."""
    NOTHING_SHOWN = 2
    """Neither is significantly different."""
    COSTS_SCORE = 3
    """One of them is significantly lower."""


@dataclass(frozen=True)
class LabEffect:
    """What one remedy gave in the lab."""

    setting: str
    """The value it was tried with."""
    pass_at_1: Interval
    """Change of pass@1."""
    pass_at_64: Interval
    """Change of pass@64."""

    @property
    def rank(self) -> LabRank:
        """Its place among remedies."""
        if self.pass_at_1.high < 0 or self.pass_at_64.high < 0:
            return LabRank.COSTS_SCORE
        return LabRank.KEEPS_BREADTH if self.pass_at_64.low > 0 else LabRank.NOTHING_SHOWN

    def describe(self) -> str:
        """Say in one sentence what the lab found."""
        wide, first = (
            f"{found.value:+.3f} ({found.low:.3f} to {found.high:.3f})" for found in (self.pass_at_64, self.pass_at_1)
        )
        return f"In breadth's lab: pass@64 {wide}, pass@1 {first} against plain GRPO, {self.setting}."


def describe_lab_effect(name: str) -> str:
    """Say what the lab found for a remedy by its name in `LAB_EFFECTS`; empty where it was not measured."""
    return LAB_EFFECTS[name].describe() if name in LAB_EFFECTS else ""


def _change(value: float, low: float, high: float) -> Interval:
    return Interval(value, low, high, method="t over 5 seeds")


LAB_EFFECTS: Mapping[str, LabEffect] = MappingProxyType(
    {
        "clip-higher": LabEffect(
            "at an upper clip of 0.28",
            _change(-0.0121, -0.0445, 0.0204),
            _change(-0.019, -0.0651, 0.0271),
        ),
        "gppo": LabEffect(
            "at an upper clip of 0.28",
            _change(-0.0063, -0.0371, 0.0246),
            _change(0.038, -0.0377, 0.1137),
        ),
        "kl-cov": LabEffect(
            "on 0.2% of the tokens",
            _change(-0.0035, -0.0297, 0.0226),
            _change(0.023, -0.0024, 0.0484),
        ),
        "clip-cov": LabEffect(
            "on 0.2% of the tokens",
            _change(-0.0017, -0.0385, 0.0351),
            _change(0.051, -0.003, 0.105),
        ),
        "entropy-bonus": LabEffect(
            "at a coefficient of 0.01",
            _change(-0.0092, -0.0317, 0.0134),
            _change(0.047, 0.0036, 0.0904),
        ),
        "entropy-target": LabEffect(
            "at 70% of the start",
            _change(-0.0375, -0.0719, -0.003),
            _change(0.084, 0.008, 0.16),
        ),
        "forking": LabEffect(
            "on 20% of the tokens",
            _change(-0.099, -0.1313, -0.0666),
            _change(-0.018, -0.2212, 0.1852),
        ),
        "ucb": LabEffect(
            "at a coefficient of 0.1",
            _change(-0.0067, -0.0322, 0.0188),
            _change(0.032, -0.0204, 0.0844),
        ),
        "batch-penalty": LabEffect(
            "at a coefficient of 0.1",
            _change(-0.0113, -0.0337, 0.0111),
            _change(0.014, -0.0389, 0.0669),
        ),
        "anchor": LabEffect(
            "at a coefficient of 0.15",
            _change(0.044, 0.0292, 0.0588),
            _change(0.1705, 0.1339, 0.2071),
        ),
        "thermostat": LabEffect(
            "with a floor of 70% of the start",
            _change(-0.0096, -0.0311, 0.0118),
            _change(0.028, -0.018, 0.074),
        ),
    }
)
"""Remedy -> what the lab found."""
