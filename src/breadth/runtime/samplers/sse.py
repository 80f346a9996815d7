"""Server-sent events: written, and read out of the bytes of a stream, however they were cut on the way."""

from __future__ import annotations

from typing import Any

import orjson

from breadth.base.errors import ServerError

LARGEST = 32 * 1024 * 1024
"""Bytes of one event at most: the log-probs of a whole vocabulary fit several times over."""
MARK = b"\xef\xbb\xbf"
"""The byte order mark, which a stream may begin with."""
DONE = b"data: [DONE]\n\n"
"""The event that ends a stream of the OpenAI schema."""


def event(content: dict[str, Any]) -> bytes:
    """Return one event."""
    return b"data: " + orjson.dumps(content) + b"\n\n"


class Events:
    """Gathers bytes and gives out the data of every event that is complete.

    Comments (the pings of a server that has nothing to say yet), names, ids and events without data are left out; several data lines of
    one event are joined by newlines, as the standard has it; lines may end in CR LF.
    """

    __slots__ = ("_begun", "_rest", "_size")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size = 0
        self._begun = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and return the data of the events they complete, in order."""
        if b"\n" not in chunk and b"\r" not in chunk:
            return self._keep(chunk)
        if self._rest:
            chunk = b"".join([*self._rest, chunk])
            self._rest.clear()
            self._size = 0
        if not self._begun:
            self._begun, chunk = True, chunk.removeprefix(MARK)
        if b"\r" in chunk:
            chunk = self._plain(chunk)
        end = chunk.rfind(b"\n\n")
        if end + 2 < len(chunk):
            self._keep(chunk[end + 2 :] if end >= 0 else chunk)
        return _complete(chunk[:end]) if end >= 0 else []

    def finish(self) -> list[bytes]:
        """Return the data of an event at the end of the stream that lacks its empty line."""
        rest = b"".join(self._rest).removeprefix(MARK).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._rest.clear()
        return _complete(rest)

    def _plain(self, chunk: bytes) -> bytes:
        """Return the bytes with plain line ends; a CR at the very end may be half of one, and waits."""
        held = b"\r" if chunk.endswith(b"\r") else b""
        chunk = chunk[: len(chunk) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk + held

    def _keep(self, chunk: bytes) -> list[bytes]:
        self._rest.append(chunk)
        self._size += len(chunk)
        if self._size > LARGEST:
            raise ServerError(
                f"The server sent more than {LARGEST // 2**20} MiB without ending one event of its stream.",
                "Ask for fewer log-probs at each token, or look at what answers under this address.",
            )
        return []


def _complete(chunk: bytes) -> list[bytes]:
    """Return the data of the events in a chunk, which stand apart by empty lines."""
    if chunk[:6] == b"data: ":
        events = chunk[6:].split(b"\n\ndata: ")
        # When no other line ends are left, each event is a single line of data: what servers send nearly always.
        if chunk.count(b"\n") == 2 * (len(events) - 1):
            return list(filter(None, events))
    return [data for block in chunk.split(b"\n\n") if (data := _data(block))]


def _data(block: bytes) -> bytes:
    """Return the data of one event; empty when it has none."""
    lines = [line[5:] for line in block.split(b"\n") if line[:5] == b"data:"]
    return b"\n".join(line[1:] if line[:1] == b" " else line for line in lines)
