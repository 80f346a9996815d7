"""Firm facts are certain, shaky ones come as the formula says, and the seed alone decides which are which."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from breadth.base import settings
from breadth.base.errors import SettingsError
from breadth.lab.task.grammar import CLOSE, END, STYLES, ReplyTrace, TokenRole, available_routes, parse
from breadth.lab.task.problems import LEVELS, ROUTES_OPERATORS, Problem, draw_problem
from breadth.lab.task.teacher import ROUTE_SHARES, ArithmeticFacts, Teacher, TeacherTrace

HALF = ArithmeticFacts(prime=7, shaky=0.5, right=0.1, believed=0.6, seed=3)
SHAKY = ArithmeticFacts(prime=7, shaky=1.0, right=0.1, believed=0.6, seed=3)


def test_the_tables_hold_sums_and_products_modulo_the_prime() -> None:
    assert HALF.value("+", 5, 6) == 4  # 11 - 7
    assert HALF.value("*", 5, 6) == 2  # 30 - 28
    assert HALF.value("*", 0, 6) == 0


def test_chances_sum_to_one_and_firm_facts_are_certain() -> None:
    assert np.allclose(HALF.chances.sum(-1), 1, atol=1e-12)
    tables, firsts, seconds = np.nonzero(HALF.firm)
    assert (HALF.chances[tables, firsts, seconds, HALF.truth[HALF.firm]] == 1).all()


def test_a_shaky_fact_by_hand() -> None:
    # Left over: 1 - 0.1 - 0.6 = 0.3, over 7 values: 0.3 / 7 each. The truth has 0.1 more, the rivals 0.6 times 0.5, 0.3
    # and 0.2 more.
    spread = 0.3 / 7
    expected = sorted([spread + 0.1, spread + 0.3, spread + 0.18, spread + 0.12, spread, spread, spread])
    assert np.allclose(np.sort(SHAKY.chances, -1), expected)
    tables, firsts, seconds = np.indices(SHAKY.truth.shape)
    assert np.allclose(SHAKY.chances[tables, firsts, seconds, SHAKY.truth], 1 / 7)  # 0.3 / 7 + 0.1


def test_about_the_asked_share_is_shaky_and_order_matters() -> None:
    facts = ArithmeticFacts(prime=11, shaky=0.4, right=0.1, believed=0.6, seed=0)
    # 242 facts, 145.2 firm ones expected, standard deviation sqrt(242 * 0.4 * 0.6) = 7.6
    assert abs(int(facts.firm.sum()) - 145.2) < 4 * 7.6
    assert any(facts.is_firm("+", a, b) != facts.is_firm("+", b, a) for a in range(11) for b in range(a))


@pytest.mark.parametrize(("shaky", "firm"), [(0.0, True), (1.0, False)])
def test_none_and_all(shaky: float, firm: bool) -> None:
    assert (ArithmeticFacts(prime=5, shaky=shaky, right=0.1, believed=0.6).firm == firm).all()


def test_recall_follows_the_chances() -> None:
    rng = np.random.default_rng(0)
    for sign, first, second in (("+", 3, 5), ("*", 3, 5), ("*", 0, 0)):
        drawn = np.bincount([SHAKY.recall(sign, first, second, rng) for _ in range(4000)], minlength=7)
        expected = 4000 * SHAKY.chances[ROUTES_OPERATORS.index(sign), first, second]
        assert (
            (drawn - expected) ** 2 / expected
        ).sum() < 22.5  # chi-square, 6 degrees of freedom: passed by 1 in 1,000


def test_firm_facts_are_always_recalled_right() -> None:
    facts, rng = ArithmeticFacts(prime=5, shaky=0.0, right=0.1, believed=0.6), np.random.default_rng(0)
    for sign in ROUTES_OPERATORS:
        for first, second in np.ndindex(5, 5):
            assert {facts.recall(sign, first, second, rng) for _ in range(20)} == {facts.value(sign, first, second)}


def test_a_value_with_no_chance_is_never_recalled() -> None:
    certain = ArithmeticFacts(prime=7, shaky=1.0, right=0.0, believed=1.0, seed=1)
    rng = np.random.default_rng(0)
    drawn = np.bincount([certain.recall("+", 2, 3, rng) for _ in range(500)], minlength=7)
    assert ((drawn > 0) == (certain.chances[0, 2, 3] > 0)).all()
    assert drawn[5] == 0  # the truth, of chance nothing


def test_the_smallest_draw_skips_values_with_no_chance() -> None:
    class Zero(np.random.Generator):
        def random(self, *_: Any, **__: Any) -> Any:
            return 0.0

    firm = ArithmeticFacts(prime=5, shaky=0.0, right=0.1, believed=0.6)
    assert firm.recall("+", 1, 2, Zero(np.random.PCG64(0))) == 3  # values 0, 1 and 2 have no chance


@pytest.mark.parametrize(("right", "believed"), [(0.9, 0.1), (0.7, 0.3), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_right_and_believed_may_fill_the_whole(right: float, believed: float) -> None:
    facts = ArithmeticFacts(prime=5, shaky=1.0, right=right, believed=believed)  # 1 - 0.9 is a little less than 0.1
    assert (facts.chances >= 0).all()
    assert np.allclose(facts.chances.sum(-1), 1)


def test_the_seed_decides() -> None:
    again = ArithmeticFacts(prime=7, shaky=0.5, right=0.1, believed=0.6, seed=3)
    other = ArithmeticFacts(prime=7, shaky=0.5, right=0.1, believed=0.6, seed=4)
    assert (again.chances == HALF.chances).all()
    assert (again.firm != other.firm).any()
    mistaken = ArithmeticFacts(prime=7, shaky=1.0, right=0.1, believed=0.6, seed=4)
    assert (mistaken.chances != SHAKY.chances).any()


def test_the_draws_are_not_those_of_the_seed_alone() -> None:
    # Whoever draws from default_rng(seed), or from (seed, 0), which is the same, must not meet the draws that made the
    # tables.
    streams: list[Any] = [(3, 11), (3, 12), (3, 0), 3]
    firm = [bool(((np.random.default_rng(stream).random((2, 7, 7)) >= 0.5) == HALF.firm).all()) for stream in streams]
    assert firm == [True, False, False, False]
    mistaken = [_mistaken(np.random.default_rng(stream)) == SHAKY.chances[0, 0, 0].argmax() for stream in streams]
    assert mistaken == [False, True, False, False]


def _mistaken(rng: np.random.Generator) -> int:
    """The value that 0 + 0 is most often mistaken for: of the six false ones, 1 to 6, the first drawn."""
    return int(rng.choice(6, 3, replace=False)[0]) + 1


@pytest.mark.parametrize(
    "wrong",
    [
        *({"prime": prime} for prime in (-7, 0, 1, 2, 3, 4, 9, 25)),
        *({"shaky": share} for share in (-0.1, 1.1, float("nan"))),
        *({"right": chance} for chance in (-0.1, 1.1, float("nan"))),
        *({"believed": chance} for chance in (-0.1, 0.95, float("nan"))),  # with right = 0.1 at most 0.9
        {"seed": -1},
    ],
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    (field,) = wrong
    with pytest.raises(SettingsError, match=f"Facts got {field} = "):
        ArithmeticFacts(**{"prime": 7, "shaky": 0.5, "right": 0.1, "believed": 0.6, **wrong})


FACTS = ArithmeticFacts(prime=7, shaky=0.5, right=0.1, believed=0.6, seed=2)
PATIENT = Teacher(FACTS, attempts=3, content=0.6, careless=0.3, cut=0.0)
INTERRUPTED = Teacher(FACTS, attempts=3, content=0.6, careless=0.3, cut=1.0)


def test_everything_he_writes_parses() -> None:
    rng, seen = np.random.default_rng(0), set()
    for number in range(1500):
        problem = draw_problem(rng, 7, LEVELS[number % 3])
        written = PATIENT.write(problem, rng)
        trace = parse(problem, written.words)
        assert trace.well_formed
        assert len(trace.roles) == len(written.words)
        assert TokenRole.STRAY not in trace.roles
        assert all(attempt.followed for attempt in trace.attempts)
        assert trace.answer == int(written.words[-2]) == trace.attempts[-1].result
        assert written.imposed is None
        assert len({attempt.style for attempt in trace.attempts}) == 1
        seen |= {(problem.level, attempt.route, attempt.style) for attempt in trace.attempts}
    routes = {"easy": ("add", "left"), "medium": tuple(ROUTE_SHARES), "hard": tuple(ROUTE_SHARES)}
    assert seen == {(level, route, style) for level in LEVELS for route in routes[level] for style in STYLES}


def test_equal_terms_and_shaky_facts_do_not_fool_the_reader() -> None:
    shaky = Teacher(
        ArithmeticFacts(prime=7, shaky=1.0, right=0.1, believed=0.6), attempts=3, content=0.1, careless=0.1, cut=0.0
    )
    rng = np.random.default_rng(0)
    for a, b, c, d in itertools.product((2, 3, 4), repeat=4):
        for added in (None, 2):
            problem = Problem((a, b), (c, d), added)
            for _ in range(4):
                assert all(attempt.followed for attempt in parse(problem, shaky.write(problem, rng).words).attempts)


def test_he_recalls_the_facts_of_the_order_he_writes() -> None:
    firm = Teacher(
        ArithmeticFacts(prime=7, shaky=0.0, right=0.1, believed=0.6), attempts=2, content=0.5, careless=0.5, cut=0.0
    )
    for problem, trace in _traces(firm, 200):
        assert {attempt.result for attempt in trace.attempts} == {problem.answer(7)}
    for _, trace in _traces(PATIENT, 300):
        for one in (one for attempt in trace.attempts for one in attempt.operations):
            assert not FACTS.is_firm(one.sign, one.first, one.second) or one.value == FACTS.value(
                one.sign, one.first, one.second
            )


def test_he_takes_operands_in_either_order() -> None:
    rng, problem = np.random.default_rng(0), Problem((3, 4), (5,))
    traces = [parse(problem, PATIENT.write(problem, rng).words) for _ in range(800)]
    firsts = [trace.attempts[0].operations[0].first for trace in traces if trace.attempts[0].route == "add"]
    assert set(firsts) == {3, 4}
    assert abs(firsts.count(3) / len(firsts) - 0.5) < 4 * 0.5 / np.sqrt(len(firsts))


@pytest.mark.parametrize(("content", "careless"), [(0.8, 0.25), (0.3, 0.6)])
def test_he_stops_as_often_as_he_says(content: float, careless: float) -> None:
    stops: dict[bool, list[bool]] = {True: [], False: []}
    for problem, trace in _traces(Teacher(FACTS, attempts=4, content=content, careless=careless, cut=0.0), 1500):
        assert len(trace.attempts) <= 4
        for place, attempt in enumerate(trace.attempts[:3]):  # behind the fourth there is no choice
            stops[attempt.result == problem.answer(7)].append(place == len(trace.attempts) - 1)
    for right, chance in ((True, content), (False, careless)):
        deviation = np.sqrt(chance * (1 - chance) / len(stops[right]))
        assert len(stops[right]) > 400
        assert abs(np.mean(stops[right]) - chance) < 4 * deviation


def test_the_ends_of_the_chances() -> None:
    assert {
        len(trace.attempts) for _, trace in _traces(Teacher(FACTS, attempts=3, content=0, careless=0, cut=0), 50)
    } == {3}
    assert {
        len(trace.attempts) for _, trace in _traces(Teacher(FACTS, attempts=3, content=1, careless=1, cut=0), 50)
    } == {1}
    for problem, trace in _traces(Teacher(FACTS, attempts=5, content=1, careless=0, cut=0), 200):
        assert all(attempt.result != problem.answer(7) for attempt in trace.attempts[:-1])


def test_routes_are_taken_by_their_shares() -> None:
    for level in ("easy", "medium"):
        rng = np.random.default_rng(5)
        problem = draw_problem(rng, 7, level)
        taken = [parse(problem, PATIENT.write(problem, rng).words).attempts[0].route for _ in range(1500)]
        shares = np.array([ROUTE_SHARES[route] for route in available_routes(problem)])
        expected = 1500 * shares / shares.sum()
        counted = np.array([taken.count(route) for route in available_routes(problem)])
        assert (
            (counted - expected) ** 2 / expected
        ).sum() < 16.3  # chi-square, at most 3 degrees of freedom: passed by 1 in 1,000


def test_a_cut_trace_is_answered_with_what_was_found() -> None:
    rng, kinds = np.random.default_rng(0), {"finished": 0, "value": 0, "guess": 0}
    for number in range(1500):
        problem = draw_problem(rng, 7, LEVELS[number % 3])
        written = INTERRUPTED.write(problem, rng)
        trace = parse(problem, written.words)
        assert trace.well_formed
        assert all(attempt.followed for attempt in trace.attempts[:-1])
        assert written.imposed is not None
        assert written.words[written.imposed :] == (CLOSE, str(trace.answer), END)
        assert written.words.index(CLOSE) == written.imposed
        kinds[_checked(trace)] += 1
    assert min(kinds.values()) > 50


def test_the_place_of_the_cut_is_any() -> None:
    # One attempt of 'add' or 'left' on an easy problem: <think>, the route, 2 or 3 operations of 4 tokens. Cut behind
    # token 1 to 10 or 14.
    once = Teacher(FACTS, attempts=1, content=0.5, careless=0.5, cut=1.0)
    rng = np.random.default_rng(0)
    places = [once.write(Problem((3, 4), (5,)), rng).imposed for _ in range(1000)]
    assert set(places) == set(range(1, 15))


def test_as_many_are_cut_as_asked() -> None:
    some, rng = Teacher(FACTS, attempts=2, content=0.6, careless=0.3, cut=0.2), np.random.default_rng(0)
    cut = [some.write(Problem((3, 4), (5, 6)), rng).imposed is not None for _ in range(1000)]
    assert abs(np.mean(cut) - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 1000)


def test_the_generator_decides() -> None:
    def write(seed: int) -> list[TeacherTrace]:
        rng = np.random.default_rng(seed)
        return [PATIENT.write(Problem((3, 4), (5, 6)), rng) for _ in range(5)]

    assert write(1) == write(1)
    assert write(1) != write(2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": -1},
        *({name: chance} for name in ("content", "careless", "cut") for chance in (-0.1, 1.1, float("nan"))),
    ],
)
def test_nonsense_is_refused_of_teacher(wrong: dict[str, Any]) -> None:
    (field,) = wrong
    with pytest.raises(SettingsError, match=f"Teacher got {field} = "):
        Teacher(FACTS, **wrong)


def test_a_teacher_survives_toml() -> None:
    teacher = Teacher(FACTS, attempts=5, content=0.75, careless=0.125, cut=0.0)
    text = settings.dumps(teacher)
    assert settings.loads(Teacher, text) == teacher
    with pytest.raises(SettingsError, match="In facts: there is no setting 'primes'"):
        settings.loads(Teacher, text.replace("prime =", "primes ="))
    with pytest.raises(SettingsError, match="Facts got prime = 8"):
        settings.loads(Teacher, text.replace("prime = 7", "prime = 8"))


def _traces(teacher: Teacher, count: int) -> list[tuple[Problem, ReplyTrace]]:
    rng = np.random.default_rng(1)
    problems = [draw_problem(rng, 7, LEVELS[number % 3]) for number in range(count)]
    return [(problem, parse(problem, teacher.write(problem, rng).words)) for problem in problems]


def _checked(trace: ReplyTrace) -> str:
    """Check the answer of a cut trace and say where it came from."""
    finished = [attempt.result for attempt in trace.attempts if attempt.followed]
    if finished:
        assert trace.answer == finished[-1]
        return "finished"
    values = [one.value for attempt in trace.attempts for one in attempt.operations]
    if values:
        assert trace.answer == values[-1]
        return "value"
    assert trace.answer in range(7)
    return "guess"
