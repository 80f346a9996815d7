"""A report as one HTML page without scripts, requests or fonts, for screen, dark mode, paper and forced colours."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from breadth.base.system import write_text_file
from breadth.report import sections
from breadth.report.cells import (
    NO_VALUE,
    Missing,
    format_cell,
    format_number,
    interval_origin,
    is_number,
    typeset_minus,
)
from breadth.report.layout import (
    Shading,
    TableEntry,
    TableLayout,
    choose_shading,
    describe_gaps,
    describe_shading,
    group_by_kind,
    lay_out_table,
    letter_label,
    series_cells,
    token_label,
)
from breadth.report.markup import Element, Node, element
from breadth.report.plaintext import one_line, pluralize, split_paragraphs, strip_escapes
from breadth.report.sections import (
    Column,
    Curve,
    Fact,
    Facts,
    Group,
    Groups,
    Listing,
    Outcome,
    Page,
    Table,
    Text,
    Token,
    Trace,
    Verdict,
)
from breadth.report.shapes import band_swatch, sample_marks, severity_sign, swatch
from breadth.report.style import SEVERITIES, SHOWN_EVENTS, SHOWN_GROUPS, SHOWN_ROWS, SHOWN_TOKENS, line_style
from breadth.report.stylesheet import stylesheet
from breadth.report.svg_chart import NARROW, WIDE, draw_line_chart


def wrap_section(title: str, *children: Node | None, kind: str) -> Element:
    """Wrap a section with its heading, if it has one."""
    heading = element("h2", one_line(title)) if one_line(title) else None
    return element("section", heading, *children, class_=kind)


def draw_caption(text: str) -> Element | None:
    """Write the note under a figure, or nothing."""
    return element("p", one_line(text), class_="caption") if one_line(text) else None


def draw_verdict(verdict: Verdict, _: str) -> Element:
    """Draw a verdict: sign and severity, the headline, the reasons, and the numbers that prove it."""
    word = element("p", severity_sign(verdict.severity), element("span", verdict.severity.value), class_="severity")
    return element(
        "section",
        word,
        element("h2", one_line(verdict.headline)),
        *(element("p", text) for text in split_paragraphs(verdict.body)),
        element("dl", *map(draw_pair, verdict.numbers), class_="numbers") if verdict.numbers else None,
        class_=f"verdict {SEVERITIES[verdict.severity].color}",
    )


def draw_text(words: Text, _: str) -> Element:
    """Draw paragraphs."""
    return wrap_section(words.title, *(element("p", line) for line in split_paragraphs(words.text)), kind="text")


def draw_listing(lines: Listing, _: str) -> Element:
    """Draw text to copy unchanged."""
    code = element("pre", element("code", lines.text), tabindex=0, role="region", aria_label=one_line(lines.title))
    return wrap_section(lines.title, code, draw_caption(lines.note), kind="listing")


def draw_facts(listed: Facts, _: str) -> Element:
    """Draw names and values."""
    return wrap_section(listed.title, fact_list(listed.facts), kind="facts")


def fact_list(listed: Sequence[Fact]) -> Element:
    """Draw names and values without a heading."""
    return element(
        "dl",
        *map(draw_pair, listed),
        class_="listed",
    )


def value_nodes(text: str, *, numeric: bool, origin: str = "") -> list[Node]:
    """Return a value; the range of an interval shows on hover how it was made."""
    middle, _, ends = typeset_minus(text).rpartition(" (")
    if not origin or not middle:
        return [typeset_minus(text) if numeric else text]
    return [f"{middle} ", element("span", f"({ends}", class_="range", title=one_line(origin))]


def fact_nodes(fact: Fact) -> list[Node]:
    """Return the value of a fact, or why it is missing."""
    if isinstance(fact.value, Missing):
        return [element("span", NO_VALUE, class_="absent"), f": {one_line(fact.value.reason)}"]
    if fact.value is None:
        return [element("span", NO_VALUE, class_="absent")]
    return value_nodes(
        format_cell(fact.value, fact.unit), numeric=is_number(fact.value), origin=interval_origin(fact.value)
    )


def draw_definition(fact: Fact) -> Element:
    """Draw the value of a fact with its note."""
    note = element("span", one_line(fact.note), class_="aside") if one_line(fact.note) else None
    return element("dd", *fact_nodes(fact), note)


def draw_pair(fact: Fact) -> Element:
    """Draw the name and value of a fact."""
    return element("div", element("dt", one_line(fact.name)), draw_definition(fact))


def draw_table(rows: Table, key: str) -> Element:
    """Draw a table with its heading, footnotes and caption."""
    return wrap_section(rows.title, *table_parts(rows, key), draw_caption(rows.note), kind="table")


def table_parts(rows: Table, key: str) -> list[Element]:
    """Draw a table without heading and caption; ``key`` makes its ids unique on the page."""
    known = lay_out_table(rows)
    heads = [
        element("th", heading, scope="col", class_="right" if right else None)
        for heading, right in zip(known.headings, known.right, strict=True)
    ]
    rest = known.rows[SHOWN_ROWS:]
    grid = element(
        "table",
        element("thead", element("tr", *heads)),
        element("tbody", *(draw_row(row, known.right) for row in known.rows[:SHOWN_ROWS])),
        element("tbody", *(draw_row(row, known.right) for row in rest), class_="rest") if rest else None,
    )
    box = element("div", grid, class_="scroll", tabindex=0, role="region", aria_label=one_line(rows.title) or "table")
    parts = [box] if rows.rows else [box, element("p", "No rows.", class_="caption")]
    folded = [element("div", *row_switch(len(known.rows), key), *parts, class_="folding")] if rest else parts
    return folded + draw_footnotes(known)


def draw_row(row: Sequence[TableEntry], right: Sequence[bool]) -> Element:
    """Draw a row of a table."""
    return element("tr", *(draw_cell(entry, side) for entry, side in zip(row, right, strict=True)))


def draw_cell(entry: TableEntry, right: bool) -> Element:
    """Draw a cell of a table, with its footnote letter."""
    names = [name for name, holds in (("right", right), ("absent", entry.text == NO_VALUE)) if holds]
    flag = element("sup", entry.footnote) if entry.footnote else None
    shown = value_nodes(entry.text, numeric=entry.numeric, origin=entry.origin)
    return element("td", *shown, flag, class_=" ".join(names) or None)


def row_switch(count: int, key: str) -> list[Element]:
    """Return a check box that shows the folded rows without a script."""
    words = element(
        "label",
        element("span", f"Show all {count:,} rows", class_="folded"),
        element("span", f"Show the first {SHOWN_ROWS} rows", class_="unfolded"),
        for_=f"{key}-rows",
    )
    return [element("input", type_="checkbox", id=f"{key}-rows", class_="switch"), words]


def draw_footnotes(known: TableLayout) -> list[Element]:
    """Draw the reasons of missing values."""
    if not known.footnotes:
        return []
    lines = [element("li", element("sup", flag), f" {reason}") for flag, reason in known.footnotes]
    return [element("ul", *lines, class_="footnotes")]


_LISTED_POINTS = 400
"""A curve with more points lists none on the page; JSON has all."""
_CHUNK = 8
"""Samples drawn without a gap: as many as one counts at a glance."""


def draw_curve(lines: Curve, key: str) -> Element:
    """Draw a chart twice, for wide and narrow screens, with legend, events, caption and the numbers behind it."""
    return wrap_section(
        lines.title,
        curve_legend(lines),
        draw_line_chart(lines, WIDE, key),
        draw_line_chart(lines, NARROW, key),
        *event_list(lines),
        draw_caption(f"{lines.note} {describe_gaps(lines)}"),
        point_table(lines, key),
        kind="curve",
    )


def curve_legend(lines: Curve) -> Element | None:
    """Draw the legend of a chart: its lines, if several, and its bands."""
    named = [
        (swatch(line_style(index)), one_line(series.name))
        for index, series in enumerate(lines.series)
        if one_line(series.name)
    ]
    bands = [(band_swatch(), one_line(lines.band))] if any(series.low for series in lines.series) else []
    items = [element("li", sample, element("span", name)) for sample, name in (named if len(named) > 1 else []) + bands]
    return element("ul", *items, class_="legend") if items else None


def event_list(lines: Curve) -> list[Element]:
    """List the events of a curve; the rest is folded."""
    label = one_line(lines.x.label)
    items = [
        element(
            "li",
            element("span", letter_label(index), class_="flag"),
            element(
                "span",
                f"{label} {typeset_minus(format_number(event.x, lines.x.unit))}: {one_line(event.label)}",
            ),
        )
        for index, event in enumerate(lines.events)
    ]
    shown, rest = items[:SHOWN_EVENTS], items[SHOWN_EVENTS:]
    folded = [fold(pluralize(len(rest), "more event"), [element("ul", *rest, class_="events")])] if rest else []
    return [element("ul", *shown, class_="events"), *folded] if items else []


def point_table(lines: Curve, key: str) -> Element | None:
    """Return the points in a folded table, for readers who cannot see the chart."""
    count = sum(len(series.x) for series in lines.series)
    if not count or count > _LISTED_POINTS:
        return None
    columns = [Column("line"), Column(lines.x.label, lines.x.unit), Column(lines.y.label, lines.y.unit)]
    rows = [(series.name, x, cell) for series in lines.series for x, cell in series_cells(series)]
    table = Table(f"{one_line(lines.title)}: the numbers", columns, rows)
    return fold(f"The {pluralize(count, 'point')} behind the chart", table_parts(table, f"{key}-points"))


def draw_groups(picture: Groups, _: str) -> Element:
    """Draw one row per problem and one mark per sample."""
    shown, rest = picture.groups[:SHOWN_GROUPS], picture.groups[SHOWN_GROUPS:]
    kinds = [kind for kind in Outcome if any(kind in group.outcomes for group in picture.groups)]
    legend = element(
        "ul", *(element("li", sample_marks([kind]), element("span", kind.value)) for kind in kinds), class_="legend"
    )
    return wrap_section(
        picture.title,
        legend if kinds else draw_caption("No samples."),
        group_list(shown),
        fold(f"{pluralize(len(rest), 'more problem')}", [group_list(rest)]) if rest else None,
        draw_caption(picture.note),
        kind="groups",
    )


def group_list(listed: Iterable[Group]) -> Element:
    """Draw problems as a list."""
    return element("ul", *map(draw_group, listed), class_="problems")


def draw_group(group: Group) -> Element:
    """Draw the samples of one problem."""
    tally = Counter(group.outcomes)
    words = ", ".join(f"{tally[kind]} {kind.value}" for kind in Outcome if tally[kind]) or "no samples"
    chunks = [sample_marks(group.outcomes[start : start + _CHUNK]) for start in range(0, len(group.outcomes), _CHUNK)]
    return element(
        "li",
        element("span", one_line(group.name), class_="problem"),
        element("span", *chunks, class_="marks", role="img", aria_label=words),
        element("span", f"{tally[Outcome.CORRECT]}/{len(group.outcomes)}", class_="count", title=words),
    )


def draw_trace(text: Trace, _: str) -> Element:
    """Draw a text with tokens shaded and underlined by their number."""
    steps = choose_shading(text)
    shown, rest = text.tokens[:SHOWN_TOKENS], text.tokens[SHOWN_TOKENS:]
    return wrap_section(
        text.title,
        trace_legend(text, steps),
        draw_tokens(text, shown, steps),
        fold(f"{pluralize(len(rest), 'more token')}", [draw_tokens(text, rest, steps)]) if rest else None,
        draw_caption(text.note),
        kind="trace",
    )


def trace_legend(text: Trace, steps: Shading | None) -> Element:
    """Draw what the shades of a trace mean."""
    words = element("p", typeset_minus(describe_shading(text, steps)), class_="scale")
    if steps is None or steps.high <= steps.low:
        return words
    edges = [
        element("li", element("span", f"from {format_number(edge, text.unit)}", class_=f"t{i}"))
        for i, edge in enumerate(steps.edges(), 1)
    ]
    return element("div", words, element("ul", *edges, class_="legend"))


def draw_tokens(text: Trace, tokens: Sequence[Token], steps: Shading | None) -> Element:
    """Draw the tokens of a trace, neighbours of one kind together."""
    parts: list[Element] = []
    for kind, run in group_by_kind(tokens):
        inside = [draw_token(text, token, steps) for token in run]
        name = element("span", kind, class_="kind-name")
        parts += [element("span", name, *inside, class_="kind")] if kind else inside
    return element("p", *parts, class_="tokens")


def draw_token(text: Trace, token: Token, steps: Shading | None) -> Element:
    """Draw one token with its shade and number."""
    level = steps.level(token.value) if steps else 0
    shown = strip_escapes(token.text)
    # A token that is only a line break would show no mark at all.
    words = shown if shown.strip("\n") or not shown else "↵" + shown
    title = token_label(text, token)
    return element(
        "span", words, class_=f"t{level}" if level else None, title=title or None, tabindex="-1" if title else None
    )


def fold(summary: str, inside: Iterable[Element]) -> Element:
    """Hide elements behind a summary."""
    return element("details", element("summary", summary), *inside)


DRAWERS: Mapping[type, Callable[[Any, str], Element]] = {
    sections.Verdict: draw_verdict,
    sections.Text: draw_text,
    sections.Listing: draw_listing,
    sections.Facts: draw_facts,
    sections.Table: draw_table,
    sections.Curve: draw_curve,
    sections.Groups: draw_groups,
    sections.Trace: draw_trace,
}


def render_html(page: Page) -> str:
    """Return the report as one page: all text escaped, scripts and requests forbidden."""
    return "<!doctype html>\n" + element("html", page_head(page), page_body(page), lang="en").source() + "\n"


def save_html(page: Page, path: Path) -> None:
    """Write the page to a file, whole or not at all; its folder is made where it is missing."""
    write_text_file(path, render_html(page))


def page_head(page: Page) -> Element:
    """Return the head of the page, with a policy that forbids scripts and requests."""
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


def page_body(page: Page) -> Element:
    """Return the body of the page: header, sections, provenance."""
    subtitle = element("p", one_line(page.subtitle), class_="subtitle") if one_line(page.subtitle) else None
    return element(
        "body",
        element(
            "header", element("p", "breadth", class_="brand"), element("h1", one_line(page.title) or "Report"), subtitle
        ),
        element("main", *(DRAWERS[type(part)](part, f"s{index}") for index, part in enumerate(page.sections, 1))),
        element("footer", element("h2", "Where this comes from"), fact_list(page.provenance))
        if page.provenance
        else None,
    )
