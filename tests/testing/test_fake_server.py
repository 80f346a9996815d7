"""The fake server, read by aiohttp and by the openai SDK: what it says, how it fails, and how it notices who left."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import aiohttp
import openai
import pytest

from breadth.testing.fake_replies import Reply, ReplyToken
from breadth.testing.fake_server import WRITE_BYTES, FakeServer, ReplyScript, spawn_server, wait_until
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


def test_what_holds_already_is_not_waited_for() -> None:
    async def main() -> bool:
        ran = asyncio.Event()
        asyncio.get_running_loop().call_soon(ran.set)
        await wait_until(lambda: True)
        return ran.is_set()

    assert not asyncio.run(main()), "not even one turn of the loop"


def test_others_work_on_until_it_holds() -> None:
    async def main() -> list[int]:
        seen: list[int] = []

        async def work() -> None:
            for number in range(5):
                seen.append(number)
                await asyncio.sleep(0)

        working = asyncio.create_task(work())
        await wait_until(lambda: len(seen) >= 3)
        await working
        return seen

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_what_never_holds_is_an_error() -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(wait_until(lambda: False, timeout=0.02))


async def raw(server: FakeServer) -> Iterator[tuple[float, bytes]]:
    """Return what came and when, until the end or the cut."""
    seen: list[tuple[float, bytes]] = []
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/v1/chat/completions", json={"stream": True}) as reply,
    ):
        try:
            async for line in reply.content:
                seen.append((time.monotonic(), line))  # noqa: PERF401 - what came before a cut is wanted
        except aiohttp.ClientPayloadError:
            seen.append((time.monotonic(), b"cut"))
    return iter(seen)


def test_tokens_come_at_their_pace() -> None:
    async def main() -> list[float]:
        async with FakeServer(Reply.from_text("a b c", wait=0.1, delay=0.05)) as server:
            start = time.monotonic()
            return [when - start for when, line in await raw(server) if b'"content":"' in line or b"DONE" in line]

    role, one, two, three, done = asyncio.run(main())
    # The role and the first token are due at 0.10, the others 0.05 apart, and what follows the last token at once.
    for seen, due in zip((role, one, two, three, done), (0.10, 0.10, 0.15, 0.20, 0.20), strict=True):
        assert due - 0.002 <= seen < due + 5


@pytest.mark.parametrize("delay", [0.0, 0.001])
def test_everything_before_a_cut_arrives(delay: float) -> None:
    async def main() -> tuple[list[bytes], int]:
        async with FakeServer(Reply.from_text("word " * 20_000, delay=delay), faults=[Cut(after=50)]) as server:
            lines = [line for _, line in await raw(server) if line.strip()]
            return lines, server.requests[0].events

    lines, events = asyncio.run(main())
    assert lines[-1] == b"cut"
    assert len(lines) == 51
    assert events == 50


def test_a_long_stream_goes_in_several_writes() -> None:
    async def main() -> tuple[int, int]:
        async with FakeServer(Reply.from_text("word " * 2_000)) as server:
            lines = [line for _, line in await raw(server)]
            return sum(map(len, lines)), sum(line.startswith(b"data: {") for line in lines)

    size, events = asyncio.run(main())
    assert size > 2 * WRITE_BYTES
    assert events == 1 + 2_000 + 1 + 1  # role, words, the last blank, finish


ASK: Any = {"model": "fake", "messages": [{"role": "user", "content": "2+2?"}]}
FOUR = Reply.from_text("the answer is 4", reasoning="two and two")


def with_sdk(
    ask: Callable[[openai.AsyncOpenAI, FakeServer], Awaitable[Any]],
    *faults: Fault | Scheduled,
    script: ReplyScript | Reply = FOUR,
) -> Any:
    """Run one conversation of the openai SDK with a server."""

    async def main() -> Any:
        async with FakeServer(script, faults=faults) as server:
            client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0, timeout=30)
            async with client:
                return await ask(client, server)

    return asyncio.run(main())


def posted(server: FakeServer, body: dict[str, Any] | None = None) -> Callable[[aiohttp.ClientSession], Any]:
    return lambda session: session.post(f"{server.url}/v1/chat/completions", json=ASK | (body or {}))


def test_the_sdk_reads_a_reply() -> None:
    async def ask(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        assert [model.id async for model in client.models.list()] == ["fake"]
        reply = await client.chat.completions.create(**ASK, logprobs=True, top_logprobs=2)
        choice = reply.choices[0]
        assert (choice.message.content, choice.finish_reason) == ("the answer is 4", "stop")
        assert choice.message.model_dump()["reasoning_content"] == "two and two"
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert [len(entry.top_logprobs) for entry in choice.logprobs.content] == [2] * 7
        assert reply.usage is not None
        assert reply.usage.completion_tokens == 7
        arrival = server.requests[0]
        assert arrival.body["messages"] == ASK["messages"]
        assert arrival.headers["authorization"] == "Bearer k"
        assert (arrival.status, arrival.left) == (200, None)

    with_sdk(ask)


def test_the_sdk_reads_a_stream() -> None:
    async def ask(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        stream = await client.chat.completions.create(
            **ASK, stream=True, stream_options={"include_usage": True}, logprobs=True
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "the answer is 4"
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 7
        assert sum(bool(chunk.choices and chunk.choices[0].logprobs) for chunk in chunks) == 7

    with_sdk(ask)


def test_the_sdk_reads_completions() -> None:
    async def ask(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        reply = await client.completions.create(model="fake", prompt="2+2 is", logprobs=1)
        assert reply.choices[0].text == "the answer is 4"
        assert reply.choices[0].logprobs is not None
        assert reply.choices[0].logprobs.text_offset == [0, 3, 10, 13]
        stream = await client.completions.create(model="fake", prompt="2+2 is", stream=True, max_tokens=2)
        assert [chunk.choices[0].text async for chunk in stream] == ["the", " answer", ""]

    with_sdk(ask)


def test_the_script_sees_the_request_and_counts_draws() -> None:
    def script(request: dict[str, Any], number: int) -> Reply:
        return Reply.from_text(f"{request['messages'][0]['content']} {number}")

    async def ask(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        three = await client.chat.completions.create(**ASK, n=3)
        assert [choice.message.content for choice in three.choices] == ["2+2? 0", "2+2? 1", "2+2? 2"]
        stream = await client.chat.completions.create(**ASK, n=2, stream=True)
        texts = ["", ""]
        async for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        assert texts == ["2+2? 3", "2+2? 4"]

    with_sdk(ask, script=script)


def test_a_constant_reply_is_still_cut_to_the_request() -> None:
    async def ask(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        texts = []
        for limits in ({}, {"stop": ["4"]}, {"max_tokens": 4}, {}):
            stream = await client.chat.completions.create(**ASK, stream=True, **limits)
            texts.append("".join([chunk.choices[0].delta.content or "" async for chunk in stream]))
        assert texts == ["the answer is 4", "the answer is ", "the", "the answer is 4"]

    with_sdk(ask)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Status(500), openai.InternalServerError),
        (Status(429), openai.RateLimitError),
        (Status(401), openai.AuthenticationError),
    ],
)
def test_statuses_are_what_the_sdk_takes_them_for(fault: Status, error: type[openai.APIStatusError]) -> None:
    async def ask(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        with pytest.raises(error) as caught:
            await client.chat.completions.create(**ASK)
        assert caught.value.body == {
            "message": f"fault: status {fault.status}",
            "type": "server_error",
            "param": None,
            "code": fault.status,
        }
        assert server.requests[0].status == fault.status

    with_sdk(ask, fault)


def test_retry_after_is_sent_when_asked_for() -> None:
    async def main() -> list[str | None]:
        seen = []
        for fault in (Status(429, retry_after=2), Status(429)):
            async with (
                FakeServer(FOUR, faults=[fault]) as server,
                aiohttp.ClientSession() as session,
                posted(server)(session) as reply,
            ):
                seen.append(reply.headers.get("retry-after"))
        return seen

    assert asyncio.run(main()) == ["2", None]


def test_every_third_request_fails() -> None:
    async def main() -> list[int]:
        async with FakeServer(FOUR, faults=[every(3, Status(500))]) as server, aiohttp.ClientSession() as session:
            seen = []
            for _ in range(6):
                async with posted(server)(session) as reply:
                    seen.append(reply.status)
            return seen

    assert asyncio.run(main()) == [200, 200, 500, 200, 200, 500]


@pytest.mark.parametrize("streamed", [True, False])
def test_a_cut_is_seen_as_a_broken_reply(streamed: bool) -> None:
    async def main() -> None:
        async with FakeServer(FOUR, faults=[Cut(after=3)]) as server, aiohttp.ClientSession() as session:
            async with posted(server, {"stream": streamed})(session) as reply:
                assert reply.status == 200
                with pytest.raises(aiohttp.ClientPayloadError):
                    await reply.read()
            assert server.requests[0].left is None
            assert server.open_requests == 0

    asyncio.run(main())


async def lines_of(fault: Fault, **fields: Any) -> list[str]:
    async with (
        FakeServer(FOUR, faults=[fault]) as server,
        aiohttp.ClientSession() as session,
        posted(server, {"stream": True, **fields})(session) as reply,
    ):
        return [line for line in (await reply.text()).split("\n\n") if line]


def test_malformed_json_in_mid_stream() -> None:
    lines = asyncio.run(lines_of(MalformedJson(after=2)))
    with pytest.raises(json.JSONDecodeError):
        json.loads(lines[2].removeprefix("data: "))
    assert lines[-1] == "data: [DONE]"


def test_an_error_in_mid_stream() -> None:
    async def ask(client: openai.AsyncOpenAI, server: FakeServer) -> None:
        stream = await client.chat.completions.create(**ASK, stream=True)
        with pytest.raises(openai.APIError, match="engine died"):
            async for _ in stream:
                pass

    with_sdk(ask, ErrorInStream(after=2))


def test_duplicated_chunks_come_twice() -> None:
    lines = asyncio.run(lines_of(DuplicatedChunks()))
    assert lines[::2] == lines[1::2]
    assert len(lines) == 2 * (1 + 7 + 1 + 1)


def test_missing_parts_are_missing() -> None:
    asked = {"logprobs": True, "top_logprobs": 2, "stream_options": {"include_usage": True}}
    assert any('"logprobs"' in line for line in asyncio.run(lines_of(Fault(), **asked)))
    assert not any('"logprobs"' in line for line in asyncio.run(lines_of(NoLogprobs(), **asked)))
    assert any('"usage"' in line for line in asyncio.run(lines_of(Fault(), **asked)))
    assert not any('"usage"' in line for line in asyncio.run(lines_of(NoUsage(), **asked)))
    assert len(asyncio.run(lines_of(EmptyText()))) == 3  # role, end, [DONE]


def test_n_is_ignored() -> None:
    async def ask(client: openai.AsyncOpenAI, server: FakeServer) -> int:
        return len((await client.chat.completions.create(**ASK, n=4)).choices)

    assert with_sdk(ask, NIgnored()) == 1
    assert with_sdk(ask) == 4


def test_a_page_instead_of_a_reply() -> None:
    async def main() -> None:
        async with (
            FakeServer(FOUR, faults=[WrongContentType()]) as server,
            aiohttp.ClientSession() as session,
            posted(server)(session) as reply,
        ):
            assert (reply.status, reply.content_type) == (200, "text/html")

    asyncio.run(main())


def test_slow_tokens_take_their_time() -> None:
    start = time.monotonic()
    asyncio.run(lines_of(Slow(0.02)))
    assert time.monotonic() - start >= 0.02 * 7


def test_a_hanging_server_never_answers_and_notices_who_leaves() -> None:
    async def main() -> None:
        async with FakeServer(FOUR, faults=[Hang()]) as server:
            async with aiohttp.ClientSession() as session:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2), posted(server)(session):
                        pass
            await wait_until(lambda: server.open_requests == 0)
            arrival = server.requests[0]
            assert arrival.status is None
            assert arrival.left is not None

    asyncio.run(main())


def test_a_client_that_breaks_off_is_noticed_at_once() -> None:
    async def main() -> None:
        async with (
            FakeServer(Reply(tuple(ReplyToken(" x") for _ in range(4000)), delay=0.01)) as server,
            aiohttp.ClientSession() as session,
        ):
            for number in range(5):
                async with posted(server, {"stream": True})(session) as reply:
                    await reply.content.readline()
                    reply.close()
                await wait_until(lambda number=number: server.requests[number].left is not None)  # type: ignore[misc]  # a default is no type error
                assert server.requests[number].events < 4000

    asyncio.run(main())


def test_bad_requests_get_an_openai_error() -> None:
    async def main() -> None:
        async with FakeServer(FOUR) as server, aiohttp.ClientSession() as session:
            async with posted(server, {"model": "nope"})(session) as reply:
                assert reply.status == 404
                assert "`nope` does not exist" in (await reply.json())["error"]["message"]
            for data in (b"{bad", b"[1]"):
                async with session.post(f"{server.url}/v1/chat/completions", data=data) as reply:
                    assert reply.status == 400
                    assert "not a JSON object" in (await reply.json())["error"]["message"]

    asyncio.run(main())


def test_it_serves_512_streams_from_its_own_process() -> None:
    async def one(session: aiohttp.ClientSession, url: str) -> int:
        body = ASK | {"stream": True, "logprobs": True, "top_logprobs": 20}
        async with session.post(f"{url}/v1/chat/completions", json=body) as reply:
            return (await reply.read()).count(b"\n\n")

    async def main() -> tuple[list[int], list[dict[str, Any]]]:
        with spawn_server("--tokens", "30") as url:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
                counts = await asyncio.gather(*(one(session, url) for _ in range(512)))
                async with session.get(f"{url}/fake/requests") as reply:
                    return counts, await reply.json()

    counts, told = asyncio.run(main())
    assert counts == [33] * 512  # role, 30 tokens, end, [DONE]
    assert len(told) == 512
    assert all(arrival["left"] is None and arrival["events"] == 33 for arrival in told)
