"""Only like entropies compare; every column is described."""

from __future__ import annotations

import pyarrow as pa

from breadth.runs.schema import PROBLEM_COLUMNS, ROLLOUT_COLUMNS, EntropyKind, column_type

EXACT = EntropyKind("exact", 1.0, "token-mean", "response")


def test_only_like_is_compared_with_like() -> None:
    assert EXACT.comparable(EntropyKind("exact", 1.0, "token-mean", "response"))
    assert not EXACT.comparable(EntropyKind("exact", 0.7, "token-mean", "response"))
    assert not EXACT.comparable(EntropyKind("exact", 1.0, "loss-mode", "response"))
    assert not EXACT.comparable(EntropyKind("sampled", 1.0, "token-mean", "response"))
    assert not EntropyKind().comparable(EntropyKind())


def test_every_column_says_what_it_means() -> None:
    for column in (*ROLLOUT_COLUMNS, *PROBLEM_COLUMNS):
        assert column.meaning.endswith(".")


def test_reward_components_are_numbers_and_unknown_columns_are_none() -> None:
    assert column_type("reward/format") == pa.float64()
    assert column_type("entropy") == pa.list_(pa.float32())
    assert column_type("colour") is None
