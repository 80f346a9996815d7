"""A report in the terminal: fits the width, readable without colour, with escapes in the data removed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.console import Group as Stack
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from breadth.report import sections
from breadth.report.cells import format_number
from breadth.report.layout import (
    Shading,
    TableEntry,
    TableLayout,
    axis_label,
    choose_shading,
    describe_ends,
    describe_gaps,
    describe_shading,
    format_fact,
    group_by_kind,
    lay_out_table,
    letter_label,
)
from breadth.report.plaintext import one_line, pluralize, split_paragraphs, strip_escapes, truncate
from breadth.report.sections import (
    Curve,
    Fact,
    Facts,
    Group,
    Groups,
    Listing,
    Outcome,
    Page,
    Table,
    Token,
    Trace,
    Verdict,
)
from breadth.report.style import (
    ASCII_FOR,
    OUTCOMES,
    SEVERITIES,
    SHOWN_EVENTS,
    SHOWN_GROUPS,
    SHOWN_ROWS,
    SHOWN_TOKENS,
    TERMINAL_COLORS,
    Mark,
    line_style,
    line_symbol,
)
from breadth.report.textplot import PLOT_HEIGHT, plot_rows

MAX_WIDTH = 160
"""Columns of a report: longer lines are hard to follow."""


@dataclass(frozen=True)
class Pen:
    """Writes for one console, given its width and whether it prints only ASCII."""

    width: int
    """Columns to fill."""
    ascii_only: bool = False
    """Whether only ASCII can be printed."""

    @staticmethod
    def for_console(console: Console) -> Pen:
        """Return the pen for a console."""
        return Pen(min(console.width, MAX_WIDTH), not console.encoding.lower().startswith("utf"))

    def safe(self, text: str) -> str:
        """Return text without escapes and, where needed, in ASCII; line breaks stay."""
        clean = strip_escapes(text)
        if not self.ascii_only:
            return clean
        ascii_text = "".join(ASCII_FOR.get(character, character) for character in clean)
        return ascii_text.encode("ascii", "replace").decode("ascii")

    def words(self, text: str, role: str = "") -> Text:
        """Return one line of text in the style of a role (a colour's name, or a style such as ``bold``)."""
        return Text(self.safe(one_line(text)), TERMINAL_COLORS.get(role, role), overflow="fold")

    def block(self, text: str, role: str = "") -> Text:
        """Return text to copy unchanged: no line is broken or cut, whatever the width."""
        return Text(self.safe(text), TERMINAL_COLORS.get(role, role), no_wrap=True, overflow="ignore")

    def prose(self, text: str) -> list[Text]:
        """Return the paragraphs of a text, with an empty line between them."""
        parts = [part for paragraph in split_paragraphs(text) for part in (Text(""), self.words(paragraph))]
        return parts[1:]

    def symbol(self, sign: Mark) -> str:
        """Return the mark of a role as this console can print it."""
        return sign.ascii if self.ascii_only else sign.symbol

    def title(self, title: str) -> list[Text]:
        """Return an underlined title; nothing if it is empty."""
        line = self.words(title, "bold")
        return (
            [line, Text(("-" if self.ascii_only else "─") * min(line.cell_len, self.width), "dim")]
            if line.plain
            else []
        )

    def notes(self, *texts: str) -> list[Text]:
        """Return captions without the empty ones."""
        return [self.words(text, "muted") for text in texts if one_line(text)]


def describe_hidden(hidden: int, noun: str) -> str:
    """Describe how much is hidden and where it is; empty if nothing is."""
    return f"… {pluralize(hidden, noun)}; the JSON and the page have them all" if hidden > 0 else ""


def indent(parts: list[RenderableType]) -> RenderableType:
    """Indent parts by two columns."""
    return Padding(Stack(*parts), (0, 0, 0, 2), expand=False)


def break_long_words(text: Text, width: int) -> Text:
    """Break a word that is longer than a line where its parts meet: a setting's name has dots and underscores."""

    def break_word(word: re.Match[str]) -> str:
        lines = [""]
        for part in re.findall(r"[^._=/,]*[._=/,]|[^._=/,]+", word[0]):
            if lines[-1] and len(lines[-1]) + len(part) > width:
                lines.append("")
            lines[-1] += part
        return "\n".join(lines)

    return Text(re.sub(rf"\S{{{width + 1},}}", break_word, text.plain), text.style, overflow="fold")


def name_width(names: Sequence[Text], width: int) -> int:
    """Return the width of a column of names: that of the longest, at most two fifths of the whole."""
    return min(max((name.cell_len for name in names), default=0), max(8, 2 * width // 5))


def two_columns(rows: list[tuple[Text, RenderableType]], width: int) -> Grid:
    """Put names and values side by side."""
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=name_width([name for name, _ in rows], width), overflow="fold")
    grid.add_column(overflow="fold", ratio=1)
    for name, value in rows:
        grid.add_row(name, value)
    return grid


MIN_TEXT_WIDTH = 12
"""Columns of a text cell; with fewer the table is printed row by row."""
_GAP = 2
"""Spaces between columns."""


def print_table(rows: Table, pen: Pen) -> list[RenderableType]:
    """Print a table with its heading, footnotes and caption."""
    known = lay_out_table(rows)
    widths = column_widths(known, pen)
    shown: list[RenderableType] = [table_grid(known, widths, pen)] if widths else row_cards(known, pen)
    hidden = len(known.rows) - SHOWN_ROWS
    footnotes = [f"{flag}  {reason}" for flag, reason in known.footnotes]
    return [
        *pen.title(rows.title),
        *shown,
        *pen.notes("" if rows.rows else "No rows.", describe_hidden(hidden, "more row"), *footnotes, rows.note),
    ]


def column_widths(known: TableLayout, pen: Pen) -> list[int]:
    """Return column widths: numbers whole, words squeezed if needed; none if even that is too wide."""
    wanted = [full_width(known, index, heading, pen) for index, heading in enumerate(known.headings)]
    least = [least_width(known, index, want, pen) for index, want in enumerate(wanted)]
    spare = pen.width - sum(least) - _GAP * len(least)
    if spare < 0:
        return []
    widths = list(least)
    by_need = sorted(range(len(least)), key=lambda index: wanted[index] - least[index])
    for place, index in enumerate(by_need):  # columns that lack little get it all, the others share the rest
        extra = min(wanted[index] - least[index], spare // (len(least) - place))
        widths[index] += extra
        spare -= extra
    return widths


def full_width(known: TableLayout, index: int, heading: str, pen: Pen) -> int:
    """Return the width at which no cell of a column wraps."""
    cells = [cell_len(entry_text(row[index], pen).plain) for row in known.rows[:SHOWN_ROWS]]
    return max([1, cell_len(pen.safe(heading)), *cells])


def least_width(known: TableLayout, index: int, wanted: int, pen: Pen) -> int:
    """Return the smallest width of a column: numbers and words whole."""
    longest_word = max(map(cell_len, pen.safe(known.headings[index]).split()), default=0)
    if any(row[index].numeric for row in known.rows[:SHOWN_ROWS]):
        return full_width(known, index, longest_word * "x", pen)
    return min(wanted, max(longest_word, MIN_TEXT_WIDTH))


def table_grid(known: TableLayout, widths: Sequence[int], pen: Pen) -> Grid:
    """Return a table as a grid of columns."""
    grid = Grid.grid(padding=(0, _GAP, 0, 0))
    for width, right in zip(widths, known.right, strict=True):
        grid.add_column(justify="right" if right else "left", width=width, overflow="fold")
    grid.add_row(*(pen.words(heading, "bold") for heading in known.headings))
    grid.add_row(*(pen.block("─" * width, "muted") for width in widths))
    for row in known.rows[:SHOWN_ROWS]:
        grid.add_row(*(entry_text(entry, pen) for entry in row))
    return grid


def row_cards(known: TableLayout, pen: Pen) -> list[RenderableType]:
    """Print each row as its first cell and a list of the others."""
    cards: list[RenderableType] = []
    for row in known.rows[:SHOWN_ROWS]:
        listed = [
            (pen.words(heading), entry_text(entry, pen))
            for heading, entry in zip(known.headings[1:], row[1:], strict=True)
        ]
        cards.append(pen.words(f"{known.headings[0]}: {entry_text(row[0], pen).plain}", "bold"))
        cards.append(indent([two_columns([*listed], pen.width)]))
    return cards


def entry_text(entry: TableEntry, pen: Pen) -> Text:
    """Return a cell with its footnote letter."""
    return pen.words(f"{entry.text} [{entry.footnote}]" if entry.footnote else entry.text)


_CHUNK = 8
_BARS, _DIGITS = " ▁▂▃▅█", " 12345"


def print_curve(lines: Curve, pen: Pen) -> list[RenderableType]:
    """Print a chart about a dozen lines high, then describe each line in words."""
    return [
        *pen.title(lines.title),
        pen.words(axis_label(lines.y)),
        *plot(lines, pen),
        Text(" " * max(0, pen.width - cell_len(axis_label(lines.x)))) + pen.words(axis_label(lines.x)),
        two_columns(list(legend_rows(lines, pen)), pen.width),
        *pen.notes(
            describe_hidden(len(lines.events) - SHOWN_EVENTS, "more event"), f"{lines.note} {describe_gaps(lines)}"
        ),
    ]


def plot(lines: Curve, pen: Pen, height: int = PLOT_HEIGHT) -> list[Text]:
    """Draw the lines of a chart with their axes and nothing else."""
    return [colour_row(row, pen) for row in plot_rows(lines, pen.width, ascii_only=pen.ascii_only, height=height)]


def colour_row(row: list[tuple[str, int | None]], pen: Pen) -> Text:
    """Return one line of a chart in the colours of its lines."""
    line = Text(no_wrap=True, overflow="crop")
    for character, index in row:
        line.append(pen.safe(character), TERMINAL_COLORS[line_style(index).color] if index is not None else "")
    line.rstrip()
    return line


def legend_rows(lines: Curve, pen: Pen) -> Iterator[tuple[Text, RenderableType]]:
    """Yield the names of lines, bands and events with what they show."""
    for index, series in enumerate(lines.series):
        style = line_style(index)
        symbol = line_symbol(index, len(lines.series), ascii_only=pen.ascii_only)
        yield (
            pen.words(f"{symbol} {one_line(series.name)}", style.color),
            pen.words(describe_ends(series, lines.x, lines.y)),
        )
    if any(series.low for series in lines.series):
        yield pen.words("░ band"), pen.words(lines.band)
    for index, event in enumerate(lines.events[:SHOWN_EVENTS]):
        place = f"{one_line(lines.x.label)} {format_number(event.x, lines.x.unit)}"
        yield pen.words(f"{letter_label(index)} {place}"), pen.words(event.label)


def print_groups(picture: Groups, pen: Pen) -> list[RenderableType]:
    """Print one row per problem and one mark per sample."""
    shown = picture.groups[:SHOWN_GROUPS]
    kinds = [kind for kind in Outcome if any(kind in group.outcomes for group in picture.groups)]
    legend = "   ".join(f"{pen.symbol(OUTCOMES[kind])} {kind.value}" for kind in kinds) or "No samples."
    room = min(24, max((cell_len(one_line(group.name)) for group in shown), default=0))
    hidden = len(picture.groups) - len(shown)
    return [
        *pen.title(picture.title),
        Text(pen.safe(legend)),
        *(line for group in shown for line in group_lines(group, room, pen)),
        *pen.notes(describe_hidden(hidden, "more problem"), picture.note),
    ]


def group_lines(group: Group, room: int, pen: Pen) -> Iterator[Text]:
    """Yield the lines of one problem: name, marks in chunks of eight, and how many are correct."""
    tally = Counter(group.outcomes)
    count = f"{tally[Outcome.CORRECT]}/{len(group.outcomes)}"
    across = max(1, (pen.width - room - len(count) - 4) // (_CHUNK + 1)) * _CHUNK
    starts = range(0, max(1, len(group.outcomes)), across)
    for start in starts:
        name = pen.words(truncate(group.name, room) if start == 0 else "")
        name.truncate(room, overflow="ellipsis", pad=True)
        line = name + Text("  ")
        for place, outcome in enumerate(group.outcomes[start : start + across]):
            sign = OUTCOMES[outcome]
            line.append(" " if place and place % _CHUNK == 0 else "").append(
                pen.symbol(sign), TERMINAL_COLORS[sign.color]
            )
        yield line + Text(f"  {count}") if start == starts[-1] else line


def print_trace(text: Trace, pen: Pen) -> list[RenderableType]:
    """Print a text with a line of bars under it, each as high as its token's number."""
    steps = choose_shading(text)
    hidden = len(text.tokens) - SHOWN_TOKENS
    marks = _DIGITS if pen.ascii_only else _BARS
    edges = steps.edges() if steps and steps.high > steps.low else ()
    scale = "   ".join(f"{marks[level]} from {format_number(edge, text.unit)}" for level, edge in enumerate(edges, 1))
    lines = _Lines(pen.width)
    for piece, level in trace_pieces(text, steps, pen):
        lines.add(piece, marks[level])
    return [
        *pen.title(text.title),
        *pen.notes(describe_shading(text, steps)),
        *([Text(pen.safe(scale) if pen.ascii_only else scale)] if scale else []),
        *lines.render(),
        *pen.notes(describe_hidden(hidden, "more token"), text.note),
    ]


def trace_pieces(text: Trace, steps: Shading | None, pen: Pen) -> Iterator[tuple[str, int]]:
    """Yield each token's text with its step; the name of a kind comes before its tokens."""
    for kind, run in group_by_kind(text.tokens[:SHOWN_TOKENS]):
        if kind:
            yield pen.safe(f"[{kind}: "), 0
        yield from ((visible_text(token, pen), steps.level(token.value) if steps else 0) for token in run)
        if kind:
            yield "]", 0


def visible_text(token: Token, pen: Pen) -> str:
    """Return the text of a token; a lone line break becomes visible."""
    text = pen.safe(token.text).replace("\t", "    ")
    return "↵" + text if text and not text.strip("\n") and not pen.ascii_only else text


class _Lines:
    """Fills lines of text, each with a line of marks below it."""

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

    def render(self) -> list[Text]:
        """Return the lines, without lines of marks that hold none."""
        lines = [part.rstrip() for row in self.rows for part in (row if row[1].strip() else row[:1])]
        return [Text(line, no_wrap=True, overflow="crop") for line in lines]

    def _used(self) -> int:
        return cell_len(self.rows[-1][0])


def render_terminal(page: Page, console: Console) -> None:
    """Print the report on a console, at most 160 columns wide."""
    pen = Pen.for_console(console)
    parts: list[Sequence[RenderableType]] = [[pen.words(page.title, "bold"), *pen.notes(page.subtitle)]]
    parts += [PRINTERS[type(part)](part, pen) for part in page.sections]
    if page.provenance:
        parts.append([*pen.title("Where this comes from"), fact_grid(page.provenance, pen)])
    for part in parts:
        console.print(Stack(*part), width=pen.width, highlight=False, crop=False)
        console.print()


def print_verdict(verdict: Verdict, pen: Pen) -> list[RenderableType]:
    """Print a verdict: severity, headline, reasons and numbers."""
    sign = SEVERITIES[verdict.severity]
    head = pen.words(f"{pen.symbol(sign)} {verdict.severity.value.upper()}", sign.color)
    inside: list[RenderableType] = [pen.words(verdict.headline, "bold"), *pen.prose(verdict.body)]
    numbers: list[RenderableType] = [pen.words(""), fact_grid(verdict.numbers, pen)] if verdict.numbers else []
    return [head, indent([*inside, *numbers])]


def print_text(words: sections.Text, pen: Pen) -> list[RenderableType]:
    """Print paragraphs."""
    return [*pen.title(words.title), *pen.prose(words.text)]


def print_listing(lines: Listing, pen: Pen) -> list[RenderableType]:
    """Print text to copy unchanged."""
    copied = pen.block(lines.text.rstrip("\n"))
    return [*pen.title(lines.title), copied, *pen.notes(lines.note)]


def print_facts(listed: Facts, pen: Pen) -> list[RenderableType]:
    """Print names and values."""
    return [*pen.title(listed.title), fact_grid(listed.facts, pen)]


def fact_grid(facts: Sequence[Fact], pen: Pen) -> RenderableType:
    """Return facts as two columns."""
    left = name_width([pen.words(fact.name) for fact in facts], pen.width)
    right = max(8, pen.width - left - 2)
    rows: list[tuple[Text, RenderableType]] = []
    for fact in facts:
        values = [pen.words(format_fact(fact)), *pen.notes(fact.note)]
        rows.append(
            (break_long_words(pen.words(fact.name), left), Stack(*(break_long_words(value, right) for value in values)))
        )
    return two_columns(rows, pen.width)


PRINTERS: Mapping[type, Callable[[Any, Pen], list[RenderableType]]] = {
    sections.Verdict: print_verdict,
    sections.Text: print_text,
    sections.Listing: print_listing,
    sections.Facts: print_facts,
    sections.Table: print_table,
    sections.Curve: print_curve,
    sections.Groups: print_groups,
    sections.Trace: print_trace,
}
