"""The page holds every measurement, says what could not be measured, and carries the policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from breadth.base.settings import loads
from breadth.inference.policy import Policy
from breadth.inference.stopping.risk import Risk
from breadth.report.html_page import save_html
from breadth.report.jsonable import render_json
from breadth.report.sections import Curve, Listing, Page, Text, Verdict
from breadth.runs.reader import Run
from breadth.tuning.page import SELF_CONSISTENT, tuning_page
from breadth.tuning.tuned import tuned

Swept = Callable[..., Path]


def page_of(folder: Path) -> Page:
    run = Run.open(folder)
    return tuning_page(tuned(run), run.header)


def titles(page: Page) -> list[str]:
    return [section.headline if isinstance(section, Verdict) else section.title for section in page.sections][
        len(verdicts_of(page)) :
    ]


def verdicts_of(page: Page) -> list[Verdict]:
    return [section for section in page.sections if isinstance(section, Verdict)]


def test_everything_measured_is_on_the_page(swept: Swept, tmp_path: Path) -> None:
    folder = swept(lambda _: 0.45, misled=0.15, surer=1.0, budgets=(32, 128), draws=2)
    page = page_of(folder)
    assert titles(page) == [
        "Accuracy against cost",
        "Options",
        "Accuracy against thinking",
        "Spread of answers against thinking",
        "Thinking and width together",
        "What the samples look like",
        "Longer thinking against more draws, at equal tokens",
        "When the vote of 8 may stop",
        "Confidence",
        "The policy",
    ]
    assert page.subtitle == "the server's model on 50 questions with right answers, 12 samples each"
    assert len(json.loads(render_json(page))["sections"]) == len(page.sections)
    save_html(page, tmp_path / "page.html")
    assert "Longer thinking against more draws" in (tmp_path / "page.html").read_text()


def test_the_chosen_option_is_marked_in_the_chart(swept: Swept) -> None:
    page = page_of(swept(lambda _: 0.45, misled=0.15, budgets=(32, 128), draws=2))
    (curve,) = [
        section for section in page.sections if isinstance(section, Curve) and section.title == "Accuracy against cost"
    ]
    assert curve.events[0].label == "chosen: vote of 8"
    assert [line.name for line in curve.series] == ["plain draws, voted on", "thinking forced"]
    assert list(curve.series[0].x) == [36, 72, 144, 288]


def test_the_listed_policy_is_the_policy_less_a_library(swept: Swept) -> None:
    run = Run.open(swept(lambda _: 0.45, misled=0.15, budgets=(), draws=2))
    found = tuned(run)
    (listing,) = [section for section in tuning_page(found, run.header).sections if isinstance(section, Listing)]
    listed = loads(Policy, listing.text)
    assert listed.sampling == found.policy.sampling
    stop = getattr(found.policy.strategy, "stop", None)
    assert ("Without the library" in listing.note) == isinstance(stop, Risk)
    assert listed == found.policy or isinstance(stop, Risk)


def test_what_to_keep_in_mind_is_said(swept: Swept) -> None:
    page = page_of(swept(lambda _: 0.5, 6, labelled=False, offers=frozenset({"seed"})))
    (text,) = [section for section in page.sections if isinstance(section, Text)]
    assert SELF_CONSISTENT in text.text
    assert "cannot continue a reply" in text.text
    assert "without right answers" in page.subtitle
