"""The verbs as functions: what they return is what the command line prints."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

import breadth
from breadth.base.errors import SettingsError
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter
from breadth.testing.fake_replies import Reply
from breadth.testing.fake_server import FakeServer


@pytest.fixture
def collapsed(tmp_path: Path) -> Path:
    """A TRL log whose entropy falls to a hundredth while the score is flat."""
    rows = [
        {"step": step, "entropy": 2.0 * 0.955**step * (1 + 0.02 * (-1) ** step), "reward": 0.5 + 0.01 * (-1) ** step}
        for step in range(1, 101)
    ]
    log = tmp_path / "trainer_state.json"
    log.write_text(json.dumps({"log_history": rows, "global_step": 100}), encoding="utf-8")
    return log


def test_a_diagnosis_names_the_failure_and_outlives_its_files(collapsed: Path, tmp_path: Path) -> None:
    diagnosis = breadth.diagnose(collapsed)
    collapsed.unlink()
    assert "entropy-collapse" in [finding.name for finding in diagnosis.findings]
    assert [finding["name"] for finding in diagnosis.to_json()["findings"]] == [
        finding.name for finding in diagnosis.findings
    ]
    assert "entropy-collapse" in repr(diagnosis)
    assert "<iframe srcdoc=" in diagnosis._repr_html_()
    diagnosis.save_html(tmp_path / "page.html")
    assert "entropy-collapse" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_columns_are_named_as_a_mapping(tmp_path: Path) -> None:
    log = tmp_path / "rows.jsonl"
    log.write_text(
        "".join(json.dumps({"iteration": step, "h": 1.0 / step}) + "\n" for step in range(1, 41)), encoding="utf-8"
    )
    diagnosis = breadth.diagnose(log, columns={"step": "iteration", "entropy": "h"})
    assert "entropy-collapse" in [finding.name for finding in diagnosis.findings]


def test_nothing_to_look_at_is_an_error() -> None:
    with pytest.raises(SettingsError, match="No path was given"):
        breadth.diagnose()


def test_compare_returns_the_page(tmp_path: Path) -> None:
    for name, rewards in (("base", [1.0, 0.0, 0.0, 0.0]), ("trained", [1.0, 1.0, 0.0, 0.0])):
        writer = RunWriter(tmp_path / name, Header(name=name, trainer="trl"))
        writer.rollouts(
            {"problem": ["a"] * 4 + ["b"] * 4, "answer": ["1", "2", "3", "4"] * 2, "reward": rewards * 2}, 0
        )
    result = breadth.compare(tmp_path / "base", tmp_path / "trained", samples=2)
    assert "pass@1" in json.dumps(result.to_json())
    assert "base" in repr(result)
    with pytest.raises(SettingsError, match="one way"):
        breadth.compare(tmp_path / "base", tmp_path / "trained", samples=2, tokens=3)


def test_a_run_folder_that_was_trained_into_twice_is_compared_by_its_last_run(tmp_path: Path) -> None:
    rows = {"problem": ["a"] * 4 + ["b"] * 4, "answer": ["1", "2", "3", "4"] * 2, "reward": [1.0, 0.0, 0.0, 0.0] * 2}
    RunWriter(tmp_path / "base", Header(name="base", trainer="trl")).rollouts(rows, 0)
    for _ in range(2):
        writer = RunWriter(tmp_path / "twice", Header(name="twice", trainer="trl"))
        for step in range(20):
            writer.metrics(step, {"reward": 0.5})
        writer.rollouts(rows, 19)
    run = Run.open(tmp_path / "twice")
    assert len(run.all_runs) == 2
    assert repr(run) == f"<Run '{tmp_path / 'twice'}': steps 20, metrics 1, rollout files 1>"
    assert "twice, run 2 of 2, step 19" in repr(breadth.compare(tmp_path / "base", tmp_path / "twice"))


def test_solve_answers_with_and_without_a_running_loop() -> None:
    async def work() -> None:
        async with FakeServer(Reply.from_text("The answer is 84.")) as server:
            awaited = await breadth.solve_async("What is 12 x 7?", url=server.url, policy="vote,n=2")
            called = await asyncio.to_thread(breadth.solve, "What is 12 x 7?", url=server.url, policy="vote,n=2")
            assert (awaited.answer.key, called.answer.key) == ("84", "84")
            shown = re.sub(r"confidence [\d.]+|tokens \d+", "_", repr(awaited))
            assert shown == "<SolveResult '84', _, samples 2, _>"

    asyncio.run(work())


def test_tune_measures_a_server_and_writes_a_policy_that_solve_runs(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"question": f"{n} + 1?", "answer": str(n % 3)}) + "\n" for n in range(16)))

    def answer(body: dict[str, Any], number: int) -> Reply:
        """Give the right answer in two of three samples, and a different wrong one each time in the others."""
        question = int(body["messages"][-1]["content"].split()[0])
        return Reply.from_text(f"The answer is {question % 3 if number % 3 else 100 + number}.")

    async def work() -> None:
        async with FakeServer(answer) as server:
            result = await asyncio.to_thread(
                breadth.tune, server.url, tasks=tasks, out=tmp_path / "run", budgets=(), widths=(1, 4), samples=4
            )
            assert (tmp_path / "run" / "policy.toml").is_file()
            assert [option.name for option in result.options]
            assert re.fullmatch(rf"<TuningResult {result.choice.option.name}: \d+% .+ per question>", repr(result))
            solved = await breadth.solve_async("4 + 1?", url=server.url, policy=str(tmp_path / "run" / "policy.toml"))
            assert solved.answer.key is not None

    asyncio.run(work())


def test_run_async_works_inside_a_running_loop() -> None:
    from breadth.api import run_async

    async def inner() -> int:
        return 42

    async def outer() -> int:
        return run_async(inner())

    assert asyncio.run(outer()) == 42
    assert run_async(inner()) == 42
