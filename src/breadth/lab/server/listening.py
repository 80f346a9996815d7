"""The replies to one request on their way from the engine's thread to the event loop, a batch of tokens at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self, TypeAlias

from breadth.lab.server.requests import Wanted
from breadth.lab.server.writing import Piece, Writing

if TYPE_CHECKING:
    from breadth.lab.sampling.engine import Engine, Ticket, Token

Told: TypeAlias = list[tuple[Writing, list[Piece]]]
"""Replies with the pieces that were added to them, in order of arrival."""


class Listening:
    """Has every reply of a request drawn while the context lasts; leaving it cancels what is still being drawn.

    The engine speaks in its own thread, token by token. They are put in a queue, and the event loop is woken once for
    all that have come since it last looked, however many.
    """

    def __init__(self, engine: Engine, wanted: Wanted, writings: Sequence[Writing]) -> None:
        self._engine, self._wanted, self._writings = engine, wanted, writings
        self._loop = asyncio.get_running_loop()
        self._heard: deque[tuple[int, Token | Exception]] = deque()
        self._woken, self._called = asyncio.Event(), False
        self._tickets: list[Ticket] = []

    def __enter__(self) -> Self:
        from breadth.lab.sampling.engine import Job

        sampling = replace(
            self._wanted.sampling, stop=()
        )  # a stop text may begin and end inside tokens: the writing looks for it
        try:
            for index, seed in enumerate(self._wanted.seeds()):
                note = partial(self._note, index)
                self._tickets.append(self._engine.submit(Job(self._wanted.tokens, sampling, seed), note, note))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        for ticket in self._tickets:
            ticket.cancel()

    async def batches(self) -> AsyncIterator[Told]:
        """Yield what is added to the replies until all have ended; raises what the engine failed with."""
        while any(writing.finish is None for writing in self._writings):
            await self._woken.wait()
            self._woken.clear()
            self._called = False
            if told := self._taken():
                yield told

    def _taken(self) -> Told:
        told: Told = []
        while self._heard:
            index, token = self._heard.popleft()
            if isinstance(token, Exception):
                raise token
            writing = self._writings[index]
            told.append((writing, writing.take(token)))
            if writing.finish is not None:
                self._tickets[index].cancel()  # it may have ended with a stop text, which the engine knows nothing of
        return told

    def _note(self, index: int, token: Token | Exception) -> None:
        """Take a token, or what went wrong, in the engine's thread."""
        self._heard.append((index, token))
        if not self._called:
            self._called = True
            with suppress(RuntimeError):  # the loop has ended before the engine
                self._loop.call_soon_threadsafe(self._woken.set)
