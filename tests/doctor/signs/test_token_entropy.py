"""Entropies of tokens beside the logged number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence import Evidence
from breadth.doctor.signs import token_entropy as module
from breadth.doctor.signs.token_entropy import token_entropy

STEPS = range(1, 13)


def test_three_tokens_by_hand(make: Any) -> None:
    rows = {"problem": ["a", "b", "c"], "entropy": [[0.1, 0.3], [0.8], []]}
    found = token_entropy(make(entropy=np.full(12, 0.4), rollouts=dict.fromkeys(STEPS, rows)))
    assert found is not None
    assert found.per_token == pytest.approx(np.full(12, 1.2 / 3))
    assert found.per_sequence == pytest.approx(np.full(12, 1.2 / 2))
    assert not found.summed
    assert found.apart.verdict == "flat"


def test_masked_tokens_do_not_count_and_a_mask_of_another_length_is_ignored(make: Any) -> None:
    rows = {
        "problem": ["a", "b", "c"],
        "entropy": [[0.5, 9.0, 0.1], [0.4], [0.2, 0.2]],
        "mask": [[True, False, True], None, [True]],
    }
    found = token_entropy(make(entropy=np.full(12, 0.4), rollouts=dict.fromkeys(STEPS, rows)))
    assert found is not None
    assert found.per_token == pytest.approx(np.full(12, (0.6 + 0.4 + 0.4) / 5))
    assert found.per_sequence == pytest.approx(np.full(12, 1.4 / 3))


def test_a_sum_is_told_from_a_mean(make: Any) -> None:
    rows = {"problem": ["a"], "entropy": [[0.2] * 30]}
    for logged, summed in ((6.3, True), (0.21, False)):
        found = token_entropy(make(entropy=np.full(12, logged), rollouts=dict.fromkeys(STEPS, rows)))
        assert found is not None
        assert found.summed == summed


def test_steps_are_left_out_where_there_are_too_many(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"problem": ["a"], "entropy": [[0.2, 0.4]]}
    evidence = make(entropy=np.full(40, 0.3), rollouts=dict.fromkeys(range(1, 41), rows))
    monkeypatch.setattr(module, "MOST_STEPS", 10)
    found = token_entropy(evidence)
    assert found is not None
    assert len(found.steps) == 10
    assert (found.steps[0], found.steps[-1]) == (1, 40)
    monkeypatch.setattr(module, "MOST_TOKENS", 18)
    fewer = token_entropy(evidence)
    assert fewer is not None
    assert len(fewer.steps) == 9


def test_too_little_is_none(make: Any) -> None:
    rows = {"problem": ["a"], "entropy": [[0.2, 0.4]]}
    assert token_entropy(Evidence("nothing")) is None
    assert token_entropy(make(entropy=np.ones(12))) is None
    assert token_entropy(make(entropy=np.ones(12), rollouts=dict.fromkeys(range(1, 6), rows))) is None
    for odd in ([], [float("nan")]):
        without = {"problem": ["a"], "entropy": [odd]}
        assert token_entropy(make(entropy=np.ones(12), rollouts=dict.fromkeys(STEPS, without))) is None
    assert token_entropy(make(entropy=np.zeros(12), rollouts=dict.fromkeys(STEPS, rows))) is None
