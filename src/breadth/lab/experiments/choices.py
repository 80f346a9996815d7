"""Chooses, without touching held-out problems, plain GRPO's learning rate and steps, and the anchor's coefficient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from breadth.base import settings
from breadth.lab.demo.plan import FULL_DEMO, chain_with_anchor
from breadth.lab.evaluation.checkpoints import VALIDATION_VOTE, validation_interval, validation_table
from breadth.lab.evaluation.training_log import seed_interval, trailing_mean
from breadth.lab.grpo import OFF_POLICY_UPDATES
from breadth.lab.trials.experiment import ExperimentSetup, ExperimentTrial, FinishedTrial
from breadth.measure.intervals import Interval
from breadth.report.cells import Cell
from breadth.report.sections import Axis, Column, Curve, Fact, Page, Section, Series, Severity, Table, Verdict

SCORE_WINDOW = 10
"""Generations that a score is averaged over: one alone covers only a few problems."""
VALIDATION_PROBLEMS, VALIDATION_REPLIES = 128, 32
"""Validation problems that coefficients are chosen on, none of them held out, and replies to each."""
CHOICES_WORK = "breadth.lab.experiments.choices:train_and_validate"
CandidateResults = Mapping[str, Sequence[Mapping[str, Any]]]
"""Results by candidate, one per seed."""


@dataclass(frozen=True)
class Choices:
    """The experiment and its sizes.

    Rules against fooling ourselves: remedies have to beat the best plain arm, and no choice is made on held-out
    problems.
    """

    name: str = "choices"
    """What to type."""
    statement: str = (
        "Chosen without held-out problems: the learning rate and steps at which plain GRPO does best, and the"
        " coefficient of the anchor."
    )
    """What it tests."""
    seeds: int = 3
    """Repetitions of every candidate."""
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    """Learning rates of plain GRPO: the default of a course, and about three times less and more."""
    prices: tuple[float, ...] = (0.05, 0.15, 0.4)
    """KL coefficients of the anchor, all at the middle learning rate."""
    updates: int = 1
    """Optimizer steps per generation."""
    steps: int = 120
    """Optimizer steps."""
    every: int = 20
    """Steps between the rows of the table, which are what is chosen from."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings that replace the defaults of `GrpoRun`."""

    def trials(self, setup: ExperimentSetup) -> tuple[ExperimentTrial, ...]:
        """List every candidate at every seed, seed by seed."""
        return tuple(
            self._trial(name, rate, price, seed, setup)
            for seed in range(setup.seeds)
            for name, rate, price in self._candidates()
        )

    def page(self, done: Sequence[FinishedTrial], setup: ExperimentSetup) -> Page:
        """Say what is best by the rules, and show all."""
        found: dict[str, list[Mapping[str, Any]]] = {name: [] for name, _, _ in self._candidates()}
        for trial in done:
            found[trial.trial.arm].append(trial.result)
        runs: CandidateResults = {name: ended for name, ended in found.items() if ended}
        sections: list[Section] = (
            [*self._verdicts(runs), self._table(runs), _validation_section(runs), self._curve(runs)]
            if runs
            else [_no_results()]
        )
        facts = [Fact("base", setup.weights), Fact("seeds", max(map(len, runs.values()), default=0))]
        return Page(
            "Choices" if self.updates == 1 else f"Choices with {self.updates} updates per generation",
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
            *((_rate_name(rate), rate, 0.0) for rate in self.rates),
            *((_price_name(price), self._middle, price) for price in self.prices),
        ]

    def _trial(self, name: str, rate: float, price: float, seed: int, setup: ExperimentSetup) -> ExperimentTrial:
        from breadth.lab.grpo import GrpoRun

        run = GrpoRun(
            chain_with_anchor(price),
            **{"steps": self.steps, "learning_rate": rate, "updates": self.updates, "seed": seed, **self.overrides},
        )
        return ExperimentTrial(
            f"{name}/seed-{seed}",
            CHOICES_WORK,
            {"weights": setup.weights, "grpo_run": settings.to_table(run)},
            run.steps,
        )

    def _steps(self) -> list[int]:
        return [*range(self.every, self.steps, self.every), self.steps]

    def _verdicts(self, runs: CandidateResults) -> list[Verdict]:
        plain = {
            (rate, step): score_at_step(runs[_rate_name(rate)], step)
            for rate in self.rates
            if _rate_name(rate) in runs
            for step in self._steps()
        }
        if not plain:
            return [_no_results()]
        rate, step = max(plain, key=lambda place: plain[place].value)
        priced = [price for price in self.prices if _price_name(price) in runs]
        chosen = [self._best(rate, step, plain[rate, step])]
        return [*chosen, self._price(runs, priced, rate)] if priced and _rate_name(self._middle) in runs else chosen

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
        regime = "" if self.updates == 1 else f" with {self.updates} updates per generation"
        headline = (
            f"Plain GRPO{regime} scores best on its own training problems at a learning rate of {rate:g} after {step}"
            " steps."
        )
        return Verdict(Severity.NOTE, headline, body, [Fact("train pass@1", score)])

    def _price(self, runs: CandidateResults, priced: Sequence[float], rate: float) -> Verdict:
        """Choose the coefficient whose policy gives the best vote: score and breadth in one number."""
        found = {
            name: validation_interval(runs[name], VALIDATION_VOTE)
            for name in (_rate_name(self._middle), *map(_price_name, priced))
        }
        best = max(priced, key=lambda price: found[_price_name(price)].value)
        rule = (
            f"The rule: the best vote for {FULL_DEMO.thinking} tokens, as in the corners, on problems not trained on."
        )
        if found[_price_name(best)].value < found[_rate_name(self._middle)].value:
            rule += " None is better than plain."
        if rate != self._middle:
            rule += (
                f" Coefficients were tried at a learning rate of {self._middle:g}; plain does best at {rate:g}, so try"
                " them there before using one."
            )
        facts = [Fact(f"vote, {_display_name(name)}", voted) for name, voted in found.items()]
        return Verdict(Severity.NOTE, f"The coefficient of the anchor is {best:g}.", rule, facts)

    def _table(self, runs: CandidateResults) -> Table:
        rows: list[list[Cell]] = [
            [str(step), *(score_at_step(ended, step) for ended in runs.values())] for step in self._steps()
        ]
        columns = [Column("steps"), *(Column(_display_name(name)) for name in runs)]
        priced = f" Coefficients are at a learning rate of {self._middle:g}." if self.prices else ""
        note = (
            f"Mean of the last {SCORE_WINDOW} generations; intervals over seeds. The best of many is a little lucky."
            f"{priced}"
        )
        return Table("Train pass@1", columns, rows, note)

    def _curve(self, runs: CandidateResults) -> Curve:
        lines = []
        for name, ended in runs.items():
            curves = [result["train"] for result in ended]
            length = min(len(curve["steps"]) for curve in curves)
            means = np.mean([trailing_mean(curve["reward"][:length], SCORE_WINDOW) for curve in curves], axis=0)
            lines.append(Series(_display_name(name), curves[0]["steps"][:length], means.tolist()))
        return Curve(
            "Train pass@1 while training", lines, Axis("optimizer step"), Axis("pass@1"), note="Means over seeds."
        )


def train_and_validate(config: Mapping[str, Any], folder: Any, base: Any, on_units: Any) -> dict[str, Any]:
    """Run GRPO and return its training log and its numbers on the validation set."""
    from breadth.lab.evaluation.checkpoints import evaluate_on_validation
    from breadth.lab.evaluation.training_log import read_training_log
    from breadth.lab.grpo import RUN_FOLDER, GrpoRun, train_grpo

    run = settings.from_table(GrpoRun, config["grpo_run"])
    reasoner = train_grpo(run, folder, base, lambda step, _: on_units(step))
    return {
        "train": read_training_log(folder / RUN_FOLDER, grammar=True).to_row(),
        "validation": evaluate_on_validation(reasoner, run, VALIDATION_PROBLEMS, VALIDATION_REPLIES),
    }


def score_at_step(runs: Sequence[Mapping[str, Any]], step: int) -> Interval:
    """Return train pass@1 up to a step, the mean of the last generations, over seeds."""
    scores = []
    for curve in (result["train"] for result in runs):
        seen = max(1, sum(at <= step for at in curve["steps"]))
        scores.append(float(trailing_mean(curve["reward"], SCORE_WINDOW)[seen - 1]))
    return seed_interval(scores, bounds=(0.0, 1.0))


def _validation_section(runs: CandidateResults) -> Table:
    note = (
        f"{VALIDATION_PROBLEMS} problems that are neither trained on nor held out, {VALIDATION_REPLIES} replies each;"
        " intervals over seeds."
        " As many vote as fit into the tokens, by their mean length."
    )
    return validation_table(
        "run", {_display_name(name): ended for name, ended in runs.items()}, VALIDATION_REPLIES, note
    )


def _rate_name(rate: float) -> str:
    return f"rate-{rate:g}"


def _price_name(price: float) -> str:
    return f"price-{price:g}"


def _display_name(name: str) -> str:
    return name.replace("-", " ", 1)


def _no_results() -> Verdict:
    return Verdict(
        Severity.CANNOT_TELL, "No run has ended yet.", "Run the experiment again: it resumes where it stopped."
    )


CHOICES = Choices()
"""As it is run."""
OFF_POLICY_CHOICES = Choices(
    "choices-several",
    "The learning rate at which plain GRPO does best with several updates per generation, for the remedies that act"
    " only there.",
    rates=(1e-4, 3e-4, 1e-3),
    prices=(),
    updates=OFF_POLICY_UPDATES,
    steps=CHOICES.steps * OFF_POLICY_UPDATES,
    every=CHOICES.every * OFF_POLICY_UPDATES,
)
"""The same for as many rollouts, each used for several updates."""
