"""Samples from a server that does its worst: complete or failed with a reason, and cancelled at once."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from breadth.base.errors import ServerError, StrategyError
from breadth.inference.halting import Halt, Watcher
from breadth.inference.records import Sampling
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers import openai
from breadth.runtime.samplers.openai import MAX_KNOWN_PROMPTS, OpenAISampler, PromptTokenEstimator, measure_prompt
from breadth.runtime.samplers.server_errors import Backoff
from breadth.testing.fake_replies import Reply, ReplyToken
from breadth.testing.fake_server import FakeServer, ReplyScript, wait_until
from breadth.testing.faults import (
    Cut,
    DuplicatedChunks,
    EmptyText,
    ErrorInStream,
    Fault,
    Hang,
    MalformedJson,
    NoLogprobs,
    NoUsage,
    Scheduled,
    Status,
    WrongContentType,
    every,
    first,
)


def test_before_anything_is_learned() -> None:
    assert PromptTokenEstimator().estimate(SampleRequest("x" * 40)) == 10
    assert PromptTokenEstimator().estimate(SampleRequest("")) == 1


def test_the_same_prompt_costs_the_same() -> None:
    sizes = PromptTokenEstimator()
    chat = SampleRequest(({"role": "user", "content": "What is 2 + 2?"},))
    sizes.learn(chat, 41)
    assert sizes.estimate(SampleRequest(({"role": "user", "content": "What is 2 + 2?"},), seed=9)) == 41
    assert sizes.estimate(SampleRequest(({"role": "user", "content": "What is 2 + 2?"},), prefix="It is")) != 41


def test_other_prompts_are_estimated_by_what_was_learned() -> None:
    sizes = PromptTokenEstimator()
    sizes.learn(SampleRequest("x" * 100), 50)
    assert sizes.estimate(SampleRequest("y" * 30)) == 15
    sizes.learn(SampleRequest("z" * 100), 0)
    assert sizes.estimate(SampleRequest("y" * 30)) == 15, "a server that says nothing teaches nothing"


def test_characters_of_a_chat() -> None:
    parts = [{"type": "text", "text": "abc"}, {"type": "image_url", "image_url": {"url": "data:..."}}]
    prompt = ({"role": "system", "content": "ab"}, {"role": "user", "content": parts})
    assert measure_prompt(prompt)[1] == 2 + 3 + 2 * 16
    assert PromptTokenEstimator().estimate(SampleRequest(prompt, prefix="p" * 4)) == round((4 + 2 + 3 + 2 * 16) / 4)


def test_a_prompt_is_walked_once_for_all_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[Any] = []

    def measure(prompt: Any) -> tuple[int, int]:
        walked.append(prompt)
        return measure_prompt(prompt)

    monkeypatch.setattr(openai, "measure_prompt", measure)
    sizes, chat = PromptTokenEstimator(), ({"role": "user", "content": "What is 2 + 2?"},)
    for seed in range(5):
        sizes.estimate(SampleRequest(chat, seed=seed))
        sizes.learn(SampleRequest(chat, seed=seed), 41)
    assert walked == [chat]


def test_memory_is_bounded() -> None:
    sizes = PromptTokenEstimator()
    for number in range(MAX_KNOWN_PROMPTS + 10):
        sizes.learn(SampleRequest(f"{number:05}"), 1000)
    assert len(sizes._known) == MAX_KNOWN_PROMPTS
    assert sizes.estimate(SampleRequest(f"{MAX_KNOWN_PROMPTS + 9:05}")) == 1000


CHAT = ({"role": "user", "content": "What is 2 + 2?"},)
QUICK = Backoff(first_seconds=0.01, max_seconds=0.02)
TOP = Sampling(top_logprobs=5)


@asynccontextmanager
async def served(
    script: ReplyScript | Reply, *faults: Fault | Scheduled, **options: Any
) -> AsyncIterator[tuple[FakeServer, OpenAISampler]]:
    async with FakeServer(script, faults=faults) as server:
        sampler = OpenAISampler(server.url, **{"backoff": QUICK} | options)
        try:
            yield server, sampler
        finally:
            await sampler.close()


def run(
    script: ReplyScript | Reply,
    use: Callable[[FakeServer, OpenAISampler], Awaitable[None]],
    *faults: Fault | Scheduled,
    **options: Any,
) -> None:
    async def main() -> None:
        async with served(script, *faults, **options) as (server, sampler):
            await use(server, sampler)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, "a task was left behind"

    asyncio.run(main())


def test_a_plain_draw() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        meter = Meter()
        candidate = await sampler.sample(SampleRequest(CHAT, TOP, seed=7), meter)
        assert (candidate.text, candidate.finish, candidate.model, candidate.seed) == (
            "the answer is 4",
            "stop",
            "fake",
            7,
        )
        assert candidate.logprobs is not None
        assert candidate.logprobs.tolist() == pytest.approx([-0.1] * 4)
        assert candidate.confidences is not None
        ranked = ReplyToken("x").top_tokens(5)
        assert candidate.confidences.tolist() == pytest.approx([-sum(logprob for _, logprob in ranked) / 5] * 4)
        assert meter == Meter(calls=1, prompt_tokens=10, cached_tokens=3, tokens=4)
        assert (candidate.prompt_tokens, candidate.cached_tokens, candidate.tokens) == (10, 3, 4)
        assert candidate.seconds > 0
        body = server.requests[0].body
        assert (body["model"], body["seed"], body["stream"], body["top_logprobs"]) == ("fake", 7, True, 5)

    run(Reply.from_text("the answer is 4", cached_tokens=3), use)


def test_thinking_comes_apart() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        candidate = await sampler.sample(SampleRequest(CHAT, TOP), Meter())
        assert (candidate.reasoning, candidate.text, candidate.thinking_tokens, candidate.tokens) == (
            "two and two",
            "4",
            3,
            4,
        )
        assert candidate.logprobs is not None
        assert len(candidate.logprobs) == 4

    for name in ("reasoning_content", "reasoning"):
        run(Reply.from_text("4", reasoning="two and two", reasoning_field=name), use)
    run(Reply.from_text("<think>two and two</think> 4"), _inline)


async def _inline(server: FakeServer, sampler: OpenAISampler) -> None:
    candidate = await sampler.sample(SampleRequest(CHAT), Meter())
    assert (candidate.reasoning, candidate.text, candidate.thinking_tokens) == ("two and two", " 4", 3)


def test_a_text_to_continue_with_log_probs_of_the_older_form() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        candidate = await sampler.sample(SampleRequest("2 + 2 =", TOP, prefix=" "), Meter())
        assert (candidate.text, candidate.prefix, candidate.full_text) == ("4 indeed", " ", " 4 indeed")
        assert server.requests[0].body["prompt"] == "2 + 2 = "
        assert candidate.logprobs is not None
        assert candidate.confidences is not None
        assert candidate.logprobs.tolist() == pytest.approx([-0.1, -0.1])

    run(Reply.from_text("4 indeed"), use)


def test_the_plain_dialect_refuses_a_beginning_in_a_chat() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        with pytest.raises(StrategyError, match="prefix"):
            await sampler.sample(SampleRequest(CHAT, prefix="It is"), Meter())

    run(Reply.from_text("4"), use)


def test_options_are_passed_on_but_it_stays_one_stream() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        candidate = await sampler.sample(SampleRequest(CHAT, options={"n": 4, "stream": False, "user": "me"}), Meter())
        assert candidate.text == "4"
        assert {name: server.requests[0].body[name] for name in ("n", "stream", "user")} == {
            "n": 1,
            "stream": True,
            "user": "me",
        }

    run(Reply.from_text("4"), use)


@pytest.mark.parametrize(
    "fault",
    [
        Status(500),
        Status(502, shaped=False),
        Status(429),
        Cut(),
        MalformedJson(),
        ErrorInStream(),
        WrongContentType(),
        Cut(after=0),
    ],
    ids=repr,
)
def test_what_passes_is_tried_again(fault: Fault) -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        meter = Meter()
        candidate = await sampler.sample(SampleRequest(CHAT), meter)
        assert candidate.text == "a b c d e f"
        assert meter.calls == len(server.requests) == 2
        assert candidate.tokens == 6
        assert meter.tokens >= 6, "what the failed attempt wrote is charged"

    run(Reply.from_text("a b c d e f"), use, first(1, fault))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Status(500), "status 500: fault: status 500"),
        (Status(503, shaped=False), "status 503: <html>"),
        (Status(429), "status 429"),
        (Cut(), "broke its stream off"),
        (MalformedJson(), "cannot be read"),
        (ErrorInStream(), "the engine died"),
        (WrongContentType(), "text/html instead of a stream"),
    ],
    ids=repr,
)
def test_what_does_not_pass_is_an_error_never_a_candidate(fault: Fault, said: str) -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        meter = Meter()
        with pytest.raises(ServerError, match=said) as caught:
            await sampler.sample(SampleRequest(CHAT), meter)
        assert not caught.value.fatal
        assert "attempt 3 of 3" in caught.value.problem
        assert server.url in caught.value.problem
        assert meter.calls == len(server.requests) == 3

    run(Reply.from_text("a b c d e f"), use, fault)


@pytest.mark.parametrize(
    ("fault", "draw"),
    [
        (Status(401), SampleRequest(CHAT)),
        (Status(400), SampleRequest(CHAT)),
        (Status(500), SampleRequest(CHAT, model="nope")),
    ],
)
def test_what_no_repetition_mends_is_not_repeated(fault: Fault, draw: SampleRequest) -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        with pytest.raises(ServerError) as caught:
            await sampler.sample(draw, Meter())
        assert caught.value.fatal
        assert len(server.requests) == 1

    run(Reply.from_text("4"), use, *([] if draw.model else [fault]))


def test_a_wrong_model_is_named() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        with pytest.raises(ServerError, match="`nope` does not exist") as caught:
            await sampler.sample(SampleRequest(CHAT, model="nope"), Meter())
        assert "/v1/models" in caught.value.remedy

    run(Reply.from_text("4"), use)


def test_the_wait_a_server_asks_for_is_kept_to() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        await sampler.sample(SampleRequest(CHAT), Meter())
        assert 0.29 < server.requests[1].came - server.requests[0].came < 10

    run(Reply.from_text("4"), use, first(1, Status(429, retry_after=0.3)))


def test_and_by_the_other_draws_as_well() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        early = asyncio.create_task(sampler.sample(SampleRequest(CHAT), Meter()))
        await asyncio.sleep(0.1)
        await asyncio.gather(early, sampler.sample(SampleRequest(CHAT), Meter()))
        assert all(arrival.came - server.requests[0].came > 0.29 for arrival in server.requests[1:])

    run(Reply.from_text("4"), use, first(1, Status(503, retry_after=0.3)))


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        started = time.monotonic()
        with pytest.raises(ServerError, match="status 429") as caught:
            await sampler.sample(SampleRequest(CHAT, seconds=20), Meter())
        assert time.monotonic() - started < 10
        assert caught.value.retry_after == 30
        with pytest.raises(ServerError, match=r"left alone for \d\d s"):
            await sampler.sample(SampleRequest(CHAT, seconds=5), Meter())
        assert len(server.requests) == 1

    run(Reply.from_text("4"), use, Status(429, retry_after=30))


def test_a_hanging_server_ends_at_the_deadline() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        started = time.monotonic()
        with pytest.raises(ServerError, match=r"longer than the 0\.2 s"):
            await sampler.sample(SampleRequest(CHAT, seconds=0.2), Meter())
        assert 0.19 < time.monotonic() - started < 10
        await wait_until(lambda: server.open_requests == 0)

    run(Reply.from_text("4"), use, Hang())


def test_or_when_nothing_is_heard_of_it() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        with pytest.raises(ServerError, match=r"did not answer in 0\.1 s.*attempt 2 of 2"):
            await sampler.sample(SampleRequest(CHAT), Meter())

    run(Reply.from_text("4"), use, Hang(), first_seconds=0.1, attempts=2)


def test_or_when_it_falls_silent_in_the_middle() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        meter = Meter()
        with pytest.raises(ServerError, match=r"fell silent for 0\.15 s after 1 tokens"):
            await sampler.sample(SampleRequest(CHAT), meter)
        assert meter.tokens == 1
        await wait_until(lambda: server.open_requests == 0)

    run(Reply.from_text("a b", delay=60), use, idle_seconds=0.15, attempts=1)


def test_a_request_that_waits_its_turn_is_given_longer() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        assert (await sampler.sample(SampleRequest(CHAT), Meter())).text == "a b"

    run(Reply.from_text("a b", wait=0.4), use, idle_seconds=0.15, first_seconds=5, attempts=1)


def test_slow_tokens_are_no_silence() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        assert (await sampler.sample(SampleRequest(CHAT), Meter())).text == "a b c d e f"

    run(Reply.from_text("a b c d e f", delay=0.3), use, idle_seconds=1.0, attempts=1)


def test_events_sent_twice() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        candidate = await sampler.sample(SampleRequest(CHAT, TOP), Meter())
        assert candidate.text == "ha ha ha ho"
        assert candidate.tokens == 4
        assert candidate.logprobs is not None
        assert len(candidate.logprobs) == 4
        assert candidate.message == {"repeated_events": 7}

    run(Reply.from_text("ha ha ha ho"), use, DuplicatedChunks())


def test_log_probs_or_the_count_may_be_missing() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        candidate = await sampler.sample(SampleRequest(CHAT, TOP), Meter())
        assert candidate.logprobs is None
        assert candidate.confidences is None
        assert candidate.tokens == 3
        assert candidate.prompt_tokens > 0

    run(Reply.from_text("a b c"), use, NoLogprobs(), NoUsage())


def test_an_empty_reply_is_a_reply() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        candidate = await sampler.sample(SampleRequest(CHAT), Meter())
        assert (candidate.text, candidate.finish, candidate.tokens) == ("", "stop", 0)

    run(Reply.from_text("a"), use, EmptyText())


@dataclass(frozen=True)
class After(Halt):
    """Ends a completion after some tokens."""

    tokens: int = 3
    top_logprobs: int = 0

    def watch(self) -> Watcher:
        return _Counter(self.tokens)


@dataclass
class _Counter:
    left: int

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        self.left -= 1
        return self.left <= 0


def test_a_halt_ends_the_completion_at_the_server() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        await sampler.sample(SampleRequest(CHAT, Sampling(max_tokens=1)), Meter())
        meter = Meter()
        candidate = await sampler.sample(SampleRequest(CHAT, halt=After(3, top_logprobs=5)), meter)
        assert (candidate.text, candidate.finish) == ("a b c", "halt")
        assert 3 <= candidate.tokens < 2000, "what had come behind the third is charged too"
        assert candidate.confidences is not None
        assert len(candidate.confidences) == 3
        assert server.requests[1].body["top_logprobs"] == 5
        assert meter == Meter(calls=1, prompt_tokens=10, tokens=candidate.tokens), (
            "what the prompt costs is known from the draw before"
        )
        await wait_until(lambda: server.requests[1].left)
        assert server.requests[1].events < 2000

    run(Reply.from_text(" ".join("abcdefghij" * 200), delay=0.02), use)


def test_cancelled_draws_leave_the_server_and_are_charged() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        meters = [Meter() for _ in range(20)]
        draws = [
            asyncio.create_task(sampler.sample(SampleRequest(CHAT, seed=place), meter))
            for place, meter in enumerate(meters)
        ]
        await wait_until(lambda: all(meter.tokens >= 5 for meter in meters))
        for draw in draws:
            draw.cancel()
        assert all(
            isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*draws, return_exceptions=True)
        )
        await wait_until(lambda: server.open_requests == 0)
        for meter, arrival in zip(meters, sorted(server.requests, key=lambda one: one.body["seed"]), strict=True):
            assert arrival.left is not None
            assert 5 <= meter.tokens < arrival.events < 4000
            assert meter.calls == 1
            assert meter.prompt_tokens > 0
        assert [endpoint.in_flight for endpoint in sampler.endpoints.all] == [0]

    run(Reply.from_text(" ".join("abcdefghij" * 400), delay=0.01), use)


def test_what_had_come_before_a_draw_was_cancelled_is_charged_though_nobody_had_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        meter, came, feed = Meter(), bytearray(), aiohttp.StreamReader.feed_data

        def cancelled_as_it_comes(stream: aiohttp.StreamReader, data: bytes, *rest: Any) -> Any:
            came.extend(data)
            if meter.tokens:
                draw.cancel()
            return feed(stream, data, *rest)

        monkeypatch.setattr(aiohttp.StreamReader, "feed_data", cancelled_as_it_comes)
        draw = asyncio.create_task(sampler.sample(SampleRequest(CHAT), meter))
        with pytest.raises(asyncio.CancelledError):
            await draw
        assert meter.tokens == came.count(b"data: ") - 1 >= 2, "the first event of a chat carries no token"

    run(Reply.from_text(" ".join("abcdefghij" * 400), delay=0.01), use)


def test_a_cancelled_draw_that_was_still_waiting_leaves_too() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        draw = asyncio.create_task(sampler.sample(SampleRequest(CHAT), Meter()))
        await wait_until(lambda: server.open_requests == 1)
        draw.cancel()
        await asyncio.gather(draw, return_exceptions=True)
        await wait_until(lambda: server.requests[0].left)

    run(Reply.from_text("4"), use, Hang())


def test_connections_are_used_again() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        for _ in range(5):
            await sampler.sample(SampleRequest(CHAT), Meter())
        connector = sampler._connection._current_session().connector
        assert connector is not None
        assert sum(map(len, connector._conns.values())) == 1  # where aiohttp keeps idle connections

    run(Reply.from_text("4"), use)


def test_work_goes_to_the_least_loaded_and_away_from_one_that_fails() -> None:
    async def main() -> None:
        slow = Reply.from_text("a b c", delay=0.05)
        async with FakeServer(slow) as good, FakeServer(slow) as other, FakeServer(slow, faults=[Status(500)]) as bad:
            sampler = OpenAISampler([bad.url, good.url, other.url], backoff=QUICK)
            drawn = await asyncio.gather(*(sampler.sample(SampleRequest(CHAT), Meter()) for _ in range(30)))
            assert [candidate.text for candidate in drawn] == ["a b c"] * 30
            assert len(bad.requests) <= 11
            assert abs(len(good.requests) - len(other.requests)) <= 2
            await asyncio.gather(*(sampler.sample(SampleRequest(CHAT), Meter()) for _ in range(10)))
            assert len(bad.requests) <= 11, "it rests"
            await sampler.close()

    asyncio.run(main())


def test_nobody_there_says_so_with_the_address() -> None:
    async def main() -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
        sampler = OpenAISampler(url, backoff=QUICK)
        with pytest.raises(ServerError, match=f"{url} cannot be reached") as caught:
            await sampler.sample(SampleRequest(CHAT), Meter())
        assert "Start the server" in caught.value.remedy
        await sampler.close()

    asyncio.run(main())


def test_of_several_models_one_must_be_named() -> None:
    async def main() -> None:
        async with FakeServer(Reply.from_text("4"), models=("x", "y")) as server:
            sampler = OpenAISampler(server.url)
            assert await sampler.list_models() == ["x", "y"]
            with pytest.raises(ServerError, match="x, y"):
                await sampler.sample(SampleRequest(CHAT), Meter())
            assert (await sampler.sample(SampleRequest(CHAT, model="y"), Meter())).model == "y"
            await sampler.close()

    asyncio.run(main())


def test_draws_that_start_together_ask_for_the_model_once() -> None:
    async def main() -> None:
        async with FakeServer(Reply.from_text("4")) as server:
            sampler = OpenAISampler(server.url)
            asked = []
            models = sampler._connection.list_models

            async def counted(url: str) -> list[str]:
                asked.append(url)
                return await models(url)

            sampler._connection.list_models = counted  # type: ignore[method-assign]  # counts what it passes on
            first, *others = [asyncio.create_task(sampler.sample(SampleRequest(CHAT), Meter())) for _ in range(20)]
            await asyncio.sleep(0)
            first.cancel()
            assert {candidate.model for candidate in await asyncio.gather(*others)} == {"fake"}
            assert len(asked) == 1
            await sampler.close()

    asyncio.run(main())


def test_a_cap_the_server_ignores_is_noted() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        candidate = await sampler.sample(
            SampleRequest(CHAT, Sampling(max_tokens=2), options={"max_tokens": 9}), Meter()
        )
        assert candidate.message["cap_ignored"] == {"tokens": 5, "cap": 2}

    run(Reply.from_text("a b c d e"), use)


def test_many_draws_some_of_which_fail() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        drawn = await asyncio.gather(*(sampler.sample(SampleRequest(CHAT, seed=place), Meter()) for place in range(60)))
        assert {candidate.text for candidate in drawn} == {"a b c d e f"}
        assert len(server.requests) > 60

    run(Reply.from_text("a b c d e f"), use, every(3, Cut()), every(5, Status(500)), attempts=12)


def test_what_it_offers() -> None:
    assert "prefix" not in OpenAISampler("http://h").offers
    assert OpenAISampler("http://h", offers=frozenset({"prefix"})).offers == {"prefix"}


def test_nothing_is_left_open() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        draws: Sequence[asyncio.Task[Any]] = [
            asyncio.create_task(sampler.sample(SampleRequest(CHAT, seconds=0.2), Meter())) for _ in range(8)
        ]
        await asyncio.sleep(0.1)
        for draw in draws[:4]:
            draw.cancel()
        await asyncio.gather(*draws, return_exceptions=True)

    run(Reply.from_text("a b c d e f g", delay=0.05), use)
    gc.collect()  # a socket or task left behind would warn here, and warnings are errors


def test_a_server_that_never_stops_writing_is_cut_off_and_noted() -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        candidate = await sampler.sample(SampleRequest(CHAT, Sampling(max_tokens=2)), Meter())
        assert candidate.finish == "length"
        assert candidate.message["cap_ignored"]["tokens"] > 1024
        async with asyncio.timeout(120):
            while server.open_requests:
                await asyncio.sleep(0.005)
        assert server.requests[0].events < 100_000

    run(Reply.from_text("on"), use, Endless())


@dataclass(frozen=True)
class Endless(Fault):
    """A cap is not heeded: one token after the other, for ever."""

    def stream(self, events: Iterator[bytes]) -> Iterator[bytes]:
        yield next(events)
        one = next(events)
        while True:
            yield one


@pytest.mark.parametrize(
    "draw",
    [
        SampleRequest("half \ud800"),
        SampleRequest(({"role": "user", "content": "\udcff"},)),
        SampleRequest("?", model="\udcff"),
    ],
)
def test_halves_of_characters_cannot_be_sent_and_are_named(draw: SampleRequest) -> None:
    async def use(server: FakeServer, sampler: OpenAISampler) -> None:
        with pytest.raises(ServerError, match="surrogates not allowed") as caught:
            await sampler.sample(draw, Meter())
        assert caught.value.fatal
        assert server.requests == []

    run(Reply.from_text("x"), use)


def test_the_key_is_in_no_error_even_if_the_server_repeats_it() -> None:
    key = "sk-0123456789abcdef"

    async def main() -> None:
        async with FakeServer(Reply.from_text("x"), models=("a",)) as server:
            sampler = OpenAISampler([server.url], key=key, attempts=1)
            with pytest.raises(ServerError, match="does not exist") as caught:
                await sampler.sample(SampleRequest("?", model=key), Meter())
            assert key not in str(caught.value)
            await sampler.close()

    asyncio.run(main())
