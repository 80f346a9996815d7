"""Ending a completion that has been unsure for a whole window."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import SettingsError
from breadth.base.settings import dumps, loads
from breadth.inference.confidence import Gauge, group_confidences
from breadth.inference.halts.low_confidence import LowConfidence
from breadth.inference.records import Candidate


def ended_at(rule: LowConfidence, confidences: list[float]) -> int | None:
    watcher = rule.watch()
    return next((place for place, value in enumerate(confidences) if watcher.push("a", -0.1, value)), None)


def test_it_ends_at_the_first_full_window_below_the_threshold() -> None:
    # Windows of 4 end at tokens 3, 4, ...: 5, 5, 5, 6.5, 8.
    dip = [8.0, 8, 2, 2, 8, 8, 8, 8]
    assert ended_at(LowConfidence(5.5, window=4), dip) == 3
    assert ended_at(LowConfidence(5.0, window=4), dip) is None
    # 9 8 8 2 is 6.75 still, 8 8 2 2 is 5.
    assert ended_at(LowConfidence(6.0, window=4), [9, 9, *dip]) == 5


def test_nothing_shorter_than_the_window_is_ended() -> None:
    assert ended_at(LowConfidence(5, window=4), [1.0, 1, 1]) is None
    assert ended_at(LowConfidence(5, window=4), [1.0, 1, 1, 1]) == 3


@settings(max_examples=60)
@given(st.lists(st.floats(0, 20, width=32), min_size=1, max_size=60), st.integers(1, 12), st.floats(1, 19))
def test_it_ends_exactly_where_a_naive_window_would(values: list[float], window: int, threshold: float) -> None:
    means = [] if len(values) < window else group_confidences(values, window).tolist()
    clear = all(abs(mean - threshold) > 1e-4 for mean in means)
    first = next((place + window - 1 for place, mean in enumerate(means) if mean < threshold), None)
    assert not clear or ended_at(LowConfidence(threshold, window), values) == first


def test_a_completion_just_as_sure_as_the_bar_is_not_ended_by_rounding() -> None:
    # The bar comes from single precision, the stream has double: neither 0.1 nor 8.1 is exact in both.
    for value in (0.1, 8.1, 17.3):
        stored = Candidate("", confidences=np.full(500, value, dtype=np.float32))
        assert ended_at(LowConfidence(Gauge(window=64).of(stored), 64), [value] * 5000) is None


def test_missing_tokens_are_passed_over() -> None:
    gaps = [9.0, math.nan, 1, math.nan, 1, 1, math.inf, 1]
    assert ended_at(LowConfidence(2, window=4), gaps) == 7  # 1, 1, 1, 1


def test_it_rests_for_good_after_sixteen_missing_in_a_row() -> None:
    silent = [1.0] * 3 + [math.nan] * 16 + [1.0] * 50
    assert ended_at(LowConfidence(5, window=4), silent) is None
    assert ended_at(LowConfidence(5, window=4), [1.0] * 3 + [math.nan] * 15 + [1.0]) == 18
    assert ended_at(LowConfidence(5, window=4), [math.nan] * 100) is None


def test_each_completion_has_its_own_watcher() -> None:
    rule = LowConfidence(5, window=2)
    first, second = rule.watch(), rule.watch()
    assert not first.push("a", -1, 1)
    assert not second.push("a", -1, 1)
    assert first.push("a", -1, 1)


def test_it_says_what_it_must_see_and_survives_files() -> None:
    rule = LowConfidence(5.5, 64, 5)
    assert LowConfidence(1).top_logprobs == 20
    assert rule.top_logprobs == 5
    assert loads(LowConfidence, dumps(rule)) == pickle.loads(pickle.dumps(rule)) == rule


@pytest.mark.parametrize("wrong", [{"threshold": math.nan}, {"threshold": 1.0, "window": 0}, {"threshold": 1.0, "top_logprobs": 0}])
def test_bad_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        LowConfidence(**wrong)  # type: ignore[arg-type]  # wrong on purpose
