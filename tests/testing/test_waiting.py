"""It returns when the thing holds, at once or later, and says when it never does."""

from __future__ import annotations

import asyncio

import pytest

from breadth.testing.waiting import until


def test_what_holds_already_is_not_waited_for() -> None:
    async def main() -> bool:
        ran = asyncio.Event()
        asyncio.get_running_loop().call_soon(ran.set)
        await until(lambda: True)
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
        await until(lambda: len(seen) >= 3)
        await working
        return seen

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_what_never_holds_is_an_error() -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(until(lambda: False, patience=0.02))
