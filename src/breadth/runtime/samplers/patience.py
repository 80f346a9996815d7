"""A limit on silence: ends a stream on which nothing has come for too long, at the price of one look at the clock for each read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial


class Patience:
    """Calls ``end`` once nothing was heard for too long: longer before the first word, for a request may have to wait its turn."""

    __slots__ = ("_began", "_end", "_first", "_idle", "_loop", "_timer", "heard", "lost")

    def __init__(self, first: float, idle: float, end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._first, self._idle, self._end = first, idle, end
        self._began = self._loop.time()
        self.heard: float | None = None
        """Moment something was last heard, by the clock of the loop; set by whoever reads."""
        self.lost = False
        """Whether it ran out."""
        self._timer: asyncio.Handle = self._loop.call_at(self._began + min(first, idle), self._look)

    @property
    def seconds(self) -> float:
        """Seconds of silence that are borne now."""
        return self._first if self.heard is None else self._idle

    def stop(self) -> None:
        """Stop waiting."""
        self._timer.cancel()

    def _look(self, *, again: bool = False) -> None:
        now = self._loop.time()
        due = (self._began if self.heard is None else self.heard) + self.seconds
        if now < due:
            self._timer = self._loop.call_at(min(due, now + self._idle), self._look)
        elif not again:
            # After a pause of the whole process the word may be there and only not yet read: its reader's turn comes before ours.
            self._timer = self._loop.call_soon(partial(self._look, again=True))
        else:
            self.lost = True
            self._end()
