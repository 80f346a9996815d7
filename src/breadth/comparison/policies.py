"""The policies that are compared: graded answers of one checkpoint to problems that all of them were asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from breadth.base.errors import BrokenFileError, MeasureError
from breadth.measure.answers import answer_classes
from breadth.measure.validate import BoolArray, IntArray
from breadth.runs.outcomes import ANY_BUDGET, budget_condition, budget_name, read_samples, rollout_steps, sample_budgets
from breadth.runs.paths import locate
from breadth.runs.reader import Run

MAX_CHECKPOINTS = 8
"""Most checkpoints of one run to compare when none is named: as many as a chart can tell apart."""


@dataclass(frozen=True, eq=False)
class ComparedPolicy:
    """The graded samples of one policy, one row per sample, in order of problems."""

    name: str
    """Name in the report."""
    problems: npt.NDArray[np.object_]
    """Problem of each sample."""
    answers: tuple[str | None, ...]
    """Answer of each sample; None where none could be read."""
    right: BoolArray
    """Whether each sample is right."""
    tokens: float | None
    """Mean tokens per sample; None where they were not logged."""
    split: str = "eval"
    """Whether the problems are held-out ones (eval) or were trained on (train)."""

    def keep_problems(self, kept: npt.NDArray[np.object_]) -> ComparedPolicy:
        """Return the policy with only the samples of some problems."""
        keep = np.isin(self.problems.astype(str), kept.astype(str))
        answers = tuple(answer for answer, stays in zip(self.answers, keep.tolist(), strict=True) if stays)
        return replace(self, problems=self.problems[keep], answers=answers, right=self.right[keep])

    @property
    def classes(self) -> IntArray:
        """Class of each answer; -1 where none could be read."""
        return answer_classes(self.answers)

    @property
    def counts(self) -> tuple[IntArray, IntArray]:
        """Number of samples and of right ones per problem, in sorted order of problems."""
        _, owners = np.unique(self.problems.astype(str), return_inverse=True)
        return np.bincount(owners).astype(np.int64), np.bincount(owners, self.right).astype(np.int64)


def choose_split(runs: Sequence[Run]) -> str | None:
    """Return the kind of problems that all runs have rollouts of, held-out ones first; None where there is none."""
    return next((split for split in ("eval", "train") if all(len(rollout_steps(run, split)) for run in runs)), None)


def read_run_policies(run: Run, name: str, steps: Sequence[int] = (), split: str | None = None) -> list[ComparedPolicy]:
    """Read checkpoints of a run: those at some steps, else the last one. Each budget of thinking is a policy.

    Without a ``split`` held-out replies are read where there are any.
    """
    split = split or choose_split([run]) or "train"
    available = rollout_steps(run, split)
    if not len(available):
        raise BrokenFileError(
            run.folder,
            "has no rollouts: nothing to compare.",
            "Compare runs whose rollouts were logged (breadth show RUN).",
        )
    missing = [step for step in steps if step not in available]
    if missing:
        raise BrokenFileError(
            run.folder,
            f"has no rollouts at step {missing[0]}.",
            f"It has them at {', '.join(str(step) for step in available[:20])}.",
        )
    if budgets := sample_budgets(run, split):
        step = int(available[-1])
        return [read_checkpoint(run, f"{name}, {budget_name(budget)}", step, split, budget) for budget in budgets]
    chosen = list(steps) or [int(available[-1])]
    if is_one_evaluation(run):
        return [read_checkpoint(run, name, chosen[0], split)]
    return [read_checkpoint(run, f"{name}, step {step}", step, split) for step in chosen]


def is_one_evaluation(run: Run) -> bool:
    """Say whether a run is one evaluation without a step, whose step 0 means nothing."""
    return bool(run.header.files) and not run.metric_names() and not len(rollout_steps(run))


def checkpoints(run: Run) -> list[int]:
    """Return the steps of a run that have held-out replies, thinned evenly to at most eight."""
    available = rollout_steps(run, "eval")
    places = np.linspace(0, len(available) - 1, min(MAX_CHECKPOINTS, len(available))).round().astype(np.int64)
    return [int(available[place]) for place in np.unique(places)]


def read_checkpoint(run: Run, name: str, step: int, split: str, budget: int | None = ANY_BUDGET) -> ComparedPolicy:
    """Read the graded samples of one step, of all budgets or of one; refuse rollouts without a grade."""
    samples = read_samples(run, step, step, split, budget)
    if np.isnan(samples.correct).any() or not len(samples):
        raise MeasureError(
            f"Some rollouts of {run.folder.name} at step {step} are neither right nor wrong.",
            "Log a grade, or a reward with two values: `breadth show RUN` says how.",
        )
    order = np.argsort(samples.problems, kind="stable")
    names = np.array(samples.names, dtype=object)[samples.problems[order]]
    answers = tuple(samples.answers[place] for place in order.tolist())
    tokens = None
    if "tokens" in run.columns:
        mean = f"SELECT avg(tokens) AS mean FROM rollouts WHERE split = ? AND step = ? {budget_condition(budget)}"  # noqa: S608 - a number
        tokens = run.query(mean, split, step).to_pylist()[0]["mean"]
    correct = (samples.correct == 1)[order]
    return ComparedPolicy(name, names, answers, correct, None if tokens is None else float(tokens), split)


def keep_common_problems(policies: Sequence[ComparedPolicy]) -> tuple[list[ComparedPolicy], int]:
    """Keep the problems that all policies were asked; also return the fewest samples that any of them has."""
    common = set(policies[0].problems.tolist())
    for policy in policies[1:]:
        common &= set(policy.problems.tolist())
    if len(common) < 2:
        raise MeasureError(
            f"{' and '.join(policy.name for policy in policies[:2])} were asked {len(common)} common problems.",
            "Compare policies that were asked the same problems: two at least.",
        )
    kept = np.array(sorted(common), dtype=object)
    narrowed = [policy.keep_problems(kept) for policy in policies]
    return narrowed, int(min(policy.counts[0].min() for policy in narrowed))


def parse_address(text: str) -> tuple[Path, tuple[int, ...]]:
    """Read ``RUN`` or ``RUN@STEP``; a folder whose name has an @ is a folder."""
    place, _, step = text.rpartition("@")
    if not step.isdigit() or Path(text).exists():
        return locate(text), ()
    return locate(place), (int(step),)
