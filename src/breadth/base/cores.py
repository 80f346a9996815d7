"""How many cores there are to work with."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Return how many cores this process may use; not every system can say, then how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
