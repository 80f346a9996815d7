"""Safe text for the terminal: what is untrusted loses its escapes, markup is never read, and ASCII is enough where it must be."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from breadth.report.plaintext import counted, one_line, paragraphs, plain
from breadth.report.style import ASCII_FOR, TERMINAL_COLORS, Sign

WIDEST = 160
"""Columns a report fills at most: longer lines are hard to follow."""


@dataclass(frozen=True)
class Pen:
    """Writes for one console: knows its width and whether it can print more than ASCII."""

    width: int
    """Columns to fill."""
    ascii_only: bool = False
    """Whether only ASCII can be printed."""

    @staticmethod
    def of(console: Console) -> Pen:
        """Return the pen for a console."""
        return Pen(min(console.width, WIDEST), not console.encoding.lower().startswith("utf"))

    def safe(self, text: str) -> str:
        """Return text without escapes and, where needed, in ASCII; line breaks stay."""
        clean = plain(text)
        if not self.ascii_only:
            return clean
        spelt = "".join(ASCII_FOR.get(character, character) for character in clean)
        return spelt.encode("ascii", "replace").decode("ascii")

    def words(self, text: str, role: str = "") -> Text:
        """Return one line of text in the style of a role (a colour's name, or a style such as ``bold``)."""
        return Text(self.safe(one_line(text)), TERMINAL_COLORS.get(role, role), overflow="fold")

    def block(self, text: str, role: str = "") -> Text:
        """Return text to be copied as it stands: no line is broken or cut, whatever the width."""
        return Text(self.safe(text), TERMINAL_COLORS.get(role, role), no_wrap=True, overflow="ignore")

    def prose(self, text: str) -> list[Text]:
        """Return the paragraphs of a text, with an empty line between them."""
        parts = [part for paragraph in paragraphs(text) for part in (Text(""), self.words(paragraph))]
        return parts[1:]

    def symbol(self, sign: Sign) -> str:
        """Return the mark of a role as this console can print it."""
        return sign.ascii if self.ascii_only else sign.symbol

    def heading(self, title: str) -> list[Text]:
        """Return a title underlined as far as it reaches; nothing for no title."""
        line = self.words(title, "bold")
        return [line, Text(("-" if self.ascii_only else "─") * min(line.cell_len, self.width), "dim")] if line.plain else []

    def notes(self, *texts: str) -> list[Text]:
        """Return captions, leaving out empty ones."""
        return [self.words(text, "muted") for text in texts if one_line(text)]


def more(hidden: int, noun: str) -> str:
    """Say how much was left out, and where it is; empty when nothing was."""
    return f"… {counted(hidden, noun)}; the JSON and the page have them all" if hidden > 0 else ""


def indented(parts: list[RenderableType]) -> RenderableType:
    """Move parts to the right."""
    return Padding(Group(*parts), (0, 0, 0, 2), expand=False)


def pairs(rows: list[tuple[Text, RenderableType]], width: int) -> Grid:
    """Put names and values side by side; names take at most two fifths of the width."""
    grid = Grid.grid(padding=(0, 2, 0, 0))
    longest = max((name.cell_len for name, _ in rows), default=0)
    grid.add_column(width=min(longest, max(8, 2 * width // 5)), overflow="fold")
    grid.add_column(overflow="fold", ratio=1)
    for name, value in rows:
        grid.add_row(name, value)
    return grid
