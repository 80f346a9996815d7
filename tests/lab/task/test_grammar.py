"""Every route leads to the answer in any order of its steps; equal terms leave several steps to choose from."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from breadth.lab.task.grammar import (
    AGAIN,
    CLOSE,
    END,
    OPEN,
    ROUTES,
    Operation,
    RouteProgress,
    RouteStep,
    TokenRole,
    available_routes,
    parse,
    route_steps,
    write_operation,
)
from breadth.lab.task.problems import LEVELS, Problem, draw_problem
from breadth.lab.task.teacher import ArithmeticFacts, Teacher

EASY, MEDIUM, HARD = Problem((3, 4), (5,)), Problem((3, 4), (5, 6)), Problem((3, 4), (5, 6), 2)
TRUE = ArithmeticFacts(prime=11, shaky=0.0, right=0.1, believed=0.6)
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
    assert {route: len(RouteProgress(problem, route).left) for route in available_routes(problem)} == counts


@given(problems, st.data())
def test_every_route_in_every_order_leads_to_the_answer(problem: Problem, data: st.DataObject) -> None:
    for route in available_routes(problem):
        progress = RouteProgress(problem, route)
        while progress.left:
            step = data.draw(st.sampled_from(progress.ready_steps()))
            progress.take(step, TRUE.value(step.sign, progress.values[step.first], progress.values[step.second]))
        assert progress.result == problem.answer(11)
        assert progress.result == progress.values["r" if problem.added is None else "z"]


def test_routes_take_different_operations() -> None:
    walks = {
        route: tuple((step.sign, step.first, step.second) for step in route_steps(route, 2, False)) for route in ROUTES
    }
    assert walks["left"] == (("+", "c", "d"), ("*", "a", "t"), ("*", "b", "t"), ("+", "u", "v"))
    assert walks["right"] == (("+", "a", "b"), ("*", "s", "c"), ("*", "s", "d"), ("+", "u", "v"))
    assert len(set(walks.values())) == 4


def test_a_step_waits_for_its_operands() -> None:
    progress = RouteProgress(MEDIUM, "add")
    assert [step.name for step in progress.ready_steps()] == ["s", "t"]
    assert progress.matching_steps("*", 7, 0) == []
    progress.take(progress.ready_steps()[0], 7)
    assert [step.name for step in progress.ready_steps()] == ["t"]
    progress.take(progress.ready_steps()[0], 0)
    assert progress.matching_steps("*", 0, 7) == progress.matching_steps("*", 7, 0) == [RouteStep("r", "*", "s", "t")]
    assert progress.matching_steps("+", 7, 0) == []


def test_equal_terms_leave_a_choice() -> None:
    names = [step.name for step in RouteProgress(Problem((2, 2), (3, 4)), "expand").matching_steps("*", 3, 2)]
    assert names == ["ac", "bc"]
    crossed = [step.name for step in RouteProgress(Problem((2, 3), (2, 3)), "expand").matching_steps("*", 2, 3)]
    assert crossed == ["ad", "bc"]


def test_looking_ahead_changes_nothing() -> None:
    progress = RouteProgress(MEDIUM, "add")
    further = progress.with_step(progress.ready_steps()[0], 9)
    assert (further.values["s"], further.result, len(further.left)) == (9, 9, 2)
    assert progress == RouteProgress(MEDIUM, "add")


P, E, F, S = TokenRole.PLANNING, TokenRole.EXECUTION, TokenRole.FORM, TokenRole.STRAY
PROBLEM = Problem((3, 4), (5, 6))
REPLY = str.split(
    "<think> add 3 + 4 =0 6 + 5 =4 0 * 4 =0 again left + 5 6 =1 * 3 1 =3 * 4 1 =4 + 3 4 =0 </think> 0 <eos>"
)
WRITER = Teacher(
    ArithmeticFacts(prime=7, shaky=0.5, right=0.1, believed=0.6), attempts=3, content=0.6, careless=0.4, cut=0.4
)

NUMBER, SIGN = "(?:0|[1-9][0-9]{0,8})", "[+*]"
WHOLE = f" (?:{NUMBER} {SIGN} {NUMBER}|{SIGN} {NUMBER} {NUMBER}) ={NUMBER}"
PART = f"(?: {NUMBER}(?: {SIGN}(?: {NUMBER})?)?| {SIGN}(?: {NUMBER}(?: {NUMBER})?)?)"
ATTEMPT = f" (?:{'|'.join(ROUTES)})(?:{WHOLE})*"
LANGUAGE = re.compile(f"<think>(?:{ATTEMPT}(?: again{ATTEMPT})*(?:{PART}| again)?)? </think> {NUMBER} <eos>")
"""The language a second time, as a pattern: the reader must agree with it."""

WORDS = (
    OPEN,
    CLOSE,
    AGAIN,
    END,
    *ROUTES,
    "+",
    "*",
    "=",
    "(",
    ")",
    "0",
    "1",
    "2",
    "3",
    "=0",
    "=1",
    "=3",
    "=123456789",
    "<bos>",
    "",
    " ",
    "hm",
    "-1",
    "01",
    "\u0663",
    "9" * 5000,
    "==0",
    "=01",
    "=-1",
    "= 0",
    "0=",
    "=+",
    "=\u0663",
    "=" + "9" * 10,
)


def test_a_reply_with_every_role_spelled_out() -> None:
    trace = parse(PROBLEM, REPLY)
    infix, prefix = (P, P, P, E), (P, P, P, E)
    assert trace.roles == (F, P, *infix, *infix, *infix, P, P, *prefix, *prefix, *prefix, *prefix, P, E, F)
    assert trace.well_formed
    assert trace.answer == 0
    first, second = trace.attempts
    assert (first.route, first.style, first.followed, first.result) == ("add", "infix", True, 0)
    assert first.operations == (Operation("+", 3, 4, 0), Operation("+", 6, 5, 4), Operation("*", 0, 4, 0))
    assert (second.route, second.style, second.followed, second.result) == ("left", "prefix", True, 0)
    assert second.operations[1] == Operation("*", 3, 1, 3)


def test_operations_in_both_formats() -> None:
    assert write_operation("infix", "+", 3, 5, 8) == ["3", "+", "5", "=8"]
    assert write_operation("prefix", "+", 3, 5, 8) == ["+", "3", "5", "=8"]


@pytest.mark.parametrize(
    ("thinking", "roles", "attempts"),
    [
        ("", (), 0),
        ("add", (P,), 1),
        ("add 3", (P, P), 1),
        ("add 3 +", (P, P, P), 1),
        ("add + 3 4", (P, P, P, P), 1),
        ("add 3 + 4", (P, P, P, P), 1),
        ("add 3 + 4 =0", (P, P, P, P, E), 1),
        ("add + 3 4 =0", (P, P, P, P, E), 1),
        ("add 3 + 4 =0 again", (P, P, P, P, E, P), 1),
        ("add 3 + 4 =0 6", (P, P, P, P, E, P), 1),
        ("add 3 + 4 =123456789", (P, P, P, P, E), 1),  # the longest number there is
    ],
)
def test_thinking_cut_short_is_formed_but_not_followed(
    thinking: str, roles: tuple[TokenRole, ...], attempts: int
) -> None:
    trace = parse(PROBLEM, [OPEN, *thinking.split(), CLOSE, "2", END])
    assert trace.roles == (F, *roles, P, E, F)
    assert (trace.well_formed, trace.answer) == (True, 2)
    assert [attempt.followed for attempt in trace.attempts] == [False] * attempts


@pytest.mark.parametrize(
    ("reply", "placed"),
    [
        ("", 0),
        ("add 3 + 4 =0 </think> 0 <eos>", 0),  # thinking never opened
        ("<think>", 1),
        ("<think> add 3 + 4 =0", 6),  # never closed
        ("<think> add 3 + 4 =0 </think>", 7),  # no answer
        ("<think> add 3 + 4 =0 </think> <eos>", 7),
        ("<think> add 3 + 4 =0 </think> 0", 8),  # no end
        ("<think> add 3 + 4 =0 0 <eos>", 7),  # answer before closing: it could begin an operation, the end could not
        ("<think> </think> 0 <eos> <eos>", 4),  # garbage behind the end
        ("<think> </think> 0 0 <eos>", 3),
        ("<think> again </think> 0 <eos>", 1),
        ("<think> add again again </think> 0 <eos>", 3),
        ("<think> add left </think> 0 <eos>", 2),  # two routes and no 'again'
        ("<think> add 3 + 4 again add </think> 0 <eos>", 5),  # unfinished, yet going on
        ("<think> add + 3 4 again add </think> 0 <eos>", 5),
        ("<think> add 3 + 4 =0 0 again add </think> 0 <eos>", 7),
        ("<think> add 3 + hm 4 =0 </think> 0 <eos>", 4),
        ("<think> add 3 4 + =0 </think> 0 <eos>", 3),
        ("<think> up 3 + 4 =0 </think> 0 <eos>", 1),
        ("<think> add 3 + 4 =0 </think> -1 <eos>", 7),
        ("<think> add 3 + 4 =0 </think> 007 <eos>", 7),
        ("<think> add 3 + 4 =0 </think> \u0663 <eos>", 7),
        (f"<think> add 3 + 4 =0 </think> {'9' * 5000} <eos>", 7),
        ("<think> add 3 + 4 =0 </think> =0 <eos>", 7),  # the answer is a plain number
        (f"<think> add {'9' * 5000} + 4 =0 </think> 0 <eos>", 2),
        ("<think> add 3 + 4 = 0 </think> 0 <eos>", 5),  # a result is one token with its sign
        ("<think> add 3 + 4 = </think> 0 <eos>", 5),
        ("<think> add 3 + 4 0 </think> 0 <eos>", 5),
        ("<think> add + 3 4 0 </think> 0 <eos>", 5),
        ("<think> add 3 + 4 ==0 </think> 0 <eos>", 5),
        ("<think> add 3 + 4 =-1 </think> 0 <eos>", 5),
        ("<think> add 3 + 4 =00 </think> 0 <eos>", 5),
        ("<think> add 3 + 4 =\u0663 </think> 0 <eos>", 5),
        ("<think> add 3 + 4 =1234567890 </think> 0 <eos>", 5),
        (f"<think> add 3 + 4 ={'9' * 5000} </think> 0 <eos>", 5),
        ("<think> add 3 + 4 =0 =0 </think> 0 <eos>", 6),  # two results
        ("<think> add 3 + =4 =0 </think> 0 <eos>", 4),  # a result for an operand
        ("<think> add 3 =4 </think> 0 <eos>", 3),
        ("<think> add + 3 =4 </think> 0 <eos>", 4),
        ("<think> add =3 + 4 =0 </think> 0 <eos>", 2),
        ("<think> =0 </think> 0 <eos>", 1),
    ],
)
def test_what_is_out_of_place_is_stray(reply: str, placed: int) -> None:
    trace = parse(PROBLEM, reply.split())
    assert (trace.well_formed, trace.answer) == (False, None)
    assert [role is S for role in trace.roles] == [False] * placed + [True] * (len(reply.split()) - placed)


def test_a_token_dropped_or_doubled_is_noticed() -> None:
    last = len(REPLY) - 4  # the value before the end of thinking: without it the thinking might have been cut there
    for place in range(len(REPLY)):
        dropped = parse(PROBLEM, [*REPLY[:place], *REPLY[place + 1 :]])
        doubled = parse(PROBLEM, [*REPLY[: place + 1], *REPLY[place:]])
        foreign = parse(PROBLEM, [*REPLY[:place], "hm", *REPLY[place + 1 :]])
        assert (dropped.well_formed, doubled.well_formed, foreign.well_formed) == (place == last, False, False)
        if place == last:
            assert [attempt.followed for attempt in dropped.attempts] == [True, False]


def test_a_number_too_many_is_noticed_unless_thinking_might_have_been_cut_behind_it() -> None:
    close = len(REPLY) - 3
    for place in range(len(REPLY) + 1):
        grown = parse(PROBLEM, [*REPLY[:place], "3", *REPLY[place:]])
        assert grown.well_formed == (place == close)
        if place == close:
            assert [attempt.followed for attempt in grown.attempts] == [True, False]


def test_a_number_is_no_result_and_a_result_no_number() -> None:
    numbers = [place for place, word in enumerate(REPLY) if word.strip("=").isdigit()]
    assert len(numbers) == 3 * 7 + 1  # of each operation, and the answer
    for place in numbers:
        word = REPLY[place]
        other = word[1:] if word.startswith("=") else f"={word}"
        assert not parse(PROBLEM, [*REPLY[:place], other, *REPLY[place + 1 :]]).well_formed
        assert not parse(PROBLEM, [*REPLY[:place], "=", word.strip("="), *REPLY[place + 1 :]]).well_formed


def test_swapped_tokens_are_noticed_unless_they_spell_another_reply() -> None:
    formed = [place for place in range(len(REPLY) - 1) if parse(PROBLEM, _swapped(REPLY, place)).well_formed]
    infix = [2, 6, 10]  # 3 + 4 becomes + 3 4
    prefix = [16, 20, 24, 28]  # + 5 6 becomes 5 + 6
    operands = [17, 21, 25, 29]
    assert formed == sorted([*infix, *prefix, *operands])
    for place in formed:
        assert all(attempt.followed for attempt in parse(PROBLEM, _swapped(REPLY, place)).attempts)


@pytest.mark.parametrize(
    "thinking",
    [
        "add 3 + 4 =0 6 + 5 =4",  # not walked to the end
        "add 3 + 4 =0 6 + 5 =4 0 * 4 =0 3 + 4 =0",  # further than the end
        "add 3 + 4 =0 6 + 5 =4 0 * 4 =0 3 +",
        "add 3 + 4 =0 6 + 5 =4 0 + 4 =4",  # wrong operator
        "add 3 + 4 =0 6 + 5 =4 0 * 5 =0",  # an operand that is not due
        "add 3 + 4 =0 0 * 4 =0 6 + 5 =4",  # a product before its operand is known
        "add 3 + 4 =0 3 + 4 =4 0 * 4 =0",  # one step twice
        "left 3 + 4 =0 6 + 5 =4 0 * 4 =0",  # another route
        "add",
    ],
)
def test_an_attempt_off_its_route_is_formed_but_not_followed(thinking: str) -> None:
    trace = parse(PROBLEM, [OPEN, *thinking.split(), CLOSE, "0", END])
    assert trace.well_formed
    assert [attempt.followed for attempt in trace.attempts] == [False]


def test_a_route_the_problem_does_not_have_is_not_followed() -> None:
    trace = parse(Problem((3, 4), (5,)), str.split("<think> right 3 + 4 =0 0 * 5 =0 </think> 0 <eos>"))
    assert trace.well_formed
    assert not trace.attempts[0].followed


@pytest.mark.parametrize(
    ("sums", "followed"),
    [
        ("5 + 6 =4 1 + 0 =1 4 + 1 =5", True),  # ac = 5, ad = 6, bc = 1, bd = 0
        ("1 + 6 =0 5 + 0 =5 0 + 5 =5", True),  # ac = 1, ad = 6, bc = 5, bd = 0
        ("0 + 1 =1 6 + 5 =4 4 + 1 =5", True),
        ("5 + 1 =6 6 + 0 =6 6 + 6 =5", False),  # both products with c in one sum: no reading has that
    ],
)
def test_products_of_equal_terms_may_have_different_values(sums: str, followed: bool) -> None:
    # a = b = 2: which of the two lines "2 * 3" is a * c and which b * c shows only in the sums behind them.
    reply = f"<think> expand 2 * 3 =1 2 * 3 =5 2 * 4 =6 4 * 2 =0 {sums} </think> 5 <eos>".split()
    trace = parse(Problem((2, 2), (3, 4)), reply)
    assert trace.well_formed
    assert trace.attempts[0].followed is followed


def test_crosswise_equal_terms() -> None:
    # a = c = 2, b = d = 3: a * d and b * c read alike. Written: bc = 0, ad = 5; then u = 4 + 5, v = 0 + 2.
    reply = str.split("<think> expand 2 * 3 =0 3 * 2 =5 2 * 2 =4 3 * 3 =2 4 + 5 =2 2 + 0 =2 2 + 2 =4 </think> 4 <eos>")
    assert parse(Problem((2, 3), (2, 3)), reply).attempts[0].followed


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=30))
@example([OPEN, CLOSE, "1", END])
@settings(max_examples=200, deadline=None)
def test_random_words_never_raise(words: list[str]) -> None:
    _check(PROBLEM, words)


@given(
    st.integers(0, 10**6),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200), st.sampled_from(WORDS)), max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_damaged_replies_never_raise(seed: int, damages: list[tuple[int, int, str]]) -> None:
    rng = np.random.default_rng(seed)
    problem = draw_problem(rng, 7, LEVELS[rng.integers(3)])
    words = list(WRITER.write(problem, rng).words)
    for kind, where, word in damages:
        place = where % len(words)
        if kind == 3:
            words = _swapped(words, place) if place < len(words) - 1 else words[:place]
        else:
            words[place : place + 1] = ([], [words[place]] * 2, [word])[kind]
        if not words:
            break
    _check(problem, words)


def _check(problem: Problem, words: list[str]) -> None:
    trace = parse(problem, words)
    assert len(trace.roles) == len(words)
    assert trace.well_formed == (trace.answer is not None)
    assert trace.well_formed == _is_reply(words)
    if trace.well_formed:
        assert S not in trace.roles
        assert str(trace.answer) == words[-2]


def _is_reply(words: list[str]) -> bool:
    clean = all(word and not set(word) & set(" \n") for word in words)
    return clean and LANGUAGE.fullmatch(" ".join(words)) is not None


def _swapped(words: list[str], place: int) -> list[str]:
    return [*words[:place], words[place + 1], words[place], *words[place + 2 :]]
