"""Silence ends it; being heard again and again does not."""

from __future__ import annotations

import asyncio
import socket
import time

from breadth.runtime.samplers.patience import Patience
from breadth.testing.waiting import until


def test_silence_ends_it_once() -> None:
    async def main() -> None:
        ended: list[float] = []
        loop = asyncio.get_running_loop()
        started = loop.time()
        patience = Patience(0.05, 0.05, lambda: ended.append(loop.time() - started))
        await until(lambda: patience.lost)
        await asyncio.sleep(0.2)
        assert len(ended) == 1
        assert 0.05 <= ended[0] < 10

    asyncio.run(main())


def test_being_heard_puts_it_off() -> None:
    async def main() -> None:
        ended: list[bool] = []
        loop = asyncio.get_running_loop()
        patience = Patience(0.1, 0.1, lambda: ended.append(True))
        for _ in range(8):
            await asyncio.sleep(0.03)
            patience.heard = loop.time()
        assert not patience.lost
        patience.stop()
        await asyncio.sleep(0.15)
        assert not ended

    asyncio.run(main())


def test_the_first_word_may_take_longer_than_the_next() -> None:
    async def main() -> None:
        ended: list[float] = []
        loop = asyncio.get_running_loop()
        patience = Patience(60, 0.05, lambda: ended.append(loop.time()))
        await asyncio.sleep(0.2)
        assert not ended
        patience.heard = loop.time()
        await until(lambda: patience.lost)  # it is not asleep until the first limit
        began = loop.time()
        silent = Patience(0.15, 0.05, lambda: ended.append(loop.time()))
        await until(lambda: silent.lost)
        assert 0.15 <= ended[1] - began < 10

    asyncio.run(main())


def test_a_pause_of_the_whole_process_is_no_silence() -> None:
    """As when a laptop sleeps or a job is stopped: the word came, and only its reader had no turn."""

    async def main() -> bool:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            patience = Patience(0.05, 0.05, writer.close)

            async def read() -> None:
                await reader.readexactly(1)
                patience.heard = loop.time()

            reading = asyncio.create_task(read())
            await asyncio.sleep(0)
            theirs.send(b"x")
            time.sleep(0.2)
            await reading
            patience.stop()
            writer.close()
            return patience.lost

    assert not asyncio.run(main())
