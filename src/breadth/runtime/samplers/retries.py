"""How long to wait before a request is made again: what the server asks for, or a little longer each time."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from breadth.base.checks import require

LONGEST = 24 * 3600.0
"""Seconds that a reply can ask for at most; what is beyond a day is a slip or a joke."""


@dataclass(frozen=True)
class Backoff:
    """Waits that double, each cut by chance to between half and all of itself, so that draws which failed together come back apart.

    First wait and factor are those of the openai SDK (0.5 s, doubling, at most 8 s).
    """

    first: float = 0.5
    """Seconds before the second attempt."""
    most: float = 8.0
    """Seconds at most."""
    seed: int = 0
    """Root of the chance taken."""

    def __post_init__(self) -> None:
        require(self, "first", self.first >= 0, "0 or more seconds")
        require(self, "most", self.most >= self.first, "at least the first wait")

    def seconds(self, attempt: int, draw_seed: int = 0) -> float:
        """Return how long to wait after attempt 1, 2, ... of a draw failed; the same draw waits the same."""
        whole = min(self.most, self.first * 2.0 ** min(attempt - 1, 32))
        digest = hashlib.blake2b(f"{self.seed}/{draw_seed}/{attempt}".encode(), digest_size=8).digest()
        return whole * (0.5 + int.from_bytes(digest, "big") / 2**65)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds a reply asks to be left alone (``Retry-After`` as seconds or as a date, or ``retry-after-ms``); None for none.

    A date is compared with ``now`` (seconds since 1970; the clock's by default). What cannot be read counts as not asked.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    said = headers.get("Retry-After")
    if said is None:
        return None
    seconds = _number(said)
    return _until(said, time.time() if now is None else now) if seconds is None else seconds


def _number(said: str | None) -> float | None:
    """Return a number of seconds, at least 0; None for anything else."""
    try:
        value = float(said or "")
    except ValueError:
        return None
    return min(max(value, 0.0), LONGEST) if math.isfinite(value) else None


def _until(said: str, now: float) -> float | None:
    """Return the seconds until an HTTP date, at least 0; None when it is no date. One without a zone is in UTC, as all of HTTP's are."""
    try:
        date = parsedate_to_datetime(said)
        moment = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(moment - now, 0.0), LONGEST)
