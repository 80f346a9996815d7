"""The HTML page: prose, tables and figures; nothing in the data can become markup."""

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
from breadth.measure.intervals import Interval
from breadth.report.cells import Cell, Missing
from breadth.report.html_page import (
    draw_caption,
    draw_curve,
    draw_facts,
    draw_groups,
    draw_listing,
    draw_table,
    draw_text,
    draw_trace,
    draw_verdict,
    render_html,
    save_html,
    value_nodes,
    wrap_section,
)
from breadth.report.markup import ATTRIBUTES, TAGS
from breadth.report.plaintext import strip_escapes
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
    Page,
    Series,
    Severity,
    Table,
    Text,
    Token,
    Trace,
    Verdict,
)
from breadth.report.style import SHOWN_EVENTS, SHOWN_GROUPS, SHOWN_ROWS, SHOWN_TOKENS


def test_a_verdict_shows_word_sign_sentence_and_numbers() -> None:
    found = Verdict(
        Severity.CANNOT_TELL,
        "We cannot tell",
        "Why.\n\nWhat to do.",
        [Fact("entropy", Interval(0.42, 0.38, 0.47, 0.95, "wilson"), "nats")],
    )
    source = draw_verdict(found, "s1").source()
    assert source.startswith('<section class="verdict unknown">')
    assert "<span>cannot tell</span>" in source
    assert "<h2>We cannot tell</h2><p>Why.</p><p>What to do.</p>" in source
    assert (
        '<dt>entropy</dt><dd>0.42 nats <span class="range" title="95% interval, wilson">(0.38 to 0.47)</span></dd>'
        in source
    )


def test_a_verdict_without_numbers_has_no_list() -> None:
    assert "<dl" not in draw_verdict(Verdict(Severity.GOOD, "Fine"), "s1").source()


def test_paragraphs() -> None:
    assert draw_text(Text("a\nb\n\nc"), "s1").source() == '<section class="text"><p>a b</p><p>c</p></section>'
    assert "<h2>T</h2>" in draw_text(Text("a", "T"), "s1").source()


def test_a_listing_keeps_its_spaces() -> None:
    source = draw_listing(Listing("Patch", "a:\n  b: <1>\n", note="in your YAML"), "s1").source()
    assert "<code>a:\n  b: &lt;1&gt;\n</code>" in source
    assert '<p class="caption">in your YAML</p>' in source


def test_facts_say_what_is_missing() -> None:
    listed = Facts(
        "There",
        [
            Fact("log-probs", Missing("not in the log"), note="Set x=1."),
            Fact("gain", -0.5),
            Fact("none", None),
            Fact("path", "a-1 (b)"),
        ],
    )
    source = draw_facts(listed, "s1").source()
    assert '<dd><span class="absent">n/a</span>: not in the log<span class="aside">Set x=1.</span></dd>' in source
    assert "<dd>−0.5</dd>" in source
    assert '<dd><span class="absent">n/a</span></dd>' in source
    assert "<dd>a-1 (b)</dd>" in source


def test_values_without_an_interval_are_one_piece() -> None:
    assert value_nodes("-1 (x)", numeric=True) == ["−1 (x)"]
    assert value_nodes("run -1 (x)", numeric=False) == ["run -1 (x)"]


def test_empty_captions_and_titles_leave_nothing() -> None:
    assert draw_caption(" \n") is None
    assert wrap_section("", "x", kind="text").source() == '<section class="text">x</section>'


def long_table(count: int) -> Table:
    return Table("Long", [Column("n")], [[index] for index in range(count)])


def test_cells_headings_and_footnotes() -> None:
    rows: list[list[Cell]] = [["a", Interval(0.28, 0.25, 0.312)], ["b", Missing("not logged")], ["c", -0.5]]
    source = draw_table(Table("T", [Column("run"), Column("score", "%")], rows, note="n = 128"), "s1").source()
    assert '<th scope="col">run</th><th scope="col" class="right">score (%)</th>' in source
    assert '<td class="right">28.0 <span class="range" title="95% interval">(25.0 to 31.2)</span></td>' in source
    assert '<td class="right absent">n/a<sup>a</sup></td>' in source
    assert '<td class="right">−50.0</td>' in source
    assert '<ul class="footnotes"><li><sup>a</sup> not logged</li></ul><p class="caption">n = 128</p>' in source


def test_a_table_scrolls_in_a_box_the_keyboard_reaches() -> None:
    assert (
        '<div class="scroll" tabindex="0" role="region" aria-label="Long">' in draw_table(long_table(1), "s1").source()
    )


def test_a_table_of_one_screen_does_not_fold(read: Any) -> None:
    page = read(draw_table(long_table(SHOWN_ROWS), "s1").source())
    assert not page.with_class("rest")
    assert not page.with_class("switch")


def test_a_huge_table_folds_and_loses_nothing(read: Any) -> None:
    page = read(draw_table(long_table(1000), "s7").source())
    assert [tag for tag, _ in page.elements].count("tr") == 1001
    assert len(page.with_class("rest")) == 1
    assert [text for text in page.texts if text.isdigit() or "," in text][-1] == "999"
    assert page.with_class("switch") == [("input", {"type": "checkbox", "id": "s7-rows", "class": "switch"})]
    assert ("label", {"for": "s7-rows"}) in page.elements
    assert "Show all 1,000 rows" in page.text
    before_rest = draw_table(long_table(1000), "s7").source().partition('class="rest"')[0]
    assert before_rest.count("<tr>") == SHOWN_ROWS + 1


def test_no_rows() -> None:
    assert '<p class="caption">No rows.</p>' in draw_table(long_table(0), "s1").source()


STEP, SCORE = Axis("step"), Axis("score")


def test_a_curve_is_drawn_for_both_widths_with_its_numbers(read: Any) -> None:
    lines = Curve(
        "C", [Series("s", [1, 2], [0.5, math.nan], [0.4, 0.1], [0.6, 0.2])], STEP, SCORE, band="80% band", note="Note."
    )
    page = read(draw_curve(lines, "s1").source())
    assert [found[1]["class"] for found in page.with_class("chart")] == ["chart wide", "chart narrow"]
    assert "80% band" in page.text
    assert "Note. 1 point without a value, shown as gaps." in page.text
    assert "The 2 points behind the chart" in page.text
    assert "0.50 (0.40 to 0.60)" in page.text
    assert "NaN" in page.text


def test_ids_are_unique(read: Any) -> None:
    page = read(draw_curve(Curve("C", [Series("s", range(60), range(60))], STEP, SCORE), "s1").source())
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) == 5


def test_one_line_needs_no_legend_and_two_do(read: Any) -> None:
    one, two = ([Series(f"line {index}", [1, 2], [1, 2]) for index in range(count)] for count in (1, 2))
    assert not read(draw_curve(Curve("C", one, STEP, SCORE), "s1").source()).with_class("legend")
    assert len(read(draw_curve(Curve("C", two, STEP, SCORE), "s1").source()).with_class("legend")) == 1


def test_events_are_listed_and_many_fold(read: Any) -> None:
    events = [Event(place, f"event {place}") for place in range(SHOWN_EVENTS + 3)]
    page = read(draw_curve(Curve("C", [Series("s", [0, 20], [0, 1])], STEP, SCORE, events=events), "s1").source())
    assert "a step 0: event 0" in page.text
    assert "3 more events" in page.text
    assert "event 12" in page.text


def test_a_long_curve_leaves_its_numbers_to_json(read: Any) -> None:
    page = read(draw_curve(Curve("C", [Series("s", range(401), range(401))], STEP, SCORE), "s1").source())
    assert "behind the chart" not in page.text


def test_groups_count_in_words_and_marks(read: Any) -> None:
    kinds = [Outcome.CORRECT] * 9 + [Outcome.WRONG, Outcome.UNPARSABLE, Outcome.TRUNCATED]
    page = read(draw_groups(Groups("G", [Group("p1", kinds)], note="sorted"), "s1").source())
    ((_, marks),) = page.with_class("marks")
    assert marks["aria-label"] == "9 correct, 1 wrong, 1 unparsable, 1 truncated"
    assert "p1 9/12" in page.text
    # Four in the legend; twelve samples in chunks of eight: disc | disc, ring, cross, dash.
    assert len(page.with_class("mark")) == 4 + 1 + 4


def test_many_problems_fold_with_a_count(read: Any) -> None:
    many = [Group(f"p{index}", [Outcome.CORRECT]) for index in range(SHOWN_GROUPS + 5)]
    page = read(draw_groups(Groups("G", many), "s1").source())
    assert "5 more problems" in page.text
    assert len(page.with_class("problem")) == SHOWN_GROUPS + 5


def test_groups_without_samples(read: Any) -> None:
    assert "No samples." in read(draw_groups(Groups("G", [Group("p", [])]), "s1").source()).text
    assert "0/0" in read(draw_groups(Groups("G", [Group("p", [])]), "s1").source()).text


def test_tokens_carry_their_number_and_step(read: Any) -> None:
    tokens = [Token("low ", 0.0), Token("mid ", 3.0), Token("top", 6.0), Token("none")]
    source = draw_trace(Trace("T", tokens, unit="nats"), "s1").source()
    assert '<span title="entropy 0 nats" tabindex="-1">low </span>' in source
    assert '<span class="t3" title="entropy 3 nats" tabindex="-1">mid </span>' in source
    assert '<span class="t5" title="entropy 6 nats" tabindex="-1">top</span>' in source
    assert "<span>none</span>" in source
    assert '<span class="t1">from 1 nats</span>' in source


def test_a_line_break_is_visible() -> None:
    source = draw_trace(Trace("T", [Token("\n\n", 2.0), Token("a\nb", 0.0)]), "s1").source()
    assert ">↵\n\n<" in source
    assert ">a\nb<" in source


def test_kinds_are_bracketed_under_their_name(read: Any) -> None:
    page = read(
        draw_trace(
            Trace("T", [Token("so "), Token("4", kind="answer"), Token("2", kind="answer"), Token(".")]), "s1"
        ).source()
    )
    assert len(page.with_class("kind")) == 1
    assert "so answer 4 2 ." in page.text


def test_a_long_trace_folds_and_loses_nothing(read: Any) -> None:
    page = read(
        draw_trace(Trace("T", [Token(f"w{index} ", index) for index in range(SHOWN_TOKENS + 7)]), "s1").source()
    )
    assert "7 more tokens" in page.text
    assert f"w{SHOWN_TOKENS + 6}" in page.text


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
            *(
                Verdict(severity, text, text, [fact, Fact(text, Missing(text)), Fact(text, 0.5, text)])
                for severity in Severity
            ),
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
    words = re.sub(r"\S", "x", " ".join(strip_escapes(text).split()))
    assert outline(reading) == outline(read(render_html(page_of(words))))
    assert reading.text.count(" ".join(strip_escapes(text).split())) >= 30


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.one_of(st.sampled_from("<>&\"'/=!-[]\x1b\x07;#x \n"), st.characters()), max_size=40))
def test_any_text_in_every_field_stays_text(read: Any, text: str) -> None:
    reading = read(render_html(page_of(text)))
    check_markup(reading)
    shown = " ".join(strip_escapes(text).split())
    assert shown in reading.text
    ours = [found for found in reading.elements if found[0] in {"meta", "style", "html", "body"}]
    assert len(ours) == 8


def test_the_full_page_is_well_formed_and_complete(full: Page, read: Any) -> None:
    reading = read(render_html(full))
    check_markup(reading)
    for words in (
        "Critical",
        "cannot tell",
        "0.612 nats",
        "(0.584 to 0.641)",
        "614,400",
        "28 more problems",
        "Show all 1,000 rows",
    ):
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


def test_a_folder_that_is_not_there_is_made(full: Page, tmp_path: Path) -> None:
    save_html(full, tmp_path / "missing" / "report.html")
    assert (tmp_path / "missing" / "report.html").is_file()
    with pytest.raises(WriteError, match="could not be written"):
        save_html(full, tmp_path / "missing" / "report.html" / "inside.html")


def test_half_a_surrogate_pair_can_be_saved(tmp_path: Path) -> None:
    save_html(page_of("half \ud800 pair"), tmp_path / "report.html")
    assert "half \ufffd pair" in (tmp_path / "report.html").read_text(encoding="utf-8")
