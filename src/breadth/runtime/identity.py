"""Who is that server? What it says about itself on well-known pages, and the dialect that recognises it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson

from breadth.base.errors import ServerError
from breadth.runtime.dialect import DIALECTS, Dialect, Identity
from breadth.runtime.samplers.connection import bearer
from breadth.runtime.site import limited

PAGES = ("/props", "/version", "/server_info", "/get_server_info", "/get_model_info")
"""Pages on which servers describe themselves: llama.cpp, vLLM, vLLM and newer SGLang, SGLang (twice)."""
PATIENCE = aiohttp.ClientTimeout(total=10)


async def identify(url: str, key: str | None = None) -> Identity:
    """Ask a server for its models and for the pages that tell servers apart; only the models must be there."""
    base = root(url)
    async with aiohttp.ClientSession(headers=bearer(key), timeout=PATIENCE) as session:
        status, said, models = await _page(session, base, "/v1/models")
        if status in (401, 403):
            raise ServerError(
                f"{base} refuses the key (status {status}).",
                "Set BREADTH_KEY or OPENAI_API_KEY to the server's key.",
                status=status,
                fatal=True,
            )
        if not isinstance(models, Mapping):
            raise ServerError(
                f"{base}/v1/models answered with status {status} and no list of models: this is no OpenAI-compatible server.",
                "Give the address of the server without /v1/..., for example http://localhost:8000.",
                status=status,
                fatal=True,
            )
        pages = await asyncio.gather(*(_page(session, base, path) for path in PAGES))
    props = {path: body for path, (code, _, body) in zip(PAGES, pages, strict=True) if code == 200 and body is not None}
    return Identity(models, said, props)


def recognised(identity: Identity) -> Dialect:
    """Return the dialect of the server, fitted to it; the plain one when no other recognises it."""
    for _, kind in DIALECTS:
        dialect: Dialect = kind()
        if dialect.recognises(identity):
            return dialect.fitted(identity)
    return Dialect()


def root(url: str) -> str:
    """Return a server's address without a trailing slash or ``/v1``, as people paste it."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


async def _page(session: aiohttp.ClientSession, base: str, path: str) -> tuple[int, dict[str, str], Any]:
    """Return status, headers and JSON body of a page; None for a body that is none."""
    try:
        async with session.get(base + path) as response:
            raw = await limited(response)
            headers = {name.lower(): value for name, value in response.headers.items()}
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise ServerError(f"{base!r} is no address of a server.", "Write it like http://localhost:8000.", fatal=True) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        if path != "/v1/models":
            return 0, {}, None
        raise ServerError(
            f"No server answers at {base} ({str(error) or type(error).__name__}).",
            "Start it, or correct the address.",
            fatal=True,
        ) from error
    try:
        return response.status, headers, orjson.loads(raw)
    except orjson.JSONDecodeError:
        return response.status, headers, None
