"""The page holds every measurement, says what could not be measured, and carries the policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from breadth.base.settings import loads
from breadth.inference.policy import Policy
from breadth.inference.stopping.risk import Risk
from breadth.report.cells import Missing, is_interval
from breadth.report.html_page import save_html
from breadth.report.jsonable import render_json
from breadth.report.sections import Curve, Listing, Page, Table, Text, Verdict
from breadth.runs.reader import Run
from breadth.tuning.page import (
    SELF_CONSISTENT,
    build_equal_tokens_table,
    build_grid_table,
    build_options_table,
    build_stop_table,
    build_traits_table,
    build_tuning_page,
    score_interval,
)
from breadth.tuning.result import TuningResult, analyze_sweep

Swept = Callable[..., Path]


def page_of(folder: Path) -> Page:
    run = Run.open(folder)
    return build_tuning_page(analyze_sweep(run), run.header)


def titles(page: Page) -> list[str]:
    return [section.headline if isinstance(section, Verdict) else section.title for section in page.sections][
        len(verdicts_of(page)) :
    ]


def verdicts_of(page: Page) -> list[Verdict]:
    return [section for section in page.sections if isinstance(section, Verdict)]


def test_everything_measured_is_on_the_page(swept: Swept, tmp_path: Path) -> None:
    folder = swept(lambda _: 0.45, common_error_share=0.15, confidence_gap=1.0, budgets=(32, 128), draws=2)
    page = page_of(folder)
    assert titles(page) == [
        "Accuracy against cost",
        "Options",
        "Accuracy against thinking",
        "Spread of answers against thinking",
        "Thinking and width together",
        "What the samples look like",
        "Longer thinking against more samples, at equal tokens",
        "When the vote of 8 may stop",
        "Confidence",
        "The policy",
    ]
    assert page.subtitle == "the server's model on 50 questions with right answers, 12 samples each"
    assert len(json.loads(render_json(page))["sections"]) == len(page.sections)
    save_html(page, tmp_path / "page.html")
    assert "Longer thinking against more samples" in (tmp_path / "page.html").read_text()


def test_the_chosen_option_is_marked_in_the_chart(swept: Swept) -> None:
    page = page_of(swept(lambda _: 0.45, common_error_share=0.15, budgets=(32, 128), draws=2))
    (curve,) = [
        section for section in page.sections if isinstance(section, Curve) and section.title == "Accuracy against cost"
    ]
    assert curve.events[0].label == "chosen: vote of 8"
    assert [line.name for line in curve.series] == ["plain samples, voted on", "thinking forced"]
    assert list(curve.series[0].x) == [36, 72, 144, 288]


def test_the_listed_policy_is_the_policy_less_a_library(swept: Swept) -> None:
    run = Run.open(swept(lambda _: 0.45, common_error_share=0.15, budgets=(), draws=2))
    found = analyze_sweep(run)
    (listing,) = [section for section in build_tuning_page(found, run.header).sections if isinstance(section, Listing)]
    listed = loads(Policy, listing.text)
    assert listed.sampling == found.policy.sampling
    stop = getattr(found.policy.strategy, "stop", None)
    assert ("Without the library" in listing.note) == isinstance(stop, Risk)
    assert listed == found.policy or isinstance(stop, Risk)


def test_what_to_keep_in_mind_is_said(swept: Swept) -> None:
    page = page_of(swept(lambda _: 0.5, 6, labelled=False, offers=frozenset({"seed"})))
    (text,) = [section for section in page.sections if isinstance(section, Text)]
    assert SELF_CONSISTENT in text.text
    assert "cannot continue a given prefix of a reply" in text.text
    assert "without right answers" in page.subtitle


@pytest.fixture
def voted(swept: Swept) -> TuningResult:
    """A sweep of which a vote of eight is chosen."""
    return analyze_sweep(Run.open(swept(lambda _: 0.45, common_error_share=0.15, budgets=(32, 128), draws=2)))


def test_options_are_listed_cheapest_first_with_the_choice_marked(voted: TuningResult) -> None:
    table = build_options_table(voted)
    assert [column.name for column in table.columns] == [
        "option",
        "samples",
        "accuracy",
        "tokens per question",
        "seconds",
    ]
    names = ["one plain sample", "think 32", "vote of 2", "think 128", "vote of 4", "vote of 8 (chosen, highest)"]
    assert [row[0] for row in table.rows] == names
    assert table.rows[0][2] == score_interval(voted.options[0])


def test_budgets_and_widths_are_shown_together(voted: TuningResult) -> None:
    (table,) = build_grid_table(voted)
    assert isinstance(table, Table)
    assert [column.name for column in table.columns] == [
        "samples",
        "tokens of one",
        "one",
        "vote of 2",
        "vote of 4",
        "vote of 8",
    ]
    assert [(row[0], row[1]) for row in table.rows] == [("as it comes", 36), ("think 32", 36), ("think 128", 132)]
    plain, _, forced = table.rows
    votes = [option.score for option in voted.options if option.budget is None]
    assert [cell.value for cell in plain[2:] if is_interval(cell)] == pytest.approx(votes)
    # Two samples at each budget: a vote of two is as good as one of them, and wider ones were not drawn.
    assert forced[2] == forced[3]
    assert all(isinstance(cell, Missing) for cell in forced[4:])


def test_samples_are_described_arm_by_arm(voted: TuningResult) -> None:
    table = build_traits_table(voted)
    assert [row[0] for row in table.rows] == ["as it comes", "think 32", "think 128"]
    assert "over 2 samples" in table.note
    assert not any(isinstance(cell, Missing) for row in table.rows for cell in row)


def test_equal_tokens_have_a_row_for_each_budget(voted: TuningResult) -> None:
    (table,) = build_equal_tokens_table(voted)
    assert isinstance(table, Table)
    # 36 and 132 tokens pay for one and for three plain draws of 36.
    assert [(row[0], row[1], row[3], row[4]) for row in table.rows] == [(32, 36, 1, 36), (128, 132, 3, 108)]
    assert len({column.name for column in table.columns}) == len(
        table.columns
    )  # on a narrow screen a name stands alone


def test_stop_rules_are_listed_with_the_one_taken(voted: TuningResult) -> None:
    (table,) = build_stop_table(voted)
    assert isinstance(table, Table)
    assert table.title == "When the vote of 8 may stop"
    assert [str(row[0]).endswith(" (chosen)") for row in table.rows].count(True) == 1
    assert table.columns[-1].name == "as all 8 samples"
    tokens = [float(str(row[4])) for row in table.rows]
    assert tokens == sorted(tokens)


def test_what_was_not_measured_has_no_table(swept: Swept) -> None:
    single = analyze_sweep(Run.open(swept(lambda _: 0.5, 6, budgets=(), draws=1)))
    assert build_equal_tokens_table(single) == []
    assert build_grid_table(single) == []
    assert build_stop_table(single) == []
