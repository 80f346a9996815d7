"""Problems are posed, drawn and read back; what is no problem is refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.base.errors import BrokenFileError, SettingsError, WriteError
from breadth.lab.reasoner import ReasonerShape, build_reasoner, reasoner_prime, save_reasoner
from breadth.lab.task.problems import (
    HELD_OUT_SEED,
    LEVELS,
    MAX_HELD_OUT,
    Level,
    Problem,
    count_level_problems,
    draw_held_out,
    draw_problem,
    draw_problems,
    draw_tasks,
    read_problem,
    write_tasks,
)
from breadth.lab.task.teacher import ArithmeticFacts, Teacher
from breadth.runtime.questions import read_questions

number = st.integers(0, 40)
problems = st.one_of(
    st.builds(Problem, st.tuples(number, number), st.tuples(number)),
    st.builds(Problem, st.tuples(number, number), st.tuples(number, number), st.none() | number),
)


@pytest.mark.parametrize(
    ("problem", "level", "text", "answer"),
    [
        (Problem((3, 4), (5,)), "easy", "( 3 + 4 ) * 5 =", 9),  # 35 = 2 * 13 + 9
        (Problem((3, 4), (5, 6)), "medium", "( 3 + 4 ) * ( 5 + 6 ) =", 12),  # 77 = 5 * 13 + 12
        (Problem((3, 4), (5, 6), 6), "hard", "( 3 + 4 ) * ( 5 + 6 ) + 6 =", 5),  # 83 = 6 * 13 + 5
        (Problem((3, 4), (5, 6), 0), "hard", "( 3 + 4 ) * ( 5 + 6 ) + 0 =", 12),
    ],
)
def test_one_of_each_level(problem: Problem, level: Level, text: str, answer: int) -> None:
    assert (problem.level, problem.text, problem.answer(13)) == (level, text, answer)
    assert read_problem(text) == problem


@given(problems)
def test_what_is_posed_reads_back(problem: Problem) -> None:
    assert read_problem(problem.text) == problem


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "( 3 + 4 ) * 5",
        "( 3 + 4 ) * 5 = =",
        "(3+4)*5=",
        "( 3 * 4 ) * 5 =",
        "( 3 + 4 ) * 5 + 6 =",  # one term on the right and something added: no level
        "( 3 + 4 ) * ( 5 + 6 ) * 7 =",
        "( 3 + 4 ) * ( 5 + 6 ) + 7 + 8 =",
        "( -3 + 4 ) * 5 =",
        "( 03 + 4 ) * 5 =",
        "( \u0663 + 4 ) * 5 =",  # a digit three, but of another script
        f"( {'9' * 5000} + 4 ) * 5 =",  # Python itself refuses to read so long a number
        "<bos> ( 3 + 4 ) * 5 =",
    ],
)
def test_what_is_no_problem_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="no problem of Routes"):
        read_problem(text)


@pytest.mark.parametrize("parts", [((1,), (2, 3)), ((1, 2), ()), ((1, 2), (3, 4, 5)), ((1, 2), (3,), 4)])
def test_a_problem_of_no_level_cannot_be_made(parts: tuple[Any, ...]) -> None:
    with pytest.raises(SettingsError, match="Problem got"):
        Problem(*parts)


@pytest.mark.parametrize("level", LEVELS)
def test_draws_are_of_their_level_and_never_zero(level: Level) -> None:
    rng = np.random.default_rng(0)
    drawn = [draw_problem(rng, 5, level) for _ in range(300)]
    numbers = {one for problem in drawn for one in (*problem.left, *problem.right, problem.added) if one is not None}
    assert {problem.level for problem in drawn} == {level}
    assert numbers == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("problem", "canonical"),
    [
        (Problem((4, 3), (2,)), Problem((3, 4), (2,))),  # one term on the right stays there, low as it is
        (Problem((3, 4), (5, 6)), Problem((3, 4), (5, 6))),
        (Problem((6, 5), (4, 3)), Problem((3, 4), (5, 6))),
        (Problem((9, 2), (3, 2)), Problem((2, 3), (2, 9))),
        (Problem((6, 5), (4, 3), 1), Problem((3, 4), (5, 6), 1)),  # what is added stays what is added
    ],
)
def test_canonical_forms_by_hand(problem: Problem, canonical: Problem) -> None:
    assert problem.canonical == canonical


@given(problems)
def test_commuted_forms_and_no_others_have_one_canonical_form(problem: Problem) -> None:
    for form in _commuted(problem):
        assert form.canonical == problem.canonical
        assert form.answer(41) == problem.answer(41)
    assert problem.canonical in _commuted(problem)


def _commuted(problem: Problem) -> set[Problem]:
    """Every way to write a problem with terms and factors exchanged, written out one by one."""
    (a, b), right, added = problem.left, problem.right, problem.added
    if len(right) == 1:
        return {Problem((a, b), right), Problem((b, a), right)}
    c, d = right
    sums = [(one, other) for one in ((a, b), (b, a)) for other in ((c, d), (d, c))]
    return {Problem(first, second, added) for one, other in sums for first, second in ((one, other), (other, one))}


@pytest.mark.parametrize(("level", "count"), [("easy", 40), ("medium", 55), ("hard", 220)])
def test_problems_are_counted_with_their_commuted_forms_as_one(level: Level, count: int) -> None:
    # Numbers 1 to 4: 4 * 5 / 2 = 10 sums. Easy 10 * 4, medium 10 * 11 / 2 pairs of sums, hard 55 * 4. And once more by
    # writing out all.
    size = {"easy": 3, "medium": 4, "hard": 5}[level]
    every = {Problem((a, b), tuple(rest[:2]), *rest[2:]).canonical for a, b, *rest in product(range(1, 5), repeat=size)}
    assert count_level_problems(5, level) == len(every) == count


def test_many_draws_differ_and_depend_on_the_seed() -> None:
    drawn = draw_problems(200, 7, "medium", seed=1)  # of 231
    assert len({problem.canonical for problem in drawn}) == 200
    assert drawn == draw_problems(200, 7, "medium", seed=1)
    assert drawn != draw_problems(200, 7, "medium", seed=2)
    assert drawn[:50] == draw_problems(50, 7, "medium", seed=1)
    assert any(problem != problem.canonical for problem in drawn)  # posed as they were drawn, in any form


def test_draws_are_not_those_of_the_seed_alone() -> None:
    for seed in range(20):
        (drawn,) = draw_problems(1, 29, "medium", seed)
        assert drawn == draw_problem(np.random.default_rng((seed, 14)), 29)
        assert drawn != draw_problem(np.random.default_rng(seed), 29)


@pytest.mark.parametrize(("level", "count"), [("easy", 40), ("medium", 55), ("hard", 220)])
def test_a_level_can_be_drawn_out_but_not_further(level: Level, count: int) -> None:
    every = draw_problems(count, 5, level, seed=0)
    assert len({problem.canonical for problem in every}) == count
    with pytest.raises(SettingsError, match=f"{count} {level} problems below 5 to draw from, not {count + 1}"):
        draw_problems(count + 1, 5, level, seed=0)
    without = frozenset(every[:10])
    rest = draw_problems(count - 10, 5, level, seed=3, without=without)
    assert {problem.canonical for problem in rest} == {problem.canonical for problem in every[10:]}
    with pytest.raises(SettingsError, match=f"{count - 10} {level}"):
        draw_problems(count - 9, 5, level, seed=3, without=without)


def test_what_is_left_out_is_left_out_in_every_form() -> None:
    one = Problem((4, 3), (2, 1), 3)
    for form in _commuted(one):
        rest = draw_problems(219, 5, "hard", seed=1, without=frozenset({form}))
        assert not _commuted(one) & set(rest)
    with pytest.raises(SettingsError, match="219 hard"):  # eight forms, all left out, cost one problem
        draw_problems(220, 5, "hard", seed=1, without=frozenset(_commuted(one)))
    assert len(_commuted(one)) == 8


def test_leaving_out_what_could_not_be_drawn_costs_nothing() -> None:
    strange = frozenset(
        {Problem((1, 1), (1, 1)), Problem((0, 1), (1,)), Problem((5, 1), (1,))}
    )  # another level, zero, beyond the prime
    assert len(draw_problems(40, 5, "easy", seed=0, without=strange)) == 40
    zero = frozenset({Problem((1, 1), (1, 1), 0)})
    assert len(set(draw_problems(220, 5, "hard", seed=0, without=zero))) == 220


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(SettingsError, match="no level 'tricky'"):
        draw_problems(1, 7, cast("Level", "tricky"), seed=0)


def test_the_first_problems_held_out_are_those_that_a_smaller_draw_gives() -> None:
    whole = draw_held_out(29, "medium")
    assert len({problem.canonical for problem in whole}) == MAX_HELD_OUT
    assert whole[:200] == draw_problems(200, 29, "medium", HELD_OUT_SEED)


def test_a_small_world_gives_a_tenth_of_its_problems() -> None:
    assert len(draw_held_out(7, "easy")) == 12  # 21 sums of two numbers from 1 to 6, times 6: 126 of them


def test_tasks_are_held_out_and_depend_on_the_seed() -> None:
    drawn = draw_tasks(50, 29, "hard", seed=3)
    assert len(set(drawn)) == 50
    assert set(drawn) <= set(draw_held_out(29, "hard"))
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
    save_reasoner(
        build_reasoner(Teacher(ArithmeticFacts(prime=7)), ReasonerShape(hidden=32, layers=1, heads=2, inner=32)),
        tmp_path / "base",
    )
    assert reasoner_prime(tmp_path / "base") == 7
    with pytest.raises(BrokenFileError):
        reasoner_prime(tmp_path)
