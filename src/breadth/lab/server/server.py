"""The tiny reasoner over HTTP: an OpenAI-compatible server with thinking, log-probs, prefix continuation and budgets.

It speaks llama.cpp's dialect: a last message of the assistant's is continued, ``reasoning_budget_tokens`` caps
thinking, and ``/props`` lists the model and its default sampling, by which clients know the dialect. It
does not claim to be llama.cpp.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, TypeAlias

import orjson
from aiohttp import web

from breadth.base.errors import ServerError, SettingsError, require
from breadth.lab.reasoner import Reasoner
from breadth.lab.sampling.engine import Engine
from breadth.lab.server.replies import ReplyEncoder, ReplyPiece, ReplyStream, ReplyWriter
from breadth.lab.server.requests import CompletionRequest, read_completion_request
from breadth.lab.task.vocabulary import RoutesTokens
from breadth.runtime.dialect import CHAT_PATH, COMPLETIONS_PATH
from breadth.runtime.proxy.client_request import read_request
from breadth.runtime.proxy.errors import ApiError

ReasoningFormat = Literal["none", "deepseek"]
"""Where a chat's reply holds its thinking: in the content with its marks, or apart in ``reasoning_content``
(llama.cpp's names).
"""
RETRY_SECONDS = 1.0
"""Seconds after which a refused client may try again."""
LAB_DRAIN_POLL_SECONDS = 0.02
"""Seconds between two checks whether the last reply has ended."""


@dataclass(frozen=True)
class LabServerSettings:
    """How the reasoner is served."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 0
    """Port; 0 takes a free one."""
    threads: int = 1
    """Threads that draw."""
    reasoning_format: ReasoningFormat = "none"
    """Where a chat's reply holds its thinking."""
    name: str = "routes"
    """Name of the model."""
    max_running: int = 512
    """Replies drawn at once; more wait."""
    max_in_flight: int = 2048
    """Maximum replies running and waiting; more are refused with 429, so no client waits for minutes unawares."""
    max_body_bytes: int = 1_000_000
    """Bytes of a request at most; the longest prompt that fits the context is some 20,000."""
    drain_seconds: float = 10.0
    """Seconds that requests in flight get to finish when the server stops."""

    def __post_init__(self) -> None:
        require(self, "threads", self.threads >= 1, "1 or more")
        require(self, "max_running", self.max_running >= 1, "1 or more")
        require(self, "max_in_flight", self.max_in_flight >= 1, "1 or more")
        require(self, "reasoning_format", self.reasoning_format in ("none", "deepseek"), "none or deepseek")


class LabServer:
    """A reasoner on an address while the context lasts."""

    def __init__(self, reasoner: Reasoner, settings: LabServerSettings = LabServerSettings()) -> None:  # noqa: B008 - frozen
        self.reasoner = reasoner
        """What is served."""
        self.settings = settings
        """How."""
        self.engine = Engine(reasoner, max_running=settings.max_running, threads=settings.threads)
        """What draws."""
        self.in_flight = 0
        """Replies being drawn or waiting."""
        self.draining = False
        """Whether it is about to end."""
        self.tokens = RoutesTokens(reasoner.tokenizer)
        """The reasoner's vocabulary."""
        self.context: int = reasoner.model.config.max_position_embeddings
        """Tokens of prompt and reply together at most."""
        self._port = settings.port
        # Cancelled as soon as the client leaves: that ends the draws for it.
        self._runner = web.AppRunner(
            lab_application(self), handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        self._site: web.TCPSite | None = None

    @property
    def url(self) -> str:
        """Its address."""
        host = self.settings.host
        return f"http://[{host}]:{self._port}" if ":" in host else f"http://{host}:{self._port}"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, self.settings.host, self.settings.port, backlog=1024)
        try:
            await self._site.start()
        except OSError as error:
            await self._end()
            raise lab_listen_error(self.settings, error) from error
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take nothing new, let what is in flight finish for a while, then end it."""
        self.draining = True
        loop = asyncio.get_running_loop()
        until = loop.time() + (self.settings.drain_seconds if error is None else 0.0)
        if self._site is not None:
            await self._site.stop()
        while self.in_flight and loop.time() < until:
            await asyncio.sleep(LAB_DRAIN_POLL_SECONDS)
        await self._end()

    @contextmanager
    def reserve(self, replies: int) -> Iterator[None]:
        """Reserve capacity for replies; refuse them if there is none."""
        if self.draining:
            raise ApiError(
                503, "The server is about to end: ask again in a moment.", code="draining", retry_after=RETRY_SECONDS
            )
        if self.in_flight + replies > self.settings.max_in_flight:
            message = (
                f"{self.in_flight} of at most {self.settings.max_in_flight} replies are running or waiting: try again,"
                " or ask for fewer."
            )
            raise ApiError(429, message, code="too_many_requests", retry_after=RETRY_SECONDS)
        self.in_flight += replies
        try:
            yield
        finally:
            self.in_flight -= replies

    def start_replies(self, wanted: CompletionRequest) -> list[ReplyWriter]:
        """Return the replies to a request, still empty."""
        apart = self.settings.reasoning_format == "deepseek"
        return [ReplyWriter(wanted, self.tokens, index, apart=apart) for index in range(wanted.replies)]

    async def _end(self) -> None:
        await self._runner.cleanup()
        await asyncio.to_thread(self.engine.close)


def lab_listen_error(settings: LabServerSettings, error: OSError) -> SettingsError:
    """Return the error for an address that cannot be used."""
    if error.errno == errno.EADDRINUSE:
        problem = f"Port {settings.port} of {settings.host} is taken by another program."
        return SettingsError(problem, "Choose another with --port, or 0 for a free one.")
    return SettingsError(
        f"Cannot listen on {settings.host}, port {settings.port}: {error.strerror or error}.",
        "Choose another --host or --port.",
    )


PageHandler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
SERVER_KEY: web.AppKey[LabServer] = web.AppKey("lab")
LOGGER = logging.getLogger("breadth.lab")
CLIENT_CLOSED_REQUEST = 499
"""Status for a client that did not wait for the reply; nobody reads it."""


def lab_application(server: LabServer) -> web.Application:
    """Return the web application of a served reasoner."""
    app = web.Application(middlewares=[answer_errors], client_max_size=server.settings.max_body_bytes)
    app[SERVER_KEY] = server
    for path in (CHAT_PATH, COMPLETIONS_PATH):
        app.router.add_post(path, complete_request)
    for path, page in (("/v1/models", show_models), ("/props", show_properties), ("/health", report_health)):
        app.router.add_get(path, page)
    return app


@web.middleware
async def answer_errors(request: web.Request, handler: PageHandler) -> web.StreamResponse:
    """Turn errors raised before a reply has started into the OpenAI shape."""
    try:
        return await handler(request)
    except ApiError as refusal:
        return refusal.response
    except web.HTTPException as error:
        return http_refusal(error, request).response
    except ConnectionError:
        return web.Response(status=CLIENT_CLOSED_REQUEST)
    except web.RequestPayloadError:
        return ApiError(400, "The body cannot be read: it is not encoded as its headers say.", code="bad_body").response
    except Exception as error:  # noqa: BLE001 - whatever a listener does, the others' completions go on
        return failure_refusal(error).response


def http_refusal(error: web.HTTPException, request: web.Request) -> ApiError:
    """Return an aiohttp error in the OpenAI shape."""
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        most = request.app[SERVER_KEY].settings.max_body_bytes
        return ApiError(
            413,
            f"The body is larger than the {most / 1e6:g} MB this server reads: shorten the prompt.",
            code="body_too_large",
        )
    if isinstance(error, web.HTTPMethodNotAllowed):
        return ApiError(
            405,
            f"Use {' or '.join(sorted(error.allowed_methods))} here, not {error.method}.",
            code="method_not_allowed",
        )
    if isinstance(error, web.HTTPNotFound):
        pages = f"{CHAT_PATH}, {COMPLETIONS_PATH}, /v1/models, /props, /health"
        return ApiError(404, f"There is no such page. There are: {pages}.", code="unknown_path")
    return ApiError(error.status, error.reason)


def failure_refusal(error: Exception) -> ApiError:
    """Return the error for a failure of ours: the engine's own message, or where to look."""
    if isinstance(error, ServerError):
        return ApiError(error.status or 500, f"{error.problem} {error.remedy}", code="not_drawn")
    LOGGER.error("a request broke on our side", exc_info=error)
    return ApiError(500, "The server itself failed; its log has the reason.", code="internal")


async def complete_request(request: web.Request) -> web.StreamResponse:
    """Answer a chat or continue a text."""
    server = request.app[SERVER_KEY]
    call = read_request(request.path, await request.read(), allowed=None)
    if call.model not in ("", server.settings.name):
        message = f"The model '{call.model[:80]}' does not exist here: ask for '{server.settings.name}'."
        raise ApiError(404, message, param="model", code="model_not_found")
    wanted = read_completion_request(call, server.tokens, server.context)
    writings = server.start_replies(wanted)
    replies = ReplyEncoder(wanted, server.settings.name)
    with server.reserve(wanted.replies), ReplyStream(server.engine, wanted, writings) as listening:
        if wanted.stream:
            return await stream_replies(request, listening, writings, replies)
        pieces: list[list[ReplyPiece]] = [[] for _ in writings]
        async for arrived in listening.batches():
            for writing, added in arrived:
                pieces[writing.index] += added
        return web.Response(body=replies.whole(writings, pieces), content_type="application/json")


async def stream_replies(
    request: web.Request, listening: ReplyStream, writings: list[ReplyWriter], replies: ReplyEncoder
) -> web.StreamResponse:
    """Send a reply token by token; what goes wrong now is an event, and the stream ends without its end mark."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    await response.write(b"".join(map(replies.first, writings)))
    try:
        async for arrived in listening.batches():
            events = [replies.piece(writing, piece) for writing, added in arrived for piece in added]
            events += [replies.last(writing) for writing in dict(arrived) if writing.finish is not None]
            if events:
                await response.write(b"".join(events))
        await response.write(replies.end(writings))
    except ConnectionError:
        return response  # the client has left
    except Exception as error:  # noqa: BLE001 - whatever a listener does, the others' completions go on
        with suppress(ConnectionError):
            await response.write(failure_refusal(error).event)
    return response


async def show_models(request: web.Request) -> web.Response:
    """List the served model."""
    server = request.app[SERVER_KEY]
    weights = sum(tensor.numel() for tensor in server.reasoner.model.parameters())
    about = {"n_ctx": server.context, "n_vocab": server.tokens.size, "n_params": weights}
    return to_response(
        {
            "object": "list",
            "data": [
                {"id": server.settings.name, "object": "model", "created": 0, "owned_by": "breadth", "meta": about}
            ],
        }
    )


async def show_properties(request: web.Request) -> web.Response:
    """Return the model and its default sampling, as llama.cpp does."""
    server = request.app[SERVER_KEY]
    defaults = {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "max_tokens": -1,
        "stop": [],
        "speculative.types": "none",
    }
    return to_response(
        {
            "default_generation_settings": {
                "n_ctx": server.context,
                "params": defaults | {"reasoning_format": server.settings.reasoning_format},
            },
            "total_slots": server.settings.max_running,
            "model_alias": server.settings.name,
            "chat_template": server.reasoner.tokenizer.chat_template,
            "bos_token": server.reasoner.tokenizer.bos_token,
            "eos_token": server.reasoner.tokenizer.eos_token,
        }
    )


async def report_health(request: web.Request) -> web.Response:
    """Say whether the server takes requests."""
    draining = request.app[SERVER_KEY].draining
    return to_response({"status": "draining" if draining else "ok"}, 503 if draining else 200)


def to_response(content: object, status: int = 200) -> web.Response:
    """Return content as a JSON response."""
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")
