"""A divergence that grows is normal; one that outruns its own pace is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.drift import FINDING
from breadth.doctor.trainer_config import TrainerConfig
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

T = np.linspace(0, 1, 160)
FLAT, RISING, FALLING = 0.5 + 0 * T, 0.3 + 0.4 * T, 0.6 - 0.4 * T
WARM = np.minimum(T / 0.1, 1)
JUMPS = 0.1 * T + np.where(T > 0.6, 1.0, 0.0)
TAKES_OFF = 0.1 * T + np.maximum(T - 0.85, 0) * 20


def spread(values: Any, seed: int = 0, sd: float = 0.1) -> Any:
    """Return values with noise in proportion, as an estimated divergence has."""
    return values * np.exp(np.random.default_rng(seed).normal(0, sd, len(values)))


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "drift")


@pytest.mark.parametrize("growth", [T, T**2, np.sqrt(T), 1 - np.exp(-6 * T), WARM * T, WARM * T**2, 0.02 + 0 * T])
@pytest.mark.parametrize("level", [0.05, 0.8])
def test_steady_growth_is_excluded_whatever_its_level(make: Any, growth: Any, level: float) -> None:
    found = FINDING.check(make(kl_reference=spread(level * growth), reward=FLAT))
    assert isinstance(found, Excluded)
    check_outcome(found, "drift")


@pytest.mark.parametrize(
    ("score", "severity"), [(FLAT, Severity.WARNING), (FALLING, Severity.CRITICAL), (RISING, Severity.NOTE)]
)
def test_more_than_a_nat_from_the_reference_is_far_at_any_pace(
    make: Any, around: Callable[..., Any], score: Any, severity: Severity
) -> None:
    # 2 t: the last eighth (20 of 160 points) lies around 2 x 0.94.
    found = FINDING.check(make(kl_reference=2 * T, reward=around(score, 0.01, 1)))
    assert isinstance(found, Finding)
    check_outcome(found, "drift")
    assert found.severity is severity
    assert "is 1.9 nats per token" in found.headline


def test_a_distance_that_came_back_is_a_note_with_its_steps(make: Any) -> None:
    kl = np.where((T > 0.3) & (T < 0.6), 3.0, 0.05)
    found = FINDING.check(make(kl_reference=kl, reward=FLAT))
    assert isinstance(found, Finding)
    assert found.severity is Severity.NOTE
    assert found.headline.startswith("The divergence from the reference policy was 3 nats per token at steps ")


@pytest.mark.parametrize("name", ["kl_reference", "kl_old"])
@pytest.mark.parametrize("growth", [JUMPS, TAKES_OFF, 0.01 * np.exp(6 * T)])
@pytest.mark.parametrize(
    ("score", "severity"), [(FLAT, Severity.WARNING), (FALLING, Severity.CRITICAL), (RISING, Severity.NOTE)]
)
def test_outrunning_its_own_pace_is_judged_by_the_score(
    make: Any, around: Callable[..., Any], name: str, growth: Any, score: Any, severity: Severity
) -> None:
    found = FINDING.check(make(**{name: spread(growth)}, reward=around(score, 0.01, 1)))
    assert isinstance(found, Finding)
    check_outcome(found, "drift")
    assert found.severity is severity
    assert ("the reference policy" in found.headline) == (name == "kl_reference")


def test_without_a_score_it_is_a_note(make: Any) -> None:
    found = FINDING.check(make(kl_reference=spread(0.5 * JUMPS)))
    assert isinstance(found, Finding)
    assert found.severity is Severity.NOTE


def test_far_from_the_reference_without_a_score_is_a_note_too(make: Any) -> None:
    found = FINDING.check(make(kl_reference=spread(JUMPS)))
    assert isinstance(found, Finding)
    assert found.severity is Severity.NOTE
    assert "score" not in found.headline


def test_what_the_pace_explains_is_worked_out(make: Any) -> None:
    # The root of 0.1 (t / 100)^2 grows at a constant pace. From step 60 on the divergence is 9 times that.
    steps = np.arange(1.0, 101.0)
    kl = 0.1 * (steps / 100) ** 2 * np.where(steps >= 60, 9, 1)
    found = FINDING.check(make(kl_reference=kl, reward=np.full(100, 0.5)))
    assert isinstance(found, Finding)
    # The last eighth (12 points, steps 89 to 100) has its median at step 94.5; the pace explains 0.1 x 0.945^2 there.
    assert found.evidence[2].value == pytest.approx(0.1 * 0.945**2, rel=1e-6)
    assert found.evidence[1].value.value == pytest.approx(0.9 * 0.945**2, rel=1e-3)  # type: ignore[union-attr]
    assert found.headline.startswith(
        "The divergence from the reference policy has grown to 0.8 nats per token, 9 times"
    )
    # Twice 0.0893 is 0.1786; 0.9 (t / 100)^2 is above that from step 45 on, so from the jump on.
    assert found.cost == "It has exceeded that since step 60."


def test_a_spike_that_is_over_is_none(make: Any) -> None:
    kl = spread(0.1 * T)
    kl[70:74] = 50.0
    assert isinstance(FINDING.check(make(kl_reference=kl, reward=FLAT)), Excluded)


def test_spikes_by_the_end_are_a_warning_though_the_score_rises(make: Any) -> None:
    kl = spread(0.1 * T)
    kl[-10::3] = 50.0  # 4 of the last 12 points; of all 100 fewer than one in twenty
    found = FINDING.check(make(kl_reference=kl, reward=0.3 + 0.3 * T))
    assert isinstance(found, Finding)
    check_outcome(found, "drift")
    assert found.severity is Severity.WARNING
    assert f"exceeds 10 nats per token at 4 of {len(kl)} steps, 50 at most; the score rises" in found.headline


def test_policies_that_hardly_differ_do_not_drift(make: Any) -> None:
    # 0.019 nats: less than a tenth of the probability at a token by Pinsker's inequality, sqrt(0.019 / 2) = 0.097.
    assert isinstance(FINDING.check(make(kl_reference=0.019 * JUMPS / JUMPS.max(), reward=FALLING)), Excluded)


def test_negative_estimates_are_no_crash(make: Any, around: Callable[..., Any]) -> None:
    assert isinstance(FINDING.check(make(kl_old=around(0 * T, 0.001), reward=FLAT)), Excluded)


def test_a_penalty_larger_than_any_advantage_is_found_at_any_pace(make: Any) -> None:
    found = FINDING.check(make(kl_reference=0.9 * T, reward=FLAT, config=TrainerConfig(kl=2.0, learning_rate=3e-6)))
    assert isinstance(found, Finding)
    check_outcome(found, "drift")
    assert "1.7 of penalty per token" in found.headline  # 2 x 0.9 x 0.94
    cheap = FINDING.check(make(kl_reference=0.9 * T, reward=FLAT, config=TrainerConfig(kl=1.0)))
    assert isinstance(cheap, Excluded)  # 1 x 0.9 x 0.94 is less than an advantage


def test_prescriptions_fit_the_settings(make: Any) -> None:
    for price, wanted in ((0.01, 0.03), (0.0, 0.01)):
        found = FINDING.check(
            make(kl_reference=spread(JUMPS), reward=FLAT, config=TrainerConfig(kl=price, learning_rate=3e-6))
        )
        assert isinstance(found, Finding)
        changes = {change.setting: change.value for one in found.prescriptions for change in one.changes}
        assert changes["kl"] == wanted
        assert changes["learning_rate"] == pytest.approx(1e-6)
        assert any("before step" in one.action for one in found.prescriptions)


def test_what_is_missing_is_named(make: Any) -> None:
    found = FINDING.check(make(reward=T, trainer="verl"))
    assert isinstance(found, CannotTell)
    assert found.switch_on.startswith(
        "actor_rollout_ref.actor.use_kl_loss=true with actor_rollout_ref.actor.kl_loss_coef=0"
    )
    assert FINDING.check(Evidence("a configuration")) is None
    few = FINDING.check(make(reward=T, kl_reference=T[:5]))
    assert isinstance(few, CannotTell)
    assert "5 usable points" in few.missing


def test_a_divergence_of_nought_is_shown_as_nought(make: Any) -> None:
    found = FINDING.check(make(kl_reference=0 * T, reward=FLAT))
    assert isinstance(found, Excluded)
    assert found.because == "kl_reference is 0"
