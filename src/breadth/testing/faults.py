"""Faults of a server, each a small record, and the schedule on which they strike.

    FakeServer(script, faults=[Status(500)])                          every request
    FakeServer(script, faults=[every(3, Status(429, retry_after=1))]) the 3rd, 6th, ... request
    FakeServer(script, faults=[first(2, Cut(after=5))])               the first two
    FakeServer(script, faults=[Scheduled(Hang(), lambda number: number in (4, 7))])

Several faults may strike one request; they act in the order given, and the first that replaces the response wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import orjson

from breadth.runtime.wire import format_event
from breadth.testing.fake_replies import Reply, error_with_status


@dataclass(frozen=True)
class FaultResponse:
    """A response that a fault gives instead of the server."""

    status: int
    """HTTP status."""
    body: bytes
    """Body as sent."""
    content_type: str = "application/json"
    """Declared content type of the body."""
    retry_after: float | None = None
    """Seconds in the header Retry-After."""


class CutShort(Exception):  # noqa: N818 - no error of ours: it makes the fake server close the connection
    """Raised by a fault in mid-stream: the connection closes here."""


@dataclass(frozen=True)
class Fault:
    """The base: no fault; subclasses override what they break."""

    def hangs(self) -> bool:
        """Whether the server never answers."""
        return False

    def response(self) -> FaultResponse | None:
        """Return the response to give instead of the server's."""
        return None

    def request(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the request as the server reads it."""
        return body

    def reply(self, reply: Reply) -> Reply:
        """Return a reply as the server gives it."""
        return reply

    def stream(self, events: Iterator[bytes]) -> Iterator[bytes]:
        """Return the events of a stream as they are sent; CutShort ends them with the connection."""
        return events

    def body(self, body: bytes) -> bytes:
        """Return the body of a reply that is not streamed as it is sent; a shorter one ends with the connection."""
        return body


@dataclass(frozen=True)
class Status(Fault):
    """An HTTP error: 500, 429, 401, ..."""

    status: int = 500
    """HTTP status."""
    retry_after: float | None = None
    """Seconds in the header Retry-After; None sends none."""
    shaped: bool = True
    """Whether the body is an error in the OpenAI schema; otherwise it is the HTML page of a proxy."""

    def response(self) -> FaultResponse:
        """Answer with the error."""
        if self.shaped:
            return FaultResponse(
                self.status,
                orjson.dumps(error_with_status(f"fault: status {self.status}", self.status)),
                retry_after=self.retry_after,
            )
        page = f"<html><body><h1>{self.status}</h1></body></html>".encode()
        return FaultResponse(self.status, page, "text/html", self.retry_after)


@dataclass(frozen=True)
class Hang(Fault):
    """The request is accepted and never answered."""

    def hangs(self) -> bool:
        """Hang."""
        return True


@dataclass(frozen=True)
class WrongContentType(Fault):
    """Status 200 with a page that is not a reply, as from a login page or a captive portal."""

    def response(self) -> FaultResponse:
        """Answer with the page."""
        return FaultResponse(200, b"<html><body>Please log in.</body></html>", "text/html")


@dataclass(frozen=True)
class Cut(Fault):
    """The connection is closed in mid-reply."""

    after: int = 3
    """Events sent before (the first of a chat carries no text); half the body when the reply is not streamed."""

    def stream(self, events: Iterator[bytes]) -> Iterator[bytes]:
        """Send some events, then close."""
        for _, chunk in zip(range(self.after), events, strict=False):
            yield chunk
        raise CutShort

    def body(self, body: bytes) -> bytes:
        """Send half."""
        return body[: len(body) // 2]


@dataclass(frozen=True)
class MalformedJson(Fault):
    """One event, or the whole body, is not JSON; the stream then continues."""

    after: int = 3
    """Events before the broken one."""

    def stream(self, events: Iterator[bytes]) -> Iterator[bytes]:
        """Break one event."""
        for number, chunk in enumerate(events):
            yield b'data: {"choices": [{"delta"\n\n' if number == self.after else chunk

    def body(self, body: bytes) -> bytes:
        """Break the body, at its full length."""
        return body[:-1] + b"<"


@dataclass(frozen=True)
class ErrorInStream(Fault):
    """The server fails in mid-stream, after status 200: it sends an error as an event and ends."""

    after: int = 3
    """Events before the error."""

    def stream(self, events: Iterator[bytes]) -> Iterator[bytes]:
        """Send some events, then the error."""
        for _, chunk in zip(range(self.after), events, strict=False):
            yield chunk
        yield format_event(error_with_status("fault: the engine died", 500))


@dataclass(frozen=True)
class Slow(Fault):
    """Tokens come slowly."""

    seconds: float = 0.1
    """Seconds for each token."""

    def reply(self, reply: Reply) -> Reply:
        """Slow it down."""
        return replace(reply, wait=max(reply.wait, self.seconds), delay=self.seconds)


@dataclass(frozen=True)
class DuplicatedChunks(Fault):
    """Every event of a stream is sent twice, as a proxy that retries writes does."""

    def stream(self, events: Iterator[bytes]) -> Iterator[bytes]:
        """Send each twice."""
        for chunk in events:
            yield chunk
            yield chunk


@dataclass(frozen=True)
class NIgnored(Fault):
    """A request for several choices silently gets one."""

    def request(self, body: dict[str, Any]) -> dict[str, Any]:
        """Drop ``n``."""
        return {name: value for name, value in body.items() if name != "n"}


@dataclass(frozen=True)
class NoLogprobs(Fault):
    """Requested log-probs are silently not sent."""

    def request(self, body: dict[str, Any]) -> dict[str, Any]:
        """Drop the request for log-probs."""
        return {name: value for name, value in body.items() if name not in ("logprobs", "top_logprobs")}


@dataclass(frozen=True)
class NoUsage(Fault):
    """The usage is never sent."""

    def reply(self, reply: Reply) -> Reply:
        """Leave the usage out."""
        return replace(reply, usage=False)


@dataclass(frozen=True)
class EmptyText(Fault):
    """A reply without a single token."""

    def reply(self, reply: Reply) -> Reply:
        """Leave everything out."""
        return replace(reply, tokens=(), reasoning=())


@dataclass(frozen=True)
class Scheduled:
    """A fault that strikes only some requests."""

    fault: Fault
    """What goes wrong."""
    when: Callable[[int], bool]
    """Whether the request of this number, from 0, is struck."""


def every(nth: int, fault: Fault) -> Scheduled:
    """Strike every nth request: the nth, the 2nth, ..."""
    return Scheduled(fault, lambda number: (number + 1) % nth == 0)


def first(count: int, fault: Fault) -> Scheduled:
    """Strike the first ``count`` requests."""
    return Scheduled(fault, lambda number: number < count)


def active_faults(faults: tuple[Fault | Scheduled, ...], number: int) -> tuple[Fault, ...]:
    """Return the faults that strike this request."""
    return tuple(
        fault.fault if isinstance(fault, Scheduled) else fault
        for fault in faults
        if not isinstance(fault, Scheduled) or fault.when(number)
    )
