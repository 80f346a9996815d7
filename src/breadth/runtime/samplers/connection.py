"""Connections to model servers: which server gets the next request, how it is sent, how long silence is tolerated."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from breadth.base.errors import ServerError, SettingsError, has_credentials, redact_address
from breadth.runtime.samplers.server_errors import quote, status_error
from breadth.runtime.wire import MODELS_DECODER, MODELS_PATH


class IdleTimeout:
    """Calls ``end`` after too long a silence; more is allowed before the first bytes, as a request may be queued."""

    __slots__ = ("_end", "_first", "_idle", "_loop", "_started", "_timer", "expired", "last_received")

    def __init__(self, first: float, idle: float, end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._first, self._idle, self._end = first, idle, end
        self._started = self._loop.time()
        self.last_received: float | None = None
        """When bytes last came, by the clock of the loop; set by the reader."""
        self.expired = False
        """Whether the silence lasted too long."""
        self._timer: asyncio.Handle = self._loop.call_at(self._started + min(first, idle), self._check)

    @property
    def seconds(self) -> float:
        """Seconds of silence that are allowed now."""
        return self._first if self.last_received is None else self._idle

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()

    def _check(self, *, again: bool = False) -> None:
        now = self._loop.time()
        due = (self._started if self.last_received is None else self.last_received) + self.seconds
        if now < due:
            self._timer = self._loop.call_at(min(due, now + self._idle), self._check)
        elif not again:
            # After a pause of the whole process bytes may be there and only not yet read: the reader's turn comes
            # before ours.
            self._timer = self._loop.call_soon(partial(self._check, again=True))
        else:
            self.expired = True
            self._end()


FIRST_COOLDOWN_SECONDS = 1.0
"""Seconds that a server cools down after a failure."""
MAX_COOLDOWN_SECONDS = 30.0
"""Seconds that it cools down at most."""
MAX_BLOCKED_SECONDS = 600.0
"""Seconds that a server's Retry-After is followed at most: then one more request shows whether it still applies."""


class Endpoint:
    """One server."""

    def __init__(self, url: str) -> None:
        self.url = url
        """Its address, without ``/v1``."""
        self.in_flight = 0
        """Requests it works on."""
        self.failures = 0
        """Failures in a row."""
        self.cooldown_until = 0.0
        """Time until which others are preferred, because it failed."""
        self.blocked_until = 0.0
        """Time until which it asked for no requests."""
        self.model: str | None = None
        """Its only model, once it was asked."""


class Endpoints:
    """The servers of one sampler. The least loaded one that is not cooling down gets the next request."""

    def __init__(self, urls: str | Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        given = [urls] if isinstance(urls, str) else list(urls)
        if not given:
            raise SettingsError("No server was named.", "Give the address of a server, such as http://localhost:8000.")
        self.all = [Endpoint(base_url(url)) for url in given]
        """Every server, in the order given."""
        self._clock = clock

    def choose(self) -> Endpoint:
        """Return the server for the next request: available first, then fewest in flight, then the order given.

        When all cool down, the one that is available first is chosen: a request waits before its retry anyway.
        """
        now = self._clock()
        return min(
            self.all, key=lambda server: (max(server.cooldown_until, server.blocked_until, now), server.in_flight)
        )

    def seconds_blocked(self, endpoint: Endpoint) -> float:
        """Return the seconds for which a server still asked for no requests."""
        return max(endpoint.blocked_until - self._clock(), 0.0)

    def is_resting(self, endpoint: Endpoint) -> bool:
        """Say whether a server cools down, or asked for no requests."""
        return max(endpoint.cooldown_until, endpoint.blocked_until) > self._clock()

    def retry_wait(self, failed: Endpoint, error: ServerError, backoff_seconds: float) -> float:
        """Return the seconds until the next attempt: none where another server is available."""
        following = self.choose()
        if following is not failed and not self.is_resting(following):
            return 0.0
        return max(backoff_seconds, error.retry_after or 0.0)

    @contextmanager
    def track_request(self, endpoint: Endpoint) -> Iterator[None]:
        """Count a request in flight and its outcome; refusing this one request is no failure of the server."""
        endpoint.in_flight += 1
        try:
            yield
        except ServerError as error:
            if not error.fatal:
                self.record_failure(endpoint, error.retry_after)
            raise
        else:
            endpoint.failures = 0
            endpoint.cooldown_until = 0.0
        finally:
            endpoint.in_flight -= 1

    def record_failure(self, endpoint: Endpoint, retry_after: float | None = None) -> None:
        """Let a failed server cool down: as long as it asks for, else 1 s, doubling per failure in a row up to 30 s."""
        now = self._clock()
        endpoint.failures += 1
        cooldown = min(FIRST_COOLDOWN_SECONDS * 2.0 ** min(endpoint.failures - 1, 16), MAX_COOLDOWN_SECONDS)
        endpoint.cooldown_until = now + cooldown
        if retry_after is not None:
            endpoint.blocked_until = max(endpoint.blocked_until, now + min(retry_after, MAX_BLOCKED_SECONDS))
            endpoint.cooldown_until = endpoint.blocked_until


async def pause_before_retry(
    seconds: float, max_seconds: float, deadline: float | None, error: ServerError | None, *, server: str = "server"
) -> None:
    """Wait before the next attempt; where that takes too long, raise ``error``, or a rate limit without one.

    ``deadline`` is on the loop's clock.
    """
    left = max_seconds if deadline is None else min(max_seconds, deadline - asyncio.get_running_loop().time())
    if seconds > left:
        problem = f"Every {server} asks to be left alone for {seconds:.0f} s more."
        raise error or ServerError(problem, "Try again later.", status=429, retry_after=seconds)
    if seconds > 0:
        await asyncio.sleep(seconds)


def refuse_credentials(url: str) -> None:
    """Refuse an address with a user name, a password or a query in it: addresses are logged and written to files."""
    if has_credentials(url) or "?" in url or "#" in url:
        address = url.strip() if "://" in url else f"http://{url.strip().lstrip('/')}"
        raise SettingsError(
            f"The address {redact_address(address)} has a user name, a password or a query in it.",
            "Give the address without them, and the server's key in the environment.",
        )


def base_url(url: str) -> str:
    """Return an address as it is used: with a scheme, without a trailing slash, without ``/v1``."""
    refuse_credentials(url)
    address = url.strip() if "://" in url else f"http://{url.strip()}"
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise SettingsError(
            f"{redact_address(url)!r} is not the address of a server.",
            "Write it like http://localhost:8000 or https://host/v1.",
        )
    return address.rstrip("/").removesuffix("/v1").rstrip("/")


EVENT_STREAM_TYPE = "text/event-stream"
"""Content type of a stream of events."""
CONNECT_TIMEOUT = 10.0
"""Seconds to open a connection."""
MODELS_TIMEOUT = 30.0
"""Seconds to get the list of models."""
MAX_ERROR_BYTES = 2**16
"""Bytes read of a reply with an error."""
MAX_MODEL_LIST_BYTES = 2**20
"""Bytes read of a list of models."""
LARGE_BODY_BYTES = 2**20
"""Bytes from which a request is sent in pieces, or sending it would hold up everything else."""
MAX_STALE_CONNECTIONS = 2
"""Kept connections that may turn out to be closed before a request counts as failed."""


class Connection:
    """Keeps connections open from one request to the next, as many at a time as there are requests."""

    def __init__(self, *, key: str | None = None, first_seconds: float = 600.0) -> None:
        self.first_seconds = first_seconds
        """Seconds until a reply must have started."""
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"} | bearer_header(key)
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def post(self, url: str, path: str, body: Mapping[str, Any]) -> aiohttp.ClientResponse:
        """Send a request and return the start of its reply: status 200 and a stream.

        Raises ServerError for anything else.
        """
        try:
            data = msgspec.json.encode(body)
        except (UnicodeEncodeError, RecursionError) as error:  # every server would fail
            raise ServerError(
                f"The request cannot be sent as JSON: {error}.",
                "Mend what it names: text must be whole characters, and not nested without end.",
                fatal=True,
            ) from error
        try:
            async with asyncio.timeout(self.first_seconds):
                response = await post_with_reconnect(self._current_session(), url + path, data, self._headers)
                if response.status != 200 or response.content_type != EVENT_STREAM_TYPE:
                    raise await not_a_stream_error(response, url)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unreachable_error(url, error, self.first_seconds) from error
        return response

    async def list_models(self, url: str) -> list[str]:
        """Return the names of the models a server lists."""
        try:
            reply = self._current_session().get(f"{url}{MODELS_PATH}", headers=self._headers, allow_redirects=False)
            async with asyncio.timeout(MODELS_TIMEOUT), reply as response:
                body = await read_up_to(response.content, MAX_MODEL_LIST_BYTES)
                if response.status != 200:
                    raise status_error(url, response.status, response.headers, body)
            return [model.id for model in MODELS_DECODER.decode(body).data]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise unreachable_error(url, error, MODELS_TIMEOUT) from error
        except msgspec.DecodeError as error:
            raise ServerError(
                f"{url}/v1/models is no list of models: {error}.", "Check that this is a model server's address."
            ) from error

    async def close(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _current_session(self) -> aiohttp.ClientSession:
        """Return the session of the running loop."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._session, self._loop = new_session(), loop
        return self._session


def new_session() -> aiohttp.ClientSession:
    """Return a session: as many connections as there are requests, no limit on a whole reply, no cookies kept."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30, ttl_dns_cache=300)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)
    return aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())


def bearer_header(key: str | None) -> dict[str, str]:
    """Return the header that carries a key, none without one; a trailing line end (files, shells) is removed."""
    plain = (key or "").strip()
    if not plain.isprintable():
        raise SettingsError(
            "The key for the server has control characters in it.",
            "Give it as one line, just as the server's owner did.",
        )
    return {"Authorization": f"Bearer {plain}"} if plain else {}


async def post_with_reconnect(
    session: aiohttp.ClientSession, address: str, data: bytes, headers: Mapping[str, str]
) -> aiohttp.ClientResponse:
    """Send a request; again at once when a kept connection turns out to be closed.

    Some servers (llama.cpp) promise to keep a connection open after a stream and close it all the same, which shows
    only when the next request is on its way.
    """
    stale = 0
    while True:
        content = data if len(data) < LARGE_BODY_BYTES else io.BytesIO(data)
        try:
            return await session.post(address, data=content, headers=headers, allow_redirects=False)
        except (aiohttp.ServerDisconnectedError, ConnectionResetError):
            stale += 1
            if stale > MAX_STALE_CONNECTIONS:
                raise


async def read_up_to(content: aiohttp.StreamReader, max_bytes: int) -> bytes:
    """Return a body; of one larger than ``max_bytes`` only the beginning, a little more than that."""
    pieces, size = [], 0
    while size <= max_bytes and (piece := await content.readany()):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def hang_up(response: aiohttp.ClientResponse) -> None:
    """Close the connection of a reply in mid-stream, at once.

    Closing a transport alone takes effect a turn of the loop later, and a turn is long where hundreds of streams are
    read.
    """
    connection = response.connection
    transport = None if connection is None else connection.transport
    line = None if transport is None else transport.get_extra_info("socket")
    if line is not None:
        with suppress(OSError):  # already closed by the other side
            line.shutdown(socket.SHUT_RDWR)
    response.close()


async def not_a_stream_error(response: aiohttp.ClientResponse, url: str) -> ServerError:
    """Return the error for a reply that is no stream."""
    try:
        body = await read_up_to(response.content, MAX_ERROR_BYTES)
    finally:
        response.close()
    if response.status != 200:
        return status_error(url, response.status, response.headers, body)
    return ServerError(
        f"{url} answered with {quote(response.content_type)} instead of a stream of events:"
        f" {quote(body.decode('utf-8', 'replace'))}",
        "Check that the address is that of a model server that can stream.",
        status=200,
    )


def unreachable_error(url: str, error: Exception, seconds: float) -> ServerError:
    """Return the error for a server that did not answer at all."""
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
        return ServerError(
            f"{url} did not answer in {seconds:g} s.", "See whether the server hangs, or allow it more time."
        )
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError):
        return ServerError(
            f"{url} closed the connection without an answer.",
            "Look at the server's log, and at any proxy in between.",
        )
    remedy = "Start the server, or check the address and the port."
    return ServerError(f"{url} cannot be reached: {failure_reason(error)}.", remedy)


def failure_reason(error: Exception) -> str:
    """Return why a connection failed, without host and port, which clients of a proxy must not see."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return quote(str(error)) or type(error).__name__
    inner = error.os_error
    if inner.errno is not None and inner.errno > 0:
        return os.strerror(inner.errno)
    return quote(inner.strerror or "") or "none of its addresses answers"
