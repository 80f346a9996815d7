"""What is chosen before anything is compared, with nothing held out: plain GRPO's rate and steps, and the price of the anchor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from breadth.base import settings
from breadth.lab.demo.plan import FULL, protected_by
from breadth.lab.evaluation.checkpoints import VOTED, beside_table, over_beside
from breadth.lab.evaluation.seeds import over_seeds, smoothed
from breadth.lab.grpo import SEVERAL
from breadth.lab.trials.experiment import Bench, Done, Trial
from breadth.measure.intervals import Interval
from breadth.report.cells import Cell
from breadth.report.sections import Axis, Column, Curve, Fact, Page, Section, Series, Severity, Table, Verdict

WINDOW = 10
"""Generations that a score is the mean of: one generation alone asks only a few problems."""
BESIDE, REPLIES = 128, 32
"""Problems beside those trained on that prices are judged by, none of them held out, and replies to each."""
WORK = "breadth.lab.experiments.choices:train_only"
Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""Results by candidate, one a seed."""


@dataclass(frozen=True)
class Choices:
    """The experiment and its sizes.

    Rules against fooling ourselves: remedies have to beat the best plain arm, and no choice is made on problems held
    out.
    """

    name: str = "choices"
    """What to type."""
    statement: str = (
        "Chosen without a look at what is held out: the rate and steps at which plain GRPO does best, and the price of"
        " the anchor."
    )
    """What it tests."""
    seeds: int = 3
    """Repetitions of every candidate."""
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    """Learning rates of plain GRPO: the default of a course, and about three times less and more."""
    prices: tuple[float, ...] = (0.05, 0.15, 0.4)
    """Prices of a nat away from the base, all at the middle rate."""
    updates: int = 1
    """Optimizer steps a generation."""
    steps: int = 120
    """Optimizer steps."""
    every: int = 20
    """Steps between the rows of the table, which are what is chosen from."""
    course: Mapping[str, Any] = field(default_factory=dict)
    """What the courses have in place of the defaults of `Course`."""

    def trials(self, bench: Bench) -> tuple[Trial, ...]:
        """List every candidate at every seed, seed by seed."""
        return tuple(
            self._trial(name, rate, price, seed, bench)
            for seed in range(bench.seeds)
            for name, rate, price in self._candidates()
        )

    def page(self, done: Sequence[Done], bench: Bench) -> Page:
        """Say what is best by the rules, and show all."""
        found: dict[str, list[Mapping[str, Any]]] = {name: [] for name, _, _ in self._candidates()}
        for one in done:
            found[one.trial.arm].append(one.result)
        runs: Runs = {name: ended for name, ended in found.items() if ended}
        sections: list[Section] = (
            [*self._verdicts(runs), self._table(runs), _beside(runs), self._curve(runs)] if runs else [_nothing()]
        )
        facts = [Fact("base", bench.weights), Fact("seeds", max(map(len, runs.values()), default=0))]
        return Page(
            "Choices" if self.updates == 1 else f"Choices with {self.updates} updates a generation",
            sections,
            self.statement,
            facts,
        )

    @property
    def _middle(self) -> float:
        return self.rates[len(self.rates) // 2]

    def _candidates(self) -> list[tuple[str, float, float]]:
        """List name, rate and price."""
        return [
            *((_rate(one), one, 0.0) for one in self.rates),
            *((_price(one), self._middle, one) for one in self.prices),
        ]

    def _trial(self, name: str, rate: float, price: float, seed: int, bench: Bench) -> Trial:
        from breadth.lab.grpo import Course

        course = Course(
            protected_by(price),
            **{"steps": self.steps, "rate": rate, "updates": self.updates, "seed": seed, **self.course},
        )
        return Trial(
            f"{name}/seed-{seed}", WORK, {"weights": bench.weights, "course": settings.to_table(course)}, course.steps
        )

    def _steps(self) -> list[int]:
        return [*range(self.every, self.steps, self.every), self.steps]

    def _verdicts(self, runs: Runs) -> list[Verdict]:
        plain = {
            (rate, step): _score(runs[_rate(rate)], step)
            for rate in self.rates
            if _rate(rate) in runs
            for step in self._steps()
        }
        if not plain:
            return [_nothing()]
        rate, step = max(plain, key=lambda place: plain[place].value)
        priced = [price for price in self.prices if _price(price) in runs]
        chosen = [self._best(rate, step, plain[rate, step])]
        return [*chosen, self._price(runs, priced, rate)] if priced and _rate(self._middle) in runs else chosen

    def _best(self, rate: float, step: int, score: Interval) -> Verdict:
        edges = [
            *(["the smallest or largest rate tried"] if rate in (min(self.rates), max(self.rates)) else []),
            *(["the last step"] if step == self.steps else []),
        ]
        body = (
            f"The best is at {' and at '.join(edges)}: it may lie beyond."
            if edges
            else "The best lies inside what was tried."
        )
        regime = "" if self.updates == 1 else f" with {self.updates} updates a generation"
        headline = (
            f"Plain GRPO{regime} scores best on its own training problems at a rate of {rate:g} after {step} steps."
        )
        return Verdict(Severity.NOTE, headline, body, [Fact("train pass@1", score)])

    def _price(self, runs: Runs, priced: Sequence[float], rate: float) -> Verdict:
        """Choose the price from whose policy a vote makes most: score and breadth in one number."""
        found = {name: over_beside(runs[name], VOTED) for name in (_rate(self._middle), *map(_price, priced))}
        best = max(priced, key=lambda price: found[_price(price)].value)
        rule = (
            f"The rule: that whose vote for {FULL.thinking} tokens, as the corners have, is best on problems not"
            " trained on."
        )
        if found[_price(best)].value < found[_rate(self._middle)].value:
            rule += " None is better than plain."
        if rate != self._middle:
            rule += (
                f" Prices were tried at a rate of {self._middle:g}; plain does best at {rate:g}, so try them there"
                " before using one."
            )
        facts = [Fact(f"vote, {_words(name)}", voted) for name, voted in found.items()]
        return Verdict(Severity.NOTE, f"The price of the anchor is {best:g}.", rule, facts)

    def _table(self, runs: Runs) -> Table:
        rows: list[list[Cell]] = [
            [str(step), *(_score(ended, step) for ended in runs.values())] for step in self._steps()
        ]
        columns = [Column("steps"), *(Column(_words(name)) for name in runs)]
        priced = f" Prices are at a rate of {self._middle:g}." if self.prices else ""
        note = (
            f"Mean of the last {WINDOW} generations; intervals over seeds. The best of many is a little lucky.{priced}"
        )
        return Table("Train pass@1", columns, rows, note)

    def _curve(self, runs: Runs) -> Curve:
        lines = []
        for name, ended in runs.items():
            curves = [one["train"] for one in ended]
            length = min(len(one["steps"]) for one in curves)
            means = np.mean([smoothed(one["reward"][:length], WINDOW) for one in curves], axis=0)
            lines.append(Series(_words(name), curves[0]["steps"][:length], means.tolist()))
        return Curve(
            "Train pass@1 while training", lines, Axis("optimizer step"), Axis("pass@1"), note="Means over seeds."
        )


def train_only(asked: Mapping[str, Any], folder: Any, base: Any, told: Any) -> dict[str, Any]:
    """Run a course and return how it went on the problems it trained on, and what it is worth on others that are not held out."""
    from breadth.lab.evaluation.checkpoints import judge_beside
    from breadth.lab.evaluation.training_log import read_training_log
    from breadth.lab.grpo import RUN, Course, train

    course = settings.from_table(Course, asked["course"])
    reasoner = train(course, folder, base, lambda step, _: told(step))
    return {
        "train": read_training_log(folder / RUN, grammar=True).to_row(),
        "beside": judge_beside(reasoner, course, BESIDE, REPLIES),
    }


def _score(runs: Sequence[Mapping[str, Any]], step: int) -> Interval:
    """Return train pass@1 up to a step, the mean of the last generations, over seeds."""
    scores = []
    for curve in (one["train"] for one in runs):
        seen = max(1, sum(one <= step for one in curve["steps"]))
        scores.append(float(smoothed(curve["reward"], WINDOW)[seen - 1]))
    return over_seeds(scores, bounds=(0.0, 1.0))


def _beside(runs: Runs) -> Table:
    note = (
        f"{BESIDE} problems that are neither trained on nor held out, {REPLIES} replies to each; intervals over seeds."
        " As many vote as fit into the tokens, by their mean length."
    )
    return beside_table("course", {_words(name): ended for name, ended in runs.items()}, REPLIES, note)


def _rate(rate: float) -> str:
    return f"rate-{rate:g}"


def _price(price: float) -> str:
    return f"price-{price:g}"


def _words(name: str) -> str:
    return name.replace("-", " ", 1)


def _nothing() -> Verdict:
    return Verdict(
        Severity.CANNOT_TELL, "No course has ended yet.", "Run the experiment again: it goes on where it stopped."
    )


CHOICES = Choices()
"""As it is run."""
SEVERAL_CHOICES = Choices(
    "choices-several",
    "The rate at which plain GRPO does best with several updates a generation, for the remedies that act only there.",
    rates=(1e-4, 3e-4, 1e-3),
    prices=(),
    updates=SEVERAL,
    steps=CHOICES.steps * SEVERAL,
    every=CHOICES.every * SEVERAL,
)
"""The same for as many rollouts, each used for several updates."""
