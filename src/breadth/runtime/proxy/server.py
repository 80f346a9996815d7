"""The proxy's HTTP server: its pages, key, limits, log and errors for every request, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Self, TypeAlias

import orjson
from aiohttp import web

from breadth.base.errors import BreadthError, ServerError, SettingsError
from breadth.runtime.proxy.answer import PolicyReply
from breadth.runtime.proxy.client_request import read_request
from breadth.runtime.proxy.errors import ApiError, to_api_error
from breadth.runtime.proxy.metrics import CONTENT_TYPE
from breadth.runtime.proxy.passthrough import PassthroughReply
from breadth.runtime.proxy.proxy import Proxy, RequestRecord
from breadth.runtime.proxy.routing import LISTING_MAX_AGE, models_body
from breadth.runtime.wire import CHAT_PATH, COMPLETIONS_PATH

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
LOG = logging.getLogger("breadth.serve")
"""One line a request; never a word of a prompt or a reply."""
PROXY = web.AppKey("proxy", Proxy)
NOTE: ContextVar[RequestRecord] = ContextVar("note")
"""The note of the request being answered."""
PUBLIC_PATHS = frozenset({"/health", "/ready"})
"""Pages that need no key: they say nothing but whether they work."""
KNOWN_PATHS = frozenset({CHAT_PATH, COMPLETIONS_PATH, "/v1/models", "/health", "/ready", "/metrics"})
CLIENT_CLOSED_STATUS = 499
"""Status in log and counters for a client that did not wait for the reply."""
RETRY_AFTER_SECONDS = 1.0
"""Seconds after which a client that was one too many may try again."""


def build_application(proxy: Proxy) -> web.Application:
    """Return the web application of a proxy; the proxy is closed with it."""
    app = web.Application(middlewares=[_told, _let_in], client_max_size=proxy.limits.max_body_bytes)
    app[PROXY] = proxy
    for path in (CHAT_PATH, COMPLETIONS_PATH):
        app.router.add_post(path, _complete)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/health", _health)
    app.router.add_get("/ready", _ready)
    app.router.add_get("/metrics", _metrics)
    app.on_cleanup.append(_close)
    return app


@web.middleware
async def _told(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn what goes wrong into the OpenAI shape, and note every request for a completion in the log and the counters."""
    proxy, note = request.app[PROXY], RequestRecord(request.path if request.path in KNOWN_PATHS else "other")
    NOTE.set(note)
    status = CLIENT_CLOSED_STATUS
    try:
        response = await _answered(request, handler, proxy)
        status = note.status or response.status
    finally:
        if note.path in (CHAT_PATH, COMPLETIONS_PATH, "other"):
            proxy.metrics.count_request(note.path, note.policy, status, note.seconds)
            LOG.info(_line(note, status))
    return response


async def _answered(request: web.Request, page: Handler, proxy: Proxy) -> web.StreamResponse:
    note = NOTE.get()
    try:
        response = await page(request)
    except ApiError as refusal:
        response = refusal.response
    except BreadthError as error:
        response = to_api_error(error, proxy.upstreams).response
    except web.HTTPException as error:
        response = _refused(error, proxy).response
    except ConnectionError:
        note.status = CLIENT_CLOSED_STATUS
        response = web.Response(status=CLIENT_CLOSED_STATUS) if note.stream is None else note.stream
    except Exception:
        LOG.exception("%s broke on our side", note.trace)
        response = _broken(request, note)
    if not response.prepared:
        response.headers["x-request-id"] = note.trace
    return response


def _broken(request: web.Request, note: RequestRecord) -> web.StreamResponse:
    """Return the reply when the fault is ours; a stream that has begun is cut off, for its client must not take it for whole."""
    note.status = 500
    if note.stream is None:
        return ApiError(
            500, f"The proxy itself failed; its log has the reason under {note.trace}.", code="internal"
        ).response
    if request.transport is not None:
        request.transport.close()
    return note.stream


def _refused(error: web.HTTPException, proxy: Proxy) -> ApiError:
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return _too_large(proxy.limits.max_body_bytes)
    if isinstance(error, web.HTTPMethodNotAllowed):
        return ApiError(
            405,
            f"Use {' or '.join(sorted(error.allowed_methods))} here, not {error.method}.",
            code="method_not_allowed",
        )
    if isinstance(error, web.HTTPNotFound):
        return ApiError(
            404, f"There is no such page. There are: {', '.join(sorted(KNOWN_PATHS))}.", code="unknown_path"
        )
    return ApiError(error.status, error.reason)


@web.middleware
async def _let_in(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Check the key, then whether there is room."""
    proxy = request.app[PROXY]
    if request.path not in PUBLIC_PATHS:
        proxy.keys.check(request.headers.get("Authorization"))
    if request.path not in (CHAT_PATH, COMPLETIONS_PATH):
        return await handler(request)
    if proxy.draining:
        raise ApiError(
            503, "The server is about to end: ask again in a moment.", code="draining", retry_after=RETRY_AFTER_SECONDS
        )
    if proxy.in_flight >= proxy.limits.max_requests:
        raise ApiError(
            429,
            f"{proxy.in_flight} requests are being answered, as many as go at once: try again.",
            code="too_many_requests",
            retry_after=RETRY_AFTER_SECONDS,
        )
    proxy.in_flight += 1
    proxy.metrics.in_flight.inc()
    try:
        return await handler(request)
    finally:
        proxy.in_flight -= 1
        proxy.metrics.in_flight.dec()


async def _complete(request: web.Request) -> web.StreamResponse:
    """Answer a chat or continue a text."""
    proxy, note = request.app[PROXY], NOTE.get()
    call = read_request(request.path, await _read(request, proxy))
    chosen, model = await proxy.choose(call)
    note.policy = chosen.label
    way = PassthroughReply if chosen.is_single or call.passthrough_reason else PolicyReply
    return await way(proxy, call, chosen, model, note).answer(request)


async def _read(request: web.Request, proxy: Proxy) -> bytes:
    """Return the body; one that is too large is refused by its announced length, before a byte of it is read."""
    if request.content_type != "application/json":
        raise ApiError(
            415, f"The body must be JSON; its Content-Type says {request.content_type}.", code="bad_content_type"
        )
    if (request.content_length or 0) > proxy.limits.max_body_bytes:
        raise _too_large(proxy.limits.max_body_bytes)
    try:
        async with asyncio.timeout(proxy.limits.seconds):
            return await request.read()
    except TimeoutError as error:
        raise ApiError(408, "The body did not come in time.", code="slow_body") from error
    except web.RequestPayloadError as error:
        raise ApiError(
            400, "The body cannot be read: it is not encoded as its headers say.", code="bad_body"
        ) from error


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"The body is larger than the {most / 1e6:g} MB this server reads.", code="body_too_large")


async def _models(request: web.Request) -> web.Response:
    proxy = request.app[PROXY]
    return _json(models_body(await proxy.models.get(LISTING_MAX_AGE), proxy.policies.named))


async def _health(request: web.Request) -> web.Response:
    """Say that the process is up."""
    del request
    return _json({"status": "ok"})


async def _ready(request: web.Request) -> web.Response:
    """Say whether requests can be answered: the upstream is there, and the server is not about to end."""
    proxy = request.app[PROXY]
    if proxy.draining:
        return _json({"status": "draining"}, 503)
    try:
        await proxy.models.get(LISTING_MAX_AGE)
    except ServerError:
        return _json({"status": "upstream unreachable"}, 503)
    return _json({"status": "ok"})


async def _metrics(request: web.Request) -> web.Response:
    return web.Response(body=request.app[PROXY].metrics.render(), headers={"Content-Type": CONTENT_TYPE})


async def _close(app: web.Application) -> None:
    await app[PROXY].close()


def _json(content: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")


def _line(note: RequestRecord, status: int) -> str:
    """Return the line of a request in the log."""
    line = f"{note.trace} {note.path} policy={note.policy} status={status} seconds={note.seconds:.3f}"
    solved = note.result
    if solved is None:
        return line
    draws = f"{solved.started} arrived={len(solved.arrived)} failed={solved.failed} discarded={solved.discarded}"
    upstream = "" if solved.last_error is None else f" upstream={solved.last_error.status or 'unreachable'}"
    return f"{line} draws={draws} tokens={solved.spend.input_tokens}+{solved.spend.output_tokens}{upstream}"


BACKLOG = 2048
"""Connections that may wait to be accepted: a thousand clients at once are not turned away by the kernel."""
DRAIN_POLL_SECONDS = 0.02
"""Seconds between two looks at whether the last request has been answered."""


class Server:
    """A proxy on an address while the context lasts; port 0 takes a free one."""

    def __init__(self, proxy: Proxy, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.proxy = proxy
        """What answers."""
        self._host, self._port = host, port
        # Cancelled as soon as the client leaves: that ends the draws for it.
        self._runner = web.AppRunner(
            build_application(proxy), handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        self._site: web.TCPSite | None = None

    @property
    def url(self) -> str:
        """Its address."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, self._host, self._port, backlog=BACKLOG)
        try:
            await self._site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise _cannot_listen(self._host, self._port, error) from error
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain(0.0 if error is not None else self.proxy.limits.drain_seconds)

    async def drain(self, seconds: float) -> None:
        """Take nothing new, let what is in flight finish for so many seconds, then end it."""
        self.proxy.draining = True
        if self._site is not None and self._site in self._runner.sites:
            await self._site.stop()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self.proxy.in_flight and loop.time() < until:
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        await self._runner.cleanup()


async def wait_for_signal() -> None:
    """Wait for the signal to end (SIGTERM, SIGINT); a second one ends the process at once."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    try:
        await told.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _cannot_listen(host: str, port: int, error: OSError) -> SettingsError:
    if error.errno == errno.EADDRINUSE:
        return SettingsError(
            f"Port {port} of {host} is taken by another program.", "Choose another with --port, or 0 for a free one."
        )
    return SettingsError(
        f"Cannot listen on {host}, port {port}: {error.strerror or error}.", "Choose another --host or --port."
    )
