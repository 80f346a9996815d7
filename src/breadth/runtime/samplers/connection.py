"""Connections to model servers: which server gets the next request, how it is sent, and how long silence is tolerated."""

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

from breadth.base.errors import ServerError, SettingsError
from breadth.runtime.samplers.server_errors import quote, status_error
from breadth.runtime.wire import MODELS_DECODER


class IdleTimeout:
    """Calls ``end`` once nothing was heard for too long: longer before the first word, for a request may have to wait its turn."""

    __slots__ = ("_began", "_end", "_first", "_idle", "_loop", "_timer", "heard", "expired")

    def __init__(self, first: float, idle: float, end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._first, self._idle, self._end = first, idle, end
        self._began = self._loop.time()
        self.last_received: float | None = None
        """Moment something was last heard, by the clock of the loop; set by whoever reads."""
        self.expired = False
        """Whether it ran out."""
        self._timer: asyncio.Handle = self._loop.call_at(self._began + min(first, idle), self._look)

    @property
    def seconds(self) -> float:
        """Seconds of silence that are borne now."""
        return self._first if self.last_received is None else self._idle

    def stop(self) -> None:
        """Stop waiting."""
        self._timer.cancel()

    def _look(self, *, again: bool = False) -> None:
        now = self._loop.time()
        due = (self._began if self.last_received is None else self.last_received) + self.seconds
        if now < due:
            self._timer = self._loop.call_at(min(due, now + self._idle), self._look)
        elif not again:
            # After a pause of the whole process the word may be there and only not yet read: its reader's turn comes
            # before ours.
            self._timer = self._loop.call_soon(partial(self._look, again=True))
        else:
            self.expired = True
            self._end()


FIRST_COOLDOWN_SECONDS = 1.0
"""Seconds that a server rests after a failure."""
MAX_COOLDOWN_SECONDS = 30.0
"""Seconds that it rests at most."""
MAX_BLOCKED_SECONDS = 600.0
"""Seconds that it is left alone at most, whatever it asks for: then one more request tells whether it still wants that.
"""


class Endpoint:
    """One server."""

    def __init__(self, url: str) -> None:
        self.url = url
        """Its address, without ``/v1``."""
        self.in_flight = 0
        """Draws it works on."""
        self.failures = 0
        """Failures in a row."""
        self.cooldown_until = 0.0
        """Moment until which others are preferred, because it failed."""
        self.blocked_until = 0.0
        """Moment until which it asked to be left alone."""
        self.model: str | None = None
        """Its only model, once it was asked."""


class Endpoints:
    """The servers of one sampler. The least loaded one that is awake gets the next draw."""

    def __init__(self, urls: str | Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        given = [urls] if isinstance(urls, str) else list(urls)
        if not given:
            raise SettingsError("No server was named.", "Give the address of a server, such as http://localhost:8000.")
        self.all = [Endpoint(base_url(url)) for url in given]
        """Every one, in the order given."""
        self._clock = clock

    def choose(self) -> Endpoint:
        """Return the server for the next draw: awake before resting, then the fewest draws in flight, then the order given.

        When all rest, the one that wakes first is chosen, for a draw waits before it tries again anyway.
        """
        now = self._clock()
        return min(self.all, key=lambda one: (max(one.cooldown_until, one.blocked_until, now), one.in_flight))

    def seconds_blocked(self, endpoint: Endpoint) -> float:
        """Return the seconds for which a server still asked to be left alone."""
        return max(endpoint.blocked_until - self._clock(), 0.0)

    def is_resting(self, endpoint: Endpoint) -> bool:
        """Say whether a server rests, or asked to be left alone."""
        return max(endpoint.cooldown_until, endpoint.blocked_until) > self._clock()

    @contextmanager
    def track_request(self, endpoint: Endpoint) -> Iterator[None]:
        """Count a draw in flight, and note how it went: a refusal of this one request is no failure of the server."""
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
        """Let a server that failed rest: as long as it asks for, else 1 s, doubling with every failure in a row up to 30 s."""
        now = self._clock()
        endpoint.failures += 1
        endpoint.cooldown_until = now + min(
            FIRST_COOLDOWN_SECONDS * 2.0 ** min(endpoint.failures - 1, 16), MAX_COOLDOWN_SECONDS
        )
        if retry_after is not None:
            endpoint.blocked_until = max(endpoint.blocked_until, now + min(retry_after, MAX_BLOCKED_SECONDS))
            endpoint.cooldown_until = endpoint.blocked_until


def base_url(url: str) -> str:
    """Return an address as it is used: with a scheme, without a closing slash, without ``/v1``."""
    address = url.strip() if "://" in url else f"http://{url.strip()}"
    if not _usable(address):
        raise SettingsError(
            f"{url!r} is not the address of a server.", "Write it like http://localhost:8000 or https://host/v1."
        )
    return address.rstrip("/").removesuffix("/v1").rstrip("/")


def _usable(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


EVENT_STREAM_TYPE = "text/event-stream"
"""Content type of a stream of events."""
CONNECT_TIMEOUT = 10.0
"""Seconds until a connection must stand."""
MODELS_TIMEOUT = 30.0
"""Seconds until the list of models must be there."""
MAX_ERROR_BYTES = 2**16
"""Bytes read of a refusal."""
MAX_MODEL_LIST_BYTES = 2**20
"""Bytes read of a list of models."""
LARGE_BODY_BYTES = 2**20
"""Bytes from which a request is sent piece by piece, so that sending it does not hold up everything else."""
MAX_STALE_CONNECTIONS = 2
"""Kept connections that may turn out to be closed before a request counts as failed."""


class Connection:
    """Keeps connections open from one request to the next, as many at a time as there are requests."""

    def __init__(self, *, key: str | None = None, first_seconds: float = 600.0) -> None:
        self.first_seconds = first_seconds
        """Seconds until a reply must have begun."""
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"} | bearer_header(key)
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def post(self, url: str, path: str, body: Mapping[str, Any]) -> aiohttp.ClientResponse:
        """Send a request and return the beginning of its reply: status 200 and a stream.

        Raises ServerError for anything else.
        """
        data = _encoded(body)
        try:
            async with asyncio.timeout(self.first_seconds):
                response = await post_with_reconnect(self._opened(), url + path, data, self._headers)
                if response.status != 200 or response.content_type != EVENT_STREAM_TYPE:
                    raise await _refused(response, url)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(url, error, self.first_seconds) from error
        return response

    async def list_models(self, url: str) -> list[str]:
        """Return the names of the models a server lists."""
        try:
            asked = self._opened().get(f"{url}/v1/models", headers=self._headers, allow_redirects=False)
            async with asyncio.timeout(MODELS_TIMEOUT), asked as response:
                body = await read_up_to(response, MAX_MODEL_LIST_BYTES)
                if response.status != 200:
                    raise status_error(url, response.status, response.headers, body)
            return [model.id for model in MODELS_DECODER.decode(body).data]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(url, error, MODELS_TIMEOUT) from error
        except msgspec.DecodeError as error:
            raise ServerError(
                f"{url}/v1/models is no list of models: {error}.", "Check that this is a model server's address."
            ) from error

    async def close(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        """Return the session of the running loop."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._session, self._loop = new_session(), loop
        return self._session


def new_session() -> aiohttp.ClientSession:
    """Return a session for draws: as many connections as there are requests, no limit on a whole reply, no cookies kept."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30, ttl_dns_cache=300)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)
    return aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())


def bearer_header(key: str | None) -> dict[str, str]:
    """Return the header that carries a key, none without one; a line end behind it, as files and shells leave one, is taken off."""
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

    Some servers (llama.cpp) promise to keep a connection open after a stream and close it all the same, which is seen
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


async def read_up_to(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return a body; of one of more than ``most`` bytes the beginning, a little more than that.

    One read alone gives what has come.
    """
    pieces, size = [], 0
    while size <= most and (piece := await response.content.readany()):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _encoded(body: Mapping[str, Any]) -> bytes:
    """Return a request as JSON; one that no JSON can hold fails whoever is asked."""
    try:
        return msgspec.json.encode(body)
    except (UnicodeEncodeError, RecursionError) as error:
        problem = f"The request cannot be sent as JSON: {error}."
        raise ServerError(
            problem, "Mend what it names: text must be whole characters, and not nested without end.", fatal=True
        ) from error


def hang_up(response: aiohttp.ClientResponse) -> None:
    """Close the connection of a reply in mid-stream, so that the server hears of it now.

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


async def _refused(response: aiohttp.ClientResponse, url: str) -> ServerError:
    """Return the error for a reply that is no stream."""
    try:
        said = await read_up_to(response, MAX_ERROR_BYTES)
    finally:
        response.close()
    if response.status != 200:
        return status_error(url, response.status, response.headers, said)
    return ServerError(
        f"{url} answered with {quote(response.content_type)} instead of a stream of events:"
        f" {quote(said.decode('utf-8', 'replace'))}",
        "Check that the address is that of a model server that can stream.",
        status=200,
    )


def _unreachable(url: str, error: Exception, seconds: float) -> ServerError:
    """Return the error for a server that did not answer at all."""
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
        return ServerError(
            f"{url} did not answer in {seconds:g} s.", "See whether the server hangs, or allow it more time."
        )
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError):
        return ServerError(
            f"{url} closed the connection without an answer.",
            "Look at the server's log, and at what stands between us.",
        )
    remedy = "Start the server, or check the address and the port."
    return ServerError(f"{url} cannot be reached: {failure_reason(error)}.", remedy)


def failure_reason(error: Exception) -> str:
    """Return why a connection failed, without the host and the port that aiohttp's own words have: clients of a proxy read it too."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return quote(str(error)) or type(error).__name__
    inner = error.os_error
    if inner.errno is not None and inner.errno > 0:
        return os.strerror(inner.errno)
    return quote(inner.strerror or "") or "none of its addresses answers"
