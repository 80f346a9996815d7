"""A request gives the beginning of a stream, or an error in words: whatever answers under the address."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable

import orjson
import pytest
from aiohttp import web

from breadth.base.errors import ServerError, SettingsError
from breadth.runtime.connect import strip_api_path
from breadth.runtime.samplers.connection import (
    Connection,
    Endpoint,
    Endpoints,
    IdleTimeout,
    base_url,
    bearer_header,
    hang_up,
)
from breadth.testing.fake_replies import Reply
from breadth.testing.fake_server import FakeServer, wait_until


def test_silence_ends_it_once() -> None:
    async def main() -> None:
        ended: list[float] = []
        loop = asyncio.get_running_loop()
        started = loop.time()
        patience = IdleTimeout(0.05, 0.05, lambda: ended.append(loop.time() - started))
        await wait_until(lambda: patience.expired)
        await asyncio.sleep(0.2)
        assert len(ended) == 1
        assert 0.05 <= ended[0] < 10

    asyncio.run(main())


def test_being_heard_puts_it_off() -> None:
    async def main() -> None:
        ended: list[bool] = []
        loop = asyncio.get_running_loop()
        patience = IdleTimeout(0.1, 0.1, lambda: ended.append(True))
        for _ in range(8):
            await asyncio.sleep(0.03)
            patience.last_received = loop.time()
        assert not patience.expired
        patience.stop()
        await asyncio.sleep(0.15)
        assert not ended

    asyncio.run(main())


def test_the_first_word_may_take_longer_than_the_next() -> None:
    async def main() -> None:
        ended: list[float] = []
        loop = asyncio.get_running_loop()
        patience = IdleTimeout(60, 0.05, lambda: ended.append(loop.time()))
        await asyncio.sleep(0.2)
        assert not ended
        patience.last_received = loop.time()
        await wait_until(lambda: patience.expired)  # it is not asleep until the first limit
        began = loop.time()
        silent = IdleTimeout(0.15, 0.05, lambda: ended.append(loop.time()))
        await wait_until(lambda: silent.expired)
        assert 0.15 <= ended[1] - began < 10

    asyncio.run(main())


def test_a_pause_of_the_whole_process_is_no_silence() -> None:
    """As when a laptop sleeps or a job is stopped: the word came, and only its reader had no turn."""

    async def main() -> bool:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            patience = IdleTimeout(0.05, 0.05, writer.close)

            async def read() -> None:
                await reader.readexactly(1)
                patience.last_received = loop.time()

            reading = asyncio.create_task(read())
            await asyncio.sleep(0)
            theirs.send(b"x")
            time.sleep(0.2)
            await reading
            patience.stop()
            writer.close()
            return patience.expired

    assert not asyncio.run(main())


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def fail(endpoints: Endpoints, endpoint: Endpoint, error: ServerError) -> None:
    with pytest.raises(ServerError), endpoints.track_request(endpoint):
        raise error


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/", "http://localhost:8000"),
        ("http://localhost:8000/v1", "http://localhost:8000"),
        ("https://host/some/path/v1/", "https://host/some/path"),
        ("localhost:8000", "http://localhost:8000"),
        (" 127.0.0.1:1 ", "http://127.0.0.1:1"),
    ],
)
def test_addresses_as_people_write_them(given: str, used: str) -> None:
    assert base_url(given) == used


@pytest.mark.parametrize("given", ["", "ftp://host", "http://", "http://host:port", "http://[::1", "http://h:99999"])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(SettingsError, match="not the address"):
        base_url(given)


def test_no_address_at_all() -> None:
    with pytest.raises(SettingsError, match="No server"):
        Endpoints([])


def test_the_least_loaded_is_chosen() -> None:
    endpoints = Endpoints(["a", "b"])
    first, second = endpoints.all
    assert endpoints.choose() is first
    with endpoints.track_request(first):
        assert endpoints.choose() is second
        with endpoints.track_request(second):
            assert endpoints.choose() is first
    assert (first.in_flight, second.in_flight) == (0, 0)


def test_one_that_failed_rests_twice_as_long_each_time() -> None:
    clock = Clock()
    endpoints = Endpoints(["a", "b"], clock=clock)
    first, second = endpoints.all
    error = ServerError("down", "wait")
    for seconds in (1, 2, 4, 8, 16, 30, 30):
        fail(endpoints, first, error)
        assert first.cooldown_until == clock.now + seconds
    with endpoints.track_request(second):
        assert endpoints.choose() is second, "the loaded one that is awake goes before the idle one that rests"
    clock.now += 30
    with endpoints.track_request(second):
        assert endpoints.choose() is first
    with endpoints.track_request(first):
        pass
    assert first.failures == 0


def test_one_that_asks_for_quiet_gets_it() -> None:
    clock = Clock()
    endpoints = Endpoints("a", clock=clock)
    only = endpoints.all[0]
    fail(endpoints, only, ServerError("busy", "wait", retry_after=5))
    assert endpoints.choose() is only
    assert endpoints.seconds_blocked(only) == 5
    assert endpoints.is_resting(only)
    clock.now += 6
    assert endpoints.seconds_blocked(only) == 0
    assert not endpoints.is_resting(only)


def test_a_refused_request_is_no_failure_of_the_server() -> None:
    endpoints = Endpoints("a")
    fail(endpoints, endpoints.all[0], ServerError("too long", "shorten", fatal=True))
    assert endpoints.all[0].failures == 0
    assert endpoints.all[0].in_flight == 0


def test_when_all_rest_the_first_to_wake_is_chosen() -> None:
    clock = Clock()
    endpoints = Endpoints(["a", "b"], clock=clock)
    fail(endpoints, endpoints.all[0], ServerError("busy", "wait", retry_after=9))
    fail(endpoints, endpoints.all[1], ServerError("busy", "wait", retry_after=3))
    assert endpoints.choose() is endpoints.all[1]


def test_nobody_is_left_alone_for_ever() -> None:
    clock = Clock()
    endpoints = Endpoints("a", clock=clock)
    fail(endpoints, endpoints.all[0], ServerError("busy", "wait", retry_after=86400.0))
    assert endpoints.seconds_blocked(endpoints.all[0]) == 600.0


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serve(answer: Answer, use: Callable[[str], Awaitable[None]]) -> None:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        await use(f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


def failing(answer: Answer, *, first_seconds: float = 5.0) -> ServerError:
    """Post to a server that answers so, and return the error."""
    caught: list[ServerError] = []

    async def use(url: str) -> None:
        connection = Connection(first_seconds=first_seconds)
        with pytest.raises(ServerError) as error:
            await connection.post(url, "/v1/chat/completions", {"stream": True})
        caught.append(error.value)
        await connection.close()

    asyncio.run(serve(answer, use))
    return caught[0]


def test_nobody_there() -> None:
    async def main() -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
        connection = Connection()
        with pytest.raises(ServerError, match=f"{url} cannot be reached") as caught:
            await connection.post(url, "/v1/chat/completions", {})
        assert "Start the server" in caught.value.remedy
        assert not caught.value.fatal
        with pytest.raises(ServerError, match="cannot be reached"):
            await connection.list_models(url)
        await connection.close()

    asyncio.run(main())


def test_a_page_instead_of_a_stream() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>Please log in.</html>", content_type="text/html")

    error = failing(answer)
    assert "text/html instead of a stream of events: <html>Please log in.</html>" in error.problem
    assert not error.fatal


def test_silence_before_the_reply() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(5)
        return web.Response()

    assert "did not answer in 0.1 s" in failing(answer, first_seconds=0.1).problem


def test_a_connection_closed_without_a_word() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    assert "closed the connection without an answer" in failing(answer).problem


def test_the_key_does_not_follow_a_redirect() -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.path)
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    error = failing(answer)
    assert error.fatal
    assert error.status == 307
    assert seen == ["/v1/chat/completions"]


def test_the_key_is_sent_and_nothing_is_when_there_is_none() -> None:
    async def main() -> None:
        async with FakeServer(Reply.from_text("a")) as server:
            for key in ("secret", None):
                connection = Connection(key=key)
                response = await connection.post(server.url, "/v1/chat/completions", {"stream": True})
                response.close()
                await connection.close()
            assert [arrival.headers.get("authorization") for arrival in server.requests] == ["Bearer secret", None]

    asyncio.run(main())


def test_models_and_what_is_no_list_of_them() -> None:
    async def main() -> None:
        async with FakeServer(Reply.from_text("a"), models=("x", "y")) as server:
            connection = Connection()
            assert await connection.list_models(server.url) == ["x", "y"]
            await connection.close()

    asyncio.run(main())

    async def page(request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>")

    async def refused(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": "no key"}, status=401)

    async def use(url: str) -> None:
        connection = Connection()
        with pytest.raises(ServerError, match=r"no list of models|no key"):
            await connection.list_models(url)
        await connection.close()

    for answer in (page, refused):
        asyncio.run(serve(answer, use))


def test_a_large_body_arrives_whole() -> None:
    async def main() -> None:
        async with FakeServer(Reply.from_text("a")) as server:
            connection = Connection()
            body = {"stream": True, "messages": [{"role": "user", "content": "x" * 3_000_000}]}
            response = await connection.post(server.url, "/v1/chat/completions", body)
            response.close()
            assert server.requests[0].body == body
            await connection.close()

    asyncio.run(main())


def test_hanging_up_is_heard_before_the_loop_turns() -> None:
    """A server in a thread of its own hears the end while the client's loop is kept from turning."""
    heard = threading.Event()

    def answer(listener: socket.socket) -> None:
        line, _ = listener.accept()
        with line:
            line.recv(65536)
            line.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n5\r\n:"
                b" hi\n\r\n"
            )
            if line.recv(1) == b"":
                heard.set()

    async def main(url: str) -> None:
        connection = Connection()
        response = await connection.post(url, "/v1/chat/completions", {"stream": True})
        hang_up(response)
        assert heard.wait(5), "nothing was awaited since"
        hang_up(response)
        await connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        asyncio.run(main(f"http://127.0.0.1:{listener.getsockname()[1]}"))
        thread.join(5)


def test_one_connection_object_serves_several_loops() -> None:
    connection = Connection()

    async def main() -> None:
        async with FakeServer(Reply.from_text("a")) as server:
            assert await connection.list_models(server.url) == ["fake"]
            await connection.close()

    asyncio.run(main())
    asyncio.run(main())


def test_a_list_of_models_may_come_in_pieces() -> None:
    names = [f"model-{number}" for number in range(300)]
    body = orjson.dumps({"data": [{"id": name} for name in names]})

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for piece in (body[:100], body[100:]):
            await response.write(piece)
            await asyncio.sleep(0.02)
        return response

    async def use(url: str) -> None:
        connection = Connection()
        assert await connection.list_models(url) == names
        await connection.close()

    asyncio.run(serve(answer, use))


def test_no_cookie_is_kept() -> None:
    came: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        came.append(request.headers.get("Cookie"))
        response = web.json_response({"data": []})
        response.set_cookie("whose", "another-clients")
        return response

    async def use(url: str) -> None:
        connection = Connection()
        for _ in range(2):  # by name, for no cookies are kept for numbers anyway
            await connection.list_models(url.replace("127.0.0.1", "localhost"))
        await connection.close()

    asyncio.run(serve(answer, use))
    assert came == [None, None]


@pytest.mark.parametrize("key", ["a\r\nX-Evil: 1", "a\0b", "a\x1b[31mb"])
def test_a_key_that_would_break_the_header_is_refused(key: str) -> None:
    with pytest.raises(SettingsError, match="control characters") as caught:
        Connection(key=key)
    assert key not in str(caught.value)


def test_the_line_end_of_a_key_is_taken_off() -> None:
    assert bearer_header(" secret\n") == {"Authorization": "Bearer secret"}
    assert bearer_header("\n") == bearer_header(None) == {}


def test_why_a_connection_failed_names_no_address() -> None:
    async def main() -> None:
        connection = Connection()
        for url, why in (("http://127.0.0.1:9", "Connection refused"), ("http://nobody.invalid:9", "")):
            with pytest.raises(ServerError) as caught:
                await connection.post(url, "/v1/chat/completions", {})
            assert why in caught.value.problem
            said = caught.value.problem.removeprefix(url)
            assert "127.0.0.1" not in said
            assert "nobody.invalid" not in said
        await connection.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter22@host:8000/v1",
        "user:hunter22@host",
        "https://hunter22@host",
        "http://user:hun/hunter22@host",
        "ftp://user:hunter22@host",
        "http://user:hunter22@host:99999",
    ],
)
def test_an_address_with_a_password_is_refused_and_the_password_not_printed(url: str) -> None:
    for refuse in (base_url, strip_api_path):
        with pytest.raises(SettingsError, match="user name, a password or a query") as caught:
            refuse(url)
        assert "hunter22" not in str(caught.value)
    assert base_url("http://host/@cf/model") == "http://host/@cf/model"
