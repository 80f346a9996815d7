"""Groups are counted as drawn and right; a run that cannot tell right from wrong says so instead of guessing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from breadth.runs import outcomes
from breadth.runs.outcomes import correctness_sql, count_outcomes, read_samples, rollout_steps, sample_texts
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter

ROWS = {"problem": ["a", "a", "b", "b"], "reward": [1.0, 0.0, 0.0, 0.0], "answer": ["3", "4", None, "3"]}


def build(folder: Path, header: Header | None = None, **columns: list[object]) -> Run:
    writer = RunWriter(folder, header)
    writer.rollouts({**ROWS, **columns}, 1)
    writer.rollouts({**ROWS, "reward": [1.0, 1.0, 1.0, 0.0], **columns}, 2)
    return Run.open(folder)


def test_two_valued_rewards_grade_the_groups(tmp_path: Path) -> None:
    found = count_outcomes(build(tmp_path))
    assert found is not None
    rows = sorted(
        zip(found.steps.tolist(), found.problems.tolist(), found.graded.tolist(), found.correct.tolist(), strict=True)
    )
    assert rows == [(1, "a", 2, 1), (1, "b", 2, 0), (2, "a", 2, 2), (2, "b", 2, 1)]
    assert len(found.select_steps(np.array([2]))) == 2


def test_minus_one_and_one_are_two_values(tmp_path: Path) -> None:
    found = count_outcomes(build(tmp_path, reward=[1.0, -1.0, -1.0, -1.0]))
    assert found is not None
    assert sorted(found.correct.tolist()) == [0, 0, 1, 1]


def test_a_shaped_reward_is_not_guessed_at(tmp_path: Path) -> None:
    run = build(tmp_path, reward=[1.0, 0.5, 0.0, 0.0])
    assert correctness_sql(run) is None
    assert count_outcomes(run) is None


def test_an_infinite_reward_is_no_level(tmp_path: Path) -> None:
    infinite = build(tmp_path / "a", Header(reward_levels=(0.0, float("inf")), files=("x",)), reward=[np.inf, 0, 0, 0])
    assert correctness_sql(infinite) is None
    found = count_outcomes(build(tmp_path / "b", reward=[np.inf, np.nan, 0.0, 1.0]))
    assert found is not None
    assert (found.graded.tolist(), found.correct.tolist()) == ([2, 2], [1, 1])


def test_a_grade_beats_the_reward_and_an_ungraded_row_is_not_counted(tmp_path: Path) -> None:
    found = count_outcomes(build(tmp_path, reward=[0.3, 0.7, 0.1, 0.2], correct=[True, False, None, True]))
    assert found is not None
    assert dict(zip(found.problems.tolist(), found.graded.tolist(), strict=True)) == {"a": 2, "b": 1}


def test_levels_of_the_header_are_trusted(tmp_path: Path) -> None:
    run = build(tmp_path, Header(reward_levels=(0.0, 1.0), files=("x",)))
    assert "reward = 1.0" in str(correctness_sql(run))


def test_groups_split_one_problem_at_one_step(tmp_path: Path) -> None:
    found = count_outcomes(build(tmp_path, problem=["a"] * 4, group=["g", "g", "h", "h"]))
    assert found is not None
    assert len(found) == 4


def test_samples_carry_answers_without_text(tmp_path: Path) -> None:
    run = build(tmp_path, truncated=[False, True, None, False])
    read = read_samples(run, 2, 2)
    assert read.answers == ("3", "4", None, "3")
    assert read.correct.tolist() == [1, 1, 1, 0]
    assert read.truncated.tolist() == [False, True, False, False]
    assert [read.names[number] for number in read.problems] == ["a", "a", "b", "b"]
    assert read.groups.tolist() == [0, 0, 1, 1]
    assert rollout_steps(run).tolist() == [1, 2]


def test_a_text_of_many_rollouts_is_there_once(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["q"] * 5000, "answer": ["a long answer", None] * 2500}, 1)
    read = read_samples(Run.open(tmp_path), 1, 1)
    assert len({id(answer) for answer in read.answers}) == 2
    assert read.answers == ("a long answer", None) * 2500
    assert len(read_samples(Run.open(tmp_path), 2, 2)) == 0


def test_a_run_without_rollouts_has_no_outcomes(tmp_path: Path) -> None:
    RunWriter(tmp_path).metrics(1, {"a": 1.0})
    run = Run.open(tmp_path)
    assert count_outcomes(run) is None
    assert rollout_steps(run).size == 0


@pytest.mark.parametrize("split", ["eval", "train"])
def test_splits_stay_apart(tmp_path: Path, split: str) -> None:
    run = build(tmp_path)
    found = count_outcomes(run, split)
    assert found is not None
    assert len(found) == (4 if split == "train" else 0)


def test_rollouts_without_a_step_are_of_no_step(tmp_path: Path) -> None:
    build(tmp_path)
    table = pa.table({"step": pa.array([None, 5]), "problem": ["a", "b"], "split": ["train", "train"]})
    pq.write_table(table, tmp_path / "rollouts" / "train-00000005-r0-a0-p0.parquet")
    run = Run.open(tmp_path)
    assert rollout_steps(run).tolist() == [1, 2, 5]


def test_of_a_text_without_end_only_the_beginning_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "MAX_TEXT_CHARACTERS", 5)
    run = build(tmp_path, completion=["é" * 1000, "short", None, "é"])
    assert sorted(sample_texts(run, 1, 1, 10)) == sorted(["é" * 5, "short", "é"])
