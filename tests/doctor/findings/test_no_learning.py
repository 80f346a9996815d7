"""A run without a signal is told by arithmetic, one without an effect by a flat score; not where solved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.no_learning import FINDING, highest_linear_rise
from breadth.doctor.trainer_config import TrainerConfig
from breadth.measure.trends import trend
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

STEPS = np.arange(1, 101)
FLAT = np.full(100, 0.3)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "no-learning")


@pytest.mark.parametrize(
    ("series", "headline"),
    [
        ({"grad_norm": np.zeros(100)}, "The gradient is zero from the first step on"),
        (
            {"reward_std": np.zeros(100)},
            "The rewards of a group never differ from the first step on",
        ),
        (
            {"learning_rate": np.zeros(100)},
            "The learning rate is zero from the first step on",
        ),
        (
            {"grad_norm": np.where(STEPS <= 40, 0.3, 0.0)},
            "The gradient is zero since step 41",
        ),
    ],
    ids=["gradient", "spread", "rate", "gradient stops"],
)
def test_a_missing_signal_is_critical(
    make: Any, around: Callable[..., Any], series: dict[str, Any], headline: str
) -> None:
    found = FINDING.check(make(reward=around(FLAT, 0.02), **series))
    assert isinstance(found, Finding)
    assert (found.severity, found.confidence) == (Severity.CRITICAL, "certain")
    assert found.headline.startswith(headline)
    has_past = any(remedy.action.startswith("Go back") for remedy in found.prescriptions)
    assert has_past == ("since" in headline)


def test_a_missing_signal_has_the_form_of_a_finding(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(make(reward=around(FLAT, 0.02), grad_norm=np.zeros(100)))
    assert isinstance(found, Finding)
    check_outcome(found, "no-learning")


@pytest.mark.parametrize(("norm", "dead"), [(0.9e-7, True), (1.1e-7, False)])
def test_what_is_no_gradient(make: Any, around: Callable[..., Any], norm: float, dead: bool) -> None:
    found = FINDING.check(make(reward=around(FLAT, 0.02), grad_norm=np.full(100, norm)))
    assert (isinstance(found, Finding) and "gradient" in found.headline) == dead


@pytest.mark.parametrize(("moving", "dead"), [(2, True), (3, False)])
def test_nearly_every_step_of_the_second_half_must_be_without(
    make: Any, around: Callable[..., Any], moving: int, dead: bool
) -> None:
    # Two of fifty are 4 %, three are 6 %.
    norms = np.zeros(100)
    norms[60 : 60 + moving] = 0.5
    found = FINDING.check(make(reward=around(FLAT, 0.02), grad_norm=norms))
    assert (isinstance(found, Finding) and "gradient" in found.headline) == dead


def test_the_first_half_alone_is_no_dead_run(make: Any, around: Callable[..., Any]) -> None:
    norms = np.where(STEPS <= 50, 0.0, 0.4)
    rising = around(0.2 + 0.5 * STEPS / 100, 0.02)
    assert isinstance(FINDING.check(make(reward=rising, grad_norm=norms)), Excluded)


def test_a_schedule_may_end_at_zero(make: Any, around: Callable[..., Any]) -> None:
    rising = around(0.2 + 0.5 * STEPS / 100, 0.02)
    rate = np.maximum(1e-6 * (1 - STEPS / 40), 0.0)  # zero from step 40 on
    assert isinstance(FINDING.check(make(reward=rising, learning_rate=rate)), Excluded)
    warm = np.full(100, 1e-6)
    warm[0] = 0.0
    assert isinstance(FINDING.check(make(reward=rising, learning_rate=warm)), Excluded)


@pytest.mark.parametrize(("level", "solved"), [(0.91, True), (0.89, False)])
def test_a_solved_score_needs_no_signal(make: Any, level: float, solved: bool) -> None:
    found = FINDING.check(make(reward=np.full(100, level), reward_std=np.zeros(100), levels=(0.0, 1.0)))
    if not solved:
        assert isinstance(found, Finding)
        return
    assert isinstance(found, Excluded)
    assert found.because == "the score is 0.91: solved"


def test_a_score_that_never_moved_is_a_warning(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(make(reward=around(FLAT, 0.005)))
    assert isinstance(found, Finding)
    check_outcome(found, "no-learning")
    assert (found.severity, found.confidence) == (Severity.WARNING, "strong")
    assert found.headline == "The score has not moved in 100 points: 0.3 at the start, 0.3 now."


@pytest.mark.parametrize(("points", "found"), [(30, True), (29, False)])
def test_from_thirty_points_on_flat_is_a_finding(
    make: Any, around: Callable[..., Any], points: int, found: bool
) -> None:
    outcome = FINDING.check(make(reward=around(FLAT[:points], 0.002, 1)))
    if found:
        assert isinstance(outcome, Finding)
        return
    assert isinstance(outcome, CannotTell)
    assert outcome.undecided
    assert outcome.missing.startswith("over 29 points the score changed by ")


def test_noise_that_leaves_a_rise_open_is_undecided(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(make(reward=around(0.3 + 0.1 * np.linspace(0, 1, 60), 0.15, 1)))
    assert isinstance(found, CannotTell)
    check_outcome(found, "no-learning")
    assert found.undecided
    assert "; a rise of 0.1" in found.missing  # as large as the scatter of the points, not a tenth of the level
    assert isinstance(FINDING.check(make(reward=around(FLAT, 0.15))), Finding)  # a hundred points without a rise do not


def test_a_constant_score_has_not_moved(make: Any) -> None:
    for level in (0.0, 0.3, -2.0, 1e6):
        found = FINDING.check(make(reward=np.full(60, level)))
        assert isinstance(found, Finding)
        assert found.severity is Severity.CRITICAL
        assert found.headline.startswith("The score (reward) is equal to the last digit from the first step on")


def test_a_score_that_froze_on_the_way_is_dead_unless_it_is_at_its_best(make: Any) -> None:
    falls, rises = np.linspace(0.6, 0.45, 10), np.linspace(0.2, 0.45, 10)
    evals = {"accuracy": np.r_[falls, np.full(12, 0.45)]}
    reward = np.random.default_rng(1).normal(0.3, 0.1, 22)
    found = FINDING.check(make(reward=reward, evals=evals))
    assert isinstance(found, Finding)
    assert found.headline.startswith("The score (accuracy) is equal to the last digit since step 10")
    for steady in ({"accuracy": np.r_[rises, np.full(12, 0.45)]}, {"accuracy": np.r_[falls, np.full(6, 0.45)]}):
        assert not isinstance(FINDING.check(make(reward=reward, evals=steady)), Finding)


def test_a_constant_score_that_is_solved_is_none(make: Any) -> None:
    assert isinstance(FINDING.check(make(reward=np.full(60, 0.95))), Excluded)


@pytest.mark.parametrize(
    ("score", "because"),
    [
        (0.2 + 0.5 * STEPS / 100, "the score changed by +0.4"),
        (0.7 - 0.5 * STEPS / 100, "the score changed by -0.4"),
        (-3 + 2.0 * STEPS / 100, "the score changed by +1.8"),
        (np.where((STEPS > 30) & (STEPS <= 60), 0.7, 0.3), "the score rose by 0."),
    ],
    ids=["rises", "falls", "below zero", "rose and came back"],
)
def test_what_moved_is_excluded_with_its_change(
    make: Any, around: Callable[..., Any], score: Any, because: str
) -> None:
    found = FINDING.check(make(reward=around(score, 0.005)))
    assert isinstance(found, Excluded)
    check_outcome(found, "no-learning")
    assert found.because.startswith(because)


@pytest.mark.parametrize("scale", [1e-4, 1e5])
def test_the_scale_of_the_score_does_not_matter(make: Any, around: Callable[..., Any], scale: float) -> None:
    assert isinstance(FINDING.check(make(reward=scale * around(FLAT, 0.005))), Finding)
    assert isinstance(FINDING.check(make(reward=scale * around(0.2 + 0.5 * STEPS / 100, 0.02))), Excluded)


def test_a_reward_of_zero_or_one_at_each_step_shows_no_rise(make: Any) -> None:
    coin = (np.random.default_rng(0).random(400) < 0.3).astype(np.float64)
    assert isinstance(FINDING.check(make(reward=coin)), Finding)  # none as large as the scatter of coins


@pytest.mark.parametrize(("points", "interval", "found"), [(30, 25, True), (25, 1, False), (15, 50, False)])
def test_steps_count_and_not_only_points(make: Any, points: int, interval: int, found: bool) -> None:
    reward = np.full(points * interval, np.nan)
    reward[::interval] = 0.3 + 1e-3 * (-1.0) ** np.arange(points)
    outcome = FINDING.check(make(reward=reward))
    assert isinstance(outcome, Finding) == found


def test_a_reward_of_zero_or_one_at_each_step_may_rise(make: Any) -> None:
    learned = (np.random.default_rng(0).random(200) < np.linspace(0.1, 0.9, 200)).astype(np.float64)
    assert isinstance(FINDING.check(make(reward=learned)), Excluded)


def test_a_move_within_the_scatter_is_no_learning(make: Any, around: Callable[..., Any]) -> None:
    rises = 0.3 + 0.003 * STEPS / 100  # by 1 % of the level
    assert isinstance(FINDING.check(make(reward=around(rises, 0.02))), Finding)
    # Out of the scatter of a smoothed log it rises for everybody to see.
    assert isinstance(FINDING.check(make(reward=rises + 1e-4 * (-1.0) ** STEPS)), Excluded)


def test_what_may_begin_to_rise_is_not_called_flat(make: Any, around: Callable[..., Any]) -> None:
    seen = set()
    for seed in range(40):
        score = around(FLAT + 0.004 * STEPS / 100, 0.02, seed)
        found = trend(STEPS, score)
        hints = found.tau > 0 and found.p_value < 0.1
        outcome = FINDING.check(make(reward=score))
        seen.add((hints, type(outcome)))
        assert not (hints and isinstance(outcome, Finding))
    assert {(True, CannotTell), (False, Finding)} <= seen


def test_a_held_out_score_that_rises_holds_it_back(make: Any, around: Callable[..., Any]) -> None:
    held = around(0.2 + 0.3 * np.linspace(0, 1, 20), 0.01, 2)
    found = FINDING.check(make(reward=around(FLAT, 0.005), evals={"reward": held}))
    assert isinstance(found, CannotTell)


def test_prescriptions_fit_what_is_known(make: Any, around: Callable[..., Any]) -> None:
    config = TrainerConfig(learning_rate=1e-6, max_completion_length=512)
    found = FINDING.check(make(reward=around(FLAT, 0.005), truncated=np.full(100, 0.4), config=config))
    assert isinstance(found, Finding)
    changes = {change.setting: change.value for remedy in found.prescriptions for change in remedy.changes}
    assert changes == {"max_completion_length": 1024, "learning_rate": 2e-6}


def test_what_is_missing_is_named(make: Any) -> None:
    missing = FINDING.check(make(entropy=np.full(40, 0.5)))
    assert isinstance(missing, CannotTell)
    assert missing.missing == "reward is not logged"
    assert FINDING.check(Evidence("a configuration")) is None


@pytest.mark.parametrize(("names", "is_found"), [(("min_reward", "max_reward"), True), (("low", "high"), False)])
def test_rewards_whose_highest_is_their_lowest_teach_nothing(make: Any, names: tuple[str, str], is_found: bool) -> None:
    score = 0.15 + 0.01 * (STEPS % 3)
    found = FINDING.check(make(reward=score, **dict.fromkeys(names, score)))
    assert (isinstance(found, Finding) and "highest reward" in found.headline) == is_found


def test_a_rise_of_a_straight_line_is_bounded_by_all_points(make: Any) -> None:
    # Ends of five points each leave a rise of 0.3 open; forty points of the same scatter leave 0.15.
    score = 0.5 + 0.14 * np.tile([1.0, -1.0, 0.4, -0.4], 10)
    course = make(reward=score).course("reward")
    assert course.change(course.start, course.end).high > 0.15
    assert highest_linear_rise(course) < 0.14
    rising = make(reward=score + np.linspace(0, 1, 40)).course("reward")
    assert highest_linear_rise(rising) > 1.0


def test_steps_of_a_coarse_score_are_no_steady_rise(make: Any) -> None:
    # Sixteenths, two in five of them zero: the median jumps from 0 to 1/16 though the mean hardly moves.
    pattern = np.array([0, 1, 0, 2, 1, 0, 1, 0, 1, 2, 0, 1, 1, 0, 1]) / 16
    score = np.concatenate([np.tile(pattern, 8), np.tile(np.roll(pattern, 1), 1)])
    found = FINDING.check(make(reward=score))
    assert isinstance(found, Finding)
    assert found.headline.startswith("The score has not moved")


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([0.0, 0.0, -0.1, 0.0, 0.0], True),  # four in five, at its best
        ([0.3, 0.2, 0.3, 0.3, 0.25], True),
        ([0.3, 0.2, 0.3, 0.25], False),  # half is not most
        ([1.0, 1.0, 0.9, 1.0, 1.0], False),  # solved
    ],
)
def test_a_score_of_one_value_at_most_steps_is_stuck(make: Any, values: list[float], found: bool) -> None:
    outcome = FINDING.check(make(reward=np.tile(values, 8)))
    assert (isinstance(outcome, Finding) and "to the last digit" in outcome.headline) == found
    if isinstance(outcome, Finding):
        check_outcome(outcome, "no-learning")
        assert outcome.severity is Severity.WARNING


def test_a_score_that_rose_to_one_value_is_not_stuck(make: Any) -> None:
    risen = np.concatenate([np.linspace(-1, 2, 12), np.full(28, 2.0)])
    assert isinstance(FINDING.check(make(reward=risen)), Excluded)


@pytest.mark.parametrize(("lift", "found"), [(0.08, False), (0.0, True)])
def test_a_rise_that_everybody_sees_is_not_called_flat(make: Any, lift: float, found: bool) -> None:
    # Within the scatter of single points: from 0.42 to 0.58, a third as much again.
    score = 0.5 + 0.3 * np.tile([1.0, -0.4, 0.4, -1.0, -0.4, 1.0, -1.0, 0.4], 20)
    for place, sign in ((0, -1), (20, 1), (120, -1), (140, 1)):  # no trend in between
        score[place : place + 20] += sign * lift
    assert isinstance(FINDING.check(make(reward=score)), Finding if found else CannotTell)
