"""A proxy in front of a fake server, for the tests of the proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import aiohttp
import orjson
import pytest
from multidict import CIMultiDict

from breadth.runtime.proxy.access import Keys, ProxyLimits
from breadth.runtime.proxy.proxy import Proxy
from breadth.runtime.proxy.routing import Policies
from breadth.runtime.proxy.server import Server
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.runtime.samplers.server_errors import Backoff
from breadth.testing.fake_replies import Reply
from breadth.testing.fake_server import FakeServer, ReplyScript, wait_until
from breadth.testing.faults import Fault, Scheduled

CHAT = "/v1/chat/completions"


@dataclass
class Served:
    """A proxy at work, its upstream, and a client."""

    url: str
    proxy: Proxy
    server: Server
    fake: FakeServer
    http: aiohttp.ClientSession

    async def post(
        self, path: str = CHAT, *, headers: dict[str, str] | None = None, raw: bytes | None = None, **fields: Any
    ) -> Got:
        body = orjson.dumps(fields) if raw is None else raw
        told = {"Content-Type": "application/json"} | (headers or {})
        async with self.http.post(self.url + path, data=body, headers=told) as response:
            return Got(response.status, response.headers.copy(), await response.read())

    async def ask(self, text: str = "What is 2 + 2?", **fields: Any) -> Got:
        return await self.post(messages=[{"role": "user", "content": text}], **fields)

    async def get(self, path: str, **headers: str) -> Got:
        async with self.http.get(self.url + path, headers=headers) as response:
            return Got(response.status, response.headers.copy(), await response.read())

    async def at_rest(self) -> None:
        """Wait until nothing is left of any request: no draw upstream, no promise in the ledger."""
        await wait_until(
            lambda: not (self.fake.open_requests or self.proxy.in_flight or self.proxy.ledger.reservations)
        )


@dataclass
class Got:
    """A reply."""

    status: int
    headers: CIMultiDict[str]
    raw: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.raw)

    @property
    def text(self) -> str:
        choice = self.json["choices"][0]
        said: str = choice["message"]["content"] if "message" in choice else choice["text"]
        return said

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """The data of every event, as JSON where it is; comments are left out."""
        lines = [line.removeprefix("data: ") for line in self.raw.decode().split("\n\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else orjson.loads(line) for line in lines]


Serving: TypeAlias = Callable[..., AbstractAsyncContextManager[Served]]


@asynccontextmanager
async def _serving(
    script: ReplyScript | Reply,
    policy: str = "single",
    *,
    named: Sequence[str] = (),
    faults: Sequence[Fault | Scheduled] = (),
    models: Sequence[str] = ("fake",),
    keys: Sequence[str] = (),
    limits: ProxyLimits = ProxyLimits(),  # noqa: B008 - frozen
    attempts: int = 2,
    client_policies: bool = False,
    key: str | None = None,
    host: str = "127.0.0.1",
    allow_hosts: Sequence[str] = (),
) -> AsyncIterator[Served]:
    quick = Backoff(first_seconds=0.01, max_seconds=0.02)
    async with FakeServer(script, faults=faults, models=models) as fake, aiohttp.ClientSession() as http:
        sampler = OpenAISampler([fake.url], key=key, attempts=attempts, backoff=quick)
        proxy = Proxy(
            sampler,
            Policies.parse(policy, named, max_samples=limits.max_samples, client_policies=client_policies),
            key=key,
            keys=Keys.from_keys(keys),
            limits=limits,
            attempts=attempts,
        )
        proxy.upstream_client.backoff = quick
        async with Server(proxy, host=host, allow_hosts=allow_hosts) as server:
            yield Served(server.url, proxy, server, fake, http)


@pytest.fixture(scope="session")
def serving() -> Serving:
    """Makes a proxy in front of a fake server, as a context."""
    return _serving
