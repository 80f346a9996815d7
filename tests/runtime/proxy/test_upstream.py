"""Requests passed on, below the web pages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import orjson
import pytest

from breadth.base.errors import ServerError
from breadth.runtime.proxy.upstream import UpstreamClient, parse_reply
from breadth.runtime.sampler import Meter
from breadth.runtime.samplers.connection import Endpoints
from breadth.runtime.samplers.server_errors import Backoff
from breadth.testing.fake_replies import Reply
from breadth.testing.fake_server import FakeServer, wait_until
from breadth.testing.faults import Cut, Fault, Hang, Status, first

CHAT = "/v1/chat/completions"
BODY = orjson.dumps({"messages": [{"role": "user", "content": "?"}]})
STREAMED = orjson.dumps({"messages": [{"role": "user", "content": "?"}], "stream": True})
FOUR = Reply.from_text("So the answer is 4.")
QUICK = Backoff(first_seconds=0.01, max_seconds=0.02)


def test_a_failing_upstream_rests_while_the_other_answers() -> None:
    async def main() -> None:
        async with FakeServer(FOUR, faults=[Status(500)]) as bad, FakeServer(FOUR) as good:
            relay = UpstreamClient(Endpoints([bad.url, good.url]), backoff=QUICK)
            for _ in range(4):
                assert (await relay.fetch(CHAT, BODY, Meter()))["choices"][0]["message"][
                    "content"
                ] == "So the answer is 4."
            assert (len(bad.requests), len(good.requests)) == (1, 4)
            await relay.close()

    asyncio.run(main())


def test_the_key_and_nothing_of_the_clients_is_sent() -> None:
    async def main() -> None:
        async with FakeServer(FOUR) as fake:
            relay = UpstreamClient(Endpoints(fake.url), key="upstream-secret")
            await relay.fetch(CHAT, BODY, Meter())
            assert fake.requests[0].headers["authorization"] == "Bearer upstream-secret"
            await relay.close()

    asyncio.run(main())


def test_connections_are_used_again_after_a_stream_that_ended() -> None:
    async def main() -> None:
        async with FakeServer(FOUR) as fake:
            relay = UpstreamClient(Endpoints(fake.url))
            for _ in range(5):
                async with relay.open_stream(CHAT, STREAMED, Meter()) as flow:
                    events = [event async for batch in flow.read() for event in batch]
                assert flow.saw_done
                assert len(events) == 7
            assert relay._session is not None
            connector = relay._session.connector
            assert connector is not None
            assert len(connector._conns) == 1
            assert [len(pool) for pool in connector._conns.values()] == [1]
            assert relay.endpoints.all[0].in_flight == 0
            await relay.close()

    asyncio.run(main())


def test_a_stream_that_is_left_early_is_closed_at_the_upstream() -> None:
    async def main() -> None:
        async with FakeServer(Reply.from_text("word " * 4000, delay=0.01)) as fake:
            relay = UpstreamClient(Endpoints(fake.url))
            async with relay.open_stream(CHAT, STREAMED, Meter()) as flow:
                async for _ in flow.read():
                    break
                with pytest.raises(RuntimeError):
                    async with relay.open_stream(CHAT, STREAMED, Meter()) as other:
                        assert other.endpoint.in_flight == 2
                        raise RuntimeError
            await wait_until(lambda: fake.open_requests == 0)
            assert [arrival.left is not None for arrival in fake.requests] == [True, True]
            assert relay.endpoints.all[0].in_flight == 0
            await relay.close()

    asyncio.run(main())


def test_a_stream_that_fails_before_its_first_event_is_tried_again_and_after_it_is_not() -> None:
    async def main() -> None:
        async with FakeServer(FOUR, faults=[first(1, Cut(after=0))]) as fake:
            relay, meter = UpstreamClient(Endpoints(fake.url), backoff=QUICK), Meter()
            async with relay.open_stream(CHAT, STREAMED, meter) as flow:
                assert [event async for batch in flow.read() for event in batch]
            assert (meter.calls, len(fake.requests)) == (2, 2)
            await relay.close()
        async with FakeServer(FOUR, faults=[Cut(after=3)]) as fake:
            relay = UpstreamClient(Endpoints(fake.url), backoff=QUICK)
            with pytest.raises(ServerError, match="broke its stream off"):
                async with relay.open_stream(CHAT, STREAMED, Meter()) as flow:
                    async for _ in flow.read():
                        pass
            assert len(fake.requests) == 1
            await relay.close()

    asyncio.run(main())


def test_a_long_retry_after_is_passed_on_instead_of_waited_for() -> None:
    async def main() -> None:
        async with FakeServer(FOUR, faults=[Status(429, retry_after=60)]) as fake:
            relay = UpstreamClient(Endpoints(fake.url))
            for _ in range(2):  # the second is not even sent: the upstream asked to be left alone
                with pytest.raises(ServerError) as caught:
                    await relay.fetch(CHAT, BODY, Meter())
                assert caught.value.status == 429
                assert caught.value.retry_after == pytest.approx(60, abs=1)
            assert len(fake.requests) == 1
            await relay.close()

    asyncio.run(main())


def test_an_upstream_that_is_not_there_is_an_error_in_words() -> None:
    async def main() -> None:
        relay = UpstreamClient(Endpoints("http://127.0.0.1:9"), attempts=2, backoff=QUICK)
        meter = Meter()
        with pytest.raises(ServerError, match="cannot be reached") as caught:
            await relay.fetch(CHAT, BODY, meter)
        assert (caught.value.status, meter.calls) == (None, 2)
        await relay.close()

    asyncio.run(main())


def test_cancelling_closes_the_connection() -> None:
    async def main() -> None:
        async with FakeServer(FOUR, faults=[Hang()]) as fake:
            relay = UpstreamClient(Endpoints(fake.url))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(relay.fetch(CHAT, BODY, Meter()), 0.1)
            await asyncio.sleep(0.05)
            assert fake.open_requests == 0
            assert fake.requests[0].left is not None
            await relay.close()

    asyncio.run(main())


@pytest.mark.parametrize("said", [b"", b"<html>", b"[]", b'"x"', b"{}", b'{"choices": null}', b'{"error": "no"}'])
def test_what_is_no_reply_is_an_error(said: bytes) -> None:
    with pytest.raises(ServerError, match="up"):
        parse_reply(said, "up")


async def _lying(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer once, promise to keep the connection, and close it when the next request comes."""
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    body = orjson.dumps({"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]})
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await reader.read(1)
    writer.close()


def test_a_kept_connection_that_was_closed_is_no_failure() -> None:
    async def main() -> None:
        async with await asyncio.start_server(_lying, "127.0.0.1", 0) as server:
            relay, meter = UpstreamClient(Endpoints(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")), Meter()
            for _ in range(3):
                assert (await relay.fetch(CHAT, BODY, meter))["choices"][0]["message"]["content"] == "4"
            assert (meter.calls, relay.endpoints.all[0].failures) == (3, 0)
            await relay.close()

    asyncio.run(main())


def test_a_reply_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breadth.runtime.proxy.upstream.MAX_REPLY_BYTES", 1000)

    async def main() -> None:
        async with FakeServer(Reply.from_text("x " * 1000)) as fake:
            relay = UpstreamClient(Endpoints(fake.url))
            with pytest.raises(ServerError, match="a reply of more than"):
                await relay.fetch(CHAT, BODY, Meter())
            assert len(fake.requests) == 1
            await relay.close()

    asyncio.run(main())


@dataclass(frozen=True)
class _Unfinished(Fault):
    """The last event lacks its empty line, and there is no end mark."""

    events: int

    def stream(self, events: Iterator[bytes]) -> Iterator[bytes]:
        told = [one for one in events if b"[DONE]" not in one][-self.events :]
        yield b"".join(told).rstrip(b"\n")


@pytest.mark.parametrize("events", [1, 3])
def test_the_last_event_needs_no_empty_line(events: int) -> None:
    async def main() -> None:
        async with FakeServer(FOUR, faults=[_Unfinished(events)]) as fake:
            relay = UpstreamClient(Endpoints(fake.url), attempts=1)
            async with relay.open_stream(CHAT, STREAMED, Meter()) as flow:
                got = [event async for batch in flow.read() for event in batch]
            assert len(got) == events
            assert orjson.loads(got[-1])["choices"][0]["finish_reason"] == "stop"
            await relay.close()

    asyncio.run(main())
