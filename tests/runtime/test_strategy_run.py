"""One run of a strategy: another course after a kill, forks resumed, undelivered samples still charged."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from breadth.base.errors import ServerError, StrategyError
from breadth.inference.records import Answer, Ask, Budget, Candidate, Fork, Run, Sampling, Task
from breadth.inference.voting import Poll, majority
from breadth.runtime.journal import Journal
from breadth.runtime.ledger import Ledger
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.scripted import ScriptedSampler
from breadth.runtime.solve_context import SolveContext
from breadth.runtime.strategy_run import StrategyRun

TASK = Task("6 x 7 =", "q", sampling=Sampling(max_tokens=50))


def asking(*waits: tuple[int, int | None]) -> Run:
    poll = Poll(TASK)
    for n, wait in waits:
        drawn: list[Candidate] = yield Ask(n, wait=wait)
        poll.add(drawn)
    return majority(poll)


def driven(run: Run, sampler: ScriptedSampler, journal: Journal | None = None) -> tuple[Answer, SolveContext]:
    async def main() -> tuple[Answer, SolveContext]:
        solving = SolveContext(TASK, sampler, Ledger(), journal=journal or Journal())
        return await StrategyRun(solving).drive(run), solving

    return asyncio.run(asyncio.wait_for(main(), 20))


def numbers() -> ScriptedSampler:
    return ScriptedSampler(lambda draw, number: f"The answer is {number}.")


def test_what_a_strategy_may_not_yield_is_named() -> None:
    def wrong() -> Run:
        yield 3  # type: ignore[misc] # on purpose
        return Answer()

    with pytest.raises(StrategyError, match="yielded int"):
        driven(wrong(), numbers())


def test_a_run_that_takes_another_course_draws_what_is_missing_and_pays_for_all(tmp_path: Path) -> None:
    driven(asking((2, None), (2, None)), numbers(), Journal(tmp_path))
    sampler = ScriptedSampler(lambda draw, number: f"The answer is {100 + number}.")
    answer, solving = driven(asking((2, None), (0, 0), (1, None)), sampler, Journal.open(tmp_path))
    assert sorted(answer.votes) == ["0", "1", "100"]
    assert solving.ledger.spent.calls == 5


@dataclass(frozen=True)
class Parts:
    """Three runs, of which the slow one is left behind."""

    def __call__(self) -> Run:
        answers: list[Answer] = yield Fork((asking((1, None)), asking((1, None), (1, None)), asking((1, None))), wait=2)
        poll = Poll(TASK)
        for answer in answers:
            poll.add(answer.candidates)
        return replace(majority(poll), figures={"parts": float(len(answers))})


def test_a_fork_taken_up_again_has_the_same_winners(tmp_path: Path) -> None:
    def slow(number: int) -> float:
        return (0.001, 0.02, 0.03, 0.5)[min(number, 3)]

    first, before = driven(
        Parts()(), ScriptedSampler(lambda draw, number: f"The answer is {number}.", seconds=slow), Journal(tmp_path)
    )
    idle = ScriptedSampler([])
    again, after = driven(Parts()(), idle, Journal.open(tmp_path))
    assert first.figures == {"parts": 2.0}
    assert again == first
    assert idle.requests == []
    assert len(after.arrived) == len(before.arrived)


def test_an_exception_in_a_strategy_closes_it_and_cancels_its_draws() -> None:
    def broken() -> Run:
        yield Ask(3, wait=1)
        raise RuntimeError("a bug")

    sampler = ScriptedSampler(lambda draw, number: "x", seconds=lambda number: 0.001 if number == 0 else 30)
    with pytest.raises(RuntimeError, match="a bug"):
        driven(broken(), sampler)
    assert sampler.in_flight == 0
    assert sampler.cancelled == 2


def test_draws_are_cancelled_also_when_a_strategy_refuses_to_be_closed() -> None:
    def stubborn() -> Run:
        try:
            yield Ask(3, wait=1)
            yield 3  # type: ignore[misc] # on purpose
        except GeneratorExit:
            yield Ask(1)
        return Answer()

    sampler = ScriptedSampler(lambda draw, number: "x", seconds=lambda number: 0.001 if number == 0 else 30)
    with pytest.raises(RuntimeError, match="GeneratorExit"):
        driven(stubborn(), sampler)
    assert (sampler.in_flight, sampler.cancelled) == (0, 2)


def test_as_many_runs_of_a_fork_answer_as_were_waited_for_even_if_more_end_at_once() -> None:
    def forking() -> Run:
        answers: list[Answer] = yield Fork(tuple(asking((1, None)) for _ in range(4)), wait=2)
        return Answer(figures={"parts": float(len(answers))})

    answer, solving = driven(forking(), numbers())
    assert answer.figures == {"parts": 2.0}
    assert len(solving.arrived) + solving.discarded == 4


def test_a_run_of_a_fork_that_breaks_ends_the_others_at_once() -> None:
    def broken() -> Run:
        yield Ask(1)
        raise RuntimeError("a bug")

    def forking() -> Run:
        yield Fork((broken(), asking((1, None))))
        return Answer()

    sampler = ScriptedSampler(lambda draw, number: "x", seconds=lambda number: 0.001 if number == 0 else 30)
    with pytest.raises(RuntimeError, match="a bug"):
        driven(forking(), sampler)
    assert (sampler.in_flight, sampler.cancelled) == (0, 1)


def test_a_fork_is_taken_up_again_although_another_draw_arrived_in_the_meantime(tmp_path: Path) -> None:
    def run() -> Run:
        yield Ask(2, wait=1)
        answers: list[Answer] = yield Fork((asking((1, None)), asking((1, None))), wait=1)
        rest: list[Candidate] = yield Ask(0, wait=1)
        return Answer(candidates=(*answers[0].candidates, *rest))

    pace = (0.001, 0.01, 0.03, 5.0)
    first, _ = driven(
        run(),
        ScriptedSampler(lambda draw, number: f"The answer is {number}.", seconds=pace.__getitem__),
        Journal(tmp_path),
    )
    idle = ScriptedSampler([])
    again, _ = driven(run(), idle, Journal.open(tmp_path))
    assert [candidate.key for candidate in first.candidates] == ["2", "1"]
    assert again == first
    assert idle.requests == []


def test_failures_are_taken_up_in_the_order_they_were_told(tmp_path: Path) -> None:
    def script(draw: SampleRequest, number: int) -> str | ServerError:
        return ServerError("status 500", "try again") if number < 3 else f"The answer is {number}."

    first, before = driven(asking((8, None), (2, None)), ScriptedSampler(script), Journal(tmp_path))
    idle = ScriptedSampler([])
    again, after = driven(asking((8, None), (2, None)), idle, Journal.open(tmp_path))
    assert idle.requests == []
    assert again == first
    assert (after.started, after.failed) == (before.started, before.failed)


def test_what_was_not_waited_for_is_not_drawn_again(tmp_path: Path) -> None:
    def run() -> Run:
        yield Ask(3, wait=1)
        answers: list[Answer] = yield Fork((asking((1, None), (1, None)),))
        return answers[0]

    pace = (0.001, 30.0, 30.0, 0.001, 0.001)
    first, _ = driven(
        run(),
        ScriptedSampler(lambda draw, number: f"The answer is {number}.", seconds=pace.__getitem__),
        Journal(tmp_path),
    )
    idle = ScriptedSampler([])
    again, after = driven(run(), idle, Journal.open(tmp_path))
    assert again == first
    assert idle.requests == []
    assert after.discarded == 2


def test_a_course_changed_once_is_kept_the_next_time(tmp_path: Path) -> None:
    driven(asking((2, None), (2, None)), numbers(), Journal(tmp_path))
    changed, _ = driven(asking((2, None), (0, 0), (1, None)), numbers(), Journal.open(tmp_path))
    idle = ScriptedSampler([])
    again, solving = driven(asking((2, None), (0, 0), (1, None)), idle, Journal.open(tmp_path))
    assert again == changed
    assert idle.requests == []
    assert solving.ledger.spent.calls == 5


class Unstoppable(ScriptedSampler):
    """Gives what it has when it is cancelled."""

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Draw, and never let go without a candidate."""
        try:
            return await super().sample(request, meter)
        except asyncio.CancelledError:
            return Candidate("The answer is 5.")


def test_what_arrives_although_the_time_is_up_breaks_nothing() -> None:
    async def main() -> Answer:
        sampler = Unstoppable(lambda draw, number: "x", seconds=30)
        return await StrategyRun(SolveContext(TASK, sampler, Ledger(Budget(seconds=0.05)))).drive(
            asking((2, None), (1, None))
        )

    assert asyncio.run(asyncio.wait_for(main(), 20)).key == "5"
