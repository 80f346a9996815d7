"""How the fake server sends: at a pace or as fast as it goes, broken off where a fault says so, with a note of what became of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from breadth.testing.fake_replies import CHAT, Reply
from breadth.testing.faults import CutShort, Fault, Instead

BATCH = 65536
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


async def send_stream(request: web.Request, arrival: Arrival, events: Iterable[bytes], replies: list[Reply]) -> web.StreamResponse:
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
            if size >= BATCH:
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


def in_its_stead(instead: Instead) -> web.Response:
    """Return what a fault answers in the server's stead."""
    headers = {} if instead.retry_after is None else {"retry-after": f"{instead.retry_after:g}"}
    return web.Response(status=instead.status, body=instead.body, content_type=instead.content_type, headers=headers)


def as_json(content: Any, status: int = 200) -> web.Response:
    """Return a JSON reply."""
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")
