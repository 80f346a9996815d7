"""The models that clients may ask for: the upstream's, and each of them under every policy that has a name."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

FRESH = 30.0
"""Seconds for which a list is taken for true when a request is read: models come and go with restarts."""
BRIEF = 1.0
"""The same for those who ask for the list, or whether the upstream is there: often enough, and no way to flood it."""


@dataclass
class Models:
    """The upstream's models, asked for now and then."""

    ask: Callable[[], Awaitable[list[str]]]
    """Asks the upstream."""
    names: list[str] = field(default_factory=list)
    """What it said last."""
    asked: float = -math.inf
    """When that was, on the monotonic clock."""
    asking: asyncio.Task[None] | None = None
    """The question that is on its way: all who want to know meanwhile wait for its answer."""

    async def known(self, age: float = FRESH) -> list[str]:
        """Return the names; asked again when they are older than so many seconds."""
        if time.monotonic() - self.asked > age:
            if self.asking is None or self.asking.done():
                self.asking = asyncio.create_task(self._ask())
            await asyncio.shield(self.asking)
        return self.names

    async def close(self) -> None:
        """Ask no more."""
        if self.asking is not None:
            self.asking.cancel()
            await asyncio.gather(self.asking, return_exceptions=True)

    async def _ask(self) -> None:
        self.names = await self.ask()
        self.asked = time.monotonic()


def listing(models: Iterable[str], policies: Iterable[str]) -> dict[str, Any]:
    """Return the body of ``/v1/models``: every model, then every model with every named policy as ``model@policy``."""
    names = list(models)
    entries = [(name, "upstream") for name in names]
    entries += [(f"{name}@{policy}", "breadth") for policy in policies for name in names]
    return {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": owner} for name, owner in entries]}
