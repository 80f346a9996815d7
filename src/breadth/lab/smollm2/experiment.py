"""The SmolLM2 replication: its task, its sizes and its trials.

The task is sums of three digits in plain text, step by step, after one worked example. The model is evaluated before
training, after plain GRPO and after protected GRPO, each by one long thought and by vote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations_with_replacement, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from breadth.base import settings
from breadth.base.errors import require
from breadth.inference.records import Reading
from breadth.lab.demo.plan import ARMS
from breadth.lab.trials.experiment import ExperimentSetup, ExperimentTrial, FinishedTrial
from breadth.report.sections import Page

if TYPE_CHECKING:
    from breadth.lab.smollm2.evaluation import SumsEval
    from breadth.lab.smollm2.policy import SmolLM2Policy


TERMS, LARGEST_TERM = 3, 9
"""How many numbers are added, each from 1 to the largest. Of such sums the model gets one in ten right, of two-digit
ones next to none.
"""
HELD_OUT_SUMS, MAX_TRAINING_SUMS = 64, 400
"""Problems held out, in all; problems that may be trained on."""
SPLIT_SEED = 77
"""Seed by which numbers are held out or not: the same for every seed of training."""
SUM_READING = Reading("number")
"""The answer of a reply is the last number in it, if it has ended; in one that was cut nothing is read."""


@dataclass(frozen=True)
class Sum:
    """One problem."""

    numbers: tuple[int, ...]
    """What is added."""

    @property
    def text(self) -> str:
        """The question at the end of the prompt, e.g. ``3 + 8 + 5 =``."""
        return f"{_plus(self.numbers)} ="

    @property
    def answer(self) -> str:
        """The right answer."""
        return str(sum(self.numbers))

    @property
    def full_line(self) -> str:
        """The whole line, added from the left: ``3 + 8 + 5 = 11 + 5 = 16``."""
        steps = [(sum(self.numbers[:done]), *self.numbers[done:]) for done in range(1, len(self.numbers) + 1)]
        return " = ".join(map(_plus, steps))

    @property
    def prompt(self) -> str:
        """What the model continues: a worked example and the question.

        Every token of it is paid for with each reply trained on.
        """
        return f"{EXAMPLE.full_line}\n{self.text}"


EXAMPLE = Sum((2, 9, 4))
"""The worked example before every question: never a question itself."""


def list_held_out_sums(count: int = HELD_OUT_SUMS) -> list[Sum]:
    """List problems that are never trained on, in any order of their numbers; no two add the same numbers."""
    return list(_split_sums()[0][:count])


def training_sums(count: int) -> list[Sum]:
    """List problems to train on; the same numbers in another order are another problem."""
    return list(_split_sums()[1][:count])


def read_sum_answer(text: str, *, ended: bool) -> str | None:
    """Return the answer of a reply in canonical form, None where there is none or the reply was cut."""
    return SUM_READING.read_with_key(text, ended=ended)[1]


@cache
def _split_sums() -> tuple[list[Sum], list[Sum]]:
    """Return all problems that are held out, and all that may be trained on, both shuffled."""
    chance = np.random.default_rng(SPLIT_SEED)
    known = tuple(sorted(EXAMPLE.numbers))
    sets = [terms for terms in combinations_with_replacement(range(1, LARGEST_TERM + 1), TERMS) if terms != known]
    shuffled = [sets[place] for place in chance.permutation(len(sets))]
    kept = [Sum(tuple(map(int, chance.permutation(terms)))) for terms in shuffled[:HELD_OUT_SUMS]]
    orders = [Sum(order) for terms in shuffled[HELD_OUT_SUMS:] for order in sorted(set(permutations(terms)))]
    return kept, [orders[place] for place in chance.permutation(len(orders))]


def _plus(numbers: tuple[int, ...]) -> str:
    return " + ".join(map(str, numbers))


@dataclass(frozen=True)
class SmolLM2Plan:
    """Sizes chosen for two slow cores and three quarters of an hour."""

    steps: int = 40
    """Optimizer steps of each arm, one a generation: strictly on-policy."""
    learning_rate: float = 1e-5
    """Learning rate of both arms, constant after five steps.

    Published GRPO runs on this very model take 5e-6 to 2e-5 with Adam
    (model cards and the course of TRL's makers); larger models take 1e-6. Not tuned here: forty steps are too
    expensive for a sweep.
    """
    prompts: int = 4
    """Problems of a generation."""
    group: int = 8
    """Replies to each."""
    accumulation_steps: int = 2
    """Parts a generation is cut into for the backward pass: half the memory for activations, the same gradient."""
    train_problems: int = 160
    """Problems trained on, in all: each is met once in forty steps."""
    max_completion_length: int = 16
    """Tokens of a reply at most; adding step by step takes eleven. All replies of a step are trained at the length of
    the longest.
    """
    problems: int = 48
    """Held-out problems that pass@k is measured on."""
    samples: int = 32
    """Replies to each."""
    votes: int = 8
    """Replies that maj@k votes over."""
    compared_problems: int = 32
    """Held-out problems that are answered both ways."""
    thinking: int = 96
    """Tokens of the long thought: about nine attempts one after the other."""
    repeats: int = 1
    """Answers to each problem, each way."""
    seed: int = 0
    """Of training and of every draw."""

    def __post_init__(self) -> None:
        for field in (
            "steps",
            "prompts",
            "accumulation_steps",
            "max_completion_length",
            "samples",
            "thinking",
            "repeats",
        ):
            require(self, field, getattr(self, field) >= 1, "1 or more")
        for field, most in {
            "train_problems": MAX_TRAINING_SUMS,
            "problems": HELD_OUT_SUMS,
            "compared_problems": HELD_OUT_SUMS,
        }.items():
            require(self, field, 1 <= getattr(self, field) <= most, f"from 1 to {most}")
        require(self, "learning_rate", 0 < self.learning_rate < 1, "a number above 0, below 1")
        require(self, "group", self.group >= 2, "2 or more, to be compared with each other")
        require(
            self,
            "accumulation_steps",
            self.prompts * self.group % self.accumulation_steps == 0,
            "so many that prompts x group divides into them",
        )
        require(self, "votes", self.votes <= self.samples, "a number of replies, at most the samples")
        require(self, "seed", self.seed >= 0, "0 or more")

    @property
    def ks(self) -> tuple[int, ...]:
        """The k of pass@k."""
        return tuple(sorted({1, self.votes, self.samples}))


SMOLLM2_WORK, SMOLLM2_BASE_WORK = (
    "breadth.lab.smollm2.experiment:run_smollm2_arm",
    "breadth.lab.smollm2.experiment:run_smollm2_base",
)
SMOLLM2_BASE, MODEL_FOLDER = "base", "model"
"""Name of the trial that measures the base; in the folder of the experiment, with its hash: the base as transformers
loads it.
"""
SUMS_EVAL_FILE, SUMS_COMPARISON_FILE = "breadth.json", "both_ways.json"
"""Files in the folder of a trial, next to what training leaves there."""
STEPS_PER_EVAL, STEPS_PER_COMPARISON = 4, 15
"""Optimizer steps that take as long as measuring a policy, and as answering both ways, about."""


@dataclass(frozen=True)
class SmolLM2Experiment:
    """The experiment and its sizes.

    Trials run side by side with a thread each, not one after the other with two: reading and writing tokens one by one,
    Adam and all the small steps between the large products gain little from a second thread, and two trainings that
    share nothing gain all of it. The longest trial is first; the base is evaluated last, at the same time.
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
    plan: SmolLM2Plan = SmolLM2Plan()
    """How arms are trained and measured; its seed is not used."""

    def trials(self, setup: ExperimentSetup) -> tuple[ExperimentTrial, ...]:
        """List both arms at every seed, and the base."""
        arms = tuple(
            ExperimentTrial(
                f"{arm}/seed-{seed}",
                SMOLLM2_WORK,
                {"weights": setup.weights, "arm": arm, "plan": settings.to_table(replace(self.plan, seed=seed))},
                self.plan.steps + STEPS_PER_EVAL + STEPS_PER_COMPARISON,
            )
            for seed in range(setup.seeds)
            for arm in reversed(ARMS)  # the protected arm pays for its reference policy, too
        )
        return *arms, ExperimentTrial(
            SMOLLM2_BASE,
            SMOLLM2_BASE_WORK,
            {"weights": setup.weights, "plan": settings.to_table(self.plan)},
            STEPS_PER_EVAL,
        )

    def page(self, done: Sequence[FinishedTrial], setup: ExperimentSetup) -> Page:
        """Make the page of the seeds at which both arms have ended."""
        from breadth.lab import records
        from breadth.lab.smollm2.evaluation import SmolLM2Arm, SumsEval
        from breadth.lab.smollm2.page import SmolLM2Results, smollm2_page

        base = next(
            (records.from_row(SumsEval, trial.result["base"]) for trial in done if trial.trial.name == SMOLLM2_BASE),
            None,
        )
        arms = {
            trial.trial.name: records.from_row(SmolLM2Arm, trial.result["arm"])
            for trial in done
            if trial.trial.name != SMOLLM2_BASE
        }
        seeds = [seed for seed in range(setup.seeds) if all(f"{arm}/seed-{seed}" in arms for arm in ARMS)]
        plain, protected = ([arms[f"{arm}/seed-{seed}"] for seed in seeds] for arm in ARMS)
        minutes = sum(trial.seconds for trial in done) / 60
        return smollm2_page(SmolLM2Results(self.plan, setup, base, plain, protected, minutes), self.statement)


def run_smollm2_base(
    config: Mapping[str, Any], folder: Path, base: Path | None, on_units: Callable[[int], None]
) -> dict[str, Any]:
    """Evaluate the base as the arms are evaluated."""
    from breadth.lab import records
    from breadth.lab.smollm2.policy import load_policy

    result = _load_or_evaluate(
        load_policy(_require_base(base)), settings.from_table(SmolLM2Plan, config["plan"]), folder, 0
    )
    on_units(STEPS_PER_EVAL)
    return {"base": records.to_row(result)}


def run_smollm2_arm(
    config: Mapping[str, Any], folder: Path, base: Path | None, on_units: Callable[[int], None]
) -> dict[str, Any]:
    """Train one arm at one seed, evaluate it, and let it answer by both modes; finished parts are read from disk."""
    from breadth.lab import records
    from breadth.lab.evaluation.extended_vs_parallel import ExtendedVsParallel
    from breadth.lab.evaluation.training_log import read_training_log
    from breadth.lab.grpo import RUN_FOLDER
    from breadth.lab.smollm2.evaluation import SmolLM2Arm, answer_sums
    from breadth.lab.smollm2.policy import train_smollm2

    plan = settings.from_table(SmolLM2Plan, config["plan"])
    policy = train_smollm2(plan, config["arm"], folder, _require_base(base), on_units)
    sums = _load_or_evaluate(policy, plan, folder, plan.steps)
    on_units(plan.steps + STEPS_PER_EVAL)
    answers = records.load_or_make(ExtendedVsParallel, folder / SUMS_COMPARISON_FILE, lambda: answer_sums(policy, plan))
    arm = SmolLM2Arm(sums, answers, read_training_log(folder / RUN_FOLDER))
    return {"arm": records.to_row(arm)}


def _load_or_evaluate(policy: SmolLM2Policy, plan: SmolLM2Plan, folder: Path, step: int) -> SumsEval:
    from breadth.lab import records
    from breadth.lab.grpo import RUN_FOLDER
    from breadth.lab.smollm2.evaluation import SumsEval, evaluate_sums

    return records.load_or_make(
        SumsEval, folder / SUMS_EVAL_FILE, lambda: evaluate_sums(policy, plan, folder / RUN_FOLDER, step)
    )


def _require_base(base: Path | None) -> Path:
    if base is None:
        raise ValueError("the SmolLM2 replication ships no model: a trial needs the folder of one")
    return base
