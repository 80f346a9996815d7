"""The work of most trials: a course is run, its policy is looked at on the way and at its end, on problems held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breadth.base import settings
from breadth.base.checks import require
from breadth.lab.trials.experiment import Bench, Trial

if TYPE_CHECKING:
    from breadth.lab.courses.course import Course
    from breadth.lab.model.reasoner import Reasoner
    from breadth.lab.task.problems import Level

REPLIES_A_UNIT = 400
"""Replies drawn in the time of an optimizer step, about."""
WORK, BASE_WORK = "breadth.lab.trials.coursework:run_course", "breadth.lab.trials.coursework:look_at_base"
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
    from breadth.lab.courses.course import Course
    from breadth.lab.courses.staging import train_in_stages
    from breadth.lab.courses.train_curve import train_curve
    from breadth.lab.courses.training import RUN, TRAINED
    from breadth.lab.measuring.beside import judge_beside
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
    return {"looks": found, "train": train_curve(folder / RUN).to_row(), "beside": beside}


def look_at_base(asked: Mapping[str, Any], folder: Path, base: Path | None, told: Units) -> dict[str, Any]:
    """Look at the base."""
    from breadth.lab.model.reasoner import load

    looks = settings.from_table(Looks, asked["looks"])
    found = _look(load(base), looks, 0, 0, last=True, run=folder / "run")
    told(looks.units)
    return {"looks": [found]}


def _look(reasoner: Reasoner, looks: Looks, step: int, seed: int, *, last: bool, run: Path) -> dict[str, Any]:
    """Look at a policy once; the replies go to its run folder too."""
    from breadth.lab.measuring.eval_rollouts import write_replies
    from breadth.lab.measuring.evaluation import evaluate
    from breadth.lab.measuring.looks import look_of
    from breadth.lab.task.tasks import draw_tasks

    level: Level = looks.level  # type: ignore[assignment]  # checked where problems are drawn
    count, samples = (looks.problems, looks.samples) if last else (looks.problems_between, looks.samples_between)
    evaluation = evaluate(reasoner, draw_tasks(count, reasoner.teacher.facts.prime, level), samples, seed=seed)
    write_replies(evaluation, run, step)
    return look_of(evaluation, step).to_row()
