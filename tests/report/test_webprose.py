"""Words and single numbers on the page."""

from __future__ import annotations

from breadth.measure.intervals import Interval
from breadth.report.cells import Missing
from breadth.report.sections import Fact, Facts, Listing, Severity, Text, Verdict
from breadth.report.webprose import caption, facts, listing, section, text, value_nodes, verdict


def test_a_verdict_shows_word_sign_sentence_and_numbers() -> None:
    found = Verdict(
        Severity.CANNOT_TELL, "We cannot tell", "Why.\n\nWhat to do.", [Fact("entropy", Interval(0.42, 0.38, 0.47, 0.95, "wilson"), "nats")]
    )
    source = verdict(found, "s1").source()
    assert source.startswith('<section class="verdict unknown">')
    assert "<span>cannot tell</span>" in source
    assert "<h2>We cannot tell</h2><p>Why.</p><p>What to do.</p>" in source
    assert '<dt>entropy</dt><dd>0.42 nats <span class="range" title="95% interval, wilson">(0.38 to 0.47)</span></dd>' in source


def test_a_verdict_without_numbers_has_no_list() -> None:
    assert "<dl" not in verdict(Verdict(Severity.GOOD, "Fine"), "s1").source()


def test_paragraphs() -> None:
    assert text(Text("a\nb\n\nc"), "s1").source() == '<section class="text"><p>a b</p><p>c</p></section>'
    assert "<h2>T</h2>" in text(Text("a", "T"), "s1").source()


def test_a_listing_keeps_its_spaces() -> None:
    source = listing(Listing("Patch", "a:\n  b: <1>\n", note="in your YAML"), "s1").source()
    assert "<code>a:\n  b: &lt;1&gt;\n</code>" in source
    assert '<p class="caption">in your YAML</p>' in source


def test_facts_say_what_is_missing() -> None:
    listed = Facts(
        "There",
        [Fact("log-probs", Missing("not in the log"), note="Set x=1."), Fact("gain", -0.5), Fact("none", None), Fact("path", "a-1 (b)")],
    )
    source = facts(listed, "s1").source()
    assert '<dd><span class="absent">n/a</span>: not in the log<span class="aside">Set x=1.</span></dd>' in source
    assert "<dd>−0.5</dd>" in source
    assert '<dd><span class="absent">n/a</span></dd>' in source
    assert "<dd>a-1 (b)</dd>" in source


def test_values_without_an_interval_are_one_piece() -> None:
    assert value_nodes("-1 (x)", numeric=True) == ["−1 (x)"]
    assert value_nodes("run -1 (x)", numeric=False) == ["run -1 (x)"]


def test_empty_captions_and_titles_leave_nothing() -> None:
    assert caption(" \n") is None
    assert section("", "x", kind="text").source() == '<section class="text">x</section>'
