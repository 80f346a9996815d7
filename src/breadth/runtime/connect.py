"""Connect to a server by its address: identify it, choose its dialect, check its model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec
import orjson

from breadth.base.errors import ServerError, redact_address
from breadth.runtime.dialect import SERVER_DIALECTS, ServerDialect, ServerIdentity
from breadth.runtime.samplers.connection import (
    base_url,
    bearer_header,
    read_up_to,
    refuse_credentials,
)
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.runtime.samplers.redaction import Redactor
from breadth.runtime.samplers.server_errors import quote, status_error
from breadth.runtime.wire import MODELS_PATH

MAX_PAGE_BYTES = 4 * 2**20
"""Bytes read of a reply at most."""


class ServerClient:
    """Plain requests to a server under one address."""

    def __init__(self, url: str, *, key: str | None = None, seconds: float = 60.0) -> None:
        self.url = base_url(url)
        """Its address, without ``/v1``."""
        self._headers = bearer_header(key)
        self._redactor = Redactor(key)
        self._seconds = seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=self._seconds, sock_connect=min(self._seconds, 10.0))
        # llama.cpp promises to keep a connection after a stream and closes it: the next request on it would be lost.
        connector = aiohttp.TCPConnector(force_close=True)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self._headers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Send a request and return the body of the reply."""
        if self._session is None:
            raise RuntimeError("a ServerClient is used inside its context")
        headers = {"Content-Type": "application/json"}
        try:
            async with self._session.post(
                self.url + path, data=msgspec.json.encode(body), headers=headers, allow_redirects=False
            ) as reply:
                content = await read_limited(reply)
                if reply.status != 200:
                    raise self._redactor.clean_error(status_error(self.url, reply.status, reply.headers, content))
                return content
        except TimeoutError as error:
            raise ServerError(
                f"{self.url}{path} did not answer in {self._seconds:g} s.", "See whether the server hangs."
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            reason = quote(str(error)) or type(error).__name__
            raise ServerError(
                f"{self.url} cannot be reached: {reason}.", "Start the server, or check the address and the port."
            ) from error

    async def post_json(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the reply, a JSON object."""
        reply = await self.post(path, body)
        try:
            content = msgspec.json.decode(reply)
        except msgspec.DecodeError:
            content = None
        if not isinstance(content, dict):
            text = quote(self._redactor.clean(reply)[:400].decode("utf-8", "replace"))
            raise ServerError(
                f"{self.url}{path} answered with no JSON object: {text}", "Check that this is a model server's address."
            )
        return content


async def read_limited(reply: aiohttp.ClientResponse) -> bytes:
    """Return a body, of a huge one only the beginning: an unknown server must not fill our memory."""
    content = await read_up_to(reply.content, MAX_PAGE_BYTES)
    if len(content) > MAX_PAGE_BYTES:
        reply.close()
    return content


IDENTITY_PAGES = ("/props", "/version", "/server_info", "/get_server_info", "/get_model_info")
"""Pages on which servers describe themselves: llama.cpp, vLLM, vLLM and newer SGLang, SGLang (twice)."""
IDENTIFY_TIMEOUT = aiohttp.ClientTimeout(total=10)


async def identify(url: str, key: str | None = None) -> ServerIdentity:
    """Fetch a server's models and the pages that distinguish servers; only the models must exist."""
    base = strip_api_path(url)
    async with aiohttp.ClientSession(headers=bearer_header(key), timeout=IDENTIFY_TIMEOUT) as session:
        status, headers, models = await fetch_page(session, base, MODELS_PATH)
        if status in (401, 403):
            raise ServerError(
                f"{base} refuses the key (status {status}).",
                "Set BREADTH_KEY or OPENAI_API_KEY to the server's key.",
                status=status,
                fatal=True,
            )
        if not isinstance(models, Mapping):
            raise ServerError(
                f"{base}/v1/models answered with status {status} and no list of models: this is no OpenAI-compatible"
                " server.",
                "Give the address of the server without /v1/..., for example http://localhost:8000.",
                status=status,
                fatal=True,
            )
        pages = await asyncio.gather(*(fetch_page(session, base, path) for path in IDENTITY_PAGES))
    props = {
        path: body
        for path, (code, _, body) in zip(IDENTITY_PAGES, pages, strict=True)
        if code == 200 and body is not None
    }
    return ServerIdentity(models, headers, props)


def recognise_dialect(identity: ServerIdentity) -> ServerDialect:
    """Return the dialect of the server, adapted to it; the plain one when no other recognises it."""
    for _, kind in SERVER_DIALECTS:
        dialect: ServerDialect = kind()
        if dialect.recognises(identity):
            return dialect.fit_to(identity)
    return ServerDialect()


def strip_api_path(url: str) -> str:
    """Return a server's address without a trailing slash or ``/v1``; one with a password in it is refused."""
    refuse_credentials(url)
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


async def fetch_page(session: aiohttp.ClientSession, base: str, path: str) -> tuple[int, dict[str, str], Any]:
    """Return status, headers and JSON body of a page; None for a body that is no JSON."""
    try:
        async with session.get(base + path) as response:
            raw = await read_limited(response)
            headers = {name.lower(): value for name, value in response.headers.items()}
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise ServerError(
            f"{redact_address(base)!r} is no address of a server.", "Write it like http://localhost:8000.", fatal=True
        ) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        if path != MODELS_PATH:
            return 0, {}, None
        cause = getattr(error, "os_error", error)
        refused = isinstance(cause, ConnectionError) and cause.errno
        reason = os.strerror(refused).lower() if refused else str(cause) or "it took too long"
        raise ServerError(
            f"No server answers at {base} ({reason}).",
            "Start it, or correct the address.",
            fatal=True,
        ) from error
    try:
        return response.status, headers, orjson.loads(raw)
    except orjson.JSONDecodeError:
        return response.status, headers, None


AUTO_DIALECT = "auto"


async def connect(
    urls: Sequence[str], *, dialect: str = AUTO_DIALECT, key: str | None = None, model: str = "", attempts: int = 3
) -> OpenAISampler:
    """Return a sampler for servers that are up now; several must be of one kind.

    A model that no server lists is refused here: some servers answer with any model they have.
    """
    identities = {strip_api_path(url): await identify(url, key) for url in urls}
    for address, identity in identities.items():
        check_model(identity, model, address)
    kinds = {recognise_dialect(identity) for identity in identities.values()}
    if dialect == AUTO_DIALECT and len(kinds) > 1:
        names = ", ".join(sorted(type(kind).__name__ for kind in kinds))
        raise ServerError(
            f"The servers are of different kinds: {names}.",
            "Name one dialect for all with --dialect, or use servers of one kind.",
        )
    chosen: ServerDialect = (
        kinds.pop()
        if dialect == AUTO_DIALECT
        else SERVER_DIALECTS.load(dialect)().fit_to(next(iter(identities.values())))
    )
    return OpenAISampler(list(identities), dialect=chosen, key=key, attempts=attempts)


def check_model(identity: ServerIdentity, model: str, address: str) -> None:
    """Refuse a model that the server does not list."""
    names = model_names(identity)
    if model and names and model not in names:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise ServerError(f"{address} has no model '{model[:200]}'.", f"It has: {shown}.", status=404, fatal=True)


def model_names(identity: ServerIdentity) -> list[str]:
    """Return the names of the models a server lists."""
    listed = identity.models.get("data")
    rows = listed if isinstance(listed, list) else []
    return [str(row["id"]) for row in rows if isinstance(row, dict) and "id" in row]
