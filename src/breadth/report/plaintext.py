"""Make text from logs and models safe to show: no terminal escapes, control characters or hidden direction changes."""

from __future__ import annotations

import re

# Whole escape sequences go, not only their first byte, so that no "[31m" is left behind in the middle of a word.
_ESCAPES = re.compile(
    r"""
      (?:\x1b\[|\x9b) [0-?]* [ -/]* [@-~]            # colours, cursor moves
    # Window titles, links, device strings; none holds the start of another, or a million unclosed starts take hours.
    | (?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]) [^\x07\x1b\x90\x98\x9c-\x9f]* (?:\x07|\x1b\\|\x9c)
    | \x1b [ -/]* [0-~]                              # two-character escapes
    """,
    re.VERBOSE,
)
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, both sets, except tab and newline
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # these reorder what the reader sees
    "\ufdd0-\ufdef\ufffe\uffff]"  # not characters
)
_SURROGATES = re.compile("[\ud800-\udfff]")


def strip_escapes(text: str) -> str:
    """Return the text without anything that controls a terminal or hides its content; lines and tabs stay.

    Escape sequences and control characters are dropped, a carriage return becomes a new line, and half a surrogate pair
    becomes the replacement character.
    """
    if text.isprintable():  # most texts
        return text
    unescaped = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return replace_surrogates(_HARMFUL.sub("", unescaped))


def replace_surrogates(text: str) -> str:
    """Replace every half of a surrogate pair, which no encoder accepts."""
    return _SURROGATES.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return the safe text with every run of white space as one space."""
    return " ".join(strip_escapes(text).split())


def split_paragraphs(text: str) -> tuple[str, ...]:
    """Split safe text at blank lines; each paragraph becomes one line."""
    blocks = re.split(r"\n[ \t]*\n", strip_escapes(text))
    return tuple(line for line in (one_line(block) for block in blocks) if line)


def truncate(text: str, length: int) -> str:
    """Return one line of at most ``length`` characters, with an ellipsis if it was cut."""
    line = one_line(text)
    return line if len(line) <= length else line[: max(length - 1, 1)].rstrip() + "…"


def pluralize(count: int, noun: str) -> str:
    """Return ``1 row`` or ``1,200 rows``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
