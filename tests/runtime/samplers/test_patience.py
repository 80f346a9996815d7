"""Silence ends it; being heard again and again does not."""

from __future__ import annotations

import asyncio

from breadth.runtime.samplers.patience import Patience


def test_silence_ends_it_once() -> None:
    async def main() -> None:
        ended: list[float] = []
        loop = asyncio.get_running_loop()
        started = loop.time()
        patience = Patience(0.05, 0.05, lambda: ended.append(loop.time() - started))
        await asyncio.sleep(0.2)
        assert patience.lost
        assert len(ended) == 1
        assert 0.04 < ended[0] < 0.15

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
        patience = Patience(0.4, 0.05, lambda: ended.append(loop.time()))
        await asyncio.sleep(0.2)
        assert not ended
        heard = patience.heard = loop.time()
        await asyncio.sleep(0.2)
        assert patience.lost
        assert ended[0] - heard < 0.15, "it is not asleep until the first limit"
        silent = Patience(0.15, 0.05, lambda: ended.append(loop.time()))
        began = loop.time()
        await asyncio.sleep(0.3)
        assert silent.lost
        assert 0.14 < ended[1] - began < 0.25

    asyncio.run(main())
