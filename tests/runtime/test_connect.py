"""A sampler by address: the right dialect, the model checked, in words when not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from breadth.adapters.llama_cpp import LlamaCppDialect
from breadth.base.errors import CatalogueError, ServerError, SettingsError
from breadth.inference.records import Candidate, Sampling
from breadth.runtime.connect import (
    MAX_PAGE_BYTES,
    ServerClient,
    check_model,
    connect,
    identify,
    model_names,
    recognise_dialect,
    strip_api_path,
)
from breadth.runtime.dialect import CHAT_PATH, ServerDialect, ServerIdentity
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.testing.fake_replies import Reply
from breadth.testing.fake_server import FakeServer
from breadth.testing.faults import Cut, Fault, Hang, Status, WrongContentType

FOUR = Reply.from_text("4")


def asked(
    ask: Callable[[ServerClient], Awaitable[Any]], *faults: Fault, reply: Reply = FOUR, seconds: float = 5
) -> Any:
    async def main() -> Any:
        async with (
            FakeServer(reply, faults=faults) as server,
            ServerClient(server.url, key="secret", seconds=seconds) as site,
        ):
            found = await ask(site)
            return found, server.requests

    return asyncio.run(main())


def test_replies_are_json_objects() -> None:
    reply, requests = asked(lambda site: site.post_json(CHAT_PATH, {"messages": []}))
    assert reply["choices"][0]["message"]["content"] == "4"
    assert requests[0].headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (Status(401), "status 401"),
        (WrongContentType(), "no JSON object: <html>"),
        (Cut(), "cannot be reached"),
        (Hang(), "did not answer in 0.3 s"),
    ],
)
def test_what_goes_wrong_is_said(fault: Fault, problem: str) -> None:
    with pytest.raises(ServerError, match=problem):
        asked(lambda site: site.post_json(CHAT_PATH, {"messages": []}), fault, seconds=0.3)


def test_a_server_that_is_not_there_is_said() -> None:
    async def main() -> None:
        async with ServerClient("http://127.0.0.1:9") as site:
            await site.post(CHAT_PATH, {})

    with pytest.raises(ServerError, match="cannot be reached"):
        asyncio.run(main())


def test_an_endless_reply_is_cut() -> None:
    body, _ = asked(lambda site: site.post(CHAT_PATH, {"stream": True}), reply=Reply.from_text("word " * 60_000))
    assert MAX_PAGE_BYTES < len(body) < 2 * MAX_PAGE_BYTES


def test_a_site_without_an_address_or_context_is_refused() -> None:
    with pytest.raises(SettingsError, match="not the address"):
        ServerClient("ftp://x")
    with pytest.raises(RuntimeError, match="inside its context"):
        asyncio.run(ServerClient("http://127.0.0.1:9").post(CHAT_PATH, {}))


Page = Callable[[web.Request], Awaitable[web.StreamResponse]]


def said(status: int = 200, text: str = '{"data": [{"id": "m"}]}', wanted_key: str = "") -> Page:
    async def page(request: web.Request) -> web.Response:
        if wanted_key and request.headers.get("Authorization") != f"Bearer {wanted_key}":
            return web.Response(status=401, text="{}")
        return web.Response(status=status, text=text, headers={"Server": "unit"})

    return page


def identified(page: Page, *, key: str | None = None, suffix: str = "") -> ServerIdentity:
    async def main() -> ServerIdentity:
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
    assert recognise_dialect(identity) == ServerDialect()


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
    assert recognise_dialect(asyncio.run(identify(llama))) == LlamaCppDialect()


def test_addresses_as_people_paste_them() -> None:
    assert {strip_api_path(url) for url in ("http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/")} == {
        "http://h:1"
    }


def test_a_page_that_comes_in_pieces_is_read_whole() -> None:
    async def page(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (b'{"data": [', b'{"id": "m"}', b"]}"):
            await response.write(piece)
            await asyncio.sleep(0.02)
        return response

    assert identified(page).models == {"data": [{"id": "m"}]}


def drawn(url: str, dialect: str) -> tuple[ServerDialect, Candidate]:
    async def main() -> tuple[ServerDialect, Candidate]:
        sampler = await connect([url], dialect=dialect, model="smollm2")
        try:
            draw = SampleRequest(({"role": "user", "content": "Say hi."},), Sampling(max_tokens=3), model="smollm2")
            return sampler.dialect, await sampler.sample(draw, Meter())
        finally:
            await sampler.close()

    return asyncio.run(main())


@pytest.mark.parametrize(("asked", "spoken"), [("auto", LlamaCppDialect()), ("openai", ServerDialect())])
def test_it_draws_from_a_real_server(llama: str, asked: str, spoken: ServerDialect) -> None:
    dialect, candidate = drawn(llama, asked)
    assert dialect == spoken
    assert candidate.text
    assert candidate.tokens == 3


def test_a_model_nobody_has_is_refused(llama: str) -> None:
    with pytest.raises(ServerError, match="has no model 'gpt-9'") as caught:
        asyncio.run(connect([llama], model="gpt-9"))
    assert "smollm2" in caught.value.remedy


def test_an_unknown_dialect_gets_the_nearest_spelling(llama: str) -> None:
    with pytest.raises(CatalogueError, match="vlm"):
        asyncio.run(connect([llama], dialect="vlm"))


def test_a_server_that_lists_nothing_is_not_second_guessed() -> None:
    nothing = ServerIdentity({"data": "odd"}, {}, {})
    assert model_names(nothing) == []
    check_model(nothing, "any", "http://h")
