"""The list of models."""

from __future__ import annotations

import asyncio

from breadth.base.errors import ServerError
from breadth.runtime.proxy.models import Models, listing


def test_every_model_stands_there_plain_and_under_every_named_policy() -> None:
    ids = [entry["id"] for entry in listing(["a", "b"], ["careful", "quick"])["data"]]
    assert ids == ["a", "b", "a@careful", "b@careful", "a@quick", "b@quick"]


def test_the_upstream_is_asked_again_only_when_the_list_is_old() -> None:
    asked = 0

    async def ask() -> list[str]:
        nonlocal asked
        asked += 1
        return [f"model-{asked}"]

    async def main() -> None:
        known = Models(ask)
        assert [await known.known(), await known.known()] == [["model-1"]] * 2
        assert await known.known(-1.0) == ["model-2"]
        known.asked -= 31.0
        assert [await known.known(60.0), await known.known()] == [["model-2"], ["model-3"]]

    asyncio.run(main())


def test_those_who_ask_together_share_one_question_and_its_failure() -> None:
    asked = 0

    async def ask() -> list[str]:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.01)
        if asked == 1:
            raise ServerError("nobody there", "start it")
        return ["a"]

    async def main() -> None:
        known = Models(ask)
        failed = await asyncio.gather(*(known.known() for _ in range(20)), return_exceptions=True)
        assert {type(one) for one in failed} == {ServerError}
        assert await asyncio.gather(*(known.known() for _ in range(20))) == [["a"]] * 20
        assert asked == 2
        impatient = asyncio.create_task(known.known(-1.0))
        await asyncio.sleep(0)
        impatient.cancel()
        assert await known.known(-1.0) == ["a"]
        assert asked == 3
        await known.close()

    asyncio.run(main())
