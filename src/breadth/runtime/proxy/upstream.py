"""Requests passed on to an upstream, and its replies unchanged; retried as long as no part of a reply was used."""

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
    pause_before_retry,
    post_with_reconnect,
    read_up_to,
)
from breadth.runtime.samplers.server_errors import Backoff, quote, status_error, stream_error
from breadth.runtime.wire import DONE_DATA, EventParser

T = TypeVar("T")
REMEDY = "Look at the upstream's log, and at any proxy in between."
MAX_WAIT_SECONDS = 10.0
"""Seconds waited at most before another attempt; when an upstream asks for longer, the client gets its refusal."""
MAX_REPLY_BYTES = 128 * 2**20
"""Bytes of a reply that is not streamed at most: some 60,000 tokens with 20 log-probs each."""


@dataclass(frozen=True)
class ReplySize:
    """The most that a reply which is not streamed may have."""

    size: int = MAX_REPLY_BYTES
    """Bytes; never more than `MAX_REPLY_BYTES`."""
    brackets: int = MAX_REPLY_BYTES
    """Opening brackets, those in texts too: each that is none of a text takes hundreds of bytes when it is read."""


@dataclass
class EventStream:
    """A stream that has started."""

    endpoint: Endpoint
    """Where it comes from."""
    response: aiohttp.ClientResponse
    """The reply."""
    events: EventParser
    """Cuts its bytes into events."""
    pending: list[bytes]
    """Events that have come and have not been yielded."""
    saw_done: bool = False
    """Whether the end mark was seen."""

    async def read(self) -> AsyncIterator[list[bytes]]:
        """Yield the data of events, those that came together at once, up to the end mark or the end of the stream."""
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

    def take_buffered(self) -> list[bytes]:
        """Return the data of events that have come and were not read: a client that left pays for them too."""
        try:
            events = self.events.feed(self.response.content.read_nowait())
        except (aiohttp.ClientError, OSError, RuntimeError):
            return []
        return events[: events.index(DONE_DATA)] if DONE_DATA in events else events


class UpstreamClient:
    """Passes requests on to one of several upstreams; shares their load and cooldowns with a sampler."""

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        key: str | None = None,
        attempts: int = 3,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
    ) -> None:
        self.endpoints = endpoints
        """The upstreams: the least loaded one that is not cooling down gets the next request."""
        self.attempts = attempts
        """Requests to upstreams at most for one of a client."""
        self.backoff = backoff
        """Waits between attempts where the upstream asks for none."""
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"} | bearer_header(key)
        self._session: aiohttp.ClientSession | None = None

    async def fetch(
        self,
        path: str,
        body: bytes,
        meter: Meter,
        deadline: float | None = None,
        most: ReplySize = ReplySize(),  # noqa: B008 - frozen
    ) -> dict[str, Any]:
        """Return the upstream's reply to a request that is not streamed; ``deadline`` is on the loop's clock."""

        async def fetch_once(endpoint: Endpoint) -> dict[str, Any]:
            with self.endpoints.track_request(endpoint):
                return await self._fetch_once(endpoint, path, body, most)

        return await self.retry(fetch_once, meter, deadline)

    @asynccontextmanager
    async def open_stream(
        self, path: str, body: bytes, meter: Meter, deadline: float | None = None
    ) -> AsyncIterator[EventStream]:
        """Give a stream whose first event has come; leaving the context early closes it, and the upstream stops."""
        stream = await self.retry(lambda endpoint: self._start_stream(endpoint, path, body), meter, deadline)
        done = False
        try:
            with self.endpoints.track_request(stream.endpoint):
                yield stream
            done = True
        finally:
            await close_or_reuse(stream.response, done and stream.saw_done)

    async def close(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def retry(self, attempt: Callable[[Endpoint], Awaitable[T]], meter: Meter, deadline: float | None) -> T:
        """Try until it works, or another attempt makes no sense."""
        number = 1
        while True:
            endpoint = self.endpoints.choose()
            await self._pause(self.endpoints.seconds_blocked(endpoint), deadline, None)
            meter.calls += 1
            try:
                return await attempt(endpoint)
            except ServerError as error:
                if error.fatal or number >= self.attempts:
                    raise
                wait = self.endpoints.retry_wait(endpoint, error, self.backoff.wait_seconds(number))
                await self._pause(wait, deadline, error)
            number += 1

    async def _pause(self, seconds: float, deadline: float | None, error: ServerError | None) -> None:
        await pause_before_retry(seconds, MAX_WAIT_SECONDS, deadline, error, server="upstream")

    async def _fetch_once(self, endpoint: Endpoint, path: str, body: bytes, most: ReplySize) -> dict[str, Any]:
        response = await self._post(endpoint, path, body)
        max_bytes = min(most.size, MAX_REPLY_BYTES)
        try:
            reply = await read_up_to(response.content, max_bytes)
        except (aiohttp.ClientError, OSError) as error:
            response.close()
            raise ServerError(f"{endpoint.url} broke its reply off ({quote(str(error))}).", REMEDY) from error
        except BaseException:
            response.close()
            raise
        if len(reply) > max_bytes or reply.count(b"{") + reply.count(b"[") > most.brackets:
            response.close()
            raise ServerError(
                f"{endpoint.url} sent a reply of more than {max_bytes / 2**20:.1f} MiB or {most.brackets:,} lists and"
                " objects, which is more than the tokens it may have.",
                REMEDY,
                fatal=True,
            )
        return parse_reply(reply, endpoint.url)

    async def _start_stream(self, endpoint: Endpoint, path: str, body: bytes) -> EventStream:
        with self.endpoints.track_request(endpoint):
            response = await self._post(endpoint, path, body)
            try:
                return await wait_for_first_event(endpoint, response)
            except (aiohttp.ClientError, OSError) as error:
                response.close()
                raise ServerError(
                    f"{endpoint.url} broke off before its first event ({quote(str(error))}).", REMEDY
                ) from error
            except BaseException:
                response.close()
                raise

    async def _post(self, endpoint: Endpoint, path: str, body: bytes) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = new_session()
        try:
            response = await post_with_reconnect(self._session, endpoint.url + path, body, self._headers)
            if response.status == 200:
                return response
            async with response:
                reply = await read_up_to(response.content, MAX_ERROR_BYTES)
        except (aiohttp.ClientError, OSError) as error:
            raise ServerError(
                f"{endpoint.url} cannot be reached: {failure_reason(error)}.",
                "Start the upstream, or check its address.",
            ) from error
        raise status_error(endpoint.url, response.status, response.headers, reply)


def parse_reply(reply: bytes, url: str) -> dict[str, Any]:
    """Return a reply, or one event of a stream, as a table; raises ServerError when it is an error or no reply."""
    try:
        table = orjson.loads(reply)
    except orjson.JSONDecodeError as error:
        raise ServerError(
            f"{url} sent a reply that is no JSON: {quote(reply[:200].decode('utf-8', 'replace'))}", REMEDY
        ) from error
    if not isinstance(table, dict) or table.get("error") or table.get("object") == "error":
        raise stream_error(url, table.get("error", table) if isinstance(table, dict) else table)
    choices = table.get("choices")
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise ServerError(
            f"{url} sent a reply without choices: {quote(reply[:200].decode('utf-8', 'replace'))}", REMEDY
        )
    return table


async def wait_for_first_event(endpoint: Endpoint, response: aiohttp.ClientResponse) -> EventStream:
    """Wait for the first event, so that a stream which fails at once can be retried."""
    if response.content_type != EVENT_STREAM_TYPE:
        reply = (await read_up_to(response.content, MAX_ERROR_BYTES)).decode("utf-8", "replace")
        raise ServerError(
            f"{endpoint.url} sent {quote(response.content_type)} instead of a stream: {quote(reply)}", REMEDY
        )
    events = EventParser()
    pending: list[bytes] = []
    while not pending and (chunk := await response.content.readany()):
        pending = events.feed(chunk)
    pending = pending or events.finish()
    if not pending:
        raise ServerError(f"{endpoint.url} ended its stream without an event.", REMEDY)
    if pending[0] != DONE_DATA:
        parse_reply(pending[0], endpoint.url)
    return EventStream(endpoint, response, events, pending)


async def close_or_reuse(response: aiohttp.ClientResponse, done: bool) -> None:
    """Keep the connection of a finished stream for the next request; close any other."""
    if done:
        with suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(0.1):
                await response.content.readany()
                response.release()
                return
    response.close()
