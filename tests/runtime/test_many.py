"""Many tasks: side by side and each its own, or one budget spread over all by an allocator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from breadth.base.errors import ServerError, SettingsError, StrategyError
from breadth.inference.allocation.allocator import Allocator, Grant, Progress, Round
from breadth.inference.allocation.elimination import Elimination
from breadth.inference.allocation.round_robin import RoundRobin
from breadth.inference.budget import Budget
from breadth.inference.records import Candidate, Sampling, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.vote import Vote
from breadth.runtime.driver import Driver, Solved
from breadth.runtime.journal import Journal
from breadth.runtime.ledger import Ledger
from breadth.runtime.many import Share, allocate, solve_all
from breadth.runtime.sampler import Draw
from breadth.runtime.samplers.scripted import Said, ScriptedSampler
from breadth.runtime.solving import Drawing, Verdict
from breadth.testing.waiting import until

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 20))


def tasks(count: int) -> list[Task]:
    return [Task(f"question {number}", f"q{number}", sampling=Sampling(max_tokens=50)) for number in range(count)]


def by_question(say: Callable[[int], str]) -> Callable[[Draw, int], Said]:
    return lambda draw, _: say(int(str(draw.prompt).split()[-1]))


async def gathered(driver: Driver, count: int, at_once: int) -> list[Solved]:
    return [solved async for solved in solve_all(driver, AdaptiveVote(width=2), tasks(count), at_once=at_once)]


def test_every_task_gets_its_own_answer_and_few_run_at_once() -> None:
    sampler = ScriptedSampler(by_question(lambda number: f"The answer is {number}."), seconds=0.005)
    driver = Driver(sampler)
    done = run(gathered(driver, 6, 2))
    assert {solved.task.name: solved.answer.key for solved in done} == {f"q{number}": str(number) for number in range(6)}
    assert sampler.most_in_flight <= 4, "two tasks, two draws each"
    assert driver.ledger.spent.calls == sum(solved.spend.calls for solved in done) == 24


def test_leaving_early_cancels_the_rest() -> None:
    sampler = ScriptedSampler(by_question(lambda number: "The answer is 1."), seconds=lambda number: 0.001 if number < 4 else 5.0)

    async def first() -> Solved | None:
        everything = solve_all(Driver(sampler), AdaptiveVote(width=1), tasks(3), at_once=3)
        try:
            async for solved in everything:
                return solved
        finally:
            await everything.aclose()  # type: ignore[attr-defined] # an async generator
        return None

    assert run(asyncio.wait_for(first(), 12)) is not None
    assert sampler.in_flight == 0


def test_two_tasks_of_one_name_are_refused() -> None:
    with pytest.raises(StrategyError, match="called 'q0'"):
        run(allocate(Driver(ScriptedSampler([])), RoundRobin(), [*tasks(2), *tasks(1)]))


def test_elimination_spends_on_the_undecided() -> None:
    draws = {0: 0, 1: 0}

    def say(number: int) -> str:
        draws[number] += 1
        return "The answer is 1." if number == 0 else f"The answer is {draws[number]}."

    driver = Driver(ScriptedSampler(by_question(say)), Ledger(Budget(calls=40)))
    easy, hard = run(allocate(driver, Elimination(), tasks(2)))
    assert easy.started < hard.started
    assert easy.answer.key == "1"
    assert driver.ledger.spent.calls <= 40


@dataclass(frozen=True)
class Fixed(Allocator):
    """Grants given rounds and remembers what it was told."""

    rounds: tuple[tuple[tuple[str, int], ...], ...] = ()
    """Names and draws."""

    def __call__(self, tasks: Sequence[str]) -> Generator[Round, Mapping[str, Progress], None]:
        for each in self.rounds:
            told = yield tuple(Grant(task, draws) for task, draws in each)
            TOLD.append({name: (progress.draws, progress.standing.counts) for name, progress in told.items()})


TOLD: list[dict[str, tuple[int, tuple[int, ...]]]] = []


def test_an_allocator_is_told_what_came_of_its_grants() -> None:
    TOLD.clear()
    broken = ServerError("status 500", "try again")
    sampler = ScriptedSampler(lambda draw, number: broken if number == 1 else "The answer is 5.")
    rounds = ((("q0", 2), ("q1", 1)), (("q1", 3),))
    done = run(allocate(Driver(sampler), Fixed(rounds), tasks(2)))
    assert TOLD == [{"q0": (2, (1,)), "q1": (1, (1,))}, {"q0": (2, (1,)), "q1": (4, (4,))}]
    assert [solved.failed for solved in done] == [1, 0]


def test_a_spent_budget_ends_it_with_what_has_come() -> None:
    sampler = ScriptedSampler(by_question(lambda number: "The answer is 1."))
    done = run(allocate(Driver(sampler, Ledger(Budget(calls=3))), RoundRobin(), tasks(5)))
    assert sum(solved.answer.chosen is not None for solved in done) == 3
    assert len(sampler.draws) == 3


def test_a_judge_decides_when_a_task_is_done() -> None:
    async def judge(task: Task, candidate: Candidate, draw: Drawing) -> Verdict:
        return Verdict(1.0 if candidate.key == "3" else 0.0, solved=candidate.key == "3")

    count = iter(range(100))
    sampler = ScriptedSampler(lambda draw, number: f"The answer is {next(count)}.")
    driver = Driver(sampler, Ledger(Budget(calls=20)), judges={"exact": judge})
    (solved,) = run(allocate(driver, RoundRobin(), tasks(1), judge="exact"))
    assert solved.answer.key == "3"
    assert len(sampler.draws) == 4


def test_a_killed_allocation_goes_on_from_its_records(tmp_path: Path) -> None:
    sampler = ScriptedSampler(by_question(lambda number: f"The answer is {number}."))
    first = run(allocate(Driver(sampler, Ledger(Budget(calls=30)), journal=Journal(tmp_path)), Elimination(), tasks(3)))
    idle = ScriptedSampler([])
    again = run(allocate(Driver(idle, Ledger(Budget(calls=30)), journal=Journal.open(tmp_path)), Elimination(), tasks(3)))
    assert idle.draws == []
    assert [solved.answer for solved in again] == [solved.answer for solved in first]
    assert [solved.spend.calls for solved in again] == [solved.spend.calls for solved in first]


def test_no_task_at_a_time_is_refused() -> None:
    with pytest.raises(SettingsError, match="at least one"):
        run(gathered(Driver(ScriptedSampler([])), 1, 0))


def test_what_is_whole_is_not_lost_to_what_broke() -> None:
    sampler = ScriptedSampler(lambda draw, number: RuntimeError("a bug") if "0" in str(draw.prompt) else "The answer is 1.")
    got: list[str] = []

    async def main() -> None:
        async for solved in solve_all(Driver(sampler), Vote(1), tasks(4)):
            got.append(solved.task.name)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(RuntimeError, match="a bug"):
        run(main())
    assert sorted(got) == ["q1", "q2", "q3"]


def test_every_granted_draw_has_a_place_of_its_own() -> None:
    # A draw that fails once the budget has refused another does not count for the allocator; its place is taken all the same.
    sampler = ScriptedSampler(lambda draw, number: ServerError("status 500", "try again") if number == 0 else "The answer is 5.")

    async def main() -> int:
        share = Share.begin(Driver(sampler), tasks(1)[0], Elimination(), None)
        share.solving.spent = True
        for _ in range(2):
            await share.draw(Grant("q0", 2))
        return share.draws

    assert run(main()) == 3
    assert len({draw.seed for draw in sampler.draws}) == 4


def test_an_allocation_that_was_interrupted_pays_for_what_it_threw_away(tmp_path: Path) -> None:
    slow = ScriptedSampler(by_question(lambda number: "one two three four five"), seconds=30)

    async def interrupted() -> None:
        work = asyncio.create_task(allocate(Driver(slow, journal=Journal(tmp_path)), Elimination(), tasks(2)))
        await until(lambda: slow.in_flight == 2)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    run(interrupted())
    assert slow.in_flight == 0
    sampler = ScriptedSampler(by_question(lambda number: "The answer is 1."))
    done = run(allocate(Driver(sampler, journal=Journal.open(tmp_path)), Elimination(), tasks(2)))
    assert [solved.discarded for solved in done] == [1, 1]
    assert [solved.spend.calls for solved in done] == [5, 5]


def test_an_allocation_that_breaks_leaves_nothing_running() -> None:
    sampler = ScriptedSampler(
        lambda draw, number: RuntimeError("a bug") if "0" in str(draw.prompt) else "x", seconds=lambda number: 0.001 if number == 0 else 30
    )

    async def main() -> int:
        with pytest.raises(RuntimeError, match="a bug"):
            await allocate(Driver(sampler), Elimination(), tasks(3))
        return sampler.in_flight

    assert run(main()) == 0
