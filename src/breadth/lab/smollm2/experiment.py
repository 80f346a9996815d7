"""The task of the second rung: sums of three digits in plain text, step by step, behind one worked example."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations_with_replacement, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from breadth.base import settings
from breadth.base.checks import require
from breadth.inference.records import Reading
from breadth.lab.demo.plan import ARMS
from breadth.lab.trials.experiment import Bench, Done, Trial
from breadth.report.sections import Page

if TYPE_CHECKING:
    from breadth.lab.smollm2.evaluation import Breadth
    from breadth.lab.smollm2.policy import Policy


TERMS, LARGEST = 3, 9
"""How many numbers are added, each from 1 to the largest. Of such sums the model gets one in ten right, of two-digit
ones next to none.
"""
POOL, MOST = 64, 400
"""Problems held out, in all; problems that may be trained on."""
SHUFFLE = 77
"""Seed by which numbers are held out or not: the same for every seed of training."""
READING = Reading("number")
"""The answer of a reply is the last number in it, if it has ended; in one that was cut nothing is read."""


@dataclass(frozen=True)
class Sum:
    """One problem."""

    numbers: tuple[int, ...]
    """What is added."""

    @property
    def text(self) -> str:
        """The question as it stands at the end of the prompt, e.g. ``3 + 8 + 5 =``."""
        return f"{_added(self.numbers)} ="

    @property
    def answer(self) -> str:
        """The right answer."""
        return str(sum(self.numbers))

    @property
    def worked(self) -> str:
        """The whole line, added from the left: ``3 + 8 + 5 = 11 + 5 = 16``."""
        steps = [(sum(self.numbers[:done]), *self.numbers[done:]) for done in range(1, len(self.numbers) + 1)]
        return " = ".join(map(_added, steps))

    @property
    def prompt(self) -> str:
        """What the model continues: a worked example and the question.

        Every token of it is paid for with each reply trained on.
        """
        return f"{EXAMPLE.worked}\n{self.text}"


EXAMPLE = Sum((2, 9, 4))
"""The worked example before every question: never a question itself."""


def held_out(count: int = POOL) -> list[Sum]:
    """List problems that are never trained on, in any order of their numbers; no two add the same numbers."""
    return list(_sides()[0][:count])


def trained_on(count: int) -> list[Sum]:
    """List problems to train on; the same numbers in another order are another problem."""
    return list(_sides()[1][:count])


def read_answer(text: str, *, ended: bool) -> str | None:
    """Return the answer of a reply in canonical form, None where there is none or the reply was cut."""
    return READING.read_with_key(text, ended=ended)[1]


@cache
def _sides() -> tuple[list[Sum], list[Sum]]:
    """Return all problems that are held out, and all that may be trained on, both shuffled."""
    chance = np.random.default_rng(SHUFFLE)
    known = tuple(sorted(EXAMPLE.numbers))
    sets = [one for one in combinations_with_replacement(range(1, LARGEST + 1), TERMS) if one != known]
    shuffled = [sets[place] for place in chance.permutation(len(sets))]
    kept = [Sum(tuple(map(int, chance.permutation(one)))) for one in shuffled[:POOL]]
    orders = [Sum(order) for one in shuffled[POOL:] for order in sorted(set(permutations(one)))]
    return kept, [orders[place] for place in chance.permutation(len(orders))]


def _added(numbers: tuple[int, ...]) -> str:
    return " + ".join(map(str, numbers))


@dataclass(frozen=True)
class RungPlan:
    """Sizes chosen for two slow cores and three quarters of an hour."""

    steps: int = 40
    """Optimizer steps of each arm, one a generation: strictly on-policy."""
    rate: float = 1e-5
    """Learning rate of both arms, constant after five steps.

    Published GRPO runs on this very model take 5e-6 to 2e-5 with Adam
    (model cards and the course of TRL's makers); larger models take 1e-6. Not tuned here: forty steps are too dear for
    a sweep."""
    prompts: int = 4
    """Problems of a generation."""
    group: int = 8
    """Replies to each."""
    parts: int = 2
    """Parts a generation is cut into for the backward pass: half the memory for activations, the same gradient."""
    trained: int = 160
    """Problems trained on, in all: each is met once in forty steps."""
    longest: int = 16
    """Tokens of a reply at most; adding step by step takes eleven. All replies of a step are trained at the length of
    the longest.
    """
    problems: int = 48
    """Held-out problems that pass@k is measured on."""
    samples: int = 32
    """Replies to each."""
    votes: int = 8
    """Replies that maj@k is told of."""
    asked: int = 32
    """Held-out problems that are answered both ways."""
    thinking: int = 96
    """Tokens of the long thought: about nine attempts one after the other."""
    repeats: int = 1
    """Answers to each problem, each way."""
    seed: int = 0
    """Of training and of every draw."""

    def __post_init__(self) -> None:
        for field in ("steps", "prompts", "parts", "longest", "samples", "thinking", "repeats"):
            require(self, field, getattr(self, field) >= 1, "1 or more")
        for field, most in {"trained": MOST, "problems": POOL, "asked": POOL}.items():
            require(self, field, 1 <= getattr(self, field) <= most, f"from 1 to {most}")
        require(self, "rate", 0 < self.rate < 1, "a number above 0, below 1")
        require(self, "group", self.group >= 2, "2 or more, to be compared with each other")
        require(
            self, "parts", self.prompts * self.group % self.parts == 0, "so many that prompts x group divides into them"
        )
        require(self, "votes", self.votes <= self.samples, "a number of replies, at most the samples")
        require(self, "seed", self.seed >= 0, "0 or more")

    @property
    def ks(self) -> tuple[int, ...]:
        """The k of pass@k."""
        return tuple(sorted({1, self.votes, self.samples}))


WORK, BASE_WORK = "breadth.lab.smollm2.experiment:run_arm", "breadth.lab.smollm2.experiment:run_base"
BASE, MODEL = "base", "model"
"""Name of the trial that measures the base; in the folder of the experiment, with its hash: the base as transformers
loads it.
"""
BREADTH, BOTH_WAYS = "breadth.json", "both_ways.json"
"""In the folder of a trial, beside what training leaves there."""
STEPS_A_LOOK, STEPS_BOTH_WAYS = 4, 15
"""Optimizer steps that take as long as measuring a policy, and as answering both ways, about."""


@dataclass(frozen=True)
class SecondRung:
    """The experiment and its sizes.

    Trials run side by side with a thread each, not one after the other with two: reading and writing tokens one by one,
    Adam and all the small steps between the large products gain little from a second thread, and two trainings that
    share nothing gain all of it. The longest trial is first, and measuring the base comes last, beside it.
    """

    name: str = "smollm2"
    """What to type."""
    statement: str = (
        "A real small model on sums: what plain and protected GRPO do to its breadth, and what a long thought and a"
        " vote make of it."
    )
    """What it tests."""
    seeds: int = 1
    """Policies trained in each arm."""
    plan: RungPlan = RungPlan()
    """How arms are trained and measured; its seed is not used."""

    def trials(self, bench: Bench) -> tuple[Trial, ...]:
        """List both arms at every seed, and the base."""
        arms = tuple(
            Trial(
                f"{arm}/seed-{seed}",
                WORK,
                {"weights": bench.weights, "arm": arm, "plan": settings.to_table(replace(self.plan, seed=seed))},
                self.plan.steps + STEPS_A_LOOK + STEPS_BOTH_WAYS,
            )
            for seed in range(bench.seeds)
            for arm in reversed(ARMS)  # the protected arm pays for its reference policy, too
        )
        return *arms, Trial(
            BASE, BASE_WORK, {"weights": bench.weights, "plan": settings.to_table(self.plan)}, STEPS_A_LOOK
        )

    def page(self, done: Sequence[Done], bench: Bench) -> Page:
        """Make the page of the seeds at which both arms have ended."""
        from breadth.lab import records
        from breadth.lab.smollm2.evaluation import Breadth, RungArm
        from breadth.lab.smollm2.page import Found, rung_page

        base = next((records.from_row(Breadth, one.result["base"]) for one in done if one.trial.name == BASE), None)
        arms = {one.trial.name: records.from_row(RungArm, one.result["arm"]) for one in done if one.trial.name != BASE}
        seeds = [seed for seed in range(bench.seeds) if all(f"{arm}/seed-{seed}" in arms for arm in ARMS)]
        plain, protected = ([arms[f"{arm}/seed-{seed}"] for seed in seeds] for arm in ARMS)
        minutes = sum(one.seconds for one in done) / 60
        return rung_page(Found(self.plan, bench, base, plain, protected, minutes), self.statement)


def run_base(asked: Mapping[str, Any], folder: Path, base: Path | None, told: Callable[[int], None]) -> dict[str, Any]:
    """Measure the base as the arms are measured."""
    from breadth.lab import records
    from breadth.lab.smollm2.policy import load

    found = _measured(load(_given(base)), settings.from_table(RungPlan, asked["plan"]), folder, 0)
    told(STEPS_A_LOOK)
    return {"base": records.to_row(found)}


def run_arm(asked: Mapping[str, Any], folder: Path, base: Path | None, told: Callable[[int], None]) -> dict[str, Any]:
    """Train one arm at one seed, measure it, and let it answer both ways; what was done before an interruption is read."""
    from breadth.lab import records
    from breadth.lab.evaluation.extended_vs_parallel import BothWays
    from breadth.lab.evaluation.training_log import read_training_log
    from breadth.lab.smollm2.evaluation import RungArm, answer_sums
    from breadth.lab.smollm2.policy import RUN, train

    plan = settings.from_table(RungPlan, asked["plan"])
    policy = train(plan, asked["arm"], folder, _given(base), told)
    breadth = _measured(policy, plan, folder, plan.steps)
    told(plan.steps + STEPS_A_LOOK)
    both_ways = records.kept(BothWays, folder / BOTH_WAYS, lambda: answer_sums(policy, plan))
    arm = RungArm(breadth, both_ways, read_training_log(folder / RUN))
    return {"arm": records.to_row(arm)}


def _measured(policy: Policy, plan: RungPlan, folder: Path, step: int) -> Breadth:
    from breadth.lab import records
    from breadth.lab.smollm2.evaluation import Breadth, measure
    from breadth.lab.smollm2.policy import RUN

    return records.kept(Breadth, folder / BREADTH, lambda: measure(policy, plan, folder / RUN, step))


def _given(base: Path | None) -> Path:
    if base is None:
        raise ValueError("the second rung ships no model: a trial is given the folder of one")
    return base
