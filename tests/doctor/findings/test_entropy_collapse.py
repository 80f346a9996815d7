"""Collapse is told by a run's own start, beside the score, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.entropy_collapse import FINDING
from breadth.doctor.trainer_config import TrainerConfig
from breadth.report.sections import Severity
from breadth.runs.schema import EntropyKind
from breadth.testing.findings import check_finding, check_outcome

T = np.linspace(0, 1, 120)
FLAT, RISING = 0.5 + 0 * T, 0.2 + 0.5 * T


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "entropy-collapse")


@pytest.mark.parametrize(("epochs", "severity"), [(9.9, Severity.NOTE), (10.0, Severity.WARNING)])
def test_a_solved_score_excuses_it_unless_the_problems_are_known_by_heart(
    make: Any, around: Callable[..., Any], epochs: float, severity: Severity
) -> None:
    solved = around(np.minimum(0.5 + 2 * T, 0.97), 0.005)
    found = FINDING.check(make(entropy=around(0.5 * 0.2**T, 0.01), reward=solved, epoch=epochs * (T + 1) / 2))
    assert isinstance(found, Finding)
    check_outcome(found, "entropy-collapse")
    assert found.severity is severity
    passes = [fact.value for fact in found.evidence if "passes" in fact.name]
    assert passes == ([epochs] if severity is Severity.WARNING else [])


@pytest.mark.parametrize(
    ("left", "score", "severity"),
    [
        (0.04, FLAT, Severity.CRITICAL),
        (0.04, RISING, Severity.CRITICAL),
        (0.2, RISING, Severity.WARNING),
        (0.4, FLAT, Severity.WARNING),
        (0.4, RISING, Severity.NOTE),
        (0.6, FLAT, Severity.NOTE),  # its last eighth is about 0.64 of its first
        (0.8, FLAT, None),
        (1.0, FLAT, None),
        (2.0, FLAT, None),
    ],
)
def test_severity_follows_what_is_left_and_the_score(
    make: Any, around: Callable[..., Any], left: float, score: Any, severity: Severity | None
) -> None:
    entropy = around(0.8 * left**T, 0.01)
    found = FINDING.check(make(entropy=entropy, reward=around(score, 0.02, 1)))
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    check_outcome(found, "entropy-collapse")
    assert found.severity is severity
    # The medians of the first and last eighth of left**t lie near left**(1/16) and left**(15/16).
    assert found.evidence[2].value.value == pytest.approx(left ** (14 / 16), rel=0.25)  # type: ignore[union-attr]


def test_the_scale_of_entropy_does_not_matter(make: Any, around: Callable[..., Any]) -> None:
    small, large = (FINDING.check(make(entropy=scale * around(0.3**T, 0.01))) for scale in (0.05, 500.0))
    assert isinstance(small, Finding)
    assert isinstance(large, Finding)
    assert small.evidence[2].value.high == pytest.approx(large.evidence[2].value.high, rel=1e-9)  # type: ignore[union-attr]


def test_half_gone_while_no_rise_is_shown_is_a_warning_and_without_a_score_a_note(
    make: Any, around: Callable[..., Any]
) -> None:
    entropy = around(0.8 * 0.35**T, 0.01)
    hidden = around(FLAT, 0.3, 1)  # whether it rises cannot be told
    told, untold = FINDING.check(make(entropy=entropy, reward=hidden)), FINDING.check(make(entropy=entropy))
    assert isinstance(told, Finding)
    assert isinstance(untold, Finding)
    assert told.severity is Severity.WARNING
    assert told.headline.endswith("and the score shows no rise over the second half.")
    assert untold.severity is Severity.NOTE


def test_a_score_that_rose_and_stopped_is_told_as_both(make: Any, around: Callable[..., Any]) -> None:
    """The headline is about the second half; the fact must say so, or the whole run seems to contradict it."""
    entropy, stopped = around(0.8 * 0.04**T, 0.01), around(np.minimum(0.2 + T, 0.6), 0.01, 1)
    found = FINDING.check(make(entropy=entropy, reward=stopped))
    assert isinstance(found, Finding)
    assert found.headline.endswith("and the score has stopped rising.")
    assert found.evidence[3].note == "rising; over the second half flat"
    steady = FINDING.check(make(entropy=entropy, reward=around(RISING, 0.02, 1)))
    assert isinstance(steady, Finding)
    assert steady.evidence[3].note == "rising"


def test_a_smooth_fall_by_factors_on_forty_steps_is_found(make: Any) -> None:
    # The curve that a straight scale takes for sluggish noise: level, falling by factors, level, falling again.
    fall = np.interp(np.arange(40), [0, 4, 14, 24, 30, 34, 39], np.log([0.47, 0.46, 0.26, 0.165, 0.16, 0.078, 0.078]))
    entropy = np.exp(fall + np.random.default_rng(0).normal(0, 0.06, 40))
    found = FINDING.check(make(entropy=entropy, reward=np.linspace(0.3, 0.9, 40)))
    assert isinstance(found, Finding)
    assert found.severity is Severity.WARNING
    assert found.evidence[2].value.high < 0.25  # type: ignore[union-attr]


def test_a_fall_in_two_goes_is_found_though_its_trend_passes_for_a_wander(make: Any) -> None:
    # A run of the lab (entropy-collapse, seed 12) with a hump on the way down: no smooth curve follows it, so its noise
    # seems sluggish.
    hundredths = [46, 50, 47, 43, 44, 41, 41, 43, 39, 39, 36, 37, 33, 28, 26, 22, 20, 18, 19, 16]
    hundredths += [14, 13, 17, 19, 18, 19, 19, 17, 14, 11, 9, 11, 9, 8, 10, 13, 13, 10, 10, 11]
    evidence = make(
        entropy=np.array(hundredths) / 100, reward=np.interp(np.arange(40), [0, 10, 18, 39], [0.3, 0.4, 0.85, 0.9])
    )
    trend = evidence.trend("entropy")
    assert trend.verdict == "cannot tell"
    assert trend.ratio.high < 0.3
    found = FINDING.check(evidence)
    assert isinstance(found, Finding)
    assert (found.severity, found.confidence) == (Severity.WARNING, "likely")


def test_that_it_shows_is_sure_and_how_bad_it_is_the_best_estimate(make: Any, around: Callable[..., Any]) -> None:
    noise = np.exp(np.random.default_rng(0).normal(0, 0.25, len(T)))
    evidence = make(entropy=0.8 * 0.17**T * noise, reward=around(RISING, 0.02, 1))  # 0.17^(14/16) = 0.212
    left = evidence.trend("entropy").ratio
    assert left.value < 0.25 < left.high < 0.7
    found = FINDING.check(evidence)
    assert isinstance(found, Finding)
    assert found.severity is Severity.WARNING


def test_what_may_be_half_of_the_start_and_does_not_fall_for_sure_is_left_alone(make: Any) -> None:
    """A slow wander that has come down a third is no collapse."""
    wander = np.exp(np.interp(np.arange(40), [0, 8, 15, 22, 30, 39], np.log([0.5, 0.55, 0.35, 0.5, 0.4, 0.33])))
    evidence = make(entropy=wander * np.exp(np.random.default_rng(1).normal(0, 0.04, 40)), reward=np.full(40, 0.3))
    assert evidence.trend("entropy").verdict != "falling"
    assert isinstance(FINDING.check(evidence), Excluded)


def test_an_s_shaped_fall_is_found_wherever_it_lies(make: Any) -> None:
    # From one level to 40 % of it inside the run: what a line takes for a wander.
    for middle in (0.3, 0.5, 0.65):
        fall = np.log(0.4) / (1 + np.exp(-(np.linspace(0, 1, 40) - middle) / 0.05))
        entropy = 0.5 * np.exp(fall + np.random.default_rng(0).normal(0, 0.04, 40))
        found = FINDING.check(make(entropy=entropy, reward=np.full(40, 0.3)))
        assert isinstance(found, Finding)
        assert found.severity is Severity.WARNING


def test_without_entropy_it_cannot_tell_and_says_what_to_set(make: Any) -> None:
    found = FINDING.check(make(reward=RISING, trainer="verl"))
    assert isinstance(found, CannotTell)
    assert found.switch_on == "actor_rollout_ref.actor.calculate_entropy=true"


def test_what_cannot_act_comes_with_what_lets_it(make: Any, around: Callable[..., Any]) -> None:
    entropy = around(0.8 * 0.04**T, 0.01)
    for config in (TrainerConfig(updates=1), TrainerConfig(updates=4)):
        found = FINDING.check(make(entropy=entropy, config=config))
        assert isinstance(found, Finding)
        assert found.prescriptions[0].action.startswith("Add a KL penalty")
        clip = next(one for one in found.prescriptions if "clip" in one.action)
        assert ("updates" in {change.setting for change in clip.changes}) == (config.updates == 1)


def test_a_sum_over_tokens_gets_no_target_in_nats_a_token(make: Any, around: Callable[..., Any]) -> None:
    summed = EntropyKind("exact", 1.0, "loss-mode", "response")
    found = FINDING.check(make(entropy=around(80 * 0.04**T, 1), kind=summed))
    assert isinstance(found, Finding)
    assert found.confidence == "likely"
    assert not any("Hold entropy" in one.action for one in found.prescriptions)


def test_the_cost_names_the_step_and_what_it_bought_since(make: Any) -> None:
    entropy = np.where(np.arange(100) < 50, 0.8, 0.1)
    found = FINDING.check(make(entropy=entropy, reward=np.where(np.arange(100) < 50, 0.2, 0.3)))
    assert isinstance(found, Finding)
    assert found.cost == "Half of it was gone at step 51; the 49 steps since then moved the reward from 0.2 to 0.3."


def test_in_supervised_fine_tuning_entropy_is_meant_to_fall(make: Any, around: Callable[..., Any]) -> None:
    entropy = around(0.5 * 0.2**T, 0.01)
    assert FINDING.check(make(entropy=entropy, mean_token_accuracy=0.5 + 0.4 * T)) is None
    with_reward = FINDING.check(make(entropy=entropy, mean_token_accuracy=0.5 + 0.4 * T, reward=around(FLAT, 0.01, 1)))
    assert isinstance(with_reward, Finding)
