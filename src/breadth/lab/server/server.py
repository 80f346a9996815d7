"""The tiny reasoner over HTTP: an OpenAI-compatible server in one process, with thinking, log-probs, prefix continuation and budgets.

It speaks llama.cpp's dialect: a last message of the assistant's is continued, ``reasoning_budget_tokens`` caps
thinking, and ``/props`` says what it is and how it draws unless told otherwise, by which clients know the dialect. It
does not claim to be llama.cpp.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from aiohttp import web

from breadth.base.checks import require
from breadth.base.errors import SettingsError
from breadth.lab.model.reasoner import Reasoner
from breadth.lab.sampling.engine import Engine
from breadth.lab.server.pages import application
from breadth.lab.server.replies import Writing
from breadth.lab.server.requests import Wanted
from breadth.lab.task.wording import Wording
from breadth.runtime.proxy.errors import ApiError

ReasoningFormat = Literal["none", "deepseek"]
"""Where thinking stands in a chat's reply: in its content, marks and all, or apart in ``reasoning_content``
(llama.cpp's names).
"""
COME_BACK = 1.0
"""Seconds after which a client that was one too many may try again."""
GLANCE = 0.02
"""Seconds between two looks at whether the last reply has been drawn."""


@dataclass(frozen=True)
class ServerSettings:
    """How the reasoner is served."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 0
    """Port; 0 takes a free one."""
    threads: int = 1
    """Threads that draw."""
    reasoning_format: ReasoningFormat = "none"
    """Where thinking stands in a chat's reply."""
    name: str = "routes"
    """Name of the model."""
    at_once: int = 512
    """Replies drawn at once; more wait."""
    most: int = 2048
    """Replies drawn and waiting at most; more are told to come back (429), so that nobody waits for minutes unawares.
    """
    body: int = 1_000_000
    """Bytes of a request at most; the longest prompt that fits the context is some 20,000."""
    drain: float = 10.0
    """Seconds that requests in flight are given when the server is told to end."""

    def __post_init__(self) -> None:
        require(self, "threads", self.threads >= 1, "1 or more")
        require(self, "at_once", self.at_once >= 1, "1 or more")
        require(self, "most", self.most >= 1, "1 or more")
        require(self, "reasoning_format", self.reasoning_format in ("none", "deepseek"), "none or deepseek")


class LabServer:
    """A reasoner on an address while the context lasts."""

    def __init__(self, reasoner: Reasoner, settings: ServerSettings = ServerSettings()) -> None:
        self.reasoner = reasoner
        """What is served."""
        self.settings = settings
        """How."""
        self.engine = Engine(reasoner, most=settings.at_once, threads=settings.threads)
        """What draws."""
        self.in_flight = 0
        """Replies being drawn or waiting."""
        self.draining = False
        """Whether it is about to end."""
        self.wording = Wording(reasoner.tokenizer)
        """The reasoner's vocabulary."""
        self.context: int = reasoner.model.config.max_position_embeddings
        """Tokens of prompt and reply together at most."""
        self._port = settings.port
        # Cancelled as soon as the client leaves: that ends the draws for it.
        self._runner = web.AppRunner(
            application(self), handler_cancellation=True, access_log=None, shutdown_timeout=0.1
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
            raise _cannot_listen(self.settings, error) from error
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take nothing new, let what is in flight finish for a while, then end it."""
        self.draining = True
        loop = asyncio.get_running_loop()
        until = loop.time() + (self.settings.drain if error is None else 0.0)
        if self._site is not None:
            await self._site.stop()
        while self.in_flight and loop.time() < until:
            await asyncio.sleep(GLANCE)
        await self._end()

    @contextmanager
    def room(self, replies: int) -> Iterator[None]:
        """Take a place for replies; refuse them when there is none."""
        if self.draining:
            raise ApiError(
                503, "The server is about to end: ask again in a moment.", code="draining", retry_after=COME_BACK
            )
        if self.in_flight + replies > self.settings.most:
            said = (
                f"{self.in_flight} replies are being drawn or waiting, of {self.settings.most} at most: try again, or"
                " ask for fewer."
            )
            raise ApiError(429, said, code="too_many_requests", retry_after=COME_BACK)
        self.in_flight += replies
        try:
            yield
        finally:
            self.in_flight -= replies

    def writings(self, wanted: Wanted) -> list[Writing]:
        """Return the replies to a request, nothing of them written yet."""
        apart = self.settings.reasoning_format == "deepseek"
        return [Writing(wanted, self.wording, index, apart=apart) for index in range(wanted.replies)]

    async def _end(self) -> None:
        await self._runner.cleanup()
        await asyncio.to_thread(self.engine.close)


def _cannot_listen(settings: ServerSettings, error: OSError) -> SettingsError:
    if error.errno == errno.EADDRINUSE:
        problem = f"Port {settings.port} of {settings.host} is taken by another program."
        return SettingsError(problem, "Choose another with --port, or 0 for a free one.")
    return SettingsError(
        f"Cannot listen on {settings.host}, port {settings.port}: {error.strerror or error}.",
        "Choose another --host or --port.",
    )
