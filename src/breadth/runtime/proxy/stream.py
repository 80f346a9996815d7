"""Streams to clients: how one begins, and how an upstream's is passed on event by event with our own words at its end."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from breadth.base.errors import ServerError
from breadth.runtime.proxy.proxy import Note
from breadth.runtime.proxy.relay import Flow, parsed
from breadth.runtime.sampler import Meter
from breadth.runtime.samplers.sse import DONE, event
from breadth.runtime.samplers.wire import counted


async def begun(request: web.Request, note: Note) -> web.StreamResponse:
    """Send the head of a stream; nothing on the way may keep it back."""
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-cache",
            "X-Accel-Buffering": "no",
            "x-request-id": note.trace,
        }
    )
    note.stream = response
    await response.prepare(request)
    return response


class Passage:
    """An upstream's events on their way to a client.

    They are passed on byte for byte as they come. Only the last one is kept back until the stream has ended, for the object ``breadth``
    goes into it. A client that asked for no usage gets no event with nothing but usage.
    """

    def __init__(self, meter: Meter, *, with_usage: bool) -> None:
        self.finished = False
        """Whether a completion gave the reason for its end."""
        self._meter = meter
        self._with_usage = with_usage
        self._held: dict[str, Any] | None = None
        self._counted = False

    def take(self, flow: Flow, events: list[bytes]) -> bytes:
        """Return what is to be sent for some events; raises ServerError for one that is an error or cannot be read."""
        sent: list[bytes] = []
        for data in events:
            content = parsed(data, flow.endpoint.url)
            self._count(content)
            if not _last(content):
                sent.append(b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n")
            elif content["choices"] or self._with_usage:
                if self._held is not None:
                    sent.append(event(self._held))
                self._held = content
        return b"".join(sent)

    def end(self, flow: Flow, about: dict[str, Any]) -> bytes:
        """Return the end of the stream; raises ServerError when the upstream broke off before its own."""
        if not self.finished and not flow.marked:
            raise ServerError(f"{flow.endpoint.url} ended its stream in the middle.", "Look at the upstream's log.")
        last = self._held or {"object": "chat.completion.chunk", "choices": []}
        return event(last | {"breadth": about}) + DONE

    def _count(self, content: dict[str, Any]) -> None:
        usage = content.get("usage")
        if isinstance(usage, dict):
            self._counted = counted(usage.get("completion_tokens")) is not None
            charge(self._meter, usage)
        elif not self._counted:
            self._meter.tokens += sum(map(_brings_text, content["choices"]))
        self.finished = self.finished or any(choice.get("finish_reason") for choice in content["choices"])


def charge(meter: Meter, usage: dict[str, Any]) -> None:
    """Take over what the upstream says it used, where that can be."""
    details = usage.get("prompt_tokens_details")
    meter.prompt_tokens = counted(usage.get("prompt_tokens")) or 0
    cached = counted(details.get("cached_tokens")) if isinstance(details, dict) else 0
    meter.cached_tokens = min(cached or 0, meter.prompt_tokens)
    written = counted(usage.get("completion_tokens"))
    meter.tokens = meter.tokens if written is None else written


def _last(content: dict[str, Any]) -> bool:
    """Say whether an event may be the last one: it ends a completion, or brings nothing but usage."""
    return not content["choices"] or any(choice.get("finish_reason") for choice in content["choices"])


def _brings_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    return bool(choice.get("text")) or (isinstance(delta, dict) and any(value for name, value in delta.items() if name != "role"))
