"""Every strategy against a server that does its worst: it ends, and an error is never an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from breadth.adapters.vllm import VllmDialect
from breadth.base.errors import ServerError
from breadth.inference.catalogue import STRATEGIES
from breadth.inference.records import Budget, Candidate, Sampling, Task
from breadth.inference.strategy import Strategy
from breadth.runtime.driver import Driver, SolveResult
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.runtime.samplers.server_errors import Backoff
from breadth.runtime.solve_context import Judgement, JudgeSampler
from breadth.testing.fake_replies import Reply
from breadth.testing.fake_server import FakeServer, wait_until
from breadth.testing.faults import (
    Cut,
    DuplicatedChunks,
    EmptyText,
    ErrorInStream,
    Fault,
    Hang,
    MalformedJson,
    NIgnored,
    NoLogprobs,
    NoUsage,
    Scheduled,
    Slow,
    Status,
    WrongContentType,
    every,
)

TASK = Task(({"role": "user", "content": "What is 6 times 7?"},), sampling=Sampling(max_tokens=40), seed=3)
EVERY: dict[str, Strategy] = {name: kind.make_example() for name, kind in STRATEGIES}
BREAKING: dict[str, Fault] = {
    "500": Status(500),
    "500 as a page": Status(500, shaped=False),
    "429": Status(429),
    "429 with Retry-After": Status(429, retry_after=0.02),
    "hang": Hang(),
    "cut": Cut(after=3),
    "malformed": MalformedJson(after=3),
    "login page": WrongContentType(),
    "error in stream": ErrorInStream(after=3),
}
"""What no draw survives."""
HARMLESS: dict[str, Fault] = {
    "slow": Slow(0.001),
    "duplicated": DuplicatedChunks(),
    "n ignored": NIgnored(),
    "no log-probs": NoLogprobs(),
    "no usage": NoUsage(),
}
"""What a draw must survive."""


def said(body: dict[str, Any], number: int) -> Reply:
    """Think, turn, close the thinking and answer; every fourth is wrong."""
    del body
    answer = 41 if number % 4 == 3 else 42
    return Reply.from_text(f"<think> Six sevens. Wait, once more. </think> So the answer is {answer}.")


async def scored(task: Task, candidate: Candidate, draw: JudgeSampler) -> Judgement:
    return Judgement(score=float(candidate.key == "42"))


async def driven(strategy: Strategy, faults: Sequence[Fault | Scheduled], budget: Budget) -> SolveResult:
    hanging = any(isinstance(one.fault if isinstance(one, Scheduled) else one, Hang) for one in faults)
    patience = 0.1 if hanging else 20.0
    async with FakeServer(said, faults=faults) as server:
        sampler = OpenAISampler(
            server.url,
            dialect=VllmDialect(),
            attempts=1,
            first_seconds=patience,
            idle_seconds=patience,
            backoff=Backoff(0.001, 0.002),
        )
        driver = Driver(sampler, judges={"default": scored})
        try:
            async with asyncio.timeout(60):
                result = await driver.solve(strategy, TASK, budget=budget)
        finally:
            await sampler.close()
        assert (driver.ledger.reservations, driver.ledger.spent) == ([], result.spend)
        await wait_until(lambda: server.open_requests == 0)  # what was cancelled has to reach the server
    return result


def solve(strategy: Strategy, *faults: Fault | Scheduled, budget: Budget | None = None) -> SolveResult:
    async def main() -> SolveResult:
        result = await driven(strategy, faults, budget or Budget())
        left = [task.get_coro() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, "a task was left running"
        return result

    result = asyncio.run(main())
    assert result.started == len(result.arrived) + result.failed + result.discarded
    assert sum(result.errors.values()) == result.failed
    assert not any(
        word in one.reasoning + one.full_text for one in result.arrived for word in ("fault", "html", "log in", "429")
    )
    return result


@pytest.mark.parametrize("fault", BREAKING)
@pytest.mark.parametrize("name", EVERY)
def test_when_every_second_request_breaks_the_others_answer(name: str, fault: str) -> None:
    result = solve(EVERY[name], every(2, BREAKING[fault]))
    assert result.answer.key in ("42", "41")
    assert result.failed >= (name != "single")
    assert result.spend.calls >= result.started


@pytest.mark.parametrize("fault", ["500", "hang", "cut", "login page"])
@pytest.mark.parametrize("name", EVERY)
def test_when_every_request_breaks_there_is_no_answer_and_the_reason_is_told(name: str, fault: str) -> None:
    result = solve(EVERY[name], BREAKING[fault])
    assert (result.answer.chosen, result.arrived) == (None, ())
    assert 1 <= result.failed <= 12
    assert isinstance(result.last_error, ServerError)


@pytest.mark.parametrize("fault", HARMLESS)
@pytest.mark.parametrize("name", EVERY)
def test_what_does_no_harm_does_none(name: str, fault: str) -> None:
    result = solve(EVERY[name], HARMLESS[fault])
    assert result.answer.key in ("42", "41")
    assert result.failed == 0
    if fault == "no log-probs" and EVERY[name].needs & {"logprobs", "confidences"}:
        assert any("without token confidences" in note for note in result.answer.notes)


@pytest.mark.parametrize("name", EVERY)
def test_empty_replies_are_no_answer(name: str) -> None:
    result = solve(EVERY[name], EmptyText())
    assert result.answer.key is None
    assert (result.failed, result.spend.output_tokens) == (0, 0)


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
@pytest.mark.parametrize("name", EVERY)
def test_a_budget_of_a_few_calls_holds_though_half_of_them_break(name: str, calls: int) -> None:
    result = solve(EVERY[name], every(2, Status(500)), budget=Budget(calls=calls))
    assert result.spend.calls <= calls
    assert (result.answer.chosen is None) == (calls == 0)


@pytest.mark.parametrize("name", EVERY)
def test_a_hanging_server_ends_with_the_time_there_is(name: str) -> None:
    result = solve(EVERY[name], Slow(60.0), budget=Budget(seconds=0.03))
    assert result.answer.chosen is None
    assert result.seconds < 30
