"""Numbers that training cannot produce: not a number to the end, now and then, or of impossible size or sign."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.diagnosis import diagnose_run
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.numerical_failure import FINDING, trailing_nans
from breadth.doctor.trainer_config import TrainerConfig
from breadth.report.sections import Severity
from breadth.runs.reader import MetricSeries
from breadth.testing.findings import check_finding, check_outcome

LEVEL = np.full(60, 0.5)


def broken(values: Any, where: slice, value: float = np.nan) -> Any:
    """Return the values with a part that is no number."""
    odd = np.array(values, dtype=np.float64)
    odd[where] = value
    return odd


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "numerical-failure")


@pytest.mark.parametrize("name", ["reward", "entropy", "grad_norm", "loss", "kl_reference"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_numbers_to_the_end_broke_the_run(make: Any, around: Callable[..., Any], name: str, value: float) -> None:
    evidence = make(**{"length": around(LEVEL, 0.01), name: broken(LEVEL, slice(40, None), value)})
    found = FINDING.check(evidence)
    assert isinstance(found, Finding)
    check_outcome(found, "numerical-failure")
    assert (found.severity, found.confidence) == (Severity.CRITICAL, "certain")
    assert found.headline == f"{name} is NaN or infinite from step 41 to the end, 20 points."
    assert found.evidence[0].note == f"{name}, steps 41 to 60"
    assert "41" in found.prescriptions[0].action or "40" in found.prescriptions[0].action
    said = diagnose_run(evidence, {"numerical-failure": FINDING})
    assert [finding.name for finding in said.findings] == ["numerical-failure"]


@pytest.mark.parametrize(("points", "severity"), [(8, Severity.CRITICAL), (3, Severity.CRITICAL), (2, Severity.NOTE)])
def test_how_many_at_the_end(make: Any, points: int, severity: Severity) -> None:
    found = FINDING.check(make(reward=LEVEL, grad_norm=broken(LEVEL, slice(60 - points, None))))
    assert isinstance(found, Finding)
    assert found.severity is severity


def test_one_point_of_two_metrics_at_the_end_is_the_end(make: Any) -> None:
    last = broken(LEVEL, slice(59, None))
    found = FINDING.check(make(reward=LEVEL, grad_norm=last, loss=last))
    assert isinstance(found, Finding)
    assert found.severity is Severity.CRITICAL


@pytest.mark.parametrize(("odd", "severity"), [(31, Severity.WARNING), (30, Severity.NOTE), (1, Severity.NOTE)])
def test_overflows_that_pass_are_a_note_up_to_every_other_step(make: Any, odd: int, severity: Severity) -> None:
    found = FINDING.check(make(reward=LEVEL, grad_norm=broken(LEVEL, slice(10, 10 + odd))))
    assert isinstance(found, Finding)
    check_outcome(found, "numerical-failure")
    assert found.severity is severity
    assert found.headline == f"grad_norm is no number at {odd} of 60 steps, first at step 11."


@pytest.mark.parametrize(
    ("size", "points", "severity"),
    [
        (1.01e5, 1, Severity.NOTE),
        (1.01e5, 2, Severity.NOTE),
        (1.01e5, 3, Severity.WARNING),
        (-1.01e5, 3, Severity.WARNING),
        (1e8, 2, Severity.NOTE),
        (1e8, 3, Severity.WARNING),
        (0.99e5, 20, None),
    ],
)
def test_a_loss_that_no_batch_gives(make: Any, size: float, points: int, severity: Severity | None) -> None:
    found = FINDING.check(make(reward=LEVEL, loss=broken(0.1 * LEVEL, slice(30, 30 + points), size)))
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    check_outcome(found, "numerical-failure")
    assert found.severity is severity
    assert "first above 100,000 at step 31" in found.headline


def test_the_size_of_a_reward_is_its_own(make: Any, around: Callable[..., Any]) -> None:
    assert isinstance(FINDING.check(make(reward=around(1e7 * LEVEL, 1e4))), Excluded)


@pytest.mark.parametrize(("times", "found"), [(1300.0, True), (800.0, False)])
def test_a_gradient_a_thousand_times_its_start(make: Any, times: float, found: bool) -> None:
    noise = np.exp(np.random.default_rng(0).normal(0, 0.05, 120))
    grown = 0.1 * noise * np.where((np.arange(120) > 60) & (np.arange(120) <= 90), times, 1.0)
    outcome = FINDING.check(make(reward=np.full(120, 0.5), grad_norm=grown))
    assert isinstance(outcome, Finding) == found
    if isinstance(outcome, Finding):
        check_outcome(outcome, "numerical-failure")
        assert outcome.severity is Severity.WARNING
        assert outcome.headline.startswith("The gradient norm rose to 1,")


def test_a_gradient_that_was_next_to_nothing_may_grow(make: Any) -> None:
    tiny = np.where(np.arange(120) <= 60, 1e-5, 0.5)  # 50,000 times its start, and ordinary
    assert isinstance(FINDING.check(make(reward=np.full(120, 0.5), grad_norm=tiny)), Excluded)


@pytest.mark.parametrize(
    ("below", "name", "trainer", "found"),
    [
        (3, "kl", "trl", True),
        (3, "train/kl", "trl", True),
        (2, "kl", "trl", False),
        (3, "kl", "verl", False),  # its estimator may be negative
        (3, "actor/ppo_kl", "trl", False),
    ],
)
def test_an_estimator_that_cannot_be_negative(make: Any, below: int, name: str, trainer: str, found: bool) -> None:
    kl = broken(0.01 * np.ones(60), slice(20, 20 + below), -0.002)
    evidence = make(reward=LEVEL, kl_reference=kl, trainer=trainer)
    assert evidence.run is not None
    evidence.run.header.names["kl_reference"] = name
    outcome = FINDING.check(evidence)
    assert isinstance(outcome, Finding) == found
    if isinstance(outcome, Finding):
        assert outcome.headline == f"{name} is below zero at 3 of 60 steps, which its estimator (k3) cannot be."


def test_rounding_below_zero_is_no_failure(make: Any) -> None:
    evidence = make(reward=LEVEL, kl_reference=np.full(60, -0.9e-4))
    evidence.run.header.names["kl_reference"] = "kl"
    assert isinstance(FINDING.check(evidence), Excluded)


def test_the_worst_is_told_first(make: Any) -> None:
    huge, dead = broken(LEVEL, slice(20, 24), 1e6), broken(LEVEL, slice(30, None))
    found = FINDING.check(make(reward=broken(LEVEL, slice(5, 6)), loss=huge, grad_norm=dead))
    assert isinstance(found, Finding)
    assert found.headline.startswith("grad_norm is NaN or infinite from step 31")


def test_numbers_all_along_are_excluded_by_name(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(make(reward=around(LEVEL, 0.01), loss=around(0 * LEVEL, 0.01, 1), length=LEVEL))
    assert isinstance(found, Excluded)
    check_outcome(found, "numerical-failure")
    assert found.because == "every value of loss, reward is a possible number"


def test_another_engine_may_be_the_cause(make: Any) -> None:
    dead = broken(LEVEL, slice(30, None))
    config = TrainerConfig(engine="vllm", correct_mismatch=False, learning_rate=3e-6)
    found = FINDING.check(make(reward=LEVEL, loss=dead, config=config))
    assert isinstance(found, Finding)
    assert found.prescriptions[0].action.startswith("Go back to the last checkpoint")
    changes = {change.setting: change.value for remedy in found.prescriptions for change in remedy.changes}
    assert changes == {"learning_rate": 1e-6, "correct_mismatch": True}


def test_what_is_missing_is_named(make: Any) -> None:
    found = FINDING.check(make(length=LEVEL))
    assert isinstance(found, CannotTell)
    assert found.missing == "the gradient norm is not logged"
    assert FINDING.check(Evidence("a configuration")) is None


def test_points_at_the_end_are_counted() -> None:
    steps = np.arange(5)
    for values, count in (([1, 2, 3, 4, 5], 0), ([1, np.nan, 3, np.nan, np.inf], 2), ([np.nan] * 5, 5)):
        assert trailing_nans(MetricSeries("x", steps, np.array(values, dtype=np.float64))) == count


@pytest.mark.parametrize(("points", "severity"), [(2, Severity.NOTE), (3, Severity.WARNING)])
def test_a_divergence_of_ten_thousand_nats_is_none(make: Any, points: int, severity: Severity) -> None:
    found = FINDING.check(make(reward=LEVEL, kl_reference=broken(0.1 * LEVEL, slice(30, 30 + points), 1.1e4)))
    assert isinstance(found, Finding)
    assert found.severity is severity
    assert "first above 10,000 at step 31" in found.headline
    assert isinstance(FINDING.check(make(reward=LEVEL, kl_reference=broken(LEVEL, slice(30, 40), 9e3))), Excluded)


@pytest.mark.parametrize(("step", "severity"), [(30, Severity.WARNING), (31, Severity.NOTE)])
def test_one_update_of_impossible_size_is_one_too_many(make: Any, step: int, severity: Severity) -> None:
    loss, divergence = (broken(0.1 * LEVEL, slice(at, at + 1), 2e5) for at in (30, step))
    found = FINDING.check(make(reward=LEVEL, loss=loss, kl_reference=divergence))
    assert isinstance(found, Finding)
    assert found.severity is severity
