"""The coin of a task: one number drawn once by its name and seed, for rules that must treat a share of the questions differently."""

from __future__ import annotations

import hashlib


def coin(name: str, seed: int) -> float:
    """Return a number from 0 to below 1, uniform over tasks and always the same for one task."""
    digest = hashlib.blake2b(f"coin\0{seed}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)
