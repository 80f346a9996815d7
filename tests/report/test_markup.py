"""Markup that cannot be broken."""

from __future__ import annotations

from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.report.markup import ATTRIBUTES, TAGS, Element, element, format_coordinate
from breadth.report.plaintext import strip_escapes


def test_text_and_attributes_are_escaped() -> None:
    made = element("p", "<b>&amp;</b>", element("span", "in"), title='"><script>', class_="note")
    assert made.source() == (
        '<p title="&quot;&gt;&lt;script&gt;" class="note">&lt;b&gt;&amp;amp;&lt;/b&gt;<span>in</span></p>'
    )


def test_control_characters_never_reach_the_page() -> None:
    assert element("p", "a\x1b[31m\x00b", title="c\x07\ud800").source() == '<p title="c\ufffd">ab</p>'


@given(st.text(), st.text())
def test_any_text_stays_text(text: str, value: str) -> None:
    source = element("p", text, title=value).source()
    assert source == f'<p title="{escape(strip_escapes(value))}">{escape(strip_escapes(text), quote=False)}</p>'
    assert source.count("<") == source.count(">") == 2
    assert source.count('"') == 2 + strip_escapes(text).count('"')


def test_what_loads_or_runs_is_unknown() -> None:
    assert not TAGS & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "a",
        "base",
        "form",
        "image",
        "use",
        "foreignObject",
        "animate",
    }
    assert not ATTRIBUTES & {"src", "href", "style", "srcset", "action", "xlink:href", "srcdoc", "background", "ping"}
    assert not [name for name in ATTRIBUTES if name.startswith("on")]


@pytest.mark.parametrize("tag", ["script", "p onclick=x", "", "P"])
def test_other_tags_are_refused(tag: str) -> None:
    with pytest.raises(ValueError, match="not allowed"):
        element(tag)


@pytest.mark.parametrize("name", ["onclick", "style", "href", "x><script"])
def test_other_attributes_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not allowed"):
        Element("p", (), {name: "x"})


def test_void_elements_hold_nothing() -> None:
    assert element("meta", charset="utf-8").source() == '<meta charset="utf-8">'
    with pytest.raises(ValueError, match="holds nothing"):
        element("meta", "x")


def test_none_is_left_out_and_names_are_translated() -> None:
    made = element("label", None, "x", for_="a", aria_label=None, text_anchor="end", width=12.346)
    assert made.source() == '<label for="a" text-anchor="end" width="12.35">x</label>'
    assert "aria-label" not in made.attributes


def test_coordinates_are_short() -> None:
    assert [format_coordinate(value) for value in (100, 100.0, 0.5, 12.346, -3.0)] == [
        "100",
        "100",
        "0.5",
        "12.35",
        "-3",
    ]
