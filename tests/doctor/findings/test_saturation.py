"""A plateau is one only after a rise, with entropy and mixed groups left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.saturation import FINDING, Plateau, find_plateau
from breadth.doctor.trainer_config import TrainerConfig
from breadth.report.sections import Severity
from breadth.runs.reader import MetricSeries
from breadth.testing.findings import check_finding, check_outcome

T = np.linspace(0, 1, 200)
SATURATES = 0.3 + 0.4 * (1 - np.exp(-10 * T))
KEPT, SPENT = 0.6 * 0.8**T, 0.6 * 0.05**T


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "saturation")


def test_a_plateau_with_entropy_left_is_a_note(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(
        make(reward=around(SATURATES, 0.02), entropy=around(KEPT, 0.01), zero_variance_groups=around(0.2 + 0 * T, 0.02))
    )
    assert isinstance(found, Finding)
    check_outcome(found, "saturation")
    assert found.severity is Severity.NOTE
    assert "for 75% of the run, since step 51" in found.headline
    assert found.evidence[0].value == pytest.approx(0.4, abs=0.06)
    assert abs(found.evidence[1].value.value) < 0.2 * 0.4  # type: ignore[union-attr]


def test_half_of_the_run_is_the_least(make: Any) -> None:
    late = 0.3 + 0.4 * np.minimum(T / 0.45, 1)
    later = 0.3 + 0.4 * np.minimum(T / 0.7, 1)
    found = FINDING.check(make(reward=late, entropy=KEPT))
    assert isinstance(found, Finding)
    assert "for 50% of the run, since step 101" in found.headline
    assert (
        found.cost == "50% of the steps moved the score by +0, the others by +0.39."
    )  # the start is the median of the first six
    assert isinstance(FINDING.check(make(reward=later, entropy=KEPT)), Excluded)


@pytest.mark.parametrize(
    "score",
    [
        0.5 + 0 * T,
        0.3 + 0.4 * T,
        0.7 - 0.3 * T,
        np.where(T < 0.3, 0.3 + T, 0.6 - 0.5 * (T - 0.3)),
        0.1 + 0.5 / (1 + np.exp(-12 * (T - 0.5))),
    ],
)
def test_what_never_rose_rises_still_or_falls_is_no_plateau(make: Any, around: Callable[..., Any], score: Any) -> None:
    assert isinstance(FINDING.check(make(reward=around(score, 0.02), entropy=around(KEPT, 0.01))), Excluded)


def test_noise_that_hides_a_further_rise_makes_none(make: Any, around: Callable[..., Any]) -> None:
    assert isinstance(FINDING.check(make(reward=around(SATURATES[::5], 0.15), entropy=KEPT[::5])), Excluded)


def test_collapse_and_zero_variance_groups_have_their_own_names(make: Any, around: Callable[..., Any]) -> None:
    reward = around(SATURATES, 0.02)
    assert isinstance(FINDING.check(make(reward=reward, entropy=around(SPENT, 0.002))), Excluded)
    flat = FINDING.check(make(reward=reward, entropy=around(KEPT, 0.01), zero_variance_groups=0.9 + 0 * T))
    assert isinstance(flat, Excluded)
    assert flat.because == "groups are flat"


def test_without_entropy_a_plateau_cannot_be_told_from_collapse(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(make(reward=around(SATURATES, 0.02), trainer="verl"))
    assert isinstance(found, CannotTell)
    check_outcome(found, "saturation")
    assert found.switch_on == "actor_rollout_ref.actor.calculate_entropy=true"
    assert isinstance(FINDING.check(make(reward=around(0.3 + 0.4 * T, 0.02))), Excluded)


@pytest.mark.parametrize(("level", "solved"), [(0.97, True), (0.85, False)])
def test_a_score_near_the_largest_reward_is_solved(make: Any, level: float, solved: Any) -> None:
    found = FINDING.check(make(reward=level + 0 * T, entropy=KEPT, levels=(0.0, 1.0)))
    assert isinstance(found, Finding) == solved
    if isinstance(found, Finding):
        check_outcome(found, "saturation")
        assert found.severity is Severity.NOTE
        assert found.headline.startswith("The score is 0.97 of at most 1")
        assert "always solves" in found.prescriptions[0].action


def test_what_is_missing_is_named_and_the_rate_is_prescribed_where_it_is_known(make: Any) -> None:
    found = FINDING.check(make(entropy=KEPT))
    assert isinstance(found, CannotTell)
    assert found.missing == "reward is not logged"
    assert FINDING.check(Evidence("a configuration")) is None
    told = FINDING.check(make(reward=SATURATES, entropy=KEPT, config=TrainerConfig(learning_rate=1e-6)))
    assert isinstance(told, Finding)
    assert [change.value for one in told.prescriptions for change in one.changes] == [2e-6]


STEPS = np.arange(1, 101)
NOISE = np.random.default_rng(0).normal(0, 1, 100)


def found(values: Any) -> Plateau | None:
    """Look for a plateau of three quarters or half."""
    return find_plateau(
        MetricSeries("reward", STEPS, np.asarray(values, dtype=np.float64)), (0.75, 0.5), clear=3.0, still=0.2
    )


def test_by_hand() -> None:
    level = found(np.where(STEPS <= 20, 0.1, 0.6))
    assert level is not None
    assert (level.step, level.share) == (26, 0.75)
    assert level.rise == pytest.approx(0.5)
    assert level.excluded == pytest.approx(0.1)
    assert level.change.value == 0
    half = found(np.where(STEPS <= 40, 0.1, 0.6))
    assert half is not None
    assert (half.step, half.share) == (51, 0.5)
    assert found(np.where(STEPS <= 60, 0.1, 0.6)) is None


def test_a_rise_within_the_noise_is_none() -> None:
    assert found(np.where(STEPS <= 20, 0.55, 0.6) + 0.03 * NOISE) is None
    assert found(0.6 + 0.03 * NOISE) is None


def test_a_stretch_that_rises_or_falls_is_none() -> None:
    rise = np.where(STEPS <= 20, 0.1, 0.6)
    assert found(rise + np.maximum(STEPS - 25, 0) / 75 * 0.3 + 0.01 * NOISE) is None
    assert found(rise - np.maximum(STEPS - 25, 0) / 75 * 0.3 + 0.01 * NOISE) is None


def test_too_few_points_are_none() -> None:
    assert find_plateau(MetricSeries("reward", STEPS[:9], np.arange(9.0)), (0.75, 0.5), clear=3.0, still=0.2) is None
