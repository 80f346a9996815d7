"""What is chosen before anything is compared, on train problems alone: plain GRPO's rate and steps, and the price of the anchor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from breadth.base import settings
from breadth.lab.measuring.seeds import over_seeds, smoothed
from breadth.lab.trials.experiment import Bench, Done, Trial
from breadth.measure.intervals import Interval
from breadth.report.cells import Cell
from breadth.report.page import Page
from breadth.report.sections import Axis, Column, Curve, Fact, Section, Series, Severity, Table, Verdict
from breadth.training.chain import Chain

WINDOW = 10
"""Generations that a score is the mean of: one generation alone asks only a few problems."""
KEPT_UP = 0.95
"""Share of plain's train pass@1 that a price must keep: a protection that costs more than a twentieth of what is learned is a handicap."""
WORK = "breadth.lab.experiments.choices:train_only"
Curves = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Choices:
    """The experiment and its sizes.

    Rules against fooling ourselves: remedies have to beat the best plain arm, and no choice is made on problems held out.
    """

    name: str = "choices"
    """What to type."""
    statement: str = "Chosen on train problems alone: the rate and steps at which plain GRPO does best, and the price of the anchor."
    """What it tests."""
    seeds: int = 3
    """Repetitions of every candidate."""
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    """Learning rates of plain GRPO: the default of a course, and about three times less and more."""
    prices: tuple[float, ...] = (0.05, 0.15, 0.4)
    """Prices of a nat away from the base, all at the middle rate."""
    steps: int = 120
    """Optimizer steps."""
    every: int = 20
    """Steps between the rows of the table, which are what is chosen from."""
    course: Mapping[str, Any] = field(default_factory=dict)
    """What the courses have in place of the defaults of `Course`."""

    def trials(self, bench: Bench) -> tuple[Trial, ...]:
        """List every candidate at every seed, seed by seed."""
        return tuple(self._trial(name, rate, price, seed, bench) for seed in range(bench.seeds) for name, rate, price in self._candidates())

    def page(self, done: Sequence[Done], bench: Bench) -> Page:
        """Say what is best by the rules, and show all."""
        found: dict[str, list[Mapping[str, Any]]] = {name: [] for name, _, _ in self._candidates()}
        for one in done:
            found[one.trial.name.partition("/")[0]].append(one.result["train"])
        curves: Curves = {name: runs for name, runs in found.items() if runs}
        sections: list[Section] = [*self._verdicts(curves), self._table(curves), self._curve(curves)] if curves else [_nothing()]
        facts = [Fact("base", bench.weights), Fact("seeds", max(map(len, curves.values()), default=0))]
        return Page("Choices made on train problems", sections, self.statement, facts)

    @property
    def _middle(self) -> float:
        return self.rates[len(self.rates) // 2]

    def _candidates(self) -> list[tuple[str, float, float]]:
        """List name, rate and price."""
        return [*((_rate(one), one, 0.0) for one in self.rates), *((_price(one), self._middle, one) for one in self.prices)]

    def _trial(self, name: str, rate: float, price: float, seed: int, bench: Bench) -> Trial:
        from breadth.lab.courses.course import Course

        course = Course(_chain(price), **{"steps": self.steps, "rate": rate, "seed": seed, **self.course})
        return Trial(f"{name}/seed-{seed}", WORK, {"weights": bench.weights, "course": settings.to_table(course)}, course.steps)

    def _steps(self) -> list[int]:
        return [*range(self.every, self.steps, self.every), self.steps]

    def _verdicts(self, curves: Curves) -> list[Verdict]:
        plain = {(rate, step): _score(curves[_rate(rate)], step) for rate in self.rates if _rate(rate) in curves for step in self._steps()}
        if not plain:
            return [_nothing()]
        rate, step = max(plain, key=lambda place: plain[place].value)
        priced = {price: _score(curves[_price(price)], step) for price in self.prices if _price(price) in curves}
        beside = plain.get((self._middle, step))
        chosen = [self._best(rate, step, plain[rate, step])]
        return chosen if beside is None or not priced else [*chosen, self._dearest(priced, beside, step, rate)]

    def _best(self, rate: float, step: int, score: Interval) -> Verdict:
        edges = [
            *(["the smallest or largest rate tried"] if rate in (min(self.rates), max(self.rates)) else []),
            *(["the last step"] if step == self.steps else []),
        ]
        body = f"The best is at {' and at '.join(edges)}: it may lie beyond." if edges else "The best lies inside what was tried."
        headline = f"Plain GRPO scores best on its own training problems at a rate of {rate:g} after {step} steps."
        return Verdict(Severity.NOTE, headline, body, [Fact("train pass@1", score)])

    def _dearest(self, priced: Mapping[float, Interval], plain: Interval, step: int, rate: float) -> Verdict:
        """Choose the largest price that keeps up with plain at the step that suits plain best."""
        fit = [price for price, score in priced.items() if score.value >= KEPT_UP * plain.value]
        rule = f"The rule: the largest price that keeps {KEPT_UP:.0%} of plain's train pass@1, at the same rate, after {step} steps."
        if rate != self._middle:
            rule += f" Prices were tried at a rate of {self._middle:g}; plain does best at {rate:g}, so try them there before using one."
        facts = [Fact("plain", plain), *(Fact(f"price {price:g}", score) for price, score in priced.items())]
        headline = f"The price of the anchor is {max(fit):g}." if fit else "No price of the anchor keeps up with plain GRPO."
        return Verdict(Severity.NOTE, headline, rule, facts)

    def _table(self, curves: Curves) -> Table:
        rows: list[list[Cell]] = [[str(step), *(_score(runs, step) for runs in curves.values())] for step in self._steps()]
        columns = [Column("steps"), *(Column(_words(name)) for name in curves)]
        note = (
            f"Mean of the last {WINDOW} generations; intervals over seeds. The best of many is a little lucky. Prices are at a rate of "
            f"{self._middle:g}."
        )
        return Table("Train pass@1", columns, rows, note)

    def _curve(self, curves: Curves) -> Curve:
        lines = []
        for name, found in curves.items():
            length = min(len(one["steps"]) for one in found)
            means = np.mean([smoothed(one["passed"][:length], WINDOW) for one in found], axis=0)
            lines.append(Series(_words(name), found[0]["steps"][:length], means))
        return Curve("Train pass@1 while training", lines, Axis("optimizer step"), Axis("pass@1"), note="Means over seeds.")


def train_only(asked: Mapping[str, Any], folder: Any, base: Any, told: Any) -> dict[str, Any]:
    """Run a course and return how it went on the problems it trained on; nothing held out is looked at."""
    from breadth.lab.courses.course import Course
    from breadth.lab.courses.train_curve import train_curve
    from breadth.lab.courses.training import RUN, train

    train(settings.from_table(Course, asked["course"]), folder, base, lambda step, _: told(step))
    return {"train": train_curve(folder / RUN).to_row()}


def _score(curves: Sequence[Mapping[str, Any]], step: int) -> Interval:
    """Return train pass@1 up to a step, the mean of the last generations, over seeds."""
    scores = []
    for curve in curves:
        seen = max(1, sum(one <= step for one in curve["steps"]))
        scores.append(float(smoothed(curve["passed"], WINDOW)[seen - 1]))
    return over_seeds(scores, bounds=(0.0, 1.0))


def _chain(price: float) -> Chain:
    from breadth.lab.demo.plan import protected_by

    return protected_by(price)


def _rate(rate: float) -> str:
    return f"rate-{rate:g}"


def _price(price: float) -> str:
    return f"price-{price:g}"


def _words(name: str) -> str:
    return name.replace("-", " ", 1)


def _nothing() -> Verdict:
    return Verdict(Severity.CANNOT_TELL, "No course has ended yet.", "Run the experiment again: it goes on where it stopped.")


CHOICES = Choices()
"""As it is run."""
