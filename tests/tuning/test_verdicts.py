"""The sentences of the report say what was found, and no more."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.measure.intervals import Interval
from breadth.measure.paired_tests import paired_difference
from breadth.report.sections import Severity
from breadth.runs.reader import Run
from breadth.tuning.result import TuningResult, analyze_sweep
from breadth.tuning.verdicts import points, write_verdicts

Swept = Callable[..., Path]


def judged(folder: Path) -> TuningResult:
    return analyze_sweep(Run.open(folder))


def test_a_hump_is_a_warning_and_the_best_budget_the_headline(swept: Swept) -> None:
    choice, hump, equal = write_verdicts(
        judged(swept(lambda words: float(np.interp(math.log2(max(words, 1)), [3, 5, 7, 8], [0.1, 0.5, 0.9, 0.5]))))
    )
    assert choice.severity == Severity.GOOD
    assert choice.headline.startswith("Use 128 thinking tokens: ")
    assert choice.headline.endswith(" right at 132 tokens per question.")
    assert "cross-fitted" in choice.body
    assert hump.severity == Severity.WARNING
    assert "peaks near 128 thinking tokens and falls towards 256" in hump.headline
    assert "a vote of 7 against one trace of 256" in equal.headline


def test_a_vote_that_stops_early_is_told_with_what_that_saves(swept: Swept) -> None:
    found = judged(swept(lambda _: 0.45, common_error_share=0.15, budgets=(32, 128), draws=2, labelled=False))
    choice, _, equal = write_verdicts(found)
    assert choice.headline.startswith("Use a vote of up to 8 that stops early: ")
    assert f"agreeing with the pooled majority at {found.cost:,.0f} tokens" in choice.headline
    assert "Stopping early (" in choice.body
    assert found.stops_early is not None
    # What is promised is the score of what the policy does, and it stops early.
    assert found.score == pytest.approx(found.choice.score.value + found.stops_early.change.difference.value)
    assert f": {found.score:.0%} agreeing" in choice.headline
    assert [fact.name for fact in choice.numbers] == [
        "agreement to expect, whole vote",
        "gain over one plain sample",
        "tokens per question, whole vote",
        "tokens when stopping early",
    ]
    assert (
        equal.headline
        == "At equal tokens more samples beat longer thinking: a vote of 3 against one trace of 128 thinking tokens."
    )


def test_too_few_questions_are_told(swept: Swept) -> None:
    choice, *_ = write_verdicts(judged(swept(lambda _: 0.5, 6)))
    assert choice.severity == Severity.CANNOT_TELL
    assert choice.headline == "No option is shown to beat one plain sample on 6 questions: one plain sample is kept."
    assert "Below 12 questions nothing is chosen" in choice.body


def test_answers_that_cannot_be_read_are_a_warning_with_the_remedy(swept: Swept) -> None:
    # It thinks beyond its cap, so plain samples come to no answer.
    _, reading, *_ = write_verdicts(judged(swept(lambda _: 1.0, 15, budgets=(8, 16), draws=2, natural_length=2000)))
    assert reading.severity == Severity.WARNING
    assert reading.headline == "No answer could be read in 100% of the plain samples, and those count as wrong."
    assert reading.body == "Most of them were cut at the length cap: raise --max-tokens."


def test_widths_alone_give_one_verdict(swept: Swept) -> None:
    assert len(write_verdicts(judged(swept(lambda _: 0.5, 6, budgets=())))) == 1


def test_differences_without_ends_are_written_without_them() -> None:
    assert points(Interval(0.1, 0.05, 0.15)) == "+10.0 points (+5.0 to +15.0)"
    same = paired_difference([1, 1], [1, 1])
    assert points(same.difference) == "+0.0 points"
    assert points(Interval(-0.0003, -0.001, 0.0)) == "+0.0 points (-0.1 to +0.0)"
    assert same.display_value == 0.0
    other = paired_difference([1, 0, 1], [0, 0, 0])
    assert other.display_value is other.difference


def test_a_vote_by_confidence_is_called_so(swept: Swept) -> None:
    found = judged(swept(lambda _: 0.35, common_error_share=0.4, confidence_gap=8.0, budgets=(), draws=1))
    assert isinstance(found.policy.strategy, ConfidenceVote)
    assert write_verdicts(found)[0].headline.startswith("Use a vote of 8 weighted by confidence: ")


def test_a_gain_that_is_gone_is_told_as_such(swept: Swept) -> None:
    found = judged(swept(lambda _: 0.5, 20, budgets=(), draws=1, widths=(1, 2)))
    choice, *_ = write_verdicts(replace(found, choice=replace(found.choice, p_value=0.01)))
    assert "its gain is gone when every question is scored with the choice of the other questions" in choice.body
