"""Runs made to order: metrics as arrays, rollouts as rows, settings as a TrainerConfig."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.trainer_config import TrainerConfig, dialect_of
from breadth.measure.validate import FloatArray
from breadth.runs.reader import Run
from breadth.runs.schema import EntropyKind, Header
from breadth.runs.writer import RunWriter

Make = Callable[..., Evidence]
"""Makes evidence:
``make(entropy=values, rollouts={step: rows}, evals={name: values}, config=TrainerConfig(...), trainer="trl")``.
"""

PER_TOKEN = EntropyKind("exact", 1.0, "token-mean", "response")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return what makes evidence; metrics are logged at steps 1, 2, ... in the order given."""

    def evidence(
        *,
        rollouts: Mapping[int, Mapping[str, Sequence[Any]]] | None = None,
        held_out: Mapping[int, Mapping[str, Sequence[Any]]] | None = None,
        evals: Mapping[str, npt.ArrayLike] | None = None,
        config: TrainerConfig | None = None,
        trainer: str = "trl",
        kind: EntropyKind = PER_TOKEN,
        levels: tuple[float, ...] = (),
        **series: npt.ArrayLike,
    ) -> Evidence:
        folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        header = Header(
            name="made",
            trainer=trainer,
            names={name: name for name in series},
            entropies={"entropy": kind},
            reward_levels=levels,
        )
        writer = RunWriter(folder, header)
        for split, columns in (("train", series), ("eval", evals or {})):
            values = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
            for place in range(max((len(column) for column in values.values()), default=0)):
                row = {name: float(column[place]) for name, column in values.items() if place < len(column)}
                writer.metrics(place + 1, row, split=split)  # type: ignore[arg-type]  # of the two there are
        for step, rows in (rollouts or {}).items():
            writer.rollouts(rows, step)
        for step, rows in (held_out or {}).items():
            writer.rollouts(rows, step, split="eval")
        return Evidence("made", Run.open(folder), config or TrainerConfig(), dialect_of(trainer))

    return evidence


def noisy(values: npt.ArrayLike, spread: float, seed: int = 0) -> FloatArray:
    """Return values with normal noise."""
    exact = np.asarray(values, dtype=np.float64)
    return np.asarray(exact + np.random.default_rng(seed).normal(0, spread, len(exact)))


@pytest.fixture
def around() -> Callable[..., FloatArray]:
    """Return what adds noise to values."""
    return noisy


START: dict[str, list[str | None]] = {"a": ["3", "3", "4", "5"], "b": ["7", "8", "9", None]}
END: dict[str, list[str | None]] = {"a": ["3", "3", "3", "3"], "b": ["7", "7", "7", "7"]}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Sixteen steps: problem a has the answer 3, problem b the answer 6; the policy narrows after step 8."""
    kind = EntropyKind("exact", 1.0, "token-mean", "response")
    header = Header(name="small", trainer="trl", names={"entropy": "entropy"}, entropies={"entropy": kind})
    writer = RunWriter(tmp_path / "run", header)
    for step in range(1, 17):
        answers = START if step <= 8 else END
        problems = [problem for problem, given in answers.items() for _ in given]
        stated = [answer for given in answers.values() for answer in given]
        right = [float(problem == "a" and answer == "3") for problem, answer in zip(problems, stated, strict=True)]
        texts = [f"We add and get the answer.\nThe answer is \\boxed{{{answer}}}" for answer in stated]
        writer.rollouts({"problem": problems, "answer": stated, "reward": right, "completion": texts}, step)
        writer.metrics(step, {"entropy": 1.0 / step, "reward": sum(right) / 8, "odd": 1.0})
    return Run.open(writer.folder)
