"""How the fake server sends: pace, batches, and what still goes out before a cut."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import aiohttp
import pytest

from breadth.testing.fake_replies import Reply
from breadth.testing.fake_sending import BATCH
from breadth.testing.fake_server import FakeServer
from breadth.testing.faults import Cut


async def raw(server: FakeServer) -> Iterator[tuple[float, bytes]]:
    """Return what came and when, until the end or the cut."""
    seen: list[tuple[float, bytes]] = []
    async with aiohttp.ClientSession() as session, session.post(f"{server.url}/v1/chat/completions", json={"stream": True}) as reply:
        try:
            async for line in reply.content:
                seen.append((time.monotonic(), line))  # noqa: PERF401 - what came before a cut is wanted
        except aiohttp.ClientPayloadError:
            seen.append((time.monotonic(), b"cut"))
    return iter(seen)


def test_tokens_come_at_their_pace() -> None:
    async def main() -> list[float]:
        async with FakeServer(Reply.of("a b c", wait=0.1, delay=0.05)) as server:
            start = time.monotonic()
            return [when - start for when, line in await raw(server) if b'"content":"' in line or b"DONE" in line]

    role, one, two, three, done = asyncio.run(main())
    # The role and the first token are due at 0.10, the others 0.05 apart, and what follows the last token at once.
    for seen, due in zip((role, one, two, three, done), (0.10, 0.10, 0.15, 0.20, 0.20), strict=True):
        assert due - 0.002 <= seen < due + 5


@pytest.mark.parametrize("delay", [0.0, 0.001])
def test_everything_before_a_cut_arrives(delay: float) -> None:
    async def main() -> tuple[list[bytes], int]:
        async with FakeServer(Reply.of("word " * 20_000, delay=delay), faults=[Cut(after=50)]) as server:
            lines = [line for _, line in await raw(server) if line.strip()]
            return lines, server.requests[0].events

    lines, events = asyncio.run(main())
    assert lines[-1] == b"cut"
    assert len(lines) == 51
    assert events == 50


def test_a_long_stream_goes_in_several_writes() -> None:
    async def main() -> tuple[int, int]:
        async with FakeServer(Reply.of("word " * 2_000)) as server:
            lines = [line for _, line in await raw(server)]
            return sum(map(len, lines)), sum(line.startswith(b"data: {") for line in lines)

    size, events = asyncio.run(main())
    assert size > 2 * BATCH
    assert events == 1 + 2_000 + 1 + 1  # role, words, the last blank, finish
