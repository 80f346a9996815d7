"""Which learning rate and how many steps suit plain GRPO best: chosen on the problems trained on, before anything is compared with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from breadth.base import settings
from breadth.lab.experiment import Bench, Done, Trial
from breadth.lab.seeds import over_seeds, smoothed
from breadth.measure.intervals import Interval
from breadth.report.cells import Cell
from breadth.report.page import Page
from breadth.report.sections import Axis, Column, Curve, Fact, Section, Series, Severity, Table, Verdict

WINDOW = 10
"""Generations that a score is the mean of: one generation alone asks only a few problems."""
WORK = "breadth.lab.experiments.learning_rates:train_only"


@dataclass(frozen=True)
class LearningRates:
    """The experiment and its sizes. A rule against fooling ourselves: the plain arm that remedies have to beat is the best plain arm."""

    name: str = "learning-rates"
    """What to type."""
    statement: str = "Plain GRPO at three learning rates: which rate and how many steps give it its own best train pass@1."
    """What it tests."""
    seeds: int = 3
    """Repetitions of every rate."""
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    """Learning rates: the default of a course, and about three times less and more."""
    steps: int = 120
    """Optimizer steps: half as many again as a course has."""
    every: int = 20
    """Steps between the rows of the table, which are what is chosen from."""
    course: Mapping[str, Any] = field(default_factory=dict)
    """What the courses have in place of the defaults of `Course`."""

    def trials(self, bench: Bench) -> tuple[Trial, ...]:
        """List every rate at every seed."""
        from breadth.lab.course import Course
        from breadth.lab.experiments.arms import ARMS, ON_POLICY

        return tuple(
            Trial(
                f"rate-{rate:g}/seed-{seed}",
                WORK,
                {
                    "weights": bench.weights,
                    "course": settings.to_table(Course(ARMS[ON_POLICY].chain, steps=self.steps, rate=rate, seed=seed, **self.course)),
                },
                self.steps,
            )
            for seed in range(bench.seeds)
            for rate in self.rates
        )

    def page(self, done: Sequence[Done], bench: Bench) -> Page:
        """Say which rate and number of steps is best, and show all."""
        curves = {rate: [one.result["train"] for one in done if one.trial.name.startswith(f"rate-{rate:g}/")] for rate in self.rates}
        curves = {rate: found for rate, found in curves.items() if found}
        grid = {(rate, step): self._score(found, step) for rate, found in curves.items() for step in self._steps()}
        sections: list[Section] = [self._verdict(grid), self._table(curves, grid), self._curve(curves)] if curves else [_nothing()]
        facts = [Fact("base", bench.weights), Fact("seeds", max(map(len, curves.values()), default=0))]
        return Page("Learning rates of plain GRPO", sections, self.statement, facts)

    def _steps(self) -> list[int]:
        return [*range(self.every, self.steps, self.every), self.steps]

    def _score(self, curves: Sequence[Mapping[str, Any]], step: int) -> Interval:
        """Return train pass@1 up to a step, the mean of the last generations, over seeds."""
        scores = []
        for curve in curves:
            seen = max(1, sum(one <= step for one in curve["steps"]))
            scores.append(float(smoothed(curve["passed"], WINDOW)[seen - 1]))
        return over_seeds(scores, bounds=(0.0, 1.0))

    def _verdict(self, grid: Mapping[tuple[float, int], Interval]) -> Verdict:
        rate, step = max(grid, key=lambda place: grid[place].value)
        edges = [
            *(["the smallest or largest rate tried"] if rate in (min(self.rates), max(self.rates)) else []),
            *(["the last step"] if step == self.steps else []),
        ]
        body = f"The best is at {' and at '.join(edges)}: it may lie beyond." if edges else "The best lies inside what was tried."
        headline = f"Plain GRPO scores best on its own training problems at a rate of {rate:g} after {step} steps."
        return Verdict(Severity.NOTE, headline, body, [Fact("train pass@1", grid[rate, step])])

    def _table(self, curves: Mapping[float, Any], grid: Mapping[tuple[float, int], Interval]) -> Table:
        rows: list[list[Cell]] = [[str(step), *(grid[rate, step] for rate in curves)] for step in self._steps()]
        columns = [Column("steps"), *(Column(f"rate {rate:g}") for rate in curves)]
        note = f"Mean of the last {WINDOW} generations; intervals over seeds. The best of many is a little lucky."
        return Table("Train pass@1", columns, rows, note)

    def _curve(self, curves: Mapping[float, Sequence[Mapping[str, Any]]]) -> Curve:
        lines = []
        for rate, found in curves.items():
            length = min(len(one["steps"]) for one in found)
            means = np.mean([smoothed(one["passed"][:length], WINDOW) for one in found], axis=0)
            lines.append(Series(f"rate {rate:g}", found[0]["steps"][:length], means))
        return Curve("Train pass@1 while training", lines, Axis("optimizer step"), Axis("pass@1"), note="Means over seeds.")


def train_only(asked: Mapping[str, Any], folder: Any, base: Any, told: Any) -> dict[str, Any]:
    """Run a course and return how it went on the problems it trained on; nothing held out is looked at."""
    from breadth.lab.course import Course
    from breadth.lab.staging import train_in_stages
    from breadth.lab.train_curve import train_curve
    from breadth.lab.training import RUN

    train_in_stages(settings.from_table(Course, asked["course"]), folder, base, (), lambda step, _: told(step))
    return {"train": train_curve(folder / RUN).to_row()}


def _nothing() -> Verdict:
    return Verdict(Severity.CANNOT_TELL, "No course has ended yet.", "Run the experiment again: it goes on where it stopped.")


LEARNING_RATES = LearningRates()
"""As it is run."""
