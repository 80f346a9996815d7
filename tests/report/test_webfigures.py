"""Curves, groups and traces on the page."""

from __future__ import annotations

import math
from typing import Any

from breadth.report.sections import Axis, Curve, Event, Group, Groups, Outcome, Series, Token, Trace
from breadth.report.style import SHOWN_EVENTS, SHOWN_GROUPS, SHOWN_TOKENS
from breadth.report.webfigures import curve, groups, trace

STEP, SCORE = Axis("step"), Axis("score")


def test_a_curve_is_drawn_for_both_widths_with_its_numbers(read: Any) -> None:
    lines = Curve("C", [Series("s", [1, 2], [0.5, math.nan], [0.4, 0.1], [0.6, 0.2])], STEP, SCORE, band="80% band", note="Note.")
    page = read(curve(lines, "s1").source())
    assert [found[1]["class"] for found in page.with_class("chart")] == ["chart wide", "chart narrow"]
    assert "80% band" in page.text
    assert "Note. 1 point without a value, shown as gaps." in page.text
    assert "The 2 points behind the chart" in page.text
    assert "0.50 (0.40 to 0.60)" in page.text
    assert "NaN" in page.text


def test_ids_are_unique(read: Any) -> None:
    page = read(curve(Curve("C", [Series("s", range(60), range(60))], STEP, SCORE), "s1").source())
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) == 5


def test_one_line_needs_no_legend_and_two_do(read: Any) -> None:
    one, two = ([Series(f"line {index}", [1, 2], [1, 2]) for index in range(count)] for count in (1, 2))
    assert not read(curve(Curve("C", one, STEP, SCORE), "s1").source()).with_class("legend")
    assert len(read(curve(Curve("C", two, STEP, SCORE), "s1").source()).with_class("legend")) == 1


def test_events_are_listed_and_many_fold(read: Any) -> None:
    events = [Event(place, f"event {place}") for place in range(SHOWN_EVENTS + 3)]
    page = read(curve(Curve("C", [Series("s", [0, 20], [0, 1])], STEP, SCORE, events=events), "s1").source())
    assert "a step 0: event 0" in page.text
    assert "3 more events" in page.text
    assert "event 12" in page.text


def test_a_long_curve_leaves_its_numbers_to_json(read: Any) -> None:
    page = read(curve(Curve("C", [Series("s", range(401), range(401))], STEP, SCORE), "s1").source())
    assert "behind the chart" not in page.text


def test_groups_count_in_words_and_marks(read: Any) -> None:
    kinds = [Outcome.CORRECT] * 9 + [Outcome.WRONG, Outcome.UNPARSABLE, Outcome.TRUNCATED]
    page = read(groups(Groups("G", [Group("p1", kinds)], note="sorted"), "s1").source())
    ((_, marks),) = page.with_class("marks")
    assert marks["aria-label"] == "9 correct, 1 wrong, 1 unparsable, 1 truncated"
    assert "p1 9/12" in page.text
    # Four in the legend; twelve samples in chunks of eight: disc | disc, ring, cross, dash.
    assert len(page.with_class("mark")) == 4 + 1 + 4


def test_many_problems_fold_with_a_count(read: Any) -> None:
    many = [Group(f"p{index}", [Outcome.CORRECT]) for index in range(SHOWN_GROUPS + 5)]
    page = read(groups(Groups("G", many), "s1").source())
    assert "5 more problems" in page.text
    assert len(page.with_class("problem")) == SHOWN_GROUPS + 5


def test_groups_without_samples(read: Any) -> None:
    assert "No samples." in read(groups(Groups("G", [Group("p", [])]), "s1").source()).text
    assert "0/0" in read(groups(Groups("G", [Group("p", [])]), "s1").source()).text


def test_tokens_carry_their_number_and_step(read: Any) -> None:
    tokens = [Token("low ", 0.0), Token("mid ", 3.0), Token("top", 6.0), Token("none")]
    source = trace(Trace("T", tokens, unit="nats"), "s1").source()
    assert '<span title="entropy 0 nats" tabindex="-1">low </span>' in source
    assert '<span class="t3" title="entropy 3 nats" tabindex="-1">mid </span>' in source
    assert '<span class="t5" title="entropy 6 nats" tabindex="-1">top</span>' in source
    assert "<span>none</span>" in source
    assert '<span class="t1">from 1 nats</span>' in source


def test_a_line_break_is_visible() -> None:
    source = trace(Trace("T", [Token("\n\n", 2.0), Token("a\nb", 0.0)]), "s1").source()
    assert ">↵\n\n<" in source
    assert ">a\nb<" in source


def test_kinds_are_bracketed_under_their_name(read: Any) -> None:
    page = read(trace(Trace("T", [Token("so "), Token("4", kind="answer"), Token("2", kind="answer"), Token(".")]), "s1").source())
    assert len(page.with_class("kind")) == 1
    assert "so answer 4 2 ." in page.text


def test_a_long_trace_folds_and_loses_nothing(read: Any) -> None:
    page = read(trace(Trace("T", [Token(f"w{index} ", index) for index in range(SHOWN_TOKENS + 7)]), "s1").source())
    assert "7 more tokens" in page.text
    assert f"w{SHOWN_TOKENS + 6}" in page.text
