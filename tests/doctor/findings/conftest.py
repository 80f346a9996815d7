"""Sweeps and recorded runs made to order: tables of answers, one row per question, where 0 is correct."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pytest

from breadth.base.settings import to_table
from breadth.doctor.evidence.record import Evidence
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.sweep_plan import SweepPlan, forced_arms, plain_arm
from breadth.inference.thinking import UNMARKED_THINKING
from breadth.measure.validate import IntArray
from breadth.runs.reader import Run
from breadth.runs.schema import Header, to_toml_value
from breadth.runs.writer import RunWriter

Swept = Callable[..., Evidence]
"""``swept(plain, {64: forced}, policy=Policy(...), tokens=100, texts={0: ...}, confidences=..., labelled=True)``."""
Recorded = Callable[..., Evidence]
"""``recorded(answers, policy, texts=..., confidences=..., thinking=..., tokens=..., labelled=True)``."""


def columns(answers: IntArray, *, labelled: bool, **given: Any) -> dict[str, list[Any]]:
    """Return the rollouts of a table of answers; what is given may be one value, or one for each sample."""
    names = [f"q{place:04d}" for place in range(len(answers))]
    flat = answers.ravel().tolist()
    wide = {
        name: np.broadcast_to(np.asarray(value), answers.shape).ravel().tolist()
        for name, value in given.items()
        if name != "texts"
    }
    texts = given.get("texts") or [f"Adding up. The answer is {label}." for label in flat]
    extras = [
        {"input_tokens": 30, "cached_tokens": 0, "seconds": 0.5, "independent": True}
        | {"confidence": None if np.isnan(sure) else sure, "thinking_tokens": thinking}
        for sure, thinking in zip(wide["confidences"], wide["thinking"], strict=True)
    ]
    return {
        "problem": [name for name in names for _ in range(answers.shape[1])],
        "sample": [place for _ in names for place in range(answers.shape[1])],
        "completion": list(texts),
        "answer": [None if label < 0 else str(label) for label in flat],
        "correct": [label == 0 if labelled else None for label in flat],
        "tokens": [int(value) for value in wide["tokens"]],
        "truncated": [False] * answers.size,
        "extra": [orjson.dumps(one).decode() for one in extras],
    }


def problems(writer: RunWriter, number: int, *, labelled: bool) -> None:
    """Write the questions, whose right answer is 0."""
    names = [f"q{place:04d}" for place in range(number)]
    writer.problems({"problem": names, "prompt": names, "reference": ["0" if labelled else None] * number})


@pytest.fixture
def swept(tmp_path: Path) -> Swept:
    """Return what writes a sweep and gives it as evidence; a forced arm writes its budget and four tokens more."""

    def sweep(
        plain: npt.ArrayLike,
        forced: Mapping[int, npt.ArrayLike] | None = None,
        *,
        widths: tuple[int, ...] = (1, 2, 4, 8),
        policy: Policy | None = None,
        server: Mapping[str, Any] | None = None,
        sampling: Sampling | None = None,
        tokens: npt.ArrayLike = 100,
        texts: Mapping[int, Sequence[str]] | None = None,
        confidences: npt.ArrayLike = np.nan,
        thinking: Mapping[int, npt.ArrayLike] | None = None,
        labelled: bool = True,
    ) -> Evidence:
        first = np.asarray(plain, dtype=np.int64)
        tables = {budget: np.asarray(table, dtype=np.int64) for budget, table in sorted((forced or {}).items())}
        draws = next(iter(tables.values())).shape[1] if tables else 1
        kept = tuple(width for width in widths if width <= first.shape[1])
        arms = (plain_arm((first.shape[1],)), *forced_arms(tables, UNMARKED_THINKING, draws))
        plan = SweepPlan(Policy(sampling=sampling or Sampling()), arms, kept, len(first))
        folder = tmp_path / f"sweep{len(list(tmp_path.iterdir()))}"
        writer = RunWriter(folder, Header(name="sweep", config=to_toml_value({"plan": to_table(plan)})))
        written, thought = texts or {}, thinking or {}
        rows = columns(
            first,
            labelled=labelled,
            tokens=tokens,
            confidences=confidences,
            thinking=thought.get(0, 0),
            texts=written.get(0),
        )
        writer.rollouts(rows, 0, split="eval")
        for step, (budget, table) in enumerate(tables.items(), 1):
            told = {
                "tokens": budget + 4,
                "confidences": np.nan,
                "thinking": thought.get(budget, budget),
                "texts": written.get(budget),
            }
            writer.rollouts(columns(table, labelled=labelled, **told), step, split="eval")
        problems(writer, len(first), labelled=labelled)
        return Evidence("sweep", Run.open(folder), policy=policy, server=server)

    return sweep


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """Return what writes a run as `breadth solve` records it and gives it as evidence."""

    def record(answers: npt.ArrayLike, policy: Policy, *, labelled: bool = True, **given: Any) -> Evidence:
        table = np.asarray(answers, dtype=np.int64)
        folder = tmp_path / f"recorded{len(list(tmp_path.iterdir()))}"
        writer = RunWriter(folder, Header(name="recorded", config={"policy": to_table(policy)}))
        told = {"tokens": 100, "confidences": np.nan, "thinking": 0} | {
            name: value for name, value in given.items() if name != "server"
        }
        writer.rollouts(columns(table, labelled=labelled, **told), 0, split="eval")
        problems(writer, len(table), labelled=labelled)
        return Evidence("recorded", Run.open(folder), server=given.get("server"))

    return record


@pytest.fixture
def chance() -> Callable[..., IntArray]:
    """Return what draws tables of answers: 0 with the chance of each question, else wrong ones out of so many."""

    def drawn(chances: npt.ArrayLike, samples: int, *, wrong: int = 50, seed: int = 0) -> IntArray:
        rng, odds = np.random.default_rng(seed), np.asarray(chances, dtype=np.float64)
        shape = (len(odds), samples)
        return np.where(rng.random(shape) < odds[:, None], 0, rng.integers(1, wrong + 1, shape)).astype(np.int64)

    return drawn
