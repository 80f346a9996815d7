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
from breadth.runs.outcomes import read_samples, rollout_steps
from breadth.runs.reader import Run

MOST = 8
"""Checkpoints of one run that are compared when none is named: as many as a chart can tell apart."""


@dataclass(frozen=True, eq=False)
class ComparedPolicy:
    """One policy: one row a sample, in order of problems."""

    name: str
    """What a reader calls it."""
    problems: npt.NDArray[np.object_]
    """Problem of each sample."""
    answers: tuple[str | None, ...]
    """What it answered."""
    right: BoolArray
    """Whether that is right."""
    tokens: float | None
    """Mean tokens of a sample; None where they were not logged."""

    def only(self, kept: npt.NDArray[np.object_]) -> ComparedPolicy:
        """Keep the samples of some problems."""
        keep = np.isin(self.problems.astype(str), kept.astype(str))
        answers = tuple(answer for answer, stays in zip(self.answers, keep.tolist(), strict=True) if stays)
        return replace(self, problems=self.problems[keep], answers=answers, right=self.right[keep])

    @property
    def classes(self) -> IntArray:
        """Class of each answer; -1 where none could be read."""
        return answer_classes(self.answers)

    @property
    def counts(self) -> tuple[IntArray, IntArray]:
        """Samples drawn and right ones of each problem, in sorted order of problems."""
        _, owners = np.unique(self.problems.astype(str), return_inverse=True)
        return np.bincount(owners).astype(np.int64), np.bincount(owners, self.right).astype(np.int64)


def read_policies(run: Run, name: str, steps: Sequence[int] = ()) -> list[ComparedPolicy]:
    """Read the checkpoints of a run: those at some steps, else the last one with held-out replies, else its last step of training."""
    split = "eval" if len(rollout_steps(run, "eval")) else "train"
    there = rollout_steps(run, split)
    if not len(there):
        raise BrokenFileError(
            run.folder,
            "has no rollouts: nothing to compare.",
            "Compare runs whose rollouts were logged (breadth show RUN).",
        )
    missing = [step for step in steps if step not in there]
    if missing:
        raise BrokenFileError(
            run.folder,
            f"has no rollouts at step {missing[0]}.",
            f"It has them at {', '.join(str(step) for step in there[:20])}.",
        )
    chosen = list(steps) or [int(there[-1])]
    return [_contestant(run, f"{name}, step {step}", step, split) for step in chosen]


def checkpoints(run: Run) -> list[int]:
    """Return the steps of a run that have held-out replies, evenly thinned to at most eight."""
    there = rollout_steps(run, "eval")
    places = np.linspace(0, len(there) - 1, min(MOST, len(there))).round().astype(np.int64)
    return [int(there[place]) for place in np.unique(places)]


def _contestant(run: Run, name: str, step: int, split: str) -> ComparedPolicy:
    drawn = read_samples(run, step, step, split)
    if np.isnan(drawn.correct).any() or not len(drawn):
        raise MeasureError(
            f"Some rollouts of {run.folder.name} at step {step} are neither right nor wrong.",
            "Log a grade, or a reward with two values.",
        )
    order = np.argsort(drawn.problems, kind="stable")
    names = np.array(drawn.names, dtype=object)[drawn.problems[order]]
    answers = tuple(drawn.answers[place] for place in order.tolist())
    return ComparedPolicy(name, names, answers, (drawn.correct == 1)[order], _tokens(run, step, split))


def _tokens(run: Run, step: int, split: str) -> float | None:
    if "tokens" not in run.columns:
        return None
    found = run.query("SELECT avg(tokens) AS mean FROM rollouts WHERE split = ? AND step = ?", split, step).to_pylist()[
        0
    ]["mean"]
    return None if found is None else float(found)


def on_common_problems(found: Sequence[ComparedPolicy]) -> tuple[list[ComparedPolicy], int]:
    """Keep the problems that all were asked, and return how many samples each of them has everywhere."""
    common = set(found[0].problems.tolist())
    for one in found[1:]:
        common &= set(one.problems.tolist())
    if len(common) < 2:
        raise MeasureError(
            f"{' and '.join(one.name for one in found[:2])} were asked {len(common)} common problems.",
            "Compare policies that were asked the same problems: two at least.",
        )
    kept = np.array(sorted(common), dtype=object)
    narrowed = [one.only(kept) for one in found]
    return narrowed, int(min(one.counts[0].min() for one in narrowed))


def parse_address(text: str) -> tuple[Path, tuple[int, ...]]:
    """Read ``RUN`` or ``RUN@STEP``; a folder whose name has an @ is a folder."""
    if Path(text).exists() or "@" not in text:
        return Path(text), ()
    place, _, step = text.rpartition("@")
    return (Path(place), (int(step),)) if step.isdigit() else (Path(text), ())
