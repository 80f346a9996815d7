"""Mutual information of prompt and reasoning against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from breadth.base.errors import MeasureError
from breadth.measure.intervals import Interval
from breadth.measure.mutual_information import (
    cap_interval,
    check_scores,
    information_per_trace,
    prompt_information,
    retrieval_per_trace,
)

SCORES = [[-1.0, -3.0], [-1.2, -2.8], [-3.0, -1.0], [-2.5, -0.9]]
OWN = [0, 0, 1, 1]


def test_the_example_worked_out_by_hand() -> None:
    """Own minus marginal is ln 2 - ln(1 + exp(-gap)) for gaps of 2, 1.6, 2 and 1.6."""
    gaps = np.array([2.0, 1.6, 2.0, 1.6])
    assert information_per_trace(SCORES, OWN) == pytest.approx(math.log(2) - np.log1p(np.exp(-gaps)), abs=1e-12)
    found = prompt_information(SCORES, OWN)
    assert found.mutual_information.value == pytest.approx(0.537733, abs=1e-6)
    assert found.limit == pytest.approx(0.693147, abs=1e-6)
    assert found.retrieval.value == 1
    assert found.chance == 0.5
    assert found.conditional_entropy.value == pytest.approx(1.025)
    assert (found.prompts, found.traces) == (2, 4)


def test_equal_columns_say_nothing_of_the_prompt_at_any_entropy() -> None:
    scores = [[-1.0, -1.0], [-2.8, -2.8], [-3.0, -3.0], [-0.9, -0.9]]
    found = prompt_information(scores, OWN)
    assert found.mutual_information.value == 0
    assert found.retrieval.value == found.chance == 0.5
    assert found.conditional_entropy.value == pytest.approx(1.925)


def test_a_reasoning_of_another_prompt_counts_against_it() -> None:
    swapped = prompt_information(SCORES, [1, 1, 0, 0])
    assert swapped.mutual_information.value < 0
    assert swapped.retrieval.value == 0
    assert swapped.mutual_information.low <= swapped.mutual_information.value <= swapped.mutual_information.high


def test_prompts_that_tie_share_the_retrieval() -> None:
    scores = [[-1.0, -1.0, -2.0], [-1.0, -1.0, -1.0]]
    assert retrieval_per_trace(scores, [0, 0]) == pytest.approx([1 / 2, 1 / 3])
    assert retrieval_per_trace(scores, [2, 2]) == pytest.approx([0, 1 / 3])


def test_it_is_at_most_the_logarithm_of_the_prompts() -> None:
    scores = np.full((40, 20), -1000.0)
    own = np.repeat(np.arange(20), 2)
    scores[np.arange(40), own] = 0
    found = prompt_information(scores, own)
    assert found.mutual_information.value == pytest.approx(math.log(20))
    assert found.mutual_information.high <= math.log(20) + 1e-12


def test_the_interval_resamples_prompts_and_not_reasonings() -> None:
    """Sixteen copies of every reasoning say nothing more about other prompts."""
    rng = np.random.default_rng(0)
    own = np.arange(12)
    scores = rng.normal(-2, 1, (12, 12))
    scores[own, own] += 1
    once = prompt_information(scores, own)
    often = prompt_information(np.repeat(scores, 16, axis=0), np.repeat(own, 16))
    assert often.mutual_information.value == pytest.approx(once.mutual_information.value)
    assert often.mutual_information.low == pytest.approx(once.mutual_information.low)
    assert once.mutual_information.low < once.mutual_information.value < once.mutual_information.high


def test_an_interval_is_capped_around_its_value() -> None:
    assert cap_interval(Interval(0.5, 0.2, 0.9), 0.7) == Interval(0.5, 0.2, 0.7)
    assert cap_interval(Interval(-0.1, 0.0, 0.3), 0.7) == Interval(-0.1, -0.1, 0.3)


@pytest.mark.parametrize(
    ("scores", "own", "words"),
    [
        ([[-1.0], [-2.0]], [0, 0], "one prompt"),
        (SCORES, [0, 0, 1], "shape"),
        (SCORES, [0, 0, 1, 2], "up to 2"),
        (SCORES, [0, 0, 1, -1], "own has shape"),
        ([[math.nan, -1.0]], [0], "NaN"),
    ],
)
def test_what_is_no_table_of_scores_is_refused(scores: object, own: object, words: str) -> None:
    with pytest.raises(MeasureError, match=words):
        check_scores(scores, own)  # type: ignore[arg-type]  # what a caller may give by mistake
