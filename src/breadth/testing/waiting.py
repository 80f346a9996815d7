"""Waiting for what must come about: as long as a busy machine needs, and no longer than it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE = 20.0
"""Seconds until it counts as not coming about: far beyond what a stalled machine costs, and short of what a test would wait for ever."""


async def until(held: Callable[[], object], patience: float = PATIENCE) -> None:
    """Return as soon as it holds; raises TimeoutError when it does not come about."""
    async with asyncio.timeout(patience):
        while not held():
            await asyncio.sleep(0.002)
