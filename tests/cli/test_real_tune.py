"""``breadth tune`` against the real llama.cpp server: a model without thinking marks, and the same one with them."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest
import typer
from typer.testing import CliRunner

from breadth.base.settings import from_table
from breadth.cli.solve import EXIT_UNREAD, solve
from breadth.cli.tune import EXIT_CANNOT_TELL, tune
from breadth.inference.policy import Policy
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.single import Single
from breadth.inference.sweep_plan import SweepPlan
from breadth.inference.thinking import UNMARKED_THINKING, Thinking
from breadth.runs.reader import Run
from breadth.runtime.journal import JOURNAL_FILE

QUESTIONS = {"What is 2 + 2?": 4, "What is 3 + 4?": 7, "What is 1 + 5?": 6, "What is 2 + 6?": 8}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    rows = [
        {"id": text, "question": f"{text} Reply with the number.", "answer": answer}
        for text, answer in QUESTIONS.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(verb: object, *arguments: object) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(verb)  # type: ignore[type-var] # a function, which is all it asks for
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def test_a_model_without_thinking_marks_is_tuned_and_the_policy_runs(llama: str, tasks: Path, tmp_path: Path) -> None:
    sizes = (
        "--budgets",
        "4,12",
        "--widths",
        "1,2",
        "--samples",
        1,
        "--max-tokens",
        24,
        "--answer-format",
        "number",
        "--model",
        "smollm2",
    )
    arguments = (llama, "--tasks", tasks, "--out", tmp_path / "run", *sizes, "--yes", "--json")
    status, told = run(tune, *arguments)
    assert status == EXIT_CANNOT_TELL  # four questions are too few for anything
    assert json.loads(told)["sections"][0]["severity"] == "cannot tell"
    recorded = Run.open(tmp_path / "run")
    plan = from_table(SweepPlan, recorded.header.config["plan"])
    assert [arm.budget for arm in plan.serial] == [4, 12]
    assert all(
        isinstance(arm.strategy, BudgetForcing) and arm.strategy.thinking == UNMARKED_THINKING for arm in plan.serial
    )
    rows = recorded.query("SELECT step, tokens, extra FROM rollouts").to_pylist()
    assert sorted(row["step"] for row in rows) == [0] * 8 + [1] * 4 + [2] * 4
    budgets = {1: 4, 2: 12}
    for row in rows:
        assert 1 <= row["tokens"] <= 24
        if row["step"]:
            # Exactly the budget, but for the token that ends a reply, which the server counts and does not send.
            assert orjson.loads(row["extra"])["thinking_tokens"] <= budgets[row["step"]]
            assert orjson.loads(row["extra"])["calls"] >= 2
    before = (tmp_path / "run" / JOURNAL_FILE).read_bytes()
    assert run(tune, *arguments)[0] == EXIT_CANNOT_TELL
    assert (tmp_path / "run" / JOURNAL_FILE).read_bytes() == before
    policy = tmp_path / "run" / "policy.toml"
    assert Policy.parse(str(policy)).strategy == Single()
    status, told = run(solve, "What is 2 + 2? Reply with the number.", "--url", llama, "--policy", policy, "--json")
    assert status in (0, EXIT_UNREAD)  # what the small model replies differs between processors
    assert json.loads(told)["arrived"] == 1


def test_a_model_that_marks_its_thinking_is_forced_inside_the_marks(
    thinking_llama: str, tasks: Path, tmp_path: Path
) -> None:
    sizes = (
        "--questions",
        3,
        "--budgets",
        "8",
        "--widths",
        1,
        "--samples",
        1,
        "--max-tokens",
        32,
        "--answer-format",
        "number",
    )
    assert (
        run(tune, thinking_llama, "--tasks", tasks, "--out", tmp_path / "run", *sizes, "--yes")[0] == EXIT_CANNOT_TELL
    )
    recorded = Run.open(tmp_path / "run")
    (arm,) = from_table(SweepPlan, recorded.header.config["plan"]).serial
    assert isinstance(arm.strategy, BudgetForcing)
    assert arm.strategy.thinking == Thinking()
    for row in recorded.query("SELECT completion, extra FROM rollouts WHERE step = 1").to_pylist():
        assert row["completion"].count("</think>") >= 1
        assert orjson.loads(row["extra"])["thinking_tokens"] <= 8
