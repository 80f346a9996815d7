"""A small run whose numbers can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.runs.header import Header
from breadth.runs.reader import Run
from breadth.runs.schema import EntropyKind
from breadth.runs.writer import RunWriter

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
