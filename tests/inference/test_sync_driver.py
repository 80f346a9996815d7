"""A run driven by hand: what it is sent, and what is kept."""

from __future__ import annotations

from dataclasses import replace

from breadth.inference.records import Answer, Ask, Candidate, Fork, Judge, Run
from breadth.inference.sync_driver import SyncDriver


def number(ask: Ask, place: str) -> Candidate:
    return Candidate(place, place, place)


def test_it_sends_what_was_waited_for_and_keeps_the_rest() -> None:
    got: list[list[str]] = []

    def asking() -> Run:
        for request in (Ask(3, wait=1), Ask(1, wait=0), Ask(0, wait=2), Ask(0), Ask(0, wait=1)):
            drawn: list[Candidate] = yield request
            got.append([candidate.text for candidate in drawn])
        return Answer()

    pump = SyncDriver(number)
    pump.run(asking())
    assert got == [["0.0"], [], ["0.1", "0.2"], ["1.0"], []]
    assert len(pump.drawn) == 4


def test_draws_that_fail_do_not_come() -> None:
    def asking() -> Run:
        drawn: list[Candidate] = yield Ask(4)
        return Answer(candidates=tuple(drawn))

    answer = SyncDriver(lambda ask, place: None if place.endswith("1") else number(ask, place)).run(asking())
    assert [candidate.text for candidate in answer.candidates] == ["0.0", "0.2", "0.3"]


def test_forks_have_places_of_their_own_and_judges_are_asked() -> None:
    def part() -> Run:
        drawn: list[Candidate] = yield Ask(1, independent=False)
        return Answer(drawn[0])

    def whole() -> Run:
        answers: list[Answer] = yield Fork((part(), part(), part()), wait=2)
        judged: list[Candidate] = yield Judge(tuple(answer.chosen for answer in answers if answer.chosen))
        return Answer(candidates=tuple(judged))

    answer = SyncDriver(number, lambda candidate, by: replace(candidate, feedback=by)).run(whole())
    assert [(candidate.text, candidate.feedback, candidate.independent) for candidate in answer.candidates] == [
        ("0.0/0.0", "default", False),
        ("0.1/0.0", "default", False),
    ]


def test_a_run_that_asks_nothing_has_an_answer_all_the_same() -> None:
    def silent(asks: tuple[Ask, ...] = ()) -> Run:
        yield from asks
        return Answer(stopped="at once")

    assert SyncDriver(number).run(silent()).stopped == "at once"
