"""Files of questions: held out, distinct, right, and readable by whoever reads questions."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.base.errors import BrokenFileError, SettingsError, WriteError
from breadth.lab.model.reasoner import Shape, build, save
from breadth.lab.task.facts import Facts
from breadth.lab.task.problems import HELD_OUT_SEED, Problem, draw_problems
from breadth.lab.task.tasks import MOST_HELD_OUT, draw_tasks, held_out, prime_of, write_tasks
from breadth.lab.task.teacher import Teacher
from breadth.runtime.questions import read_questions


def test_the_first_problems_held_out_are_those_that_a_smaller_draw_gives() -> None:
    whole = held_out(29, "medium")
    assert len({problem.canonical for problem in whole}) == MOST_HELD_OUT
    assert whole[:200] == draw_problems(200, 29, "medium", HELD_OUT_SEED)


def test_a_small_world_gives_a_tenth_of_its_problems() -> None:
    assert len(held_out(7, "easy")) == 12  # 21 sums of two numbers from 1 to 6, times 6: 126 of them


def test_tasks_are_held_out_and_depend_on_the_seed() -> None:
    drawn = draw_tasks(50, 29, "hard", seed=3)
    assert len(set(drawn)) == 50
    assert set(drawn) <= set(held_out(29, "hard"))
    assert drawn == draw_tasks(50, 29, "hard", seed=3) != draw_tasks(50, 29, "hard", seed=4)
    assert draw_tasks(20, 29, "hard", seed=3) == drawn[:20]


@pytest.mark.parametrize("count", [0, 13])
def test_more_than_there_are_is_refused(count: int) -> None:
    with pytest.raises(SettingsError, match="Ask for 1 to 12"):
        draw_tasks(count, 7, "easy")


def test_the_file_is_read_as_questions_with_right_answers(tmp_path: Path) -> None:
    # (3 + 4)(5 + 6) = 77 = 2 * 29 + 19;  (3 + 4) * 5 = 35 = 29 + 6;  77 + 12 = 89 = 3 * 29 + 2
    problems = [Problem((3, 4), (5, 6)), Problem((3, 4), (5,)), Problem((3, 4), (5, 6), 12)]
    write_tasks(tmp_path / "tasks.jsonl", problems, 29)
    read = read_questions(tmp_path / "tasks.jsonl")
    assert [question.prompt for question in read] == [problem.text for problem in problems]
    assert [question.key for question in read] == ["19", "6", "2"]
    assert [question.name for question in read] == ["(3+4)*(5+6)", "(3+4)*5", "(3+4)*(5+6)+12"]


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="could not be written"):
        write_tasks(tmp_path / "absent" / "tasks.jsonl", [Problem((3, 4), (5, 6))], 29)


def test_the_prime_is_that_of_the_reasoner(tmp_path: Path) -> None:
    save(build(Teacher(Facts(prime=7)), Shape(hidden=32, layers=1, heads=2, inner=32)), tmp_path / "base")
    assert prime_of(tmp_path / "base") == 7
    with pytest.raises(BrokenFileError):
        prime_of(tmp_path)
