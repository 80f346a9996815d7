"""A fake OpenAI-compatible server that says what it is told to, fails on schedule, and notes what arrived and who left.

    async with FakeServer(Reply.of("the answer is 4"), faults=[every(3, Status(500))]) as server:
        ...                                   # talk to server.url
        server.requests[0].left               # when the client broke off, if it did

For load tests it runs in a process of its own (``served`` starts one from Python; ``/fake/requests`` tells what
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

from breadth.testing.fake_replies import CHAT, COMPLETIONS, Reply, ReplyToken, error_body, stream_events, whole_body
from breadth.testing.faults import CutShort, Fault, FaultResponse, Scheduled, active_faults

MAX_WAIT = 20.0
"""Seconds until it counts as not coming about: far beyond what a stalled machine costs, and short of what a test would
wait for ever.
"""


async def wait_until(held: Callable[[], object], patience: float = MAX_WAIT) -> None:
    """Return as soon as it holds; raises TimeoutError when it does not come about."""
    async with asyncio.timeout(patience):
        while not held():
            await asyncio.sleep(0.002)


WRITE_BYTES = 65536
"""Bytes of a stream without delays that are written at once."""


@dataclass
class Arrival:
    """One request that reached the server; times are ``time.monotonic()``, the same clock in every process of a machine."""

    number: int
    """Place among the requests, from 0."""
    path: str
    """Path asked for."""
    body: dict[str, Any]
    """The request, as JSON."""
    headers: dict[str, str]
    """Its headers, names in lower case."""
    came: float = field(default_factory=time.monotonic)
    """When it came."""
    status: int | None = None
    """Status it was answered with."""
    events: int = 0
    """Events of a stream written so far."""
    left: float | None = None
    """When the client broke off; None if it stayed to the end."""
    ended: float | None = None
    """When the server was done with it, however it ended."""


async def send_stream(
    request: web.Request, arrival: Arrival, events: Iterable[bytes], replies: list[Reply]
) -> web.StreamResponse:
    """Send a stream of events, at the pace of the slowest reply."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
    await response.prepare(request)
    slow = max(replies, key=lambda reply: reply.delay)
    try:
        if slow.wait or slow.delay:
            await _paced(response, arrival, events, slow)
        else:
            for written, batch in _batched(events):
                await response.write(batch)
                arrival.events += written
    except CutShort:
        _hang_up(request)
    return response


async def _paced(response: web.StreamResponse, arrival: Arrival, events: Iterable[bytes], slow: Reply) -> None:
    """Write each token when it is due; what follows the last token (its end, the usage) goes at once."""
    lead = int(arrival.path == CHAT)  # the first event of a chat carries no token
    due, last = time.monotonic() + slow.wait, len(slow.reasoning) + len(slow.tokens) - 1
    for number, one in enumerate(events):
        left = due + slow.delay * min(max(number - lead, 0), max(last, 0)) - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
        await response.write(one)
        arrival.events += 1


def _batched(events: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Join events into large writes; what came before a cut is still written."""
    waiting: list[bytes] = []
    size = 0
    try:
        for one in events:
            waiting.append(one)
            size += len(one)
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
    """Send a reply that is not streamed, as its faults leave it."""
    sent = body
    for fault in faults:
        sent = fault.body(sent)
    if len(sent) == len(body):
        return web.Response(body=sent, content_type="application/json")
    response = web.StreamResponse(headers={"content-type": "application/json", "content-length": str(len(body))})
    await response.prepare(request)
    await response.write(sent)
    _hang_up(request)
    return response


def _hang_up(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()


def fault_response(instead: FaultResponse) -> web.Response:
    """Return what a fault answers in the server's stead."""
    headers = {} if instead.retry_after is None else {"retry-after": f"{instead.retry_after:g}"}
    return web.Response(status=instead.status, body=instead.body, content_type=instead.content_type, headers=headers)


def json_response(content: Any, status: int = 200) -> web.Response:
    """Return a JSON reply."""
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")


ReplyScript: TypeAlias = Callable[[dict[str, Any], int], Reply]
"""Says what to reply to a request (its JSON); the number counts the replies drawn before, choices of one request apart.
"""
MAX_REQUEST_BYTES = 64 << 20
"""Bytes of the largest request that is read."""


class FakeServer:
    """The server, on a free port of this machine while the context lasts.

    A constant reply is encoded once and shared by all requests, which then carry one id: fast enough for load tests.
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
        """Models it has; the first is used when a request names none, and another name is refused with status 404."""
        self._script = script
        self._faults = tuple(faults)
        self._port = port
        self._drawn = 0
        self._encoded: dict[bytes, list[bytes]] = {}
        self._runner: web.AppRunner | None = None
        self._closing = False

    @property
    def url(self) -> str:
        """Address, without a path."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def in_flight(self) -> int:
        """Requests that are being answered."""
        return sum(arrival.ended is None for arrival in self.requests)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=MAX_REQUEST_BYTES)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/fake/requests", self._told)
        for path in (CHAT, COMPLETIONS):
            app.router.add_post(path, self._complete)
        # Handlers are cancelled at once when the client leaves: that is how it is noticed, and when.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=2048).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *failure: object) -> None:
        self._closing = True
        if self._runner is not None:
            await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        del request
        return json_response(
            {
                "object": "list",
                "data": [{"id": name, "object": "model", "created": 0, "owned_by": "fake"} for name in self.models],
            }
        )

    async def _told(self, request: web.Request) -> web.Response:
        del request
        return json_response([asdict(arrival) for arrival in self.requests])

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        try:
            body = orjson.loads(await request.read())
        except orjson.JSONDecodeError:
            body = None
        if not isinstance(body, dict):
            return json_response(error_body("the request is not a JSON object", 400, "invalid_request_error"), 400)
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
            return web.Response(status=499)  # nobody is there to read it
        finally:
            arrival.ended = time.monotonic()
        return response

    async def _answer(self, request: web.Request, arrival: Arrival) -> web.StreamResponse:
        faults = active_faults(self._faults, arrival.number)
        if any(fault.hangs() for fault in faults):
            await asyncio.Event().wait()
        instead = next((instead for fault in faults if (instead := fault.instead())), None) or self._refusal(
            arrival.body
        )
        if instead is not None:
            arrival.status = instead.status
            return fault_response(instead)
        body = arrival.body
        for fault in faults:
            body = fault.request(body)
        replies = [self._draw(arrival.path, body, faults) for _ in range(body.get("n") or 1)]
        arrival.status = 200
        name, model = f"fake-{arrival.number}", body.get("model") or self.models[0]
        if body.get("stream"):
            events = self._events(replies, body, arrival.path, name, model)
            for fault in faults:
                events = fault.stream(events)
            return await send_stream(request, arrival, events, replies)
        await asyncio.sleep(max(reply.wait + reply.delay * len(reply.tokens) for reply in replies))
        return await send_whole(request, orjson.dumps(whole_body(replies, body, arrival.path, name, model)), faults)

    def _refusal(self, body: dict[str, Any]) -> FaultResponse | None:
        if not body.get("model") or body["model"] in self.models:
            return None
        return FaultResponse(
            404, orjson.dumps(error_body(f"The model `{body['model']}` does not exist.", 404, "not_found_error"))
        )

    def _draw(self, path: str, body: dict[str, Any], faults: tuple[Fault, ...]) -> Reply:
        reply = self._script if isinstance(self._script, Reply) else self._script(body, self._drawn)
        self._drawn += 1
        for fault in faults:
            reply = fault.reply(reply)
        if path == COMPLETIONS:
            reply = replace(reply, reasoning=())
        return reply.within(body)

    def _events(self, replies: list[Reply], body: dict[str, Any], path: str, name: str, model: str) -> Iterator[bytes]:
        constant = self._script
        if not isinstance(constant, Reply) or any(reply.tokens != constant.tokens for reply in replies):
            return stream_events(replies, body, path, name, model)
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
            self._encoded[key] = list(stream_events(replies, body, path, "fake", model))
        return iter(self._encoded[key])


@contextmanager
def spawn_server(*arguments: str) -> Iterator[str]:
    """Run the fake server in a process of its own, with the arguments of the command line; yields its address."""
    command = [sys.executable, "-m", "breadth.testing.fake_server", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own module
        try:
            assert process.stdout is not None  # noqa: S101 - for the type checker
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def _serve(reply: Reply, port: int) -> None:
    parent = os.getppid()
    async with FakeServer(reply, port=port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        while os.getppid() == parent:
            await asyncio.sleep(0.5)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve one constant reply until the starting process ends."""
    parser = argparse.ArgumentParser(
        description="A fake OpenAI-compatible server with one constant reply; log-probs come when asked for."
    )
    parser.add_argument("--tokens", type=int, default=100, help="tokens of the reply")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds from one token to the next")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds before the first token")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    chosen = parser.parse_args(arguments)
    tokens = tuple(ReplyToken(f" {number}") for number in range(chosen.tokens))
    asyncio.run(_serve(Reply(tokens, wait=chosen.wait, delay=chosen.delay), chosen.port))


if __name__ == "__main__":
    main()
