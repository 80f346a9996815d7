"""Policies are read from run folders, one checkpoint each, and compared on common problems only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from breadth.base.errors import BrokenFileError, MeasureError
from breadth.comparison.policies import (
    checkpoints,
    choose_split,
    keep_common_problems,
    parse_address,
    read_run_policies,
)
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter


def test_a_checkpoint_by_step_or_the_last(tmp_path: Path, write: Any, replies: Any) -> None:
    run = write(tmp_path / "run", {0: replies["broad"], 50: replies["narrow"]})
    assert [policy.name for policy in read_run_policies(run, "x")] == ["x, step 50"]
    (first,) = read_run_policies(run, "x", (0,))
    drawn, right = first.counts
    assert drawn.tolist() == [4, 4, 4, 4]
    assert right.tolist() == [2, 1, 1, 3]
    assert first.tokens == 10
    assert checkpoints(run) == [0, 50]
    with pytest.raises(BrokenFileError, match="no rollouts at step 7"):
        read_run_policies(run, "x", (7,))


def test_at_most_eight_checkpoints_are_taken_evenly(tmp_path: Path, write: Any, replies: Any) -> None:
    run = write(tmp_path / "run", dict.fromkeys(range(0, 200, 10), replies["broad"]))
    assert checkpoints(run) == [0, 30, 50, 80, 110, 140, 160, 190]


def test_only_common_problems_and_samples_count(tmp_path: Path, broad: Run, write: Any) -> None:
    fewer = write(tmp_path / "fewer", {1: {"a": ["1"] * 3, "b": ["2"] * 5}})
    found, most = keep_common_problems([*read_run_policies(broad, "broad"), *read_run_policies(fewer, "fewer")])
    assert most == 3
    assert [sorted(set(policy.problems.tolist())) for policy in found] == [["a", "b"], ["a", "b"]]
    assert len(found[0].answers) == 8
    alone = write(tmp_path / "alone", {1: {"a": ["1"] * 3}})
    with pytest.raises(MeasureError, match="1 common problems"):
        keep_common_problems([*read_run_policies(broad, "broad"), *read_run_policies(alone, "alone")])


def test_ungraded_rollouts_and_none_at_all_are_refused(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "x", Header(name="x"))
    writer.metrics(1, {"reward": 1.0})
    with pytest.raises(BrokenFileError, match="no rollouts"):
        read_run_policies(Run.open(tmp_path / "x"), "x")
    writer.rollouts({"problem": ["a", "a"], "answer": ["1", "2"]}, 1)
    with pytest.raises(MeasureError, match="neither right nor wrong"):
        read_run_policies(Run.open(tmp_path / "x"), "x")


def test_held_out_problems_are_used_where_all_runs_have_them(tmp_path: Path, broad: Run, replies: Any) -> None:
    writer = RunWriter(tmp_path / "both", Header(name="both"))
    for split, step in (("train", 9), ("eval", 8)):
        rows = [(name, answer) for name, given in replies["narrow"].items() for answer in given]
        table = {"problem": [name for name, _ in rows], "answer": [answer for _, answer in rows]}
        writer.rollouts({**table, "correct": [split == "train"] * len(rows)}, step, split=split)  # type: ignore[arg-type]
    both = Run.open(tmp_path / "both")
    assert choose_split([both, broad]) == "eval"
    (held_out,) = read_run_policies(both, "both", split=choose_split([both, broad]))
    assert (held_out.name, held_out.split, bool(held_out.right.any())) == ("both, step 8", "eval", False)
    RunWriter(tmp_path / "trained", Header(name="trained")).rollouts({"problem": ["a"], "correct": [True]}, 1)
    trained = Run.open(tmp_path / "trained")
    assert choose_split([both, trained]) == "train"
    (seen,) = read_run_policies(both, "both", split=choose_split([both, trained]))
    assert (seen.name, seen.split, bool(seen.right.all())) == ("both, step 9", "train", True)
    assert choose_split([broad, trained]) is None


def test_every_budget_is_a_policy(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "sweep", Header(name="sweep"))
    budgets, right = [None, 500, 500, 8000], [True, True, False, False]
    table = {"problem": ["a"] * 4, "answer": ["1"] * 4, "correct": right, "budget": budgets, "tokens": [9, 5, 7, 80]}
    writer.rollouts(table, 0, split="eval")
    found = read_run_policies(Run.open(tmp_path / "sweep"), "x")
    assert [(policy.name, policy.right.tolist(), policy.tokens) for policy in found] == [
        ("x, no budget", [True], 9.0),
        ("x, budget 500", [True, False], 6.0),
        ("x, budget 8,000", [False], 80.0),
    ]


def test_addresses(tmp_path: Path) -> None:
    (tmp_path / "a@3").mkdir()
    assert parse_address(f"{tmp_path}/b@3") == (tmp_path / "b", (3,))
    assert parse_address(f"{tmp_path}/a@3") == (tmp_path / "a@3", ())
    assert parse_address("runs/a") == (Path("runs/a"), ())
    assert parse_address("a@b") == (Path("a@b"), ())
    place, steps = parse_address("memory://bucket/run@3")
    assert (str(place), steps) == ("memory://bucket/run", (3,))
