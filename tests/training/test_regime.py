"""What is known of a run before it starts, and the verdict on a mechanism that cannot act."""

from __future__ import annotations

import pytest

from breadth.training.regime import Inert, Regime


@pytest.mark.parametrize(("updates", "on_policy"), [(None, None), (1, True), (2, False), (8, False)])
def test_on_policy(updates: int | None, on_policy: bool | None) -> None:
    assert Regime(updates_per_generation=updates).on_policy is on_policy


def test_tokens_per_update() -> None:
    assert Regime(sequences_per_update=8, tokens_per_response=250.5).tokens_per_update == 2004.0
    assert Regime(sequences_per_update=8).tokens_per_update is None
    assert Regime(tokens_per_response=100.0).tokens_per_update is None


def test_a_verdict_reads_as_reason_and_remedy() -> None:
    assert str(Inert("kl-cov", "no drift.", "Take two steps.")) == "kl-cov: no drift.\n  -> Take two steps."
