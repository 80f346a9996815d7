"""Figures in the terminal: plots with a legend in words, rows of sample marks, and a text with a line of marks under it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from breadth.report.numerals import number
from breadth.report.outline import axis_label, course, left_out, letter
from breadth.report.pen import Pen, more, pairs
from breadth.report.plaintext import one_line, shortened
from breadth.report.sections import Curve, Group, Groups, Outcome, Token, Trace
from breadth.report.shading import Shading, by_kind, scale_words, shading
from breadth.report.style import OUTCOMES, SHOWN_EVENTS, SHOWN_GROUPS, SHOWN_TOKENS, TERMINAL_COLORS, line_style, line_symbol
from breadth.report.textplot import HEIGHT, plot_rows

_CHUNK = 8
_BARS, _DIGITS = " ▁▂▃▅█", " 12345"


def curve(lines: Curve, pen: Pen) -> list[RenderableType]:
    """Print a chart of about a dozen lines, then every line of it in words."""
    return [
        *pen.heading(lines.title),
        pen.words(axis_label(lines.y)),
        *plot(lines, pen),
        Text(" " * max(0, pen.width - cell_len(axis_label(lines.x)))) + pen.words(axis_label(lines.x)),
        pairs(list(_legend(lines, pen)), pen.width),
        *pen.notes(more(len(lines.events) - SHOWN_EVENTS, "more event"), f"{lines.note} {left_out(lines)}"),
    ]


def plot(lines: Curve, pen: Pen, height: int = HEIGHT) -> list[Text]:
    """Draw the lines of a chart with their axes and nothing else."""
    return [_colored(row, pen) for row in plot_rows(lines, pen.width, ascii_only=pen.ascii_only, height=height)]


def _colored(row: list[tuple[str, int | None]], pen: Pen) -> Text:
    line = Text(no_wrap=True, overflow="crop")
    for character, index in row:
        line.append(pen.safe(character), TERMINAL_COLORS[line_style(index).color] if index is not None else "")
    line.rstrip()
    return line


def _legend(lines: Curve, pen: Pen) -> Iterator[tuple[Text, RenderableType]]:
    for index, one in enumerate(lines.series):
        style = line_style(index)
        symbol = line_symbol(index, len(lines.series), ascii_only=pen.ascii_only)
        yield pen.words(f"{symbol} {one_line(one.name)}", style.color), pen.words(course(one, lines.x, lines.y))
    if any(one.low for one in lines.series):
        yield pen.words("░ band"), pen.words(lines.band)
    for index, event in enumerate(lines.events[:SHOWN_EVENTS]):
        place = f"{one_line(lines.x.label)} {number(event.x, lines.x.unit)}"
        yield pen.words(f"{letter(index)} {place}"), pen.words(event.label)


def groups(picture: Groups, pen: Pen) -> list[RenderableType]:
    """Print one row per problem and one mark per sample."""
    shown = picture.groups[:SHOWN_GROUPS]
    kinds = [kind for kind in Outcome if any(kind in group.outcomes for group in picture.groups)]
    legend = "   ".join(f"{pen.symbol(OUTCOMES[kind])} {kind.value}" for kind in kinds) or "No samples."
    room = min(24, max((cell_len(one_line(group.name)) for group in shown), default=0))
    hidden = len(picture.groups) - len(shown)
    return [
        *pen.heading(picture.title),
        Text(pen.safe(legend)),
        *(line for group in shown for line in _group(group, room, pen)),
        *pen.notes(more(hidden, "more problem"), picture.note),
    ]


def _group(group: Group, room: int, pen: Pen) -> Iterator[Text]:
    """Yield the lines of one problem: name, marks in chunks of eight, and how many are correct."""
    tally = Counter(group.outcomes)
    count = f"{tally[Outcome.CORRECT]}/{len(group.outcomes)}"
    across = max(1, (pen.width - room - len(count) - 4) // (_CHUNK + 1)) * _CHUNK
    starts = range(0, max(1, len(group.outcomes)), across)
    for start in starts:
        name = pen.words(shortened(group.name, room) if start == 0 else "")
        name.truncate(room, overflow="ellipsis", pad=True)
        line = name + Text("  ")
        for place, outcome in enumerate(group.outcomes[start : start + across]):
            sign = OUTCOMES[outcome]
            line.append(" " if place and place % _CHUNK == 0 else "").append(pen.symbol(sign), TERMINAL_COLORS[sign.color])
        yield line + Text(f"  {count}") if start == starts[-1] else line


def trace(text: Trace, pen: Pen) -> list[RenderableType]:
    """Print a text with a line of bars under it, as high as each token's number."""
    steps = shading(text)
    hidden = len(text.tokens) - SHOWN_TOKENS
    marks = _DIGITS if pen.ascii_only else _BARS
    edges = steps.edges() if steps and steps.high > steps.low else ()
    scale = "   ".join(f"{marks[level]} from {number(edge, text.unit)}" for level, edge in enumerate(edges, 1))
    lines = _Lines(pen.width)
    for piece, level in _pieces(text, steps, pen):
        lines.add(piece, marks[level])
    return [
        *pen.heading(text.title),
        *pen.notes(scale_words(text, steps)),
        *([Text(pen.safe(scale) if pen.ascii_only else scale)] if scale else []),
        *lines.printed(),
        *pen.notes(more(hidden, "more token"), text.note),
    ]


def _pieces(text: Trace, steps: Shading | None, pen: Pen) -> Iterator[tuple[str, int]]:
    """Yield each token's text with its step; the name of a kind stands before its tokens."""
    for kind, run in by_kind(text.tokens[:SHOWN_TOKENS]):
        if kind:
            yield pen.safe(f"[{kind}: "), 0
        yield from ((_shown(token, pen), steps.level(token.value) if steps else 0) for token in run)
        if kind:
            yield "]", 0


def _shown(token: Token, pen: Pen) -> str:
    text = pen.safe(token.text).replace("\t", "    ")
    return "↵" + text if text and not text.strip("\n") and not pen.ascii_only else text


class _Lines:
    """Lines of text being filled, each with a line of marks below it."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows: list[tuple[str, str]] = [("", "")]

    def add(self, piece: str, mark: str) -> None:
        """Append a piece, on a new line where it would not fit."""
        if self._used() + cell_len(piece.rstrip()) > self.width >= cell_len(piece):
            self.rows.append(("", ""))
        for character in piece:
            wide = cell_len(character)
            full = self._used() + wide > self.width
            if character == "\n" or (full and character != " "):
                self.rows.append(("", ""))
            if character != "\n" and not (full and character == " "):
                text, marks = self.rows[-1]
                self.rows[-1] = (text + character, marks + (" " if character == " " and piece.strip() else mark) * wide)

    def printed(self) -> list[Text]:
        """Return the lines, without lines of marks that hold none."""
        lines = [part.rstrip() for row in self.rows for part in (row if row[1].strip() else row[:1])]
        return [Text(line, no_wrap=True, overflow="crop") for line in lines]

    def _used(self) -> int:
        return cell_len(self.rows[-1][0])
