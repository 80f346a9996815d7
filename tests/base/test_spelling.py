"""The name somebody meant is found; where nothing is close, the whole list is given."""

from __future__ import annotations

from breadth.base.spelling import nearest_name, suggestion


def test_nearest_ignores_case_and_small_slips() -> None:
    assert nearest_name("Entropi", ["entropy", "reward"]) == "entropy"
    assert nearest_name("zzz", ["entropy", "reward"]) is None


def test_suggestion_always_lists_what_there_is() -> None:
    assert (
        suggestion("rewrd", ["entropy", "reward"], "metrics")
        == "Did you mean 'reward'? The metrics are: entropy, reward."
    )
    assert suggestion("zzz", ["b", "a"], "metrics") == "Use one of the metrics: a, b."
    assert "none are registered" in suggestion("x", [], "metrics")
