"""Everything that is known of one run when the doctor looks at it: its metrics, rollouts and settings, each read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from breadth.base.errors import BreadthError, CatalogueError
from breadth.doctor.dialects import Dialect
from breadth.doctor.finding import CannotTell
from breadth.doctor.knobs import Knobs
from breadth.doctor.windows import Window, clip_to_range, windows
from breadth.measure.trends import Trend, factor_trend, trend
from breadth.runs.importer import IMPORTERS
from breadth.runs.reader import Run, Series

if TYPE_CHECKING:
    from breadth.inference.policy import Policy
    from breadth.tuning.tuned import Tuned

FEWEST = 8
"""Points below which no direction is read from a series (`breadth.measure.trends`)."""
BY_FACTORS = ("entropy",)
"""Metrics that are judged by their logarithm: they fall and rise by factors."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """One run, or a configuration alone."""

    name: str
    """What people call it."""
    run: Run | None = None
    """Its metrics and rollouts; None where there is a configuration only."""
    knobs: Knobs = field(default_factory=Knobs)
    """Its settings."""
    dialect: Dialect | None = None
    """Who words changes to them; None where the trainer is not known."""
    data: tuple[str, ...] = ()
    """Texts of a sample of the training data: worked solutions where it has them, else what it asks."""
    server: Mapping[str, Any] | None = None
    """What probing a server found, as `breadth probe --save` writes it."""
    policy: Policy | None = None
    """The inference policy in use."""
    _trends: dict[tuple[str, str], Trend | None] = field(default_factory=dict, repr=False)

    def series(self, name: str, split: str = "train") -> Series | None:
        """Return a metric's finite values by step; None where it was not logged."""
        if self.run is None or name not in self.run.metric_names(split):
            return None
        found = self.run.series(name, split).finite
        return found if len(found) else None

    def trend(self, name: str, split: str = "train") -> Trend | None:
        """Return where a metric started, where it is and its direction; None where it was not logged, or at fewer than eight steps."""
        if (name, split) not in self._trends:
            found = self.series(name, split)
            self._trends[name, split] = None if found is None or len(found) < FEWEST else _trend(name, found)
        return self._trends[name, split]

    def logged(self, name: str) -> str:
        """Return the trainer's own name of a metric."""
        return name if self.run is None else self.run.header.names.get(name, name)

    def steps(self, name: str) -> str:
        """Say which steps a metric covers."""
        found = self.series(name)
        return "" if found is None else f"{self.logged(name)}, steps {found.steps[0]:,} to {found.steps[-1]:,}"

    @cached_property
    def tuned(self) -> Tuned | None:
        """What a sweep of `breadth tune` came to; None where the run is none, or too little of it is there."""
        if self.run is None or "plan" not in self.run.header.config:
            return None
        from breadth.tuning.tuned import tuned

        try:
            return tuned(self.run)
        except BreadthError:
            return None

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The start and the end of its rollouts; empty where there are none."""
        return () if self.run is None else windows(self.run)

    def late(self, name: str) -> Trend | None:
        """Return the trend of a metric over the second half of the run; None where that has fewer than eight points."""
        found = self.series(name)
        half = 0 if found is None else len(found) // 2
        return (
            None
            if found is None or half < FEWEST
            else _trend(name, Series(name, found.steps[half:], found.values[half:]))
        )

    def switch(self, name: str) -> str:
        """Return what the run's own trainer must be told to log something; empty where that is not known."""
        if self.run is None:
            return ""
        try:
            return str(IMPORTERS.load(self.run.header.trainer).switches.get(name, ""))
        except CatalogueError:
            return ""

    def lacks(self, finding: str, metric: str) -> CannotTell:
        """Return that a finding cannot be judged for want of a metric, or of enough of it."""
        found = self.series(metric)
        if found is None and self.run is not None and (rows := len(self.run.series(metric))):
            return CannotTell(
                finding,
                f"{self.logged(metric)} is logged at {rows} steps, and at none as a number",
                "find out why it is NaN",
            )
        if found is None:
            return CannotTell(finding, f"{metric.replace('_', ' ')} is not logged", self.switch(metric))
        return CannotTell(
            finding,
            f"{self.logged(metric)} has {len(found)} usable points; {FEWEST} are needed",
            "log more often, or train on",
        )

    def crossed(self, name: str, level: float, *, below: bool) -> int | None:
        """Return the first step from which on the running median of five stays past a level to the end; None where it does not."""
        found = self.series(name)
        if found is None or len(found) < FEWEST:
            return None
        padded = np.pad(found.values, 2, mode="edge")
        middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)
        past = middle < level if below else middle > level
        inside = np.flatnonzero(~past)
        if not past[-1]:
            return None
        return int(found.steps[0 if not len(inside) else inside[-1] + 1])


def _trend(name: str, found: Series) -> Trend:
    judged = (factor_trend if name in BY_FACTORS else trend)(found.steps, found.values)
    return replace(judged, start=clip_to_range(name, judged.start), end=clip_to_range(name, judged.end))
