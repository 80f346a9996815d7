"""Figures for the page: curves with their legend and numbers, pictures of groups, traces of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from breadth.report.chartframe import NARROW, WIDE
from breadth.report.figures import line_chart
from breadth.report.markup import Element, element
from breadth.report.numerals import number, typeset
from breadth.report.outline import estimates, left_out, letter
from breadth.report.plaintext import counted, one_line, plain
from breadth.report.sections import Column, Curve, Group, Groups, Outcome, Table, Token, Trace
from breadth.report.shading import Shading, by_kind, scale_words, shading, token_number
from breadth.report.shapes import band_swatch, sample_marks, swatch
from breadth.report.style import SHOWN_EVENTS, SHOWN_GROUPS, SHOWN_TOKENS, line_style
from breadth.report.webprose import caption, section
from breadth.report.webtable import bare_table

_LISTED_POINTS = 400
"""A curve with more points lists none of them on the page; JSON has all."""
_CHUNK = 8
"""Samples drawn without a break: as many as are counted at a glance."""


def curve(lines: Curve, key: str) -> Element:
    """Draw a chart twice, for wide and narrow screens, with legend, events, caption and the numbers behind it."""
    return section(
        lines.title,
        _legend(lines),
        line_chart(lines, WIDE, key),
        line_chart(lines, NARROW, key),
        *_event_list(lines),
        caption(f"{lines.note} {left_out(lines)}"),
        _numbers(lines, key),
        kind="curve",
    )


def _legend(lines: Curve) -> Element | None:
    named = [(swatch(line_style(index)), one_line(one.name)) for index, one in enumerate(lines.series) if one_line(one.name)]
    bands = [(band_swatch(), one_line(lines.band))] if any(one.low for one in lines.series) else []
    items = [element("li", sample, element("span", name)) for sample, name in (named if len(named) > 1 else []) + bands]
    return element("ul", *items, class_="legend") if items else None


def _event_list(lines: Curve) -> list[Element]:
    items = [
        element("li", element("span", letter(index), class_="flag"), element("span", f"{_place(lines, event.x)}: {one_line(event.label)}"))
        for index, event in enumerate(lines.events)
    ]
    shown, rest = items[:SHOWN_EVENTS], items[SHOWN_EVENTS:]
    folded = [_folded(counted(len(rest), "more event"), [element("ul", *rest, class_="events")])] if rest else []
    return [element("ul", *shown, class_="events"), *folded] if items else []


def _place(lines: Curve, x: float) -> str:
    return f"{one_line(lines.x.label)} {typeset(number(x, lines.x.unit))}"


def _numbers(lines: Curve, key: str) -> Element | None:
    """List the points in a folded table, for those who read numbers or cannot see the chart."""
    count = sum(len(one.x) for one in lines.series)
    if not count or count > _LISTED_POINTS:
        return None
    columns = [Column("line"), Column(lines.x.label, lines.x.unit), Column(lines.y.label, lines.y.unit)]
    rows = [(one.name, x, cell) for one in lines.series for x, cell in estimates(one)]
    table = Table(f"{one_line(lines.title)}: the numbers", columns, rows)
    return _folded(f"The {counted(count, 'point')} behind the chart", bare_table(table, f"{key}-points"))


def groups(picture: Groups, _: str) -> Element:
    """Draw one row per problem and one mark per sample."""
    shown, rest = picture.groups[:SHOWN_GROUPS], picture.groups[SHOWN_GROUPS:]
    kinds = [kind for kind in Outcome if any(kind in group.outcomes for group in picture.groups)]
    legend = element("ul", *(element("li", sample_marks([kind]), element("span", kind.value)) for kind in kinds), class_="legend")
    return section(
        picture.title,
        legend if kinds else caption("No samples."),
        _group_list(shown),
        _folded(f"{counted(len(rest), 'more problem')}", [_group_list(rest)]) if rest else None,
        caption(picture.note),
        kind="groups",
    )


def _group_list(listed: Iterable[Group]) -> Element:
    return element("ul", *map(_group, listed), class_="problems")


def _group(group: Group) -> Element:
    tally = Counter(group.outcomes)
    words = ", ".join(f"{tally[kind]} {kind.value}" for kind in Outcome if tally[kind]) or "no samples"
    chunks = [sample_marks(group.outcomes[start : start + _CHUNK]) for start in range(0, len(group.outcomes), _CHUNK)]
    return element(
        "li",
        element("span", one_line(group.name), class_="problem"),
        element("span", *chunks, class_="marks", role="img", aria_label=words),
        element("span", f"{tally[Outcome.CORRECT]}/{len(group.outcomes)}", class_="count", title=words),
    )


def trace(text: Trace, _: str) -> Element:
    """Draw a text whose tokens are shaded and underlined by their number."""
    steps = shading(text)
    shown, rest = text.tokens[:SHOWN_TOKENS], text.tokens[SHOWN_TOKENS:]
    return section(
        text.title,
        _trace_legend(text, steps),
        _tokens(text, shown, steps),
        _folded(f"{counted(len(rest), 'more token')}", [_tokens(text, rest, steps)]) if rest else None,
        caption(text.note),
        kind="trace",
    )


def _trace_legend(text: Trace, steps: Shading | None) -> Element:
    words = element("p", typeset(scale_words(text, steps)), class_="scale")
    if steps is None or steps.high <= steps.low:
        return words
    edges = [element("li", element("span", f"from {number(edge, text.unit)}", class_=f"t{i}")) for i, edge in enumerate(steps.edges(), 1)]
    return element("div", words, element("ul", *edges, class_="legend"))


def _tokens(text: Trace, tokens: Sequence[Token], steps: Shading | None) -> Element:
    parts = [part for kind, run in by_kind(tokens) for part in _kind(kind, [_token(text, token, steps) for token in run])]
    return element("p", *parts, class_="tokens")


def _kind(kind: str, parts: list[Element]) -> list[Element]:
    return [element("span", element("span", kind, class_="kind-name"), *parts, class_="kind")] if kind else parts


def _token(text: Trace, token: Token, steps: Shading | None) -> Element:
    level = steps.level(token.value) if steps else 0
    shown = plain(token.text)
    # A token that is only a line break would show no mark at all.
    words = shown if shown.strip("\n") or not shown else "↵" + shown
    title = token_number(text, token)
    return element("span", words, class_=f"t{level}" if level else None, title=title or None, tabindex="-1" if title else None)


def _folded(summary: str, inside: Iterable[Element]) -> Element:
    return element("details", element("summary", summary), *inside)
