"""The work of most trials: a course is run, its policy is looked at on the way and at its end, on problems held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from breadth.base import settings
from breadth.base.checks import require
from breadth.lab.demo.plan import FULL
from breadth.lab.evaluation.evaluate import Evaluation, evaluate, passed, voted
from breadth.lab.evaluation.seeds import over_seeds
from breadth.lab.grpo import Course
from breadth.lab.model.reasoner import Reasoner
from breadth.lab.task.grammar import Role
from breadth.lab.trials.experiment import Bench, Done, Trial
from breadth.measure.diversity import count_answers
from breadth.measure.intervals import Bounds, Interval, mean_interval
from breadth.measure.transfer import ArmSamples
from breadth.measure.validate import BoolArray, FloatArray, IntArray
from breadth.report.cells import Cell
from breadth.report.sections import Column, Table

if TYPE_CHECKING:
    from breadth.lab.grpo import Course
    from breadth.lab.model.reasoner import Reasoner
    from breadth.lab.task.problems import Level


REPLIES_A_UNIT = 400
"""Replies drawn in the time of an optimizer step, about."""
WORK, BASE_WORK = "breadth.lab.evaluation.checkpoints:run_course", "breadth.lab.evaluation.checkpoints:look_at_base"
Units = Callable[[int], None]
"""Told how many units of a trial's work are done."""


@dataclass(frozen=True)
class Looks:
    """How policies are measured."""

    problems: int = 200
    """Problems held out that each look asks, of the courses' level."""
    samples: int = 64
    """Replies to each, of the last look and of that at the base."""
    problems_between: int = 100
    """Problems of the looks on the way."""
    samples_between: int = 16
    """Replies to each of these."""
    problems_beside: int = 128
    """Problems neither trained on nor held out that the policy answers at the end, for choices."""
    samples_beside: int = 16
    """Replies to each of these."""
    every: int = 20
    """Optimizer steps between looks."""
    level: str = "medium"
    """How long the problems are."""

    def __post_init__(self) -> None:
        for field in (
            "problems",
            "samples",
            "problems_between",
            "samples_between",
            "problems_beside",
            "samples_beside",
            "every",
        ):
            require(self, field, getattr(self, field) >= 1, "1 or more")

    @property
    def units(self) -> int:
        """Work of the last look, and of that beside it."""
        return ceil((self.problems * self.samples + self.problems_beside * self.samples_beside) / REPLIES_A_UNIT)

    @property
    def units_between(self) -> int:
        """Work of one on the way."""
        return ceil(self.problems_between * self.samples_between / REPLIES_A_UNIT)


def course_trial(name: str, course: Course, looks: Looks, bench: Bench) -> Trial:
    """Return the trial of a course."""
    between = (course.steps - 1) // looks.every
    asked = {"weights": bench.weights, "course": settings.to_table(course), "looks": settings.to_table(looks)}
    return Trial(name, WORK, asked, course.steps + between * looks.units_between + looks.units)


def base_trial(looks: Looks, bench: Bench) -> Trial:
    """Return the trial that looks at the base alone, as the last look of a course looks at its policy."""
    return Trial("base", BASE_WORK, {"weights": bench.weights, "looks": settings.to_table(looks)}, looks.units)


def run_course(asked: Mapping[str, Any], folder: Path, base: Path | None, told: Units) -> dict[str, Any]:
    """Run a course and return what every look found, and how it went on the problems it trained on."""
    from breadth.lab.evaluation.training_log import read_training_log
    from breadth.lab.grpo import RUN, TRAINED, Course, train_in_stages
    from breadth.lab.model.reasoner import load

    course, looks = settings.from_table(Course, asked["course"]), settings.from_table(Looks, asked["looks"])
    stages = range(looks.every, course.steps, looks.every)
    policies = train_in_stages(course, folder, base, stages, lambda step, _: told(step))
    units, found = course.steps, []
    for step, place in policies.items():
        last = step == course.steps
        found.append(_look(load(place), looks, step, course.seed, last=last, run=folder / RUN))
        units += looks.units if last else looks.units_between
        told(units)
    beside = judge_beside(load(folder / TRAINED), course, looks.problems_beside, looks.samples_beside)
    return {"looks": found, "train": read_training_log(folder / RUN, grammar=True).to_row(), "beside": beside}


def look_at_base(asked: Mapping[str, Any], folder: Path, base: Path | None, told: Units) -> dict[str, Any]:
    """Look at the base."""
    from breadth.lab.model.reasoner import load

    looks = settings.from_table(Looks, asked["looks"])
    found = _look(load(base), looks, 0, 0, last=True, run=folder / "run")
    told(looks.units)
    return {"looks": [found]}


def _look(reasoner: Reasoner, looks: Looks, step: int, seed: int, *, last: bool, run: Path) -> dict[str, Any]:
    """Look at a policy once; the replies go to its run folder too."""
    from breadth.lab.evaluation.evaluate import evaluate, write_replies
    from breadth.lab.task.problems import draw_tasks

    level: Level = looks.level  # type: ignore[assignment]  # checked where problems are drawn
    count, samples = (looks.problems, looks.samples) if last else (looks.problems_between, looks.samples_between)
    evaluation = evaluate(reasoner, draw_tasks(count, reasoner.teacher.facts.prime, level), samples, seed=seed)
    write_replies(evaluation, run, step)
    return look_of(evaluation, step).to_row()


@dataclass(frozen=True)
class Look:
    """One policy on some problems, as many replies to each."""

    step: int
    """Optimizer steps it has been trained for; 0 is the base."""
    gold: Sequence[int]
    """The right answer of each problem."""
    answers: Sequence[Sequence[int]]
    """The answers given to each, -1 where there is none."""
    entropy: float
    """Mean entropy of all tokens, in nats; NaN where there is none."""
    planning: float
    """The same of the tokens that choose: route, operands, operator, going on or not."""
    execution: float
    """The same of the tokens that state a value."""
    formed: float
    """Share of replies that keep to the grammar and are complete."""
    tokens: float
    """Mean tokens of a reply."""
    styles: Mapping[str, float]
    """How often each surface format is used."""
    routes: Mapping[str, float]
    """How often each route is taken first."""

    @cached_property
    def table(self) -> IntArray:
        """The answers: [problems, samples]."""
        return np.array(self.answers, np.int64)

    @cached_property
    def right(self) -> BoolArray:
        """Whether each is right: [problems, samples]."""
        return np.asarray(self.table == np.array(self.gold, np.int64)[:, None])

    @property
    def samples(self) -> int:
        """Replies to each problem."""
        return int(self.table.shape[1])

    def passed(self, k: int) -> FloatArray:
        """Return pass@k of each problem."""
        return passed(self.right, k)

    def voted(self, k: int) -> FloatArray:
        """Return maj@k of each problem."""
        return voted(self.table, self.right, k)

    def distinct(self, draws: int) -> FloatArray:
        """Return the different answers to expect in so many replies to each problem."""
        return np.asarray(count_answers(self._owners, self.table.ravel()).expected_distinct(draws), np.float64)

    @property
    def arm(self) -> ArmSamples:
        """The same as an arm of the transfer gap."""
        return ArmSamples(self._owners, self.table.ravel(), self.right.ravel())

    def to_row(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Look:
        """Read what `to_row` gave; a number that was none is NaN again."""
        numbers = {
            name: float("nan") if row[name] is None else row[name] for name in ("entropy", "planning", "execution")
        }
        return cls(**{**row, **numbers})

    @property
    def _owners(self) -> IntArray:
        return np.repeat(np.arange(len(self.table)), self.samples)


def look_of(evaluation: Evaluation, step: int) -> Look:
    """Keep what matters of an evaluation."""
    return Look(
        step,
        [problem.answer(evaluation.prime) for problem in evaluation.problems],
        evaluation.answers.tolist(),
        evaluation.entropy(),
        evaluation.entropy(Role.PLANNING),
        evaluation.entropy(Role.EXECUTION),
        evaluation.formed(),
        float(evaluation.tokens.mean()),
        evaluation.styles(),
        evaluation.routes(),
    )


SHARE: Bounds = (0.0, 1.0)
Measure = Callable[[Look], FloatArray]
"""A value for each problem."""


@dataclass(frozen=True)
class MeasuredArm:
    """The looks at one arm."""

    looks: Mapping[int, Sequence[Look]]
    """Seed -> its looks, the last one at the end of the course."""

    @cached_property
    def last(self) -> dict[int, Look]:
        """Seed -> the look at its end."""
        return {seed: max(looks, key=lambda look: look.step) for seed, looks in self.looks.items()}

    def over_seeds(self, measure: Measure, bounds: Bounds = SHARE) -> Interval:
        """Return the mean over problems and seeds, with the interval over seeds."""
        return over_seeds([float(np.mean(measure(look))) for look in self.last.values()], bounds=bounds)

    def over_problems(self, measure: Measure, bounds: Bounds = SHARE) -> Interval:
        """Return the same mean with the interval over problems."""
        return mean_interval(np.mean([measure(look) for look in self.last.values()], axis=0), bounds=bounds)

    def number(self, of: Callable[[Look], float], bounds: Bounds) -> Interval:
        """Return a number that a look has no value for each problem of, with the interval over seeds; NaN where a look has none."""
        values = np.array([of(look) for look in self.last.values()])
        return (
            over_seeds(values, bounds=bounds)
            if np.isfinite(values).all()
            else Interval(float("nan"), *bounds, 0.95, "undefined")
        )

    def paired(self, other: MeasuredArm) -> list[tuple[Look, Look]]:
        """Return the last looks of both arms at each seed that both have."""
        return [(look, other.last[seed]) for seed, look in self.last.items() if seed in other.last]

    def gain_over_seeds(self, other: MeasuredArm, measure: Measure) -> Interval | None:
        """Return how much more it is than in the other arm, paired by seed, with the interval over seeds; None without a common seed."""
        gains = [float(np.mean(measure(own) - measure(their))) for own, their in self.paired(other)]
        return over_seeds(gains, bounds=(-1.0, 1.0)) if gains else None

    def gain_over_problems(self, other: MeasuredArm, measure: Measure) -> Interval | None:
        """Return the same with the interval over problems."""
        gains = [measure(own) - measure(their) for own, their in self.paired(other)]
        return mean_interval(np.mean(gains, axis=0), bounds=(-1.0, 1.0)) if gains else None


def measured_arms(done: Sequence[Done]) -> dict[str, MeasuredArm]:
    """Sort what trials called ``arm/seed-N`` found by arm and seed."""
    found: dict[str, dict[int, list[Look]]] = {}
    for one in done:
        arm, _, seed = one.trial.name.partition("/seed-")
        if seed:
            found.setdefault(arm, {})[int(seed)] = [Look.from_row(row) for row in one.result["looks"]]
    return {arm: MeasuredArm(looks) for arm, looks in found.items()}


def judge_beside(reasoner: Reasoner, course: Course, problems: int, replies: int) -> dict[str, float]:
    """Return score, vote and coverage; as many replies vote as fit into the tokens of the corners, by their mean length."""
    found = evaluate(reasoner, course.beside(problems, reasoner.teacher.facts.prime), replies, seed=course.seed)
    tokens = float(found.tokens.mean())
    votes = min(replies, max(1, int(FULL.thinking / tokens)))
    passed, covered = (found.pass_at(k).value for k in (1, replies))
    return {PASSED: passed, VOTED: found.majority_at(votes).value, COVERED: covered, TOKENS: tokens}


PASSED, VOTED, COVERED, TOKENS = "passed", "voted", "covered", "tokens"
"""pass@1, a vote for the tokens of the corners, pass@k at all replies, tokens of a reply."""
Judged = Mapping[str, Any]
"""The result of a trial that was judged beside."""


def over_beside(trials: Sequence[Judged], what: str) -> Interval:
    """Return one of the numbers over seeds."""
    return over_seeds([one["beside"][what] for one in trials], bounds=(0.0, float("inf") if what == TOKENS else 1.0))


def beside_table(head: str, courses: Mapping[str, Sequence[Judged]], replies: int, note: str) -> Table:
    """Return a row a course; ``replies`` are those to each problem."""
    columns = {
        PASSED: "pass@1",
        VOTED: f"vote for {FULL.thinking} tokens",
        COVERED: f"pass@{replies}",
        TOKENS: "tokens of a reply",
    }
    rows: list[list[Cell]] = [
        [name, *(over_beside(trials, what) for what in columns)] for name, trials in courses.items()
    ]
    return Table(
        "Beside the problems trained on, at the end", [Column(head), *map(Column, columns.values())], rows, note
    )
