"""The proxy's HTTP server: its pages; key, limits, log and errors for every request; and a graceful shutdown."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import signal
import traceback
import zlib
from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from types import TracebackType
from typing import Self, TypeAlias, cast

import orjson
from aiohttp import web

from breadth.base.errors import BreadthError, ServerError, SettingsError
from breadth.runtime.dialect import CHAT_PATH, COMPLETIONS_PATH
from breadth.runtime.proxy.access import OwnHosts, hash_key
from breadth.runtime.proxy.answer import PolicyReply
from breadth.runtime.proxy.client_request import ClientRequest, read_request
from breadth.runtime.proxy.errors import ApiError, to_api_error
from breadth.runtime.proxy.metrics import CONTENT_TYPE
from breadth.runtime.proxy.passthrough import PassthroughReply
from breadth.runtime.proxy.proxy import Proxy, RequestRecord
from breadth.runtime.proxy.routing import LISTING_MAX_AGE, models_body
from breadth.runtime.samplers.connection import read_up_to
from breadth.runtime.wire import MODELS_PATH

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
LOG = logging.getLogger("breadth.serve")
"""One line per request; never a word of a prompt or a reply."""
PROXY = web.AppKey("proxy", Proxy)
HOSTS = web.AppKey("hosts", OwnHosts)
RECORD: ContextVar[RequestRecord] = ContextVar("record")
"""The record of the request being answered."""
PUBLIC_PATHS = frozenset({"/health", "/ready"})
"""Pages that need no key: they only say whether the server works."""
KNOWN_PATHS = frozenset({CHAT_PATH, COMPLETIONS_PATH, MODELS_PATH, "/health", "/ready", "/metrics"})
CLIENT_CLOSED_STATUS = 499
"""Status in log and counters for a client that did not wait for the reply."""
RETRY_AFTER_SECONDS = 1.0
"""Seconds after which a client that exceeded the limit may try again."""


def build_application(proxy: Proxy, hosts: OwnHosts | None = None) -> web.Application:
    """Return the web application of a proxy; closing it closes the proxy.

    Given ``hosts``, requests that name another one are refused.
    """

    async def close(app: web.Application) -> None:
        await app[PROXY].close()

    app = web.Application(middlewares=[log_request, admit_request], client_max_size=proxy.limits.max_body_bytes)
    app[PROXY] = proxy
    if hosts is not None:
        app[HOSTS] = hosts
    for path in (CHAT_PATH, COMPLETIONS_PATH):
        app.router.add_post(path, complete)
    app.router.add_get(MODELS_PATH, list_models)
    app.router.add_get("/health", show_health)
    app.router.add_get("/ready", show_ready)
    app.router.add_get("/metrics", show_metrics)
    app.on_cleanup.append(close)
    return app


@web.middleware
async def log_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer errors in the OpenAI format, and log and count every request for a completion."""
    proxy = request.app[PROXY]
    path = request.path if request.path in KNOWN_PATHS else "other"
    record = RequestRecord(path, proxy.redactor, proxy.limits.read_seconds)
    RECORD.set(record)
    status = CLIENT_CLOSED_STATUS
    try:
        response = await answer_or_error(request, handler, proxy)
        status = record.status or response.status
        await send_response(request, response, proxy.limits.seconds)
    finally:
        if record.path in (CHAT_PATH, COMPLETIONS_PATH, "other"):
            proxy.metrics.count_request(record.path, record.policy, status, record.seconds)
            LOG.info(record.log_line(status))
    return response


async def answer_or_error(request: web.Request, handler: Handler, proxy: Proxy) -> web.StreamResponse:
    """Run a handler; whatever it raises becomes a reply in the OpenAI format."""
    record = RECORD.get()
    try:
        response = await handler(request)
    except ApiError as error:
        response = error.response
    except BreadthError as error:
        response = to_api_error(proxy.redactor.clean_error(error), proxy.upstreams).response
    except web.HTTPException as error:
        response = from_http_exception(error, proxy).response
    except ConnectionError:
        record.status = CLIENT_CLOSED_STATUS
        response = web.Response(status=CLIENT_CLOSED_STATUS) if record.stream is None else record.stream
    except Exception:  # noqa: BLE001 - it is logged, without the key
        LOG.error("%s broke on our side\n%s", record.trace, proxy.redactor.clean_text(traceback.format_exc()))  # noqa: TRY400 - without the key
        response = internal_error(request, record)
    if not response.prepared:
        response.headers["x-request-id"] = record.trace
    if isinstance(response, web.Response) and isinstance(response.body, bytes):
        response.body = proxy.redactor.clean(response.body)
    return response


async def send_response(request: web.Request, response: web.StreamResponse, seconds: float) -> None:
    """Send what is left of a response; cut off a client that has not read it after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    except ConnectionError:
        pass  # it has left


def internal_error(request: web.Request, record: RequestRecord) -> web.StreamResponse:
    """Return the reply when the fault is ours; a stream that has started is cut off, or it would look complete."""
    record.status = 500
    if record.stream is None:
        return ApiError(
            500, f"The proxy itself failed; its log has the reason under {record.trace}.", code="internal"
        ).response
    if request.transport is not None:
        request.transport.close()
    return record.stream


def from_http_exception(error: web.HTTPException, proxy: Proxy) -> ApiError:
    """Return an error of aiohttp (no such page, wrong method, too large) in the OpenAI format."""
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return body_too_large(proxy.limits.max_body_bytes)
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
async def admit_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Check host and key, then whether there is room for another request."""
    proxy, hosts = request.app[PROXY], request.app.get(HOSTS)
    if hosts is not None and not hosts.accept(request.headers.get("Host")):
        message = "Without a key this server answers to its own names only: its operator can add some (--allow-host)."
        raise ApiError(403, message, code="host_not_allowed")
    if request.path not in PUBLIC_PATHS:
        proxy.keys.check(request.headers.get("Authorization"))
    if request.path not in (CHAT_PATH, COMPLETIONS_PATH):
        return await handler(request)
    if proxy.draining:
        raise ApiError(
            503,
            "The server is about to end: ask again in a moment.",
            code="draining",
            retry_after=RETRY_AFTER_SECONDS,
        )
    check_room(proxy)  # before the body is read in vain
    proxy.in_flight += 1
    proxy.metrics.in_flight.inc()
    try:
        return await handler(request)
    finally:
        proxy.in_flight -= 1
        proxy.metrics.in_flight.dec()


def check_room(proxy: Proxy) -> None:
    """Refuse a request when as many are being answered as go at once."""
    if proxy.answering >= proxy.limits.max_requests:
        raise ApiError(
            429,
            f"{proxy.answering} requests are being answered, as many as go at once: try again.",
            code="too_many_requests",
            retry_after=RETRY_AFTER_SECONDS,
        )


async def complete(request: web.Request) -> web.StreamResponse:
    """Read a request for a completion, and answer it; one whose body has not come takes nobody's place."""
    proxy = request.app[PROXY]
    raw = await read_body(request, proxy)
    if len(raw) > SMALL_BODY_BYTES:  # one after the other, and between two of them it is everybody else's turn
        async with proxy.reading:
            await asyncio.sleep(0)
            call = read_request(request.path, raw, proxy.limits.allow_fields)
    else:
        call = read_request(request.path, raw, proxy.limits.allow_fields)
    check_room(proxy)
    proxy.answering += 1
    try:
        return await answer_completion(request, proxy, call)
    finally:
        proxy.answering -= 1


async def answer_completion(request: web.Request, proxy: Proxy, call: ClientRequest) -> web.StreamResponse:
    """Answer a chat or continue a text."""
    record = RECORD.get()
    chosen, model = await proxy.choose(call)
    record.policy = chosen.label
    reply = PassthroughReply if chosen.is_single or call.passthrough_reason else PolicyReply
    return await reply(proxy, call, chosen, model, record).answer(request)


SMALL_BODY_BYTES = 2**16
"""Bytes of a body that are read without a slot: an unfinished body that holds no memory takes nobody's place."""


async def read_body(request: web.Request, proxy: Proxy) -> bytes:
    """Return the body, inflated; one whose announced length is too large is refused before a byte of it is read."""
    if request.content_type != "application/json":
        raise ApiError(
            415, f"The body must be JSON; its Content-Type says {request.content_type}.", code="bad_content_type"
        )
    if (request.content_length or 0) > proxy.limits.max_body_bytes:
        raise body_too_large(proxy.limits.max_body_bytes)
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", "deflate"):
        raise ApiError(415, "Send the body as it is, or as gzip or deflate.", code="bad_content_encoding")
    client = request.remote or ""
    if proxy.keys.digests:
        client += hash_key(request.headers.get("Authorization", "")).hex()
    try:
        async with asyncio.timeout(proxy.limits.read_seconds):
            raw = await read_up_to(request.content, min(SMALL_BODY_BYTES, proxy.limits.max_body_bytes))
            if len(raw) > SMALL_BODY_BYTES or encoding != "identity":
                async with proxy.bodies.hold(client):
                    raw += await read_up_to(request.content, proxy.limits.max_body_bytes - len(raw))
                    if encoding != "identity" and len(raw) <= proxy.limits.max_body_bytes:
                        return await asyncio.to_thread(inflate, raw, encoding, proxy.limits.max_body_bytes)
    except TimeoutError as error:
        raise ApiError(408, "The body did not come in time.", code="slow_body") from error
    except web.RequestPayloadError as error:
        raise body_not_readable() from error
    if len(raw) > proxy.limits.max_body_bytes:
        raise body_too_large(proxy.limits.max_body_bytes)
    return raw


def inflate(raw: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return a compressed body inflated; stop as soon as it is larger than ``max_bytes``."""
    if encoding == "deflate":  # with a header as the standard says, or without as some send it
        inflater = zlib.decompressobj(zlib.MAX_WBITS if raw[:1] and raw[0] & 0xF == 8 else -zlib.MAX_WBITS)
    else:
        inflater = zlib.decompressobj(zlib.MAX_WBITS + 16)
    try:
        body = inflater.decompress(raw, max_bytes + 1)
    except zlib.error as error:
        raise body_not_readable() from error
    if len(body) > max_bytes:
        raise body_too_large(max_bytes)
    if not inflater.eof or inflater.unused_data:
        raise body_not_readable()
    return body


def body_not_readable() -> ApiError:
    """Return the error for a body that is not encoded as its headers say."""
    return ApiError(400, "The body cannot be read: it is not encoded as its headers say.", code="bad_body")


def body_too_large(max_bytes: int) -> ApiError:
    """Return the error for a body over the limit."""
    return ApiError(
        413, f"The body is larger than the {max_bytes / 1e6:g} MB this server reads.", code="body_too_large"
    )


async def list_models(request: web.Request) -> web.Response:
    """List the upstream's models, and each with every named policy."""
    proxy = request.app[PROXY]
    return json_response(models_body(await proxy.models.get(LISTING_MAX_AGE), proxy.policies.named))


async def show_health(request: web.Request) -> web.Response:
    """Say that the process is up."""
    del request
    return json_response({"status": "ok"})


async def show_ready(request: web.Request) -> web.Response:
    """Say whether requests can be answered: the upstream is there, and the server is not about to end."""
    proxy = request.app[PROXY]
    if proxy.draining:
        return json_response({"status": "draining"}, 503)
    try:
        await proxy.models.get(LISTING_MAX_AGE)
    except ServerError:
        return json_response({"status": "upstream unreachable"}, 503)
    return json_response({"status": "ok"})


async def show_metrics(request: web.Request) -> web.Response:
    """Return the counters in Prometheus' text format."""
    return web.Response(body=request.app[PROXY].metrics.render(), headers={"Content-Type": CONTENT_TYPE})


def json_response(content: object, status: int = 200) -> web.Response:
    """Return a reply with a JSON body."""
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")


FILES_PER_CONNECTION = 2
"""Files that each connection of a client may need: its own, and one to the upstream."""
BACKLOG = 2048
"""Connections that may wait to be accepted: the kernel then turns none of a thousand clients away."""
DRAIN_POLL_SECONDS = 0.02
"""Seconds between two checks whether the last request has been answered."""


class RefusedConnection(asyncio.Protocol):
    """A connection too many: it is closed at once, unread."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        cast("asyncio.Transport", transport).abort()


class Server:
    """A proxy that listens on an address while the context lasts; port 0 takes a free one."""

    def __init__(
        self, proxy: Proxy, *, host: str = "127.0.0.1", port: int = 0, allow_hosts: Collection[str] = ()
    ) -> None:
        self.proxy = proxy
        """The proxy that answers."""
        hosts = OwnHosts.from_options(host, allow_hosts)
        self._host, self._port = host, port
        # A handler is cancelled as soon as its client leaves: that ends the samples for it. Bodies are inflated by us,
        # behind the check of the key and outside the loop: aiohttp would do it before and inside.
        self._runner = web.AppRunner(
            # Where no key is demanded, a web page must not reach us under a name of its own.
            build_application(proxy, None if proxy.keys.digests else hosts),
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=0.1,
            auto_decompress=False,
            keepalive_timeout=proxy.limits.read_seconds,  # also for a head that does not come to its end
        )
        self._listener: asyncio.Server | None = None
        self._max_connections = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // FILES_PER_CONNECTION

    @property
    def url(self) -> str:
        """Its address."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._runner.server.connections) if self._runner.server is not None else 0

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(self._accept, self._host, self._port, backlog=BACKLOG)
        except OSError as error:
            await self._runner.cleanup()
            raise listen_error(self._host, self._port, error) from error
        self._port = self._listener.sockets[0].getsockname()[1]
        return self

    def _accept(self) -> asyncio.Protocol:
        """Return what answers a connection just made; so many are answered that the upstream can still be reached."""
        answer = self._runner.server
        assert answer is not None  # noqa: S101 - for the type checker: it listens
        return answer() if self.connections < self._max_connections else RefusedConnection()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain(0.0 if error is not None else self.proxy.limits.drain_seconds)

    async def drain(self, seconds: float) -> None:
        """Take nothing new, give requests in flight so many seconds to finish, then end them."""
        self.proxy.draining = True
        if self._listener is not None:
            self._listener.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self.proxy.in_flight and loop.time() < until:
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        await self._runner.cleanup()


async def wait_for_signal() -> None:
    """Wait for the signal to end (SIGTERM, SIGINT); a second one ends the process at once."""
    loop, received = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received.set)
    try:
        await received.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def listen_error(host: str, port: int, error: OSError) -> SettingsError:
    """Return the error for an address that cannot be listened on."""
    if error.errno == errno.EADDRINUSE:
        return SettingsError(
            f"Port {port} of {host} is taken by another program.", "Choose another with --port, or 0 for a free one."
        )
    return SettingsError(
        f"Cannot listen on {host}, port {port}: {error.strerror or error}.", "Choose another --host or --port."
    )
