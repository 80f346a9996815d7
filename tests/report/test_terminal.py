"""The report in the terminal: complete at every width, safe, and readable without colour."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from breadth.report.page import Page
from breadth.report.sections import (
    Axis,
    Column,
    Curve,
    Event,
    Fact,
    Facts,
    Group,
    Groups,
    Listing,
    Outcome,
    Series,
    Severity,
    Table,
    Text,
    Token,
    Trace,
    Verdict,
)
from breadth.report.terminal import render_terminal

NUMBERS = [
    *("0.612 nats", "(0.584 to 0.641)", "0.051 nats", "71%", "(66% to 76%)", "436,224", "33.4%", "0.08", "(0.04 to 0.12)"),
    *("28.0 (25.0 to 31.2)", "69 (65 to 72)", "4.82", "3.90", "1,533", "1,720", "55 (51 to 59)"),
    *("16/16", "614,400", "4,800", "1e-6", "100.00", "clip_ratio_high: 0.28   # was 0.2"),
]


@pytest.mark.parametrize("width", [60, 100, 160])
def test_all_numbers_are_there_at_every_width(full: Page, width: int, printed: Callable[..., str]) -> None:
    text = printed(full, width)
    one_line = " ".join(text.split())
    for number in NUMBERS:
        assert " ".join(number.split()) in one_line
    assert all(cell_len(line.rstrip()) <= width for line in text.splitlines())


def test_never_wider_than_a_line_can_be_read(full: Page, printed: Callable[..., str]) -> None:
    assert max(cell_len(line) for line in printed(full, 400).splitlines()) <= 160


def test_severities_are_words(full: Page, printed: Callable[..., str]) -> None:
    text = printed(full)
    assert [word in text for word in ("✖ CRITICAL", "▲ WARNING", "● NOTE", "✔ GOOD", "? CANNOT TELL")] == [True] * 5


def test_piped_output_is_plain(full: Page, printed: Callable[..., str]) -> None:
    assert "\x1b" not in printed(full)


def test_colour_adds_nothing_but_colour(full: Page, printed: Callable[..., str]) -> None:
    colored = printed(full, force_terminal=True, color_system="truecolor", legacy_windows=False)
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == printed(full)


def test_no_color_is_respected(full: Page, printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = printed(full, force_terminal=True, color_system="truecolor", legacy_windows=False)
    codes = {code for found in re.findall(r"\x1b\[([\d;]*)m", text) for code in found.split(";")}
    assert codes <= {"0", "1", "2", ""}  # bold and dim at most


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_old_encodings_get_ascii(full: Page, encoding: str, printed: Callable[..., str]) -> None:
    text = printed(full, encoding=encoding)
    assert text.isascii()
    assert "X CRITICAL" in text
    assert "?" not in text.replace("? CANNOT TELL", "")


def hostile_page(text: str) -> Page:
    fact = Fact(text, text, text, text)
    return Page(
        text,
        [
            Verdict(Severity.CRITICAL, text, text, [fact]),
            Table(text, [Column(text, text), Column(text)], [[text, 0.5], [text, None]], text),
            Curve(text, [Series(text, [1, 2], [1, 2])], Axis(text, text), Axis(text, text), events=[Event(1, text)], note=text),
            Trace(text, [Token(text, 1.0, text), Token(text, 0.5)], text, text, text),
            Groups(text, [Group(text, list(Outcome))], text),
            Text(text, text),
            Listing(text, text, text),
            Facts(text, [fact]),
        ],
        text,
        [fact],
    )


HOSTILE = [
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07x",
    "\x9b31mred",
    "a\x08\x08b\rc",
    "[bold red]x[/bold red] [/] [link=http://evil]y[/link] :bomb:",
    "\u202eright to left",
    "\ud800",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("width", [30, 100])
def test_a_log_cannot_drive_the_terminal(text: str, width: int, printed: Callable[..., str]) -> None:
    shown = printed(hostile_page(text), width)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    if "[bold" in text:
        assert shown.replace("\n", " ").count("[bold") >= 20


def test_markup_does_not_become_style(printed: Callable[..., str]) -> None:
    shown = printed(hostile_page("[red on white]x[/]"), force_terminal=True, color_system="truecolor", legacy_windows=False)
    assert "[red on white]x[/]" in re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert "47m" not in shown  # no white ground anywhere


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.one_of(st.sampled_from("[]/\\\x1b\x9b;mred \n\t"), st.characters()), max_size=30), st.integers(20, 160))
def test_any_text_at_any_width(printed: Callable[..., str], text: str, width: int) -> None:
    shown = printed(hostile_page(text), width)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)


def test_a_string_buffer_will_do(small: Page) -> None:
    file = io.StringIO()
    render_terminal(small, Console(file=file, width=80))
    assert "42% (38% to 47%)" in file.getvalue()


def test_a_listing_can_be_copied(printed: Callable[..., str]) -> None:
    long = "key: " + "value " * 30
    assert f"a:\n  {long.rstrip()}" in printed(Listing("L", f"a:\n  {long}\n"), 60)
