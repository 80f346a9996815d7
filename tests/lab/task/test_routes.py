"""Every route leads to the answer, whatever the order of its steps, and equal terms leave several steps to choose from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.lab.task.facts import Facts
from breadth.lab.task.problems import Problem
from breadth.lab.task.routes import ROUTES, Progress, Step, routes_of, steps_of

EASY, MEDIUM, HARD = Problem((3, 4), (5,)), Problem((3, 4), (5, 6)), Problem((3, 4), (5, 6), 2)
TRUE = Facts(prime=11, shaky=0.0, right=0.1, believed=0.6)
number = st.integers(1, 10)
problems = st.one_of(
    st.builds(Problem, st.tuples(number, number), st.tuples(number)),
    st.builds(Problem, st.tuples(number, number), st.tuples(number, number), st.none() | number),
)


@pytest.mark.parametrize(
    ("problem", "counts"),
    [
        (EASY, {"add": 2, "left": 3}),  # a + b, times c; a * c, b * c, their sum
        (MEDIUM, {"add": 3, "left": 4, "right": 4, "expand": 7}),  # expand: four products, three sums
        (HARD, {"add": 4, "left": 5, "right": 5, "expand": 8}),  # and one more sum
    ],
)
def test_the_number_of_operations(problem: Problem, counts: dict[str, int]) -> None:
    assert {route: len(Progress(problem, route).left) for route in routes_of(problem)} == counts


@given(problems, st.data())
def test_every_route_in_every_order_leads_to_the_answer(problem: Problem, data: st.DataObject) -> None:
    for route in routes_of(problem):
        progress = Progress(problem, route)
        while progress.left:
            step = data.draw(st.sampled_from(progress.ready()))
            progress.take(step, TRUE.value(step.sign, progress.values[step.first], progress.values[step.second]))
        assert progress.result == problem.answer(11)
        assert progress.result == progress.values["r" if problem.added is None else "z"]


def test_routes_take_different_operations() -> None:
    walks = {
        route: tuple((step.sign, step.first, step.second) for step in steps_of(route, 2, False)) for route in ROUTES
    }
    assert walks["left"] == (("+", "c", "d"), ("*", "a", "t"), ("*", "b", "t"), ("+", "u", "v"))
    assert walks["right"] == (("+", "a", "b"), ("*", "s", "c"), ("*", "s", "d"), ("+", "u", "v"))
    assert len(set(walks.values())) == 4


def test_a_step_waits_for_its_operands() -> None:
    progress = Progress(MEDIUM, "add")
    assert [step.name for step in progress.ready()] == ["s", "t"]
    assert progress.matching("*", 7, 0) == []
    progress.take(progress.ready()[0], 7)
    assert [step.name for step in progress.ready()] == ["t"]
    progress.take(progress.ready()[0], 0)
    assert progress.matching("*", 0, 7) == progress.matching("*", 7, 0) == [Step("r", "*", "s", "t")]
    assert progress.matching("+", 7, 0) == []


def test_equal_terms_leave_a_choice() -> None:
    names = [step.name for step in Progress(Problem((2, 2), (3, 4)), "expand").matching("*", 3, 2)]
    assert names == ["ac", "bc"]
    crossed = [step.name for step in Progress(Problem((2, 3), (2, 3)), "expand").matching("*", 2, 3)]
    assert crossed == ["ad", "bc"]


def test_looking_ahead_changes_nothing() -> None:
    progress = Progress(MEDIUM, "add")
    further = progress.after(progress.ready()[0], 9)
    assert (further.values["s"], further.result, len(further.left)) == (9, 9, 2)
    assert progress == Progress(MEDIUM, "add")
