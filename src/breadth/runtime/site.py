"""Plain requests to a server that is being looked at: small replies, errors in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from breadth.base.errors import ServerError
from breadth.runtime.samplers.connection import bearer
from breadth.runtime.samplers.endpoints import base_url
from breadth.runtime.samplers.refusals import quoted, refusal

LARGEST_REPLY = 4 * 2**20
"""Bytes of a reply that are read at most."""


class Site:
    """A server under one address."""

    def __init__(self, url: str, *, key: str | None = None, seconds: float = 60.0) -> None:
        self.url = base_url(url)
        """Its address, without ``/v1``."""
        self._headers = bearer(key)
        self._seconds = seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=self._seconds, sock_connect=min(self._seconds, 10.0))
        # llama.cpp promises to keep a connection after a stream and closes it: the next request on it would be lost.
        connector = aiohttp.TCPConnector(force_close=True)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self._headers)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Send a request and return the reply as it is."""
        return await self._ask(path, body)

    async def post_json(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the reply, a JSON object."""
        return self._object(path, await self.post(path, body))

    async def _ask(self, path: str, body: Mapping[str, Any]) -> bytes:
        if self._session is None:
            raise RuntimeError("a Site is used inside its context")
        headers = {"Content-Type": "application/json"}
        try:
            async with self._session.post(self.url + path, data=msgspec.json.encode(body), headers=headers, allow_redirects=False) as reply:
                content = await limited(reply)
                if reply.status != 200:
                    raise refusal(self.url, reply.status, reply.headers, content)
                return content
        except TimeoutError as error:
            raise ServerError(f"{self.url}{path} did not answer in {self._seconds:g} s.", "See whether the server hangs.") from error
        except (aiohttp.ClientError, OSError) as error:
            said = quoted(str(error)) or type(error).__name__
            raise ServerError(f"{self.url} cannot be reached: {said}.", "Start the server, or check the address and the port.") from error

    def _object(self, path: str, body: bytes) -> dict[str, Any]:
        try:
            found = msgspec.json.decode(body)
        except msgspec.DecodeError:
            found = None
        if not isinstance(found, dict):
            said = quoted(body[:400].decode("utf-8", "replace"))
            raise ServerError(f"{self.url}{path} answered with no JSON object: {said}", "Check that this is a model server's address.")
        return found


async def limited(reply: aiohttp.ClientResponse) -> bytes:
    """Return a whole body, or as much of it as is read at most: what a stranger sends is not to fill our memory."""
    pieces, size = [], 0
    async for piece in reply.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST_REPLY:
            reply.close()
            break
    return b"".join(pieces)
