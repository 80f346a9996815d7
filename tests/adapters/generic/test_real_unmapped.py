"""Rollouts whose columns have names of their own are refused with the mapping to copy, which then works."""

from __future__ import annotations

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from breadth.api import importers_with
from breadth.base.errors import UnknownFormatError
from breadth.cli.output import parse_columns
from breadth.runs.importing import import_files
from breadth.runs.reader import Run

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "import.md"


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rollouts(**columns: str) -> list[dict[str, Any]]:
    """Return 40 rollouts of two steps under the given column names."""
    return [
        {
            columns["step"]: number // 20,
            columns["problem"]: f"q{number % 5}",
            columns["completion"]: rf"We add both and get \boxed{{{number % 3}}}.",
            columns["reward"]: float(number % 3 == 0),
        }
        for number in range(40)
    ]


def mapping_in(text: str) -> dict[str, str]:
    """Return the mapping that a text says to give on the command line."""
    words = shlex.split(text)
    return parse_columns([after for word, after in pairwise(words) if word == "--map"]) or {}


@pytest.mark.parametrize("text", ["...", "We add both numbers and get 5."])
def test_completions_without_a_step_are_asked_about(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.jsonl", [{"id": number // 4, "text": text, "score": number % 2} for number in range(40)])
    with pytest.raises(UnknownFormatError, match="one row per completion, not per step") as refused:
        import_files([path], tmp_path / "run")
    found = mapping_in(refused.value.remedy)
    assert found == {"reward": "score", "problem": "COLUMN", "completion": "text"}
    import_files([path], tmp_path / "run", importers=importers_with(found | {"problem": "id"}))
    count = "SELECT count(DISTINCT problem) p, count(completion) n FROM rollouts WHERE split = 'eval'"
    assert Run.open(tmp_path / "run").query(count).to_pylist() == [{"p": 10, "n": 40}]


@pytest.mark.parametrize(
    "labels", [{"id": 7, "env": "math"}, {"text": "ok"}, {"id": 7, "text": "ok", "loss": 1, "kl": 2}]
)
def test_a_log_without_a_step_is_still_one(tmp_path: Path, labels: dict[str, Any]) -> None:
    path = write(tmp_path / "a.jsonl", [{**labels, "reward": number / 32} for number in range(20)])
    import_files([path], tmp_path / "run")
    assert len(Run.open(tmp_path / "run").series("reward")) == 20


@pytest.mark.parametrize("problem", ["question_id", "which"])
def test_the_mapping_to_copy_works(tmp_path: Path, problem: str) -> None:
    rows = rollouts(step="iteration", problem=problem, completion="text", reward="points")
    path = write(tmp_path / "results.jsonl", rows)
    with pytest.raises(UnknownFormatError, match="one row per completion, not per step") as refused:
        import_files([path], tmp_path / "run")
    found = mapping_in(refused.value.remedy)
    if problem == "question_id":
        assert found == {"step": "iteration", "problem": problem, "completion": "text", "reward": "points"}
    found |= {"problem": problem, "completion": "text", "reward": "points"}
    import_files([path], tmp_path / "run", importers=importers_with(found))
    run = Run.open(tmp_path / "run")
    assert run.query("SELECT count(DISTINCT problem) p, count(answer) a FROM rollouts").to_pylist() == [
        {"p": 5, "a": 40}
    ]


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"completion": "The answer is 1"}, "--map problem=COLUMN"),
        ({"question_id": "q{}", "text": "42"}, "--map problem=question_id --map completion=text"),
        ({"question_id": "q{}"}, "--map problem=question_id"),
        ({"answer": "42", "correct": "yes"}, "--map problem=COLUMN"),
        ({"id": "{}", "text": "I think that it is one"}, "--map problem=COLUMN --map completion=text"),
    ],
)
@pytest.mark.parametrize("stride", [1, 7], ids=["in order", "shuffled"])
def test_rollouts_without_a_text_or_a_problem_are_no_log_of_restarts(
    columns: dict[str, str], options: str, stride: int, tmp_path: Path
) -> None:
    rows = [
        {"step": number // 10, **{name: text.format(number % 5) for name, text in columns.items()}, "reward": 1.0}
        for number in (place * stride % 40 for place in range(40))
    ]
    with pytest.raises(UnknownFormatError, match="one row per completion, not per step") as refused:
        import_files([write(tmp_path / "results.jsonl", rows)], tmp_path / "run")
    assert set(options.split()) <= set(refused.value.remedy.split())


def test_numbers_of_many_rows_per_step_are_no_log(tmp_path: Path) -> None:
    rows = [{"step": number // 20, "reward": 1.0} for number in range(60)]
    with pytest.raises(UnknownFormatError, match="holds 20 rows for each step, where a log has one"):
        import_files([write(tmp_path / "results.jsonl", rows)], tmp_path / "run")


def test_a_log_that_two_processes_write_or_that_spreads_a_step_over_rows_stays_a_log(tmp_path: Path) -> None:
    two = [{"step": number // 2, "reward": 1.0, "host": "a machine with a rather long name"} for number in range(40)]
    assert import_files([write(tmp_path / "two.jsonl", two)], tmp_path / "two").metric_rows == 40
    spread = [{"step": number // 20, f"metric/{number % 20}": 1.0} for number in range(60)]
    assert import_files([write(tmp_path / "spread.jsonl", spread)], tmp_path / "spread").metric_rows == 60


def test_a_log_with_a_text_in_each_row_stays_a_log(tmp_path: Path) -> None:
    rows = [{"step": step, "reward": 0.5, "host": "a machine with a rather long name"} for step in range(1, 9)]
    assert import_files([write(tmp_path / "log.jsonl", rows)], tmp_path / "run").metric_rows == 8


def test_the_documented_mapping_reads_completions_and_their_answers(tmp_path: Path) -> None:
    (command,) = re.findall(r"^breadth import results\.jsonl[^`]*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    found = mapping_in(command.replace("\\\n", " "))
    assert {"step", "problem", "completion", "reward"} <= found.keys()
    path = write(tmp_path / "results.jsonl", rollouts(**{ours: found[ours] for ours in found}))
    import_files([path], tmp_path / "run", importers=importers_with(found))
    rows = Run.open(tmp_path / "run").query("SELECT completion, answer, reward FROM rollouts LIMIT 1").to_pylist()
    assert all(value is not None for value in rows[0].values())
