"""The page as a browser reads it: only our elements, all text as text, no request, whole on disk."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from breadth.base.errors import WriteError
from breadth.report.cells import Missing
from breadth.report.markup import ATTRIBUTES, TAGS
from breadth.report.page import Page
from breadth.report.plaintext import plain
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
from breadth.report.webpage import render_html, save_html

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><script>alert(1)</script>",
    "</title></svg></textarea><iframe src=//evil>",
    "<!-- comment",
    "]]>&lt;b&gt;&#x3c;",
    "\x1b[31m\x1b]8;;http://evil\x07[bold red]x[/bold red]",
    "javascript:alert(1)",
]


def page_of(text: str) -> Page:
    """Put the same text into every field that takes text."""
    fact = Fact(text, text, text, text)
    return Page(
        text,
        [
            *(Verdict(severity, text, text, [fact, Fact(text, Missing(text)), Fact(text, 0.5, text)]) for severity in Severity),
            Table(text, [Column(text, text), Column(text, text)], [[text, Missing(text)], [0.5, None]], text),
            Curve(
                text,
                [Series(text, [1, 2], [0.5, math.nan], [0.1, 0.2], [0.9, 0.8]), Series(text, [1], [1])],
                Axis(text, text),
                Axis(text, text),
                events=[Event(1, text)],
                band=text,
                note=text,
            ),
            Trace(text, [Token(text, 1.0, text), Token(text, 0.5), Token(text)], text, text, text),
            Groups(text, [Group(text, list(Outcome))], text),
            Text(text, text),
            Listing(text, text, text),
            Facts(text, [fact]),
        ],
        text,
        [fact],
    )


def check_markup(reading: Any) -> None:
    """Every element and attribute is one of ours, and none can load or run anything."""
    lower = {name.lower() for name in ATTRIBUTES}
    for tag, attributes in reading.elements:
        assert tag in TAGS
        assert set(attributes) <= lower
    assert not reading.open


def outline(reading: Any) -> list[str]:
    return [tag for tag, _ in reading.elements]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_every_field_stays_text(text: str, read: Any) -> None:
    reading = read(render_html(page_of(text)))
    check_markup(reading)
    # The same page with harmless words of the same shape has the same elements: nothing was added by the text.
    words = re.sub(r"\S", "x", " ".join(plain(text).split()))
    assert outline(reading) == outline(read(render_html(page_of(words))))
    assert reading.text.count(" ".join(plain(text).split())) >= 30


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.one_of(st.sampled_from("<>&\"'/=!-[]\x1b\x07;#x \n"), st.characters()), max_size=40))
def test_any_text_in_every_field_stays_text(read: Any, text: str) -> None:
    reading = read(render_html(page_of(text)))
    check_markup(reading)
    shown = " ".join(plain(text).split())
    assert shown in reading.text
    ours = [found for found in reading.elements if found[0] in {"meta", "style", "html", "body"}]
    assert len(ours) == 8


def test_the_full_page_is_well_formed_and_complete(full: Page, read: Any) -> None:
    reading = read(render_html(full))
    check_markup(reading)
    for words in ("Critical", "cannot tell", "0.612 nats", "(0.584 to 0.641)", "614,400", "28 more problems", "Show all 1,000 rows"):
        assert words.casefold() in reading.text.casefold()
    ids = [attributes["id"] for _, attributes in reading.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_page_asks_for_nothing(full: Page, read: Any) -> None:
    source = render_html(full)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<script|<link|<img|src=|href=", source)
    policy = dict(read(source).elements[3][1])
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert "default-src 'none'" in policy["content"]
    assert "script" not in policy["content"]


def test_the_policy_allows_exactly_our_style_sheet(full: Page) -> None:
    source = render_html(full)
    style = source.partition("<style>")[2].partition("</style>")[0]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    assert f"style-src &#x27;sha256-{digest}&#x27;" in source
    assert "style=" not in source


def test_it_can_be_read_without_seeing_it(full: Page, read: Any) -> None:
    reading = read(render_html(full))
    assert reading.elements[0] == ("html", {"lang": "en"})
    assert outline(reading).count("h1") == 1
    headings = [tag for tag in outline(reading) if tag in {"h1", "h2", "h3"}]
    assert headings[0] == "h1"
    assert set(headings[1:]) == {"h2"}
    pictures = [attributes for tag, attributes in reading.elements if tag == "svg"]
    assert all(attributes.get("aria-hidden") == "true" or attributes.get("role") == "img" for attributes in pictures)
    labelled = {name for _, attributes in reading.elements for name in attributes.get("aria-labelledby", "").split()}
    assert labelled <= {attributes.get("id") for _, attributes in reading.elements}
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in reading.elements


def test_the_same_report_gives_the_same_page(full: Page) -> None:
    assert render_html(full) == render_html(full)


def test_an_empty_page(read: Any) -> None:
    reading = read(render_html(Page("")))
    assert reading.text == "breadth breadth Report"


def test_the_file_is_written_whole(full: Page, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    save_html(full, target)
    assert target.read_text(encoding="utf-8") == render_html(full)
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_is_not_there_is_an_error_with_a_remedy(full: Page, tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="could not be written"):
        save_html(full, tmp_path / "missing" / "report.html")


def test_half_a_surrogate_pair_can_be_saved(tmp_path: Path) -> None:
    save_html(page_of("half \ud800 pair"), tmp_path / "report.html")
    assert "half \ufffd pair" in (tmp_path / "report.html").read_text(encoding="utf-8")
