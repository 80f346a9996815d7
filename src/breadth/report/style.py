"""The one visual language of all reports: colours, marks, line styles, and how much is shown before it folds.

Colour never carries a meaning alone. A severity has a word and a sign, an outcome a shape, a line a dash pattern and a
marker, a token's number an underline. Tests compute the contrast of every pair of colours that meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from breadth.report.sections import Outcome, Severity

LIGHT: Mapping[str, str] = {
    "paper": "#ffffff",
    "panel": "#f5f6f7",
    "rule": "#d5d9dd",
    "grid": "#e6e9ec",
    "ink": "#1b1f23",
    "muted": "#555d66",
    "critical": "#a3171c",
    "warning": "#835500",
    "note": "#1f5790",
    "good": "#1d6a3e",
    "unknown": "#555d66",
    "series-1": "#1f5790",
    "series-2": "#b0431a",
    "series-3": "#1b6e68",
    "series-4": "#7a4690",
    "series-5": "#7d5c00",
    "series-6": "#4f5964",
    "shade-0": "#ffffff",
    "shade-1": "#edf3f9",
    "shade-2": "#d8e6f3",
    "shade-3": "#bfd6ec",
    "shade-4": "#a2c3e3",
    "shade-5": "#82add8",
}
"""Colours on white: name of the role -> hexadecimal."""

DARK: Mapping[str, str] = {
    "paper": "#14171a",
    "panel": "#1d2125",
    "rule": "#3a4148",
    "grid": "#2a3036",
    "ink": "#e8eaed",
    "muted": "#a4adb6",
    "critical": "#ff9a94",
    "warning": "#e9b754",
    "note": "#86b9ec",
    "good": "#7ccb98",
    "unknown": "#a4adb6",
    "series-1": "#86b9ec",
    "series-2": "#f29a6c",
    "series-3": "#69c7bb",
    "series-4": "#cda1e0",
    "series-5": "#d8b65a",
    "series-6": "#aeb8c2",
    "shade-0": "#14171a",
    "shade-1": "#1a2733",
    "shade-2": "#1f3549",
    "shade-3": "#24445f",
    "shade-4": "#295377",
    "shade-5": "#2f6290",
}
"""The same roles on near-black."""

FORCED: Mapping[str, str] = {
    name: (
        {"paper": "Canvas", "panel": "Canvas", "grid": "GrayText", "rule": "GrayText"}.get(
            name, "Canvas" if name.startswith("shade") else "CanvasText"
        )
    )
    for name in LIGHT
}
"""The same roles where the reader forces a palette of their own: everything but paper and thin lines is the text
colour.
"""

SHADES = 5
"""Steps of a token's shade above none."""
SHOWN_ROWS = 20
"""Rows of a table shown before the rest folds: about one screen."""
SHOWN_GROUPS = 20
"""Problems drawn before the rest folds."""
SHOWN_EVENTS = 10
"""Events of a curve listed before the rest folds."""
SHOWN_TOKENS = 300
"""Tokens of a trace shown before the rest folds: about one screen of text."""


@dataclass(frozen=True)
class Mark:
    """A role's mark on the page and in the terminal."""

    color: str
    """Name of its colour."""
    symbol: str
    """Its mark in the terminal."""
    ascii: str
    """Its mark where only ASCII can be printed."""


SEVERITIES: Mapping[Severity, Mark] = {
    Severity.CRITICAL: Mark("critical", "✖", "X"),
    Severity.WARNING: Mark("warning", "▲", "!"),
    Severity.NOTE: Mark("note", "●", "*"),
    Severity.GOOD: Mark("good", "✔", "+"),
    Severity.CANNOT_TELL: Mark("unknown", "?", "?"),
}
"""Mark of each severity, in addition to its word."""

OUTCOMES: Mapping[Outcome, Mark] = {
    Outcome.CORRECT: Mark("series-1", "●", "#"),
    Outcome.WRONG: Mark("series-2", "○", "o"),
    Outcome.UNPARSABLE: Mark("series-4", "×", "x"),
    Outcome.TRUNCATED: Mark("muted", "–", "-"),
}
"""Mark of each outcome of a sample."""


@dataclass(frozen=True)
class LineStyle:
    """Look of one line of a chart, distinct without colour."""

    color: str
    """Name of its colour."""
    dash: str
    """Lengths of dashes and gaps; empty for a full line."""
    marker: str
    """Shape drawn at points."""
    symbol: str
    """The marker in the terminal."""
    ascii: str
    """The marker where only ASCII can be printed."""


_DASHES = ("", "6 3", "1.5 3", "9 3 1.5 3", "12 4", "4 2 1.5 2 1.5 2")
_MARKERS = (
    ("disc", "●", "*"),
    ("square", "■", "#"),
    ("triangle", "▲", "^"),
    ("ring", "○", "o"),
    ("diamond", "◆", "x"),
    ("cross", "×", "+"),
)


def line_style(index: int) -> LineStyle:
    """Return the look of the line at this index; after six, colours and dashes repeat with other markers."""
    marker = _MARKERS[(index + index // len(_DASHES)) % len(_MARKERS)]
    return LineStyle(f"series-{index % 6 + 1}", _DASHES[index % len(_DASHES)], *marker)


def line_symbol(index: int, count: int, *, ascii_only: bool) -> str:
    """Return a line's marker in the terminal, where only it differs: capital letters if markers run out."""
    if count > len(_MARKERS):
        return chr(ord("A") + index % 26)
    return line_style(index).ascii if ascii_only else line_style(index).symbol


TERMINAL_COLORS: Mapping[str, str] = {
    "critical": "bold red",
    "warning": "bold yellow",
    "note": "bold blue",
    "good": "bold green",
    "unknown": "bold",
    "muted": "dim",
    "series-1": "blue",
    "series-2": "red",
    "series-3": "cyan",
    "series-4": "magenta",
    "series-5": "yellow",
    "series-6": "white",
}
"""Role -> style in the terminal, from the sixteen colours a reader's own theme defines."""

ASCII_FOR: Mapping[str, str] = {
    "●": "*",
    "■": "#",
    "▲": "^",
    "○": "o",
    "◆": "x",
    "×": "x",
    "–": "-",
    "—": "-",
    "−": "-",
    "…": "...",
    "∞": "inf",
    "’": "'",
    "“": '"',
    "”": '"',
    "→": "->",
    "≥": ">=",
    "≤": "<=",
    "±": "+-",
    "✖": "X",
    "✔": "+",
    "↵": " ",
    "─": "-",
    "│": "|",
    "┊": "|",
    "└": "+",
    "┴": "+",
    "┤": "+",
    "░": ".",
    "▒": ":",
}
"""ASCII replacement of a character; any other becomes a question mark."""
