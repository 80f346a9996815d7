"""Untrusted text made safe: escapes gone whole, words kept."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.report.plaintext import one_line, pluralize, split_paragraphs, strip_escapes, truncate


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b1;31mred", "red"),
        ("\x1b]0;own the title\x07after", "after"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq device string\x1b\\x", "x"),
        ("\x1b(Bplain\x1bc", "plain"),
        ("bell\x07 back\x08 nul\x00", "bell back nul"),
        ("progress 1%\rprogress 2%", "progress 1%\nprogress 2%"),
        ("dos\r\nlines", "dos\nlines"),
        ("user\u202egnp.exe", "usergnp.exe"),
        ("half \ud800 pair", "half \ufffd pair"),
        ("unfinished \x1b[31", "unfinished 31"),
        ("unfinished \x1b]0;title", "unfinished 0;title"),
        ("tab\tand\nline stay, so do ü, 日本 and 🙂", "tab\tand\nline stay, so do ü, 日本 and 🙂"),
    ],
)
def test_plain(raw: str, expected: str) -> None:
    assert strip_escapes(raw) == expected


@pytest.mark.parametrize("start", ["\x9d", "\x90", "\x1b]", "\x1b[", "\x9b0"])
def test_a_million_starts_without_an_end_take_no_time(start: str) -> None:
    assert len(strip_escapes(start * 200_000)) <= 200_000  # searched to the end from each of them, this took hours


@given(st.one_of(st.text(st.characters()), st.text(st.sampled_from("\x1b\x9b\x90\x07\\[](;0mAx \n"))))
def test_plain_leaves_nothing_that_acts(text: str) -> None:
    kept = strip_escapes(text)
    assert not [c for c in kept if unicodedata.category(c) in {"Cc", "Cs"} and c not in "\n\t"]
    assert strip_escapes(kept) == kept


@given(st.text(st.characters(exclude_categories=["C"])))
def test_plain_keeps_ordinary_text(text: str) -> None:
    assert strip_escapes(text) == text


def test_one_line_collapses_white_space() -> None:
    assert one_line("  a\n\tb\x1b[1m  c ") == "a b c"


def test_paragraphs_split_at_blank_lines_only() -> None:
    assert split_paragraphs("one\nstill one\n \t\ntwo\n\n\n\nthree\n") == ("one still one", "two", "three")
    assert split_paragraphs(" \n\n ") == ()


def test_shortened_says_that_it_cut() -> None:
    assert truncate("with clip-higher", 10) == "with clip…"
    assert truncate("ten chars.", 10) == "ten chars."
    assert truncate("", 10) == ""


def test_counted() -> None:
    assert [pluralize(1, "row"), pluralize(0, "row"), pluralize(1200, "row")] == ["1 row", "0 rows", "1,200 rows"]
