"""The proxy's address and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import aiohttp
import pytest

from breadth.base.errors import SettingsError
from breadth.runtime.proxy.limits import Limits
from breadth.runtime.proxy.policies import Policies
from breadth.runtime.proxy.proxy import Proxy
from breadth.runtime.proxy.server import Server, told_to_end
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.testing.fake_replies import Reply
from breadth.testing.fake_server import FakeServer
from breadth.testing.waiting import until

ASKED = {"messages": [{"role": "user", "content": "?"}]}


async def drained(reply: Reply, policy: str, limits: Limits) -> tuple[Any, float, FakeServer, Proxy]:
    """Ask, tell the server to end while it answers, and return what came of both."""
    async with FakeServer(reply) as fake, aiohttp.ClientSession() as http:
        proxy = Proxy(OpenAISampler([fake.url]), Policies.of(policy), limits=limits)
        server = Server(proxy)
        async with server:
            asking = asyncio.create_task(http.post(f"{server.url}/v1/chat/completions", json=ASKED))
            await until(lambda: fake.in_flight)
            begun = time.monotonic()
        took = time.monotonic() - begun
        (got,) = await asyncio.gather(asking, return_exceptions=True)
        answered = got if isinstance(got, BaseException) else (got.status, await got.json())
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get(f"{server.url}/health")
        return answered, took, fake, proxy


@pytest.mark.parametrize("policy", ["single", "vote,n=3"])
def test_the_end_waits_for_those_being_answered(policy: str) -> None:
    async def main() -> None:
        answered, took, fake, _ = await drained(Reply.of("So the answer is 4.", wait=0.5), policy, Limits(drain=5.0))
        assert answered[0] == 200
        assert answered[1]["choices"][0]["message"]["content"] == "So the answer is 4."
        assert 0.2 < took < 10
        assert all(arrival.left is None for arrival in fake.requests)

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["single", "vote,n=3"])
def test_the_end_does_not_wait_for_ever_and_ends_the_draws(policy: str) -> None:
    async def main() -> None:
        answered, took, fake, proxy = await drained(Reply.of("4", wait=30.0), policy, Limits(drain=0.2))
        assert isinstance(answered, aiohttp.ClientError)
        assert took < 20
        assert all(arrival.left is not None for arrival in fake.requests)
        assert proxy.ledger.promised == []
        assert proxy.in_flight == 0

    asyncio.run(main())


def test_while_it_drains_nothing_new_is_taken_on_open_connections() -> None:
    async def main() -> None:
        async with FakeServer(Reply.of("So the answer is 4.")) as fake, aiohttp.ClientSession() as http:
            proxy = Proxy(OpenAISampler([fake.url]), Policies.of("single"))
            async with Server(proxy) as server:
                proxy.draining = True
                got = await http.post(f"{server.url}/v1/chat/completions", json=ASKED)
                assert (got.status, got.headers["Retry-After"], (await got.json())["error"]["code"]) == (503, "1", "draining")
                assert (await http.get(f"{server.url}/ready")).status == 503
                assert (await http.get(f"{server.url}/health")).status == 200

    asyncio.run(main())


def test_a_taken_port_is_an_error_in_words() -> None:
    async def main() -> None:
        proxy = Proxy(OpenAISampler(["http://127.0.0.1:9"]), Policies.of("single"))
        async with Server(proxy) as server:
            port = int(server.url.rsplit(":", 1)[1])
            with pytest.raises(SettingsError, match=f"Port {port}"):
                await Server(Proxy(OpenAISampler(["http://127.0.0.1:9"]), Policies.of("single")), port=port).__aenter__()
        with pytest.raises(SettingsError, match=r"Cannot listen on 203\.0\.113\.1"):
            await Server(proxy, host="203.0.113.1").__aenter__()

    asyncio.run(main())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_heard(number: signal.Signals) -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), number)
        async with asyncio.timeout(20):
            await told_to_end()

    asyncio.run(main())
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
