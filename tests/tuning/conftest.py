"""Evidence made by hand, and sweeps of a scripted model whose best budget is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.sweep_plan import Arm, SweepPlan, forced_arms, plain_arm
from breadth.inference.thinking import UNMARKED_THINKING
from breadth.runtime.questions import Question
from breadth.runtime.recording import SweepOptions
from breadth.runtime.sweep import Sweep
from breadth.testing.strategies import HumpModel
from breadth.tuning.evidence import ArmEvidence, SweepEvidence

Table = Sequence[Sequence[float]]
Made = Callable[..., SweepEvidence]
Swept = Callable[..., Path]


def arm_evidence(arm: Arm, classes: Table, worth: Table, tokens: float, **others: Any) -> ArmEvidence:
    labels = np.asarray(classes, dtype=np.int64)
    same = np.ones(labels.shape)
    return ArmEvidence(
        arm,
        tuple(tuple(None if label < 0 else str(label) for label in row) for row in labels.tolist()),
        labels,
        np.asarray(worth, dtype=np.float64),
        same * tokens,
        np.asarray(others.get("seconds", same), dtype=np.float64),
        same * others.get("money", 0.0),
        np.asarray(others.get("confidences", same * np.nan), dtype=np.float64),
        same > 2,
        tuple(others.get("texts", [""] * labels.size)),
    )


@pytest.fixture
def made() -> Made:
    """Make evidence: classes of plain samples (class 0 is right), and the classes of each budget."""

    def make(
        plain: Table,
        forced: Mapping[int, Table] | None = None,
        *,
        tokens: float = 10.0,
        widths: tuple[int, ...] = (1, 2),
        labelled: bool = True,
        **others: Any,
    ) -> SweepEvidence:
        first = plain_arm(range(1, len(plain[0]) + 1))
        budgets = dict(sorted((forced or {}).items()))
        arms = forced_arms(budgets, UNMARKED_THINKING, 1)
        plan = SweepPlan(Policy(), (first, *arms), widths, len(plain))
        drawn = [arm_evidence(first, plain, (np.asarray(plain) == 0).astype(float).tolist(), tokens, **others)]
        drawn += [
            arm_evidence(arm, table, (np.asarray(table) == 0).astype(float).tolist(), (arm.budget or 0) + 4.0)
            for arm, table in zip(arms, budgets.values(), strict=True)
        ]
        names = tuple(f"q{place}" for place in range(len(plain)))
        return SweepEvidence(plan, names, 0, ("0",) * len(plain), labelled, tuple(drawn))

    return make


@pytest.fixture
def swept(tmp_path: Path) -> Swept:
    """Sweep a scripted model into a run folder: its accuracy by words of thinking, and what else it is like."""

    def sweep(accuracy: Callable[[int], float], questions: int = 50, *, labelled: bool = True, **settings: Any) -> Path:
        truths = {f"What is {number} + 1?": str(number + 1) for number in range(questions)}
        asked = [
            Question(f"q{place}", text, answer if labelled else None)
            for place, (text, answer) in enumerate(truths.items())
        ]
        sampling = Sampling(max_tokens=1024, top_logprobs=20 if "confidence_gap" in settings else 0)
        widths, budgets = settings.pop("widths", (1, 2, 4, 8)), settings.pop("budgets", (16, 32, 64, 128, 256))
        wishes = SweepOptions(
            Policy(sampling=sampling), widths, budgets, settings.pop("draws", 4), settings.pop("seed", 0)
        )
        model = HumpModel(accuracy, truths, **settings)

        async def main() -> Path:
            collected = Sweep(model, asked, wishes, tmp_path / f"sweep-{wishes.seed}")
            await collected.run_pilot()
            return await collected.collect()

        return asyncio.run(main())

    return sweep
