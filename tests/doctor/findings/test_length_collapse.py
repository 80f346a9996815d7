"""Shorter is a note while it pays, and a warning when it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.length_collapse import FINDING
from breadth.doctor.trainer_config import TrainerConfig
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

T = np.linspace(0, 1, 120)
SCORES = {"rises": 0.3 + 0.4 * T, "stays": 0.5 + 0 * T, "falls": 0.6 - 0.3 * T}


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "length-collapse")


@pytest.mark.parametrize(
    ("left", "score", "held", "severity"),
    [
        (0.1, "rises", None, Severity.NOTE),
        (0.1, "rises", "rises", Severity.NOTE),
        (0.1, "rises", "stays", Severity.WARNING),
        (0.1, "rises", "falls", Severity.CRITICAL),
        (0.1, "stays", None, Severity.WARNING),
        (0.1, "falls", None, Severity.CRITICAL),
        (0.1, None, None, Severity.NOTE),
        (0.75, "falls", None, None),
        (1.0, "stays", None, None),
        (3.0, "stays", None, None),
    ],
)
def test_severity_follows_the_scores(
    make: Any, around: Callable[..., Any], left: float, score: str | None, held: str | None, severity: Severity | None
) -> None:
    series = {"length": around(500 * left**T, 5)}
    series |= {} if score is None else {"reward": around(SCORES[score], 0.01, 1)}
    evals = None if held is None else {"reward": around(SCORES[held], 0.005, 2)}
    found = FINDING.check(make(**series, evals=evals))
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    check_outcome(found, "length-collapse")
    assert found.severity is severity
    # The medians of the first and last eighth of left**t lie near left**(1/16) and left**(15/16).
    assert found.evidence[2].value.value == pytest.approx(left ** (14 / 16), rel=0.1)  # type: ignore[union-attr]


def test_the_numbers_in_the_words(make: Any) -> None:
    length = np.where(np.arange(80) < 40, 600.0, 60.0)
    found = FINDING.check(make(length=length, reward=np.where(np.arange(80) < 40, 0.2, 0.6)))
    assert isinstance(found, Finding)
    assert (
        found.headline
        == "Completions have shrunk to 10% of their length at the start, 60 tokens instead of 600, while the"
        " reward rises."
    )
    # From 600 the mean with a memory of ten steps is 60 + 540 x 0.9^k after k short steps: below 300 for the first time
    # at k = 8.
    assert found.cost == "Half of the length was gone at step 48; since then the reward went from 0.6 to 0.6."


def test_a_dip_that_is_over_is_a_note_with_its_steps(make: Any, around: Callable[..., Any]) -> None:
    dip = np.where((T > 0.3) & (T < 0.6), 100.0, 500.0)
    found = FINDING.check(make(length=around(dip, 5), reward=SCORES["stays"]))
    assert isinstance(found, Finding)
    check_outcome(found, "length-collapse")
    assert found.severity is Severity.NOTE
    assert found.headline.startswith("Completions had shrunk to 20% of their length at the start at steps ")
    assert found.headline.endswith(", and are longer again.")


def test_a_score_that_shows_no_rise_is_a_warning(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(make(length=around(500 * 0.1**T, 5), reward=around(0.1 + 0.05 * T, 0.3, 3)))
    assert isinstance(found, Finding)
    assert found.severity is Severity.WARNING


def test_tokens_of_rollouts_stand_in_for_a_length_that_is_not_logged(make: Any) -> None:
    rows = {step: {"problem": ["a", "b"], "tokens": [400 - 30 * step, 440 - 30 * step]} for step in range(1, 13)}
    found = FINDING.check(make(rollouts=rows, reward=np.full(12, 0.5)))
    assert isinstance(found, Finding)
    assert "rollouts, steps 1 to 12" in found.evidence[0].note
    # The geometric mean of steps 1 to 3 (390, 360 and 330 tokens); levels of lengths are compared by factors.
    assert found.evidence[0].value.value == pytest.approx((390 * 360 * 330) ** (1 / 3))  # type: ignore[union-attr]
    few = {step: rows[step] for step in range(1, 5)}
    told = FINDING.check(make(rollouts=few))
    assert isinstance(told, CannotTell)
    assert told.missing == "rollouts have token counts at 4 steps; 8 are needed"


def test_what_is_missing_is_named_and_a_configuration_alone_is_not_asked(make: Any) -> None:
    found = FINDING.check(make(reward=T))
    assert isinstance(found, CannotTell)
    assert found.missing == "the mean length is not logged"
    assert FINDING.check(Evidence("a configuration", config=TrainerConfig())) is None


def test_empty_completions_and_stretches_without_numbers_do_no_harm(make: Any) -> None:
    length = np.concatenate([np.full(40, 300.0), np.full(40, np.nan), np.zeros(40)])
    found = FINDING.check(make(length=length, reward=SCORES["falls"]))
    assert isinstance(found, Finding)
    assert found.severity is Severity.CRITICAL
    assert any("checkpoint before step" in one.action for one in found.prescriptions)
