"""Find the name somebody meant: nearest spelling, for error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest_name(word: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to ``word``, or None when nothing is close."""
    folded = {name.casefold(): name for name in known}
    found = get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def suggestion(word: str, known: Iterable[str], kind: str) -> str:
    """Say what to write instead of ``word``: the nearest known name, or the whole list."""
    names = sorted(known)
    close = nearest_name(word, names)
    listing = ", ".join(names) if names else "none are registered"
    if close is None:
        return f"Use one of the {kind}: {listing}."
    return f"Did you mean '{close}'? The {kind} are: {listing}."
