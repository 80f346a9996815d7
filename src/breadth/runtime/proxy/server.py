"""The proxy listening: an address, and an end that lets those being answered finish."""

from __future__ import annotations

import asyncio
import errno
import signal
from types import TracebackType
from typing import Self

from aiohttp import web

from breadth.base.errors import SettingsError
from breadth.runtime.proxy.app import application
from breadth.runtime.proxy.proxy import Proxy

BACKLOG = 2048
"""Connections that may wait to be accepted: a thousand clients at once are not turned away by the kernel."""
GLANCE = 0.02
"""Seconds between two looks at whether the last request has been answered."""


class Server:
    """A proxy on an address while the context lasts; port 0 takes a free one."""

    def __init__(self, proxy: Proxy, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.proxy = proxy
        """What answers."""
        self._host, self._port = host, port
        # Cancelled as soon as the client leaves: that ends the draws for it.
        self._runner = web.AppRunner(application(proxy), handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
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

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.drain(0.0 if error is not None else self.proxy.limits.drain)

    async def drain(self, seconds: float) -> None:
        """Take nothing new, let what is in flight finish for so many seconds, then end it."""
        self.proxy.draining = True
        if self._site is not None and self._site in self._runner.sites:
            await self._site.stop()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self.proxy.in_flight and loop.time() < until:
            await asyncio.sleep(GLANCE)
        await self._runner.cleanup()


async def told_to_end() -> None:
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
        return SettingsError(f"Port {port} of {host} is taken by another program.", "Choose another with --port, or 0 for a free one.")
    return SettingsError(f"Cannot listen on {host}, port {port}: {error.strerror or error}.", "Choose another --host or --port.")
