"""Sections of words and single numbers for the page: verdicts, paragraphs, listings, facts."""

from __future__ import annotations

from collections.abc import Sequence

from breadth.report.cells import Missing, interval_origin, is_number
from breadth.report.markup import Element, Node, element
from breadth.report.numerals import ABSENT, cell_text, typeset
from breadth.report.plaintext import one_line, paragraphs
from breadth.report.sections import Fact, Facts, Listing, Text, Verdict
from breadth.report.shapes import severity_sign
from breadth.report.style import SEVERITIES


def section(title: str, *children: Node | None, kind: str) -> Element:
    """Wrap a section with its heading, when it has one."""
    heading = element("h2", one_line(title)) if one_line(title) else None
    return element("section", heading, *children, class_=kind)


def caption(text: str) -> Element | None:
    """Write the note under a figure, or nothing."""
    return element("p", one_line(text), class_="caption") if one_line(text) else None


def verdict(found: Verdict, _: str) -> Element:
    """Draw what we found: sign and word, the sentence, why, and the numbers that prove it."""
    word = element("p", severity_sign(found.severity), element("span", found.severity.value), class_="severity")
    return element(
        "section",
        word,
        element("h2", one_line(found.headline)),
        *(element("p", text) for text in paragraphs(found.body)),
        element("dl", *map(_key_number, found.numbers), class_="numbers") if found.numbers else None,
        class_=f"verdict {SEVERITIES[found.severity].color}",
    )


def text(words: Text, _: str) -> Element:
    """Draw paragraphs."""
    return section(words.title, *(element("p", line) for line in paragraphs(words.text)), kind="text")


def listing(lines: Listing, _: str) -> Element:
    """Draw text to be copied as it stands."""
    code = element("pre", element("code", lines.text), tabindex=0, role="region", aria_label=one_line(lines.title))
    return section(lines.title, code, caption(lines.note), kind="listing")


def facts(listed: Facts, _: str) -> Element:
    """Draw names and values."""
    return section(listed.title, fact_list(listed.facts), kind="facts")


def fact_list(listed: Sequence[Fact]) -> Element:
    """Draw names and values without a heading."""
    return element("dl", *(element("div", element("dt", one_line(fact.name)), _definition(fact)) for fact in listed), class_="listed")


def value_nodes(text: str, *, numeric: bool, origin: str = "") -> list[Node]:
    """Write a value; the range of an interval is set apart and tells on hover how it was made."""
    middle, _, ends = typeset(text).rpartition(" (")
    if not origin or not middle:
        return [typeset(text) if numeric else text]
    return [f"{middle} ", element("span", f"({ends}", class_="range", title=one_line(origin))]


def _fact_value(fact: Fact) -> list[Node]:
    if isinstance(fact.value, Missing):
        return [element("span", ABSENT, class_="absent"), f": {one_line(fact.value.reason)}"]
    if fact.value is None:
        return [element("span", ABSENT, class_="absent")]
    return value_nodes(cell_text(fact.value, fact.unit), numeric=is_number(fact.value), origin=interval_origin(fact.value))


def _definition(fact: Fact) -> Element:
    note = element("span", one_line(fact.note), class_="aside") if one_line(fact.note) else None
    return element("dd", *_fact_value(fact), note)


def _key_number(fact: Fact) -> Element:
    return element("div", element("dt", one_line(fact.name)), _definition(fact))
