"""A report as one HTML page that needs nothing else: no script, no request, no font; styled for screen, dark, paper and forced colours."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from breadth.base.atomic import whole_file
from breadth.report import sections, webfigures, webprose, webtable
from breadth.report.markup import Element, element
from breadth.report.page import Page
from breadth.report.plaintext import one_line
from breadth.report.stylesheet import stylesheet

_DRAWN_BY: Mapping[type, Callable[[Any, str], Element]] = {
    sections.Verdict: webprose.verdict,
    sections.Text: webprose.text,
    sections.Listing: webprose.listing,
    sections.Facts: webprose.facts,
    sections.Table: webtable.table,
    sections.Curve: webfigures.curve,
    sections.Groups: webfigures.groups,
    sections.Trace: webfigures.trace,
}


def render_html(page: Page) -> str:
    """Return the report as one page; every text in it is escaped, and its policy forbids scripts and requests."""
    return "<!doctype html>\n" + element("html", _head(page), _body(page), lang="en").source() + "\n"


def save_html(page: Page, path: Path) -> None:
    """Write the page to a file, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(render_html(page), encoding="utf-8")


def _head(page: Page) -> Element:
    css = stylesheet()
    digest = b64encode(sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", one_line(page.title) or "breadth"),
        element("style", css),
    )


def _body(page: Page) -> Element:
    subtitle = element("p", one_line(page.subtitle), class_="subtitle") if one_line(page.subtitle) else None
    return element(
        "body",
        element("header", element("p", "breadth", class_="brand"), element("h1", one_line(page.title) or "Report"), subtitle),
        element("main", *(_DRAWN_BY[type(part)](part, f"s{index}") for index, part in enumerate(page.sections, 1))),
        _provenance(page),
    )


def _provenance(page: Page) -> Element | None:
    if not page.provenance:
        return None
    return element("footer", element("h2", "Where this comes from"), webprose.fact_list(page.provenance))
