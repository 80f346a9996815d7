"""Runs with changed requests."""

from __future__ import annotations

from dataclasses import replace

from breadth.inference.pump import Pump
from breadth.inference.records import Answer, Ask, Candidate, Fork, Judge, Run
from breadth.inference.rewriting import rewritten, with_model


def asking(model: str | None) -> Run:
    drawn = yield Ask(1, model=model)
    return Answer(drawn[0])


def forking() -> Run:
    (first, second) = yield Fork((asking(None), asking("own")))
    (scored,) = yield Judge((first.chosen,), "x")
    return Answer(scored, candidates=(first.chosen, second.chosen))


def named(ask: Ask, place: str) -> Candidate:
    return Candidate(place, model=ask.model or "task's")


def test_another_model_reaches_forked_runs_and_spares_those_that_name_one() -> None:
    pump = Pump(named, lambda candidate, by: replace(candidate, feedback=by))
    answer = pump.run(with_model(forking(), "small"))
    assert [candidate.model for candidate in answer.candidates] == ["small", "own"]
    assert answer.chosen is not None
    assert answer.chosen.feedback == "x"


def test_no_name_changes_nothing() -> None:
    run = asking(None)
    assert with_model(run, "") is run


def test_a_run_closed_early_closes_the_one_inside() -> None:
    inner = asking(None)
    run = rewritten(inner, lambda ask: replace(ask, n=3))
    assert next(run) == Ask(3)
    run.close()
    assert next(inner, None) is None
