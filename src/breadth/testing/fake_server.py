"""A fake OpenAI-compatible server: it gives scripted replies, fails on schedule, and records requests and disconnects.

    async with FakeServer(Reply.from_text("the answer is 4"), faults=[every(3, Status(500))]) as server:
        ...                                   # talk to server.url
        server.requests[0].left               # when the client disconnected, if it did

For load tests it runs in a process of its own (``spawn_server`` starts one from Python; ``/fake/requests`` tells what
arrived):

    python -m breadth.testing.fake_server --tokens 150 --delay 0.02
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self, TypeAlias

import orjson
from aiohttp import web

from breadth.runtime.dialect import CHAT_PATH, COMPLETIONS_PATH
from breadth.runtime.wire import MODELS_PATH, model_list_body
from breadth.testing.fake_replies import Reply, ReplyToken, completion_body, completion_events, error_with_status
from breadth.testing.faults import CutShort, Fault, FaultResponse, Scheduled, active_faults

MAX_WAIT = 20.0
"""Seconds before a wait fails: far more than a stalled machine costs, short enough for a test."""


async def wait_until(condition: Callable[[], object], timeout: float = MAX_WAIT) -> None:
    """Return as soon as the condition holds; raises TimeoutError if it does not in time."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.002)


WRITE_BYTES = 65536
"""Bytes per write of a stream without delays."""


@dataclass
class Arrival:
    """One request that arrived; times are ``time.monotonic()``, one clock for all processes of a machine."""

    number: int
    """Index among the requests, from 0."""
    path: str
    """Requested path."""
    body: dict[str, Any]
    """The request, as JSON."""
    headers: dict[str, str]
    """Its headers, names in lower case."""
    came: float = field(default_factory=time.monotonic)
    """When it came."""
    status: int | None = None
    """Status of the reply."""
    events: int = 0
    """Events of a stream written so far."""
    left: float | None = None
    """When the client disconnected; None if it stayed to the end."""
    ended: float | None = None
    """When the server finished it, however it ended."""


async def send_stream(
    request: web.Request, arrival: Arrival, events: Iterable[bytes], replies: list[Reply]
) -> web.StreamResponse:
    """Send a stream of events, at the speed of the slowest reply."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
    await response.prepare(request)
    slow = max(replies, key=lambda reply: reply.delay)
    try:
        if slow.wait or slow.delay:
            await write_paced(response, arrival, events, slow)
        else:
            for written, batch in batch_events(events):
                await response.write(batch)
                arrival.events += written
    except CutShort:
        close_connection(request)
    return response


async def write_paced(response: web.StreamResponse, arrival: Arrival, events: Iterable[bytes], slow: Reply) -> None:
    """Write each token when it is due; what follows the last token (finish reason, usage) goes at once."""
    lead = int(arrival.path == CHAT_PATH)  # the first event of a chat carries no token
    due, last = time.monotonic() + slow.wait, len(slow.reasoning) + len(slow.tokens) - 1
    for number, event in enumerate(events):
        left = due + slow.delay * min(max(number - lead, 0), max(last, 0)) - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
        await response.write(event)
        arrival.events += 1


def batch_events(events: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Join events into large writes; events before a cut are still written."""
    waiting: list[bytes] = []
    size = 0
    try:
        for event in events:
            waiting.append(event)
            size += len(event)
            if size >= WRITE_BYTES:
                yield len(waiting), b"".join(waiting)
                waiting, size = [], 0
    except CutShort:
        if waiting:
            yield len(waiting), b"".join(waiting)
        raise
    if waiting:
        yield len(waiting), b"".join(waiting)


async def send_whole(request: web.Request, body: bytes, faults: tuple[Fault, ...]) -> web.StreamResponse:
    """Send a whole reply, changed by its faults."""
    sent = body
    for fault in faults:
        sent = fault.body(sent)
    if len(sent) == len(body):
        return web.Response(body=sent, content_type="application/json")
    response = web.StreamResponse(headers={"content-type": "application/json", "content-length": str(len(body))})
    await response.prepare(request)
    await response.write(sent)
    close_connection(request)
    return response


def close_connection(request: web.Request) -> None:
    """Close the connection of a request."""
    if request.transport is not None:
        request.transport.close()


def fault_response(fault: FaultResponse) -> web.Response:
    """Return the response that a fault gives instead of the server."""
    headers = {} if fault.retry_after is None else {"retry-after": f"{fault.retry_after:g}"}
    return web.Response(status=fault.status, body=fault.body, content_type=fault.content_type, headers=headers)


def orjson_response(content: Any, status: int = 200) -> web.Response:
    """Return a JSON reply."""
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")


ReplyScript: TypeAlias = Callable[[dict[str, Any], int], Reply]
"""Returns the reply to a request (its JSON); the number counts the replies before, each choice on its own."""
MAX_REQUEST_BYTES = 64 << 20
"""Bytes of a request that is read."""


class FakeServer:
    """The server, on a free port of this machine while its context is open.

    A constant reply is encoded once and shared by all requests, with one id: fast enough for load tests.
    """

    def __init__(
        self,
        script: ReplyScript | Reply,
        *,
        faults: Sequence[Fault | Scheduled] = (),
        models: Sequence[str] = ("fake",),
        port: int = 0,
    ) -> None:
        self.requests: list[Arrival] = []
        """Requests for completions, in order of arrival."""
        self.models = tuple(models)
        """Its models; the first is the default, and a request for any other is refused with status 404."""
        self._script = script
        self._faults = tuple(faults)
        self._port = port
        self._replies = 0
        self._encoded: dict[bytes, list[bytes]] = {}
        self._runner: web.AppRunner | None = None
        self._closing = False

    @property
    def url(self) -> str:
        """Address, without a path."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def open_requests(self) -> int:
        """Number of requests that are not finished."""
        return sum(arrival.ended is None for arrival in self.requests)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=MAX_REQUEST_BYTES)
        app.router.add_get(MODELS_PATH, self._list_models)
        app.router.add_get("/fake/requests", self._list_requests)
        for path in (CHAT_PATH, COMPLETIONS_PATH):
            app.router.add_post(path, self._complete)
        # Handlers are cancelled as soon as the client leaves: that is how we notice it.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=2048).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *failure: object) -> None:
        self._closing = True
        if self._runner is not None:
            await self._runner.cleanup()

    async def _list_models(self, request: web.Request) -> web.Response:
        del request
        return orjson_response(model_list_body((name, "fake") for name in self.models))

    async def _list_requests(self, request: web.Request) -> web.Response:
        del request
        return orjson_response([asdict(arrival) for arrival in self.requests])

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        try:
            body = orjson.loads(await request.read())
        except orjson.JSONDecodeError:
            body = None
        if not isinstance(body, dict):
            return orjson_response(
                error_with_status("the request is not a JSON object", 400, "invalid_request_error"), 400
            )
        headers = {name.lower(): value for name, value in request.headers.items()}
        arrival = Arrival(len(self.requests), request.path, body, headers)
        self.requests.append(arrival)
        try:
            response = await self._answer(request, arrival)
        except asyncio.CancelledError:
            arrival.left = None if self._closing else time.monotonic()
            raise
        except ConnectionError:
            arrival.left = None if self._closing else time.monotonic()
            return web.Response(status=499)  # nobody reads it
        finally:
            arrival.ended = time.monotonic()
        return response

    async def _answer(self, request: web.Request, arrival: Arrival) -> web.StreamResponse:
        faults = active_faults(self._faults, arrival.number)
        if any(fault.hangs() for fault in faults):
            await asyncio.Event().wait()
        body = arrival.body
        instead = next((response for fault in faults if (response := fault.response())), None)
        if instead is None and body.get("model") and body["model"] not in self.models:
            problem = error_with_status(f"The model `{body['model']}` does not exist.", 404, "not_found_error")
            instead = FaultResponse(404, orjson.dumps(problem))
        if instead is not None:
            arrival.status = instead.status
            return fault_response(instead)
        for fault in faults:
            body = fault.request(body)
        replies = [self._next_reply(arrival.path, body, faults) for _ in range(body.get("n") or 1)]
        arrival.status = 200
        name, model = f"fake-{arrival.number}", body.get("model") or self.models[0]
        if body.get("stream"):
            events = self._events(replies, body, arrival.path, name, model)
            for fault in faults:
                events = fault.stream(events)
            return await send_stream(request, arrival, events, replies)
        await asyncio.sleep(max(reply.wait + reply.delay * len(reply.tokens) for reply in replies))
        return await send_whole(
            request, orjson.dumps(completion_body(replies, body, arrival.path, name, model)), faults
        )

    def _next_reply(self, path: str, body: dict[str, Any], faults: tuple[Fault, ...]) -> Reply:
        reply = self._script if isinstance(self._script, Reply) else self._script(body, self._replies)
        self._replies += 1
        for fault in faults:
            reply = fault.reply(reply)
        if path == COMPLETIONS_PATH:
            reply = replace(reply, reasoning=())
        return reply.limit_to(body)

    def _events(self, replies: list[Reply], body: dict[str, Any], path: str, name: str, model: str) -> Iterator[bytes]:
        constant = self._script
        if not isinstance(constant, Reply) or any(reply.tokens != constant.tokens for reply in replies):
            return completion_events(replies, body, path, name, model)
        key = orjson.dumps(
            [
                path,
                model,
                len(replies),
                len(replies[0].reasoning),
                replies[0].usage,
                body.get("logprobs"),
                body.get("top_logprobs"),
                body.get("stream_options"),
            ]
        )
        if key not in self._encoded:
            self._encoded[key] = list(completion_events(replies, body, path, "fake", model))
        return iter(self._encoded[key])


@contextmanager
def spawn_server(*arguments: str) -> Iterator[str]:
    """Run the fake server in its own process, with the arguments of the command line; yield its address."""
    command = [sys.executable, "-m", "breadth.testing.fake_server", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own module
        try:
            assert process.stdout is not None  # noqa: S101 - for the type checker
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def serve_until_orphaned(reply: Reply, port: int) -> None:
    """Serve one constant reply, print the address, and end with the parent process."""
    parent = os.getppid()
    async with FakeServer(reply, port=port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        while os.getppid() == parent:
            await asyncio.sleep(0.5)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve one constant reply until the starting process ends."""
    parser = argparse.ArgumentParser(
        description="A fake OpenAI-compatible server with one constant reply; log-probs are sent if requested."
    )
    parser.add_argument("--tokens", type=int, default=100, help="tokens of the reply")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds from one token to the next")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds before the first token")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    chosen = parser.parse_args(arguments)
    tokens = tuple(ReplyToken(f" {number}") for number in range(chosen.tokens))
    asyncio.run(serve_until_orphaned(Reply(tokens, wait=chosen.wait, delay=chosen.delay), chosen.port))


if __name__ == "__main__":
    main()
