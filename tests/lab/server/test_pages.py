"""The pages: what the server says about itself, and how it says that something is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import pytest

from breadth.base.errors import ServerError
from breadth.lab.model.reasoner import Reasoner, Shape, build
from breadth.lab.server.server import LabServer, ServerSettings
from breadth.lab.task.facts import Facts
from breadth.lab.task.teacher import Teacher
from breadth.lab.task.vocabulary import words_of
from breadth.runtime.wire import CHAT_PATH, COMPLETIONS_PATH

ASKED = {"messages": [{"role": "user", "content": "(3+4)*(5+6)="}]}
Exchange = Callable[[aiohttp.ClientSession, LabServer], Awaitable[Any]]


@pytest.fixture(scope="module")
def tiny() -> Reasoner:
    return build(Teacher(Facts(prime=7)), Shape(hidden=32, layers=1, heads=2, inner=32, context=128))


def talk(reasoner: Reasoner, exchange: Exchange, **settings: Any) -> Any:
    async def main() -> Any:
        async with (
            LabServer(reasoner, ServerSettings(**settings)) as server,
            aiohttp.ClientSession(server.url) as session,
        ):
            return await exchange(session, server)

    return asyncio.run(main())


def got(reasoner: Reasoner, path: str) -> Any:
    async def exchange(session: aiohttp.ClientSession, _: LabServer) -> Any:
        async with session.get(path) as response:
            return await response.json()

    return talk(reasoner, exchange)


def posted(reasoner: Reasoner, path: str, data: bytes, **settings: Any) -> tuple[int, dict[str, Any]]:
    async def exchange(session: aiohttp.ClientSession, _: LabServer) -> tuple[int, dict[str, Any]]:
        async with session.post(path, data=data) as response:
            return response.status, await response.json()

    status, body = talk(reasoner, exchange, **settings)
    return status, body


def test_it_says_what_it_is_and_does_not_claim_to_be_another(tiny: Reasoner) -> None:
    (model,) = got(tiny, "/v1/models")["data"]
    weights = sum(tensor.numel() for tensor in tiny.model.parameters())
    assert (model["id"], model["owned_by"]) == ("routes", "breadth")
    assert model["meta"] == {"n_ctx": 128, "n_vocab": len(words_of(7)), "n_params": weights}
    props = got(tiny, "/props")
    assert props["chat_template"] == tiny.tokenizer.chat_template
    assert props["total_slots"] == 512
    assert props["default_generation_settings"]["params"]["temperature"] == 1.0
    assert got(tiny, "/health") == {"status": "ok"}


@pytest.mark.parametrize(
    ("path", "data", "status", "code"),
    [
        (CHAT_PATH, b"{", 400, "bad_json"),
        (CHAT_PATH, b"[]", 400, "bad_json"),
        (CHAT_PATH, b'{"messages": "hello"}', 400, "invalid_value"),
        (CHAT_PATH, orjson.dumps(ASKED | {"model": "gpt-5"}), 404, "model_not_found"),
        (COMPLETIONS_PATH, orjson.dumps({"prompt": "3 " * 200}), 400, "context_length_exceeded"),
        (COMPLETIONS_PATH, orjson.dumps({"prompt": "3 " * 1000}), 413, "body_too_large"),
        ("/v1/embeddings", b"{}", 404, "unknown_path"),
        ("/health", b"{}", 405, "method_not_allowed"),
    ],
)
def test_what_is_wrong_is_said_in_openais_shape(tiny: Reasoner, path: str, data: bytes, status: int, code: str) -> None:
    got_status, body = posted(tiny, path, data, body=1500)
    assert got_status == status
    assert body["error"]["code"] == code
    assert set(body["error"]) == {"message", "type", "param", "code"}


def test_a_body_that_is_not_what_its_headers_say(tiny: Reasoner) -> None:
    async def exchange(session: aiohttp.ClientSession, _: LabServer) -> int:
        async with session.post(CHAT_PATH, data=b"no gzip", headers={"Content-Encoding": "gzip"}) as response:
            return response.status

    assert talk(tiny, exchange) == 400


def broken(server: LabServer) -> None:
    """Make the engine fail every job, as it does when the weights are not finite."""

    def submit(job: Any, heard: Any, failed: Callable[[Exception], None]) -> Any:
        ticket = server.engine.__class__.submit(server.engine, job, heard, failed)
        ticket.fail(ServerError("The model's logits are not finite.", "Load other weights.", status=500))
        return ticket

    server.engine.submit = submit  # type: ignore[method-assign] # only here


def test_a_fault_of_ours_is_no_reply(tiny: Reasoner) -> None:
    async def exchange(session: aiohttp.ClientSession, server: LabServer) -> tuple[int, bytes, bytes]:
        broken(server)
        async with (
            session.post(CHAT_PATH, json=ASKED) as whole,
            session.post(CHAT_PATH, json=ASKED | {"stream": True}) as stream,
        ):
            return whole.status, await whole.read(), await stream.read()

    status, whole, stream = talk(tiny, exchange)
    assert status == 500
    assert "not finite" in orjson.loads(whole)["error"]["message"]
    assert b'"error"' in stream
    assert b"not finite" in stream
    assert b"[DONE]" not in stream


def test_one_too_many_is_told_when_to_come_back(tiny: Reasoner) -> None:
    async def exchange(session: aiohttp.ClientSession, server: LabServer) -> tuple[list[int], str | None]:
        with server.room(3):
            async with session.post(CHAT_PATH, json=ASKED | {"n": 2}) as full:
                pass
            async with session.post(CHAT_PATH, json=ASKED | {"max_tokens": 1}) as fits:
                pass
        async with session.post(CHAT_PATH, json=ASKED | {"n": 2, "max_tokens": 1}) as later:
            return [full.status, fits.status, later.status], full.headers.get("Retry-After")

    assert talk(tiny, exchange, most=4) == ([429, 200, 200], "1")


def test_about_to_end_it_takes_nothing_new(tiny: Reasoner) -> None:
    async def exchange(session: aiohttp.ClientSession, server: LabServer) -> list[int]:
        server.draining = True
        async with session.post(CHAT_PATH, json=ASKED) as refused, session.get("/health") as health:
            return [refused.status, health.status]

    assert talk(tiny, exchange) == [503, 503]
