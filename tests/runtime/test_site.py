"""Plain requests to a server: replies, and errors in words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from breadth.base.errors import ServerError, SettingsError
from breadth.runtime.site import LARGEST_REPLY, Site
from breadth.testing.fake_replies import CHAT, Reply
from breadth.testing.fake_server import FakeServer
from breadth.testing.faults import Cut, Fault, Hang, Status, WrongContentType

FOUR = Reply.of("4")


def asked(ask: Callable[[Site], Awaitable[Any]], *faults: Fault, reply: Reply = FOUR, seconds: float = 5) -> Any:
    async def main() -> Any:
        async with FakeServer(reply, faults=faults) as server, Site(server.url, key="secret", seconds=seconds) as site:
            found = await ask(site)
            return found, server.requests

    return asyncio.run(main())


def test_replies_are_json_objects() -> None:
    reply, requests = asked(lambda site: site.post_json(CHAT, {"messages": []}))
    assert reply["choices"][0]["message"]["content"] == "4"
    assert requests[0].headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (Status(401), "status 401"),
        (WrongContentType(), "no JSON object: <html>"),
        (Cut(), "cannot be reached"),
        (Hang(), "did not answer in 0.3 s"),
    ],
)
def test_what_goes_wrong_is_said(fault: Fault, problem: str) -> None:
    with pytest.raises(ServerError, match=problem):
        asked(lambda site: site.post_json(CHAT, {"messages": []}), fault, seconds=0.3)


def test_a_server_that_is_not_there_is_said() -> None:
    async def main() -> None:
        async with Site("http://127.0.0.1:9") as site:
            await site.post(CHAT, {})

    with pytest.raises(ServerError, match="cannot be reached"):
        asyncio.run(main())


def test_an_endless_reply_is_cut() -> None:
    body, _ = asked(lambda site: site.post(CHAT, {"stream": True}), reply=Reply.of("word " * 60_000))
    assert LARGEST_REPLY < len(body) < 2 * LARGEST_REPLY


def test_a_site_without_an_address_or_context_is_refused() -> None:
    with pytest.raises(SettingsError, match="not the address"):
        Site("ftp://x")
    with pytest.raises(RuntimeError, match="inside its context"):
        asyncio.run(Site("http://127.0.0.1:9").post(CHAT, {}))
