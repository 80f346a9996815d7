"""Requests passed on to an upstream as they are, and what comes back, unchanged: tried again as long as nothing of a reply was used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
import orjson

from breadth.base.errors import ServerError
from breadth.runtime.sampler import Meter
from breadth.runtime.samplers.connection import (
    EVENT_STREAM_TYPE,
    MAX_ERROR_BYTES,
    Endpoint,
    Endpoints,
    bearer_header,
    failure_reason,
    new_session,
    post_with_reconnect,
    read_up_to,
)
from breadth.runtime.samplers.server_errors import Backoff, quote, status_error, stream_error
from breadth.runtime.wire import DONE_DATA, EventParser

T = TypeVar("T")
REMEDY = "Look at the upstream's log, and at what stands between us."
MAX_WAIT_SECONDS = 10.0
"""Seconds waited at most before another attempt; an upstream that asks for longer has its refusal passed on, for the
client to wait.
"""
MAX_REPLY_BYTES = 128 * 2**20
"""Bytes of a reply that is not streamed at most: some 60,000 tokens with 20 log-probs each."""


@dataclass
class EventStream:
    """A stream that has begun."""

    endpoint: Endpoint
    """Where it comes from."""
    response: aiohttp.ClientResponse
    """The reply."""
    events: EventParser
    """Its bytes, cut into events."""
    pending: list[bytes]
    """Events that have come and have not been handed out."""
    saw_done: bool = False
    """Whether the end mark was seen."""

    async def read(self) -> AsyncIterator[list[bytes]]:
        """Yield the data of events, as many at a time as came together, up to the end mark or the end of the stream."""
        ended = False
        while True:
            self.saw_done = DONE_DATA in self.pending
            if events := self.pending[: self.pending.index(DONE_DATA)] if self.saw_done else self.pending:
                yield events
            if self.saw_done or ended:
                return
            try:
                chunk = await self.response.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                why = quote(str(error)) or type(error).__name__
                raise ServerError(f"{self.endpoint.url} broke its stream off ({why}).", REMEDY) from error
            ended = not chunk
            self.pending = self.events.finish() if ended else self.events.feed(chunk)


class UpstreamClient:
    """Passes requests on to one of several upstreams; shares their load and their rests with a sampler."""

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        key: str | None = None,
        attempts: int = 3,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
    ) -> None:
        self.endpoints = endpoints
        """Where requests go: the least loaded that is awake."""
        self.attempts = attempts
        """Requests at most for one of a client."""
        self.backoff = backoff
        """Waits between attempts where the upstream asks for none."""
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"} | bearer_header(key)
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, path: str, body: bytes, meter: Meter, deadline: float | None = None) -> dict[str, Any]:
        """Return the upstream's reply to a request that is not streamed; nothing is waited for past the deadline (on the loop's clock)."""

        async def once(endpoint: Endpoint) -> dict[str, Any]:
            with self.endpoints.track_request(endpoint):
                return await self._whole(endpoint, path, body)

        return await self._persist(once, meter, deadline)

    @asynccontextmanager
    async def open_stream(
        self, path: str, body: bytes, meter: Meter, deadline: float | None = None
    ) -> AsyncIterator[EventStream]:
        """Give a stream whose first event has come; leaving the context early closes the connection, so that the upstream stops."""
        flow = await self._persist(lambda endpoint: self._begun(endpoint, path, body), meter, deadline)
        done = False
        try:
            with self.endpoints.track_request(flow.endpoint):
                yield flow
            done = True
        finally:
            await _let_go(flow.response, done)

    async def close(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _persist(self, once: Callable[[Endpoint], Awaitable[T]], meter: Meter, deadline: float | None) -> T:
        """Try until it works, or trying again makes no sense."""
        attempt = 1
        while True:
            endpoint = self.endpoints.choose()
            await _pause(self.endpoints.seconds_blocked(endpoint), deadline, None)
            meter.calls += 1
            try:
                return await once(endpoint)
            except ServerError as error:
                if error.fatal or attempt >= self.attempts:
                    raise
                await _pause(self._wait(endpoint, error, attempt), deadline, error)
            attempt += 1

    def _wait(self, failed: Endpoint, error: ServerError, attempt: int) -> float:
        following = self.endpoints.choose()
        if following is not failed and not self.endpoints.is_resting(following):
            return 0.0
        return max(self.backoff.wait_seconds(attempt), error.retry_after or 0.0)

    async def _whole(self, endpoint: Endpoint, path: str, body: bytes) -> dict[str, Any]:
        response = await self._post(endpoint, path, body)
        try:
            said = await read_up_to(response, MAX_REPLY_BYTES)
        except (aiohttp.ClientError, OSError) as error:
            response.close()
            raise ServerError(f"{endpoint.url} broke its reply off ({quote(str(error))}).", REMEDY) from error
        except BaseException:
            response.close()
            raise
        if len(said) > MAX_REPLY_BYTES:
            response.close()
            raise ServerError(
                f"{endpoint.url} sent a reply of more than {MAX_REPLY_BYTES // 2**20} MiB.", REMEDY, fatal=True
            )
        return parse_reply(said, endpoint.url)

    async def _begun(self, endpoint: Endpoint, path: str, body: bytes) -> EventStream:
        with self.endpoints.track_request(endpoint):
            response = await self._post(endpoint, path, body)
            try:
                return await _first(endpoint, response)
            except (aiohttp.ClientError, OSError) as error:
                response.close()
                raise ServerError(
                    f"{endpoint.url} broke off before its first event ({quote(str(error))}).", REMEDY
                ) from error
            except BaseException:
                response.close()
                raise

    async def _post(self, endpoint: Endpoint, path: str, body: bytes) -> aiohttp.ClientResponse:
        try:
            response = await post_with_reconnect(self._opened(), endpoint.url + path, body, self._headers)
            if response.status == 200:
                return response
            async with response:
                said = await read_up_to(response, MAX_ERROR_BYTES)
        except (aiohttp.ClientError, OSError) as error:
            raise ServerError(
                f"{endpoint.url} cannot be reached: {failure_reason(error)}.",
                "Start the upstream, or check its address.",
            ) from error
        raise status_error(endpoint.url, response.status, response.headers, said)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = new_session()
        return self._session


def parse_reply(said: bytes, url: str) -> dict[str, Any]:
    """Return a reply, or one event of a stream, as a table; raises ServerError when it is an error or no reply at all."""
    try:
        found = orjson.loads(said)
    except orjson.JSONDecodeError as error:
        raise ServerError(
            f"{url} sent a reply that is no JSON: {quote(said[:200].decode('utf-8', 'replace'))}", REMEDY
        ) from error
    if not isinstance(found, dict) or found.get("error") or found.get("object") == "error":
        raise stream_error(url, found.get("error", found) if isinstance(found, dict) else found)
    choices = found.get("choices")
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise ServerError(f"{url} sent a reply without choices: {quote(said[:200].decode('utf-8', 'replace'))}", REMEDY)
    return found


async def _pause(seconds: float, deadline: float | None, error: ServerError | None) -> None:
    """Wait before the next attempt, unless that is longer than the client should be kept waiting for it."""
    left = MAX_WAIT_SECONDS if deadline is None else min(MAX_WAIT_SECONDS, deadline - asyncio.get_running_loop().time())
    if seconds > left:
        problem = f"Every upstream asks to be left alone for {seconds:.0f} s more."
        raise error or ServerError(problem, "Try again later.", status=429, retry_after=seconds)
    if seconds > 0:
        await asyncio.sleep(seconds)


async def _first(endpoint: Endpoint, response: aiohttp.ClientResponse) -> EventStream:
    """Wait for the first event, so that a stream which fails at once can be tried again."""
    if response.content_type != EVENT_STREAM_TYPE:
        said = (await read_up_to(response, MAX_ERROR_BYTES)).decode("utf-8", "replace")
        raise ServerError(
            f"{endpoint.url} sent {quote(response.content_type)} instead of a stream: {quote(said)}", REMEDY
        )
    events = EventParser()
    waiting: list[bytes] = []
    while not waiting and (chunk := await response.content.readany()):
        waiting = events.feed(chunk)
    waiting = waiting or events.finish()
    if not waiting:
        raise ServerError(f"{endpoint.url} ended its stream without an event.", REMEDY)
    if waiting[0] != DONE_DATA:
        parse_reply(waiting[0], endpoint.url)
    return EventStream(endpoint, response, events, waiting)


async def _let_go(response: aiohttp.ClientResponse, done: bool) -> None:
    """Keep the connection of a finished stream for the next request; close any other."""
    if done:
        with suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(0.1):
                await response.content.readany()
                response.release()
                return
    response.close()
