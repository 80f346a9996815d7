"""GRPO trials with checkpoint evaluations, on held-out problems and on a validation set.

The validation problems are neither trained on nor held out: choices between runs may be made on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from breadth.base import settings
from breadth.base.errors import require
from breadth.lab.demo.plan import FULL_DEMO
from breadth.lab.evaluation.evaluate import Evaluation, evaluate, majority_at_k_by_problem, pass_at_k_by_problem
from breadth.lab.evaluation.training_log import seed_interval
from breadth.lab.task.grammar import TokenRole
from breadth.lab.trials.experiment import ExperimentSetup, ExperimentTrial, FinishedTrial
from breadth.measure.diversity import ArmSamples, count_answers
from breadth.measure.intervals import Bounds, Interval, mean_interval
from breadth.measure.validate import BoolArray, FloatArray, IntArray
from breadth.report.cells import Cell
from breadth.report.sections import Column, Table

if TYPE_CHECKING:
    from breadth.lab.grpo import GrpoRun
    from breadth.lab.reasoner import Reasoner
    from breadth.lab.task.problems import Level


REPLIES_PER_UNIT = 400
"""Replies sampled in the time of one optimizer step, roughly."""
GRPO_WORK, BASE_EVAL_WORK = (
    "breadth.lab.evaluation.checkpoints:run_grpo",
    "breadth.lab.evaluation.checkpoints:evaluate_base",
)
OnUnits = Callable[[int], None]
"""Called with the units of a trial's work that are done."""


@dataclass(frozen=True)
class CheckpointEvalPlan:
    """How policies are evaluated."""

    problems: int = 200
    """Held-out problems of the final evaluation and of the base's."""
    samples: int = 64
    """Replies to each of these."""
    intermediate_problems: int = 100
    """Held-out problems of the evaluations along the way."""
    intermediate_samples: int = 16
    """Replies to each of these."""
    validation_problems: int = 128
    """Validation problems, neither trained on nor held out, that the final policy answers."""
    validation_samples: int = 16
    """Replies to each of these."""
    every: int = 20
    """Optimizer steps between evaluations."""
    level: str = "medium"
    """Level of the problems."""

    def __post_init__(self) -> None:
        for field in (
            "problems",
            "samples",
            "intermediate_problems",
            "intermediate_samples",
            "validation_problems",
            "validation_samples",
            "every",
        ):
            require(self, field, getattr(self, field) >= 1, "1 or more")

    @property
    def units(self) -> int:
        """Work of the final evaluation and of that on the validation set."""
        return ceil(
            (self.problems * self.samples + self.validation_problems * self.validation_samples) / REPLIES_PER_UNIT
        )

    @property
    def intermediate_units(self) -> int:
        """Work of an evaluation along the way."""
        return ceil(self.intermediate_problems * self.intermediate_samples / REPLIES_PER_UNIT)


def grpo_trial(name: str, run: GrpoRun, plan: CheckpointEvalPlan, setup: ExperimentSetup) -> ExperimentTrial:
    """Return the trial of a GRPO run."""
    between = (run.steps - 1) // plan.every
    config = {"weights": setup.weights, "grpo_run": settings.to_table(run), "eval_plan": settings.to_table(plan)}
    return ExperimentTrial(name, GRPO_WORK, config, run.steps + between * plan.intermediate_units + plan.units)


def base_eval_trial(plan: CheckpointEvalPlan, setup: ExperimentSetup) -> ExperimentTrial:
    """Return the trial that evaluates the base as a final policy is evaluated."""
    return ExperimentTrial(
        "base", BASE_EVAL_WORK, {"weights": setup.weights, "eval_plan": settings.to_table(plan)}, plan.units
    )


def run_grpo(config: Mapping[str, Any], folder: Path, base: Path | None, on_units: OnUnits) -> dict[str, Any]:
    """Run GRPO and return every evaluation, the training log and the numbers on the validation set."""
    from breadth.lab.evaluation.training_log import read_training_log
    from breadth.lab.grpo import POLICY_FOLDER, RUN_FOLDER, GrpoRun, train_with_checkpoints
    from breadth.lab.reasoner import load_reasoner

    run, plan = (
        settings.from_table(GrpoRun, config["grpo_run"]),
        settings.from_table(CheckpointEvalPlan, config["eval_plan"]),
    )
    stages = range(plan.every, run.steps, plan.every)
    policies = train_with_checkpoints(run, folder, base, stages, lambda step, _: on_units(step))
    units, found = run.steps, []
    for step, place in policies.items():
        last = step == run.steps
        found.append(
            evaluate_checkpoint(load_reasoner(place), plan, step, run.seed, last=last, run=folder / RUN_FOLDER)
        )
        units += plan.units if last else plan.intermediate_units
        on_units(units)
    validation = evaluate_on_validation(
        load_reasoner(folder / POLICY_FOLDER), run, plan.validation_problems, plan.validation_samples
    )
    return {
        "evals": found,
        "train": read_training_log(folder / RUN_FOLDER, grammar=True).to_row(),
        "validation": validation,
    }


def evaluate_base(config: Mapping[str, Any], folder: Path, base: Path | None, on_units: OnUnits) -> dict[str, Any]:
    """Evaluate the base."""
    from breadth.lab.reasoner import load_reasoner

    plan = settings.from_table(CheckpointEvalPlan, config["eval_plan"])
    found = evaluate_checkpoint(load_reasoner(base), plan, 0, 0, last=True, run=folder / "run")
    on_units(plan.units)
    return {"evals": [found]}


def evaluate_checkpoint(
    reasoner: Reasoner, plan: CheckpointEvalPlan, step: int, seed: int, *, last: bool, run: Path
) -> dict[str, Any]:
    """Evaluate a policy; the replies go to its run folder too."""
    from breadth.lab.evaluation.evaluate import evaluate, write_evaluation
    from breadth.lab.task.problems import draw_tasks

    level: Level = plan.level  # type: ignore[assignment]  # checked where problems are drawn
    count, samples = (plan.problems, plan.samples) if last else (plan.intermediate_problems, plan.intermediate_samples)
    evaluation = evaluate(reasoner, draw_tasks(count, reasoner.teacher.facts.prime, level), samples, seed=seed)
    write_evaluation(evaluation, run, step)
    return summarize_checkpoint(evaluation, step).to_row()


@dataclass(frozen=True)
class CheckpointEval:
    """One policy on some held-out problems, equally many replies to each."""

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
    well_formed: float
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

    def pass_at_k(self, k: int) -> FloatArray:
        """Return pass@k of each problem."""
        return pass_at_k_by_problem(self.right, k)

    def majority_at_k(self, k: int) -> FloatArray:
        """Return maj@k of each problem."""
        return majority_at_k_by_problem(self.table, self.right, k)

    def distinct_answers(self, draws: int) -> FloatArray:
        """Return the expected number of different answers among so many replies to each problem."""
        return np.asarray(count_answers(self._owners, self.table.ravel()).expected_distinct(draws), np.float64)

    @property
    def to_arm_samples(self) -> ArmSamples:
        """The answers as the transfer gap takes them."""
        return ArmSamples(self._owners, self.table.ravel(), self.right.ravel())

    def to_row(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> CheckpointEval:
        """Read what `to_row` returned; null becomes NaN again."""
        numbers = {
            name: float("nan") if row[name] is None else row[name] for name in ("entropy", "planning", "execution")
        }
        return cls(**{**row, **numbers})

    @property
    def _owners(self) -> IntArray:
        return np.repeat(np.arange(len(self.table)), self.samples)


def summarize_checkpoint(evaluation: Evaluation, step: int) -> CheckpointEval:
    """Keep what matters of an evaluation, small enough to store."""
    return CheckpointEval(
        step,
        [problem.answer(evaluation.prime) for problem in evaluation.problems],
        evaluation.answers.tolist(),
        evaluation.entropy(),
        evaluation.entropy(TokenRole.PLANNING),
        evaluation.entropy(TokenRole.EXECUTION),
        evaluation.well_formed_share(),
        float(evaluation.tokens.mean()),
        evaluation.styles(),
        evaluation.routes(),
    )


UNIT_RANGE: Bounds = (0.0, 1.0)
ProblemScores = Callable[[CheckpointEval], FloatArray]
"""A value for each problem."""


@dataclass(frozen=True)
class ArmEvals:
    """The evaluations of one arm."""

    evals: Mapping[int, Sequence[CheckpointEval]]
    """Seed -> its evaluations, the last one of the final policy."""

    @cached_property
    def last(self) -> dict[int, CheckpointEval]:
        """Seed -> the evaluation of its final policy."""
        return {seed: max(plan, key=lambda checkpoint: checkpoint.step) for seed, plan in self.evals.items()}

    def seed_interval(self, measure: ProblemScores, bounds: Bounds = UNIT_RANGE) -> Interval:
        """Return the mean over problems and seeds, with the interval over seeds."""
        return seed_interval([float(np.mean(measure(checkpoint))) for checkpoint in self.last.values()], bounds=bounds)

    def problem_interval(self, measure: ProblemScores, bounds: Bounds = UNIT_RANGE) -> Interval:
        """Return the same mean with the interval over problems."""
        return mean_interval(np.mean([measure(checkpoint) for checkpoint in self.last.values()], axis=0), bounds=bounds)

    def scalar_interval(self, of: Callable[[CheckpointEval], float], bounds: Bounds) -> Interval:
        """Return a number that each evaluation has once, with the interval over seeds; NaN where one has none."""
        values = np.array([of(checkpoint) for checkpoint in self.last.values()])
        return (
            seed_interval(values, bounds=bounds)
            if np.isfinite(values).all()
            else Interval(float("nan"), *bounds, 0.95, "undefined")
        )

    def pair_with(self, other: ArmEvals) -> list[tuple[CheckpointEval, CheckpointEval]]:
        """Return the final evaluations of both arms at each seed that both have."""
        return [(checkpoint, other.last[seed]) for seed, checkpoint in self.last.items() if seed in other.last]

    def gain_over_seeds(self, other: ArmEvals, measure: ProblemScores) -> Interval | None:
        """Return the gain over another arm, paired by seed, with its interval over seeds; None without common seeds."""
        gains = [float(np.mean(measure(own) - measure(their))) for own, their in self.pair_with(other)]
        return seed_interval(gains, bounds=(-1.0, 1.0)) if gains else None

    def gain_over_problems(self, other: ArmEvals, measure: ProblemScores) -> Interval | None:
        """Return the same with the interval over problems."""
        gains = [measure(own) - measure(their) for own, their in self.pair_with(other)]
        return mean_interval(np.mean(gains, axis=0), bounds=(-1.0, 1.0)) if gains else None


def evals_by_arm(done: Sequence[FinishedTrial]) -> dict[str, ArmEvals]:
    """Sort the evaluations of trials called ``arm/seed-N`` by arm and seed."""
    found: dict[str, dict[int, list[CheckpointEval]]] = {}
    for trial in done:
        arm, _, seed = trial.trial.name.partition("/seed-")
        if seed:
            found.setdefault(arm, {})[int(seed)] = [CheckpointEval.from_row(row) for row in trial.result["evals"]]
    return {arm: ArmEvals(plan) for arm, plan in found.items()}


def evaluate_on_validation(reasoner: Reasoner, run: GrpoRun, problems: int, replies: int) -> dict[str, float]:
    """Return pass@1, vote and coverage; as many replies vote as fit the token budget of the corners on average."""
    found = evaluate(reasoner, run.validation_problems(problems, reasoner.teacher.facts.prime), replies, seed=run.seed)
    tokens = float(found.tokens.mean())
    votes = min(replies, max(1, int(FULL_DEMO.thinking / tokens)))
    passed, covered = (found.pass_at(k).value for k in (1, replies))
    return {
        VALIDATION_PASS_1: passed,
        VALIDATION_VOTE: found.majority_at(votes).value,
        VALIDATION_COVERAGE: covered,
        VALIDATION_TOKENS: tokens,
    }


VALIDATION_PASS_1, VALIDATION_VOTE, VALIDATION_COVERAGE, VALIDATION_TOKENS = "passed", "voted", "covered", "tokens"
"""pass@1, a vote for the tokens of the corners, pass@k at all replies, tokens of a reply."""
ValidatedResult = Mapping[str, Any]
"""Result of a trial that was evaluated on the validation set."""


def validation_interval(trials: Sequence[ValidatedResult], what: str) -> Interval:
    """Return one of the numbers, with its interval over seeds."""
    return seed_interval(
        [result["validation"][what] for result in trials],
        bounds=(0.0, float("inf") if what == VALIDATION_TOKENS else 1.0),
    )


def validation_table(head: str, courses: Mapping[str, Sequence[ValidatedResult]], replies: int, note: str) -> Table:
    """Return one row per run; ``replies`` is the number per problem."""
    columns = {
        VALIDATION_PASS_1: "pass@1",
        VALIDATION_VOTE: f"vote for {FULL_DEMO.thinking} tokens",
        VALIDATION_COVERAGE: f"pass@{replies}",
        VALIDATION_TOKENS: "tokens per reply",
    }
    rows: list[list[Cell]] = [
        [name, *(validation_interval(trials, what) for what in columns)] for name, trials in courses.items()
    ]
    return Table("On validation problems, at the end", [Column(head), *map(Column, columns.values())], rows, note)
