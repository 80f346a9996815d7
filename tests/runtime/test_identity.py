"""Who a server is: recognised by what it says, or refused in words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from breadth.adapters.llama_cpp.dialect import LlamaCppDialect
from breadth.base.errors import ServerError
from breadth.runtime.dialect import Dialect, Identity
from breadth.runtime.identity import identify, recognised, root

Page = Callable[[web.Request], Awaitable[web.StreamResponse]]


def said(status: int = 200, text: str = '{"data": [{"id": "m"}]}', wanted_key: str = "") -> Page:
    async def page(request: web.Request) -> web.Response:
        if wanted_key and request.headers.get("Authorization") != f"Bearer {wanted_key}":
            return web.Response(status=401, text="{}")
        return web.Response(status=status, text=text, headers={"Server": "unit"})

    return page


def identified(page: Page, *, key: str | None = None, suffix: str = "") -> Identity:
    async def main() -> Identity:
        app = web.Application()
        app.router.add_get("/v1/models", page)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        try:
            return await identify(f"http://{host}:{port}{suffix}", key)
        finally:
            await runner.cleanup()

    return asyncio.run(main())


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_an_unknown_server_is_spoken_to_plainly(suffix: str) -> None:
    identity = identified(said(), suffix=suffix)
    assert identity.models == {"data": [{"id": "m"}]}
    assert identity.headers["server"] == "unit"
    assert identity.props == {}
    assert recognised(identity) == Dialect()


def test_a_key_is_sent_and_a_missing_one_is_asked_for() -> None:
    assert identified(said(wanted_key="k"), key="k").models
    with pytest.raises(ServerError, match="refuses the key") as caught:
        identified(said(wanted_key="k"))
    assert "BREADTH_KEY" in caught.value.remedy


@pytest.mark.parametrize("page", [said(404, "nothing"), said(200, "<html>"), said(200, "[1]")])
def test_what_is_no_such_server_is_refused(page: Page) -> None:
    with pytest.raises(ServerError, match="no OpenAI-compatible server"):
        identified(page)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nonsense", "ftp://somewhere", "http://"])
def test_nobody_there(url: str) -> None:
    with pytest.raises(ServerError) as caught:
        asyncio.run(identify(url))
    assert caught.value.fatal


def test_the_real_server_is_recognised(llama: str) -> None:
    assert recognised(asyncio.run(identify(llama))) == LlamaCppDialect()


def test_addresses_as_people_paste_them() -> None:
    assert {root(url) for url in ("http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/")} == {"http://h:1"}


def test_a_page_that_comes_in_pieces_is_read_whole() -> None:
    async def page(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (b'{"data": [', b'{"id": "m"}', b"]}"):
            await response.write(piece)
            await asyncio.sleep(0.02)
        return response

    assert identified(page).models == {"data": [{"id": "m"}]}
