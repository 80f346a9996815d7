"""Text for the terminal: escapes gone, markup unread, ASCII where it must be."""

from __future__ import annotations

import io

from rich.console import Console, Group, RenderableType

from breadth.report.pen import WIDEST, Pen, indented, more, pairs
from breadth.report.style import OUTCOMES, TERMINAL_COLORS


def console(width: int, encoding: str = "utf-8") -> Console:
    return Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding), width=width)


def shown(*parts: RenderableType, width: int = 40) -> str:
    out = Console(file=io.StringIO(), width=width)
    for part in parts:
        out.print(Group(part), crop=False)
    file = out.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_a_pen_knows_its_console() -> None:
    assert Pen.of(console(72)) == Pen(72, ascii_only=False)
    assert Pen.of(console(500)).width == WIDEST
    assert Pen.of(console(72, "ascii")).ascii_only
    assert Pen.of(console(72, "cp1252")).ascii_only


def test_escapes_go_and_markup_is_text() -> None:
    line = Pen(80).words("\x1b[31m[bold]not bold[/bold]\x1b[0m :smile:\n next")
    assert line.plain == "[bold]not bold[/bold] :smile: next"
    assert line.spans == []
    assert shown(line) == "[bold]not bold[/bold] :smile: next\n"


def test_ascii_spells_what_it_can_and_marks_what_it_cannot() -> None:
    assert Pen(80, ascii_only=True).safe("0.4 – 0.5 → ∞ …, 日本") == "0.4 - 0.5 -> inf ..., ??"
    assert [Pen(80, ascii_only=True).symbol(sign) for sign in OUTCOMES.values()] == ["#", "o", "x", "-"]


def test_roles_have_styles() -> None:
    assert Pen(80).words("x", "critical").style == TERMINAL_COLORS["critical"]
    assert Pen(80).words("x", "bold").style == "bold"


def test_headings_are_underlined_as_far_as_they_reach() -> None:
    assert [line.plain for line in Pen(80).heading("Title")] == ["Title", "─────"]
    assert [line.plain for line in Pen(80).heading("日本")] == ["日本", "────"]
    assert [line.plain for line in Pen(3, ascii_only=True).heading("Title")] == ["Title", "---"]
    assert Pen(80).heading(" ") == []


def test_paragraphs_are_set_apart() -> None:
    assert [line.plain for line in Pen(80).prose("a\nb\n\nc")] == ["a b", "", "c"]
    assert Pen(80).prose("") == []


def test_a_block_is_never_broken() -> None:
    line = "key: " + "x" * 90
    assert shown(Pen(40).block(f"a:\n  {line}")) == f"a:\n  {line}\n"


def test_what_was_left_out_is_said() -> None:
    assert more(980, "more row") == "… 980 more rows; the JSON and the page have them all"
    assert more(0, "more row") == more(-3, "more row") == ""
    assert [line.plain for line in Pen(80).notes("", "a", " ")] == ["a"]


def test_names_and_values_stand_side_by_side() -> None:
    pen = Pen(30)
    grid = pairs([(pen.words("short"), pen.words("1")), (pen.words("a very long name indeed"), pen.words("2"))], 30)
    lines = [line.rstrip() for line in shown(grid, width=30).splitlines()]
    assert lines[0] == "short         1"
    assert lines[1] == "a very long   2"
    assert lines[2] == "name indeed"


def test_indented() -> None:
    assert shown(indented([Pen(80).words("a"), Pen(80).words("b")])) == "  a\n  b\n"
