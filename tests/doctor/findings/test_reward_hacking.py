"""A reward is set beside held-out scores, its components and the grades of rollouts; never beside nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.reward_hacking import FINDING
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

T = np.linspace(0, 1, 160)
E = np.linspace(0, 1, 16)
RISING = 0.3 + 0.3 * T
RIGHT, FORM = "rewards/correctness_reward/mean", "rewards/format_reward/mean"


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "reward-hacking")


@pytest.mark.parametrize(
    ("held", "severity"),
    [
        (0.28 - 0.15 * E, Severity.CRITICAL),
        (0.28 + 0 * E, Severity.WARNING),
        (0.28 + 0.2 * E, None),
        (0.28 + 0.3 * E, None),
    ],
)
def test_a_held_out_score_that_stays_behind(
    make: Any, around: Callable[..., Any], held: Any, severity: Severity | None
) -> None:
    found = FINDING.check(make(reward=around(RISING, 0.01), evals={"reward": around(held, 0.01, 1)}))
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    check_outcome(found, "reward-hacking")
    assert found.severity is not Severity.NOTE if severity == "louder" else found.severity is severity
    # Medians of the first and the last eighth lie 14/16 of the way apart.
    assert found.evidence[0].value.value == pytest.approx(0.3 * 14 / 16, abs=0.02)  # type: ignore[union-attr]
    assert "16 evaluations, steps 1 to 16" in found.evidence[1].note


@pytest.mark.parametrize("score", [0.5 + 0 * T, 0.6 - 0.3 * T])
def test_a_reward_that_does_not_rise_cannot_be_hacked(make: Any, around: Callable[..., Any], score: Any) -> None:
    assert isinstance(FINDING.check(make(reward=around(score, 0.01), evals={"reward": 0.5 - 0.3 * E})), Excluded)


def test_a_rise_that_the_trend_does_not_see_is_not_denied(make: Any) -> None:
    waves = 0.3 + 0.35 * np.clip(8 * T - 3, 0, 1) + 0.05 * np.sin(10 * np.pi * T)
    found = FINDING.check(make(reward=waves))
    assert isinstance(found, CannotTell)
    assert "rise" in found.missing


@pytest.mark.parametrize(
    ("name", "counts", "is_hacked"),
    [
        ("n_hacking_successful", 1 + 50 * T, True),
        ("judge/hack_rate", 0.02 + 0.5 * T, True),
        ("hack_rate", 0.5 + 0.1 * T, False),
        ("n_no_hacking_successful", 1 + 50 * T, False),
        ("n_hacking_unsuccessful", 1 + 50 * T, False),
        ("rewards/hack_penalty/mean", -0.5 + 0.5 * T, False),
        ("shackles", 1 + 50 * T, False),
        ("exploitation_rate", 0.02 + 0.5 * T, False),
    ],
)
def test_the_count_of_hacks_that_the_run_keeps_is_believed(
    make: Any, around: Callable[..., Any], name: str, counts: Any, *, is_hacked: bool
) -> None:
    found = FINDING.check(make(**{"reward": around(RISING, 0.01), name: around(counts, 0.01 * counts.max(), 1)}))
    assert isinstance(found, Finding) == is_hacked
    if isinstance(found, Finding):
        check_outcome(found, "reward-hacking")
        assert (found.severity, found.confidence) == (Severity.CRITICAL, "certain")
        assert name in found.headline


def test_held_out_problems_that_were_known_from_the_start_have_nothing_to_gain(
    make: Any, around: Callable[..., Any]
) -> None:
    assert not isinstance(
        FINDING.check(make(reward=around(RISING, 0.01), evals={"reward": around(0.97 + 0 * E, 0.004)})), Finding
    )


def test_an_accuracy_in_other_units_must_be_level_by_itself(make: Any, around: Callable[..., Any]) -> None:
    shaped = around(-2 + 5 * T, 0.1)
    level = FINDING.check(make(reward=shaped, evals={"val-core/math/acc/mean@4": around(0.4 + 0 * E, 0.004)}))
    assert isinstance(level, Finding)
    assert level.confidence == "likely"
    assert isinstance(
        FINDING.check(make(reward=shaped, evals={"val-core/math/acc/mean@4": around(0.4 + 0.2 * E, 0.004)})), Excluded
    )


def test_noise_and_too_few_evaluations_cannot_tell(make: Any, around: Callable[..., Any]) -> None:
    noisy = FINDING.check(make(reward=around(RISING, 0.01), evals={"reward": around(0.3 + 0.1 * E, 0.3, 5)}))
    assert isinstance(noisy, CannotTell)
    assert "noise hides" in noisy.missing
    few = FINDING.check(make(reward=around(RISING, 0.01), evals={"reward": [0.3, 0.3, 0.3]}))
    assert isinstance(few, CannotTell)
    assert few.missing == "the reward rises, and a held-out score is logged at 3 steps; 8 are needed"
    none = FINDING.check(make(reward=around(RISING, 0.01)))
    assert isinstance(none, CannotTell)
    assert none.switch_on == "evaluate held-out problems at 8 steps or more"
    assert FINDING.check(Evidence("a configuration")) is None


def components(around: Callable[..., Any], right: Any, form: Any) -> dict[str, Any]:
    """Return metrics of a reward made of one part right and half a part form, as TRL logs them."""
    one, other = around(right, 0.01, 1), around(form, 0.01, 2)
    return {"reward": one + 0.5 * other, RIGHT: one, FORM: other, "rewards/format_reward/std": 0 * other}


@pytest.mark.parametrize(
    ("right", "form", "severity"),
    [
        (0.2 + 0 * T, 0.1 + 0.8 * (1 - np.exp(-9 * T)), Severity.WARNING),
        (0.2 - 0.15 * T, 0.1 + 0.8 * (1 - np.exp(-9 * T)), Severity.CRITICAL),
        (0.2 + 0 * T, 0.1 + 0.8 * T, Severity.NOTE),  # form still rises: it is learned first
        (0.5 - 0.04 * T, 0.1 + 0.8 * T, Severity.WARNING),  # not while answers get a little worse
        (0.2 + 0.3 * T, 0.1 + 0.8 * T, None),
        (0.2 + 0.3 * T, 0.9 + 0 * T, None),
    ],
)
def test_components_are_set_beside_the_rise(
    make: Any, around: Callable[..., Any], right: Any, form: Any, severity: Severity | None
) -> None:
    found = FINDING.check(make(**components(around, right, form)))
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    check_outcome(found, "reward-hacking")
    assert found.severity is severity


def test_each_share_of_the_rise_is_shown(make: Any, around: Callable[..., Any]) -> None:
    # Form rises from 0 to 0.8 and counts half, brevity falls from 0.5 to 0.25 and counts 0.4: 0.4 - 0.1 is the rise of
    # 0.3.
    step, right = np.where(T < 0.5, 0.0, 1.0), around(0.2 + 0 * T, 0.001)
    form, brief = around(0.8 * step, 0.001, 1), around(0.5 - 0.25 * step, 0.001, 2)
    series = {RIGHT: right, FORM: form, "rewards/brevity/mean": brief, "reward": right + 0.5 * form + 0.4 * brief}
    found = FINDING.check(make(**series))
    assert isinstance(found, Finding)
    assert (
        found.headline
        == "The reward has risen by 0.3, 133% of it by format_reward; correctness_reward has stayed flat (0.2"
        " to 0.2)."
    )
    shares = {fact.name: fact.note for fact in found.evidence[1:]}
    assert "133% of the rise" in shares["change of format_reward"]
    assert "-33% of the rise" in shares["change of brevity"]
    assert "0% of the rise, means correct" in shares["change of correctness_reward"]
    assert found.confidence == "strong"


def test_a_component_for_anything_but_form_gets_no_benefit_of_the_doubt(make: Any, around: Callable[..., Any]) -> None:
    right, other = around(0.02 + 0 * T, 0.004, 1), around(0.2 + 0.5 * T, 0.02, 2)
    found = FINDING.check(make(**{"reward": right + other, RIGHT: right, "rewards/compiles/mean": other}))
    assert isinstance(found, Finding)
    assert found.severity is Severity.WARNING


def test_a_rise_that_no_logged_component_explains_cannot_be_told(make: Any, around: Callable[..., Any]) -> None:
    series = {"reward": around(RISING, 0.01), RIGHT: around(0.2 + 0 * T, 0.005, 1), FORM: around(0.9 + 0 * T, 0.005, 2)}
    found = FINDING.check(make(**series))
    assert isinstance(found, CannotTell)
    assert "correctness_reward does not, nor does any other logged component" in found.missing


def test_an_accuracy_that_rises_on_held_out_problems_settles_it(make: Any, around: Callable[..., Any]) -> None:
    series = components(around, 0.2 + 0 * T, 0.1 + 0.8 * (1 - np.exp(-9 * T)))
    assert isinstance(
        FINDING.check(make(**series, evals={"val-core/math/acc/mean@4": around(0.3 + 0.3 * E, 0.01)})), Excluded
    )
    # The reward itself is no witness: its form rises on held-out problems too.
    assert isinstance(FINDING.check(make(**series, evals={"reward": around(0.3 + 0.3 * E, 0.01)})), Finding)


@pytest.mark.parametrize(("rises", "found"), [(0.0, True), (0.6, False)])
def test_grades_of_rollouts_stand_in_for_a_component(make: Any, rises: float, found: Any) -> None:
    rng, rows, rewards = np.random.default_rng(0), {}, []
    for step in range(1, 25):
        right = rng.random(160) < 0.2 + rises * step / 24
        reward = right + 2.0 * step / 24 + rng.normal(0, 0.1, 160)
        rows[step] = {
            "problem": [f"p{number}" for number in range(160)],
            "correct": right.tolist(),
            "reward": reward.tolist(),
        }
        rewards.append(float(reward.mean()))
    outcome = FINDING.check(make(reward=rewards, rollouts=rows))
    assert isinstance(outcome, Finding) == found
    if isinstance(outcome, Finding):
        check_outcome(outcome, "reward-hacking")
        assert "the share of correct rollouts has" in outcome.headline


def test_names_from_a_log_are_kept_printable(make: Any, around: Callable[..., Any]) -> None:
    right, other = around(0.02 + 0 * T, 0.004, 1), around(0.2 + 0.5 * T, 0.02, 2)
    found = FINDING.check(make(**{"reward": right + other, RIGHT: right, f"rewards/\x1b[31m{'x' * 200}/mean": other}))
    assert isinstance(found, Finding)
    assert found.headline.isprintable()
    assert len(found.headline) < 250


def test_components_whose_names_say_nothing_are_a_note(make: Any) -> None:
    steps = np.linspace(0, 1, 60)
    noise = np.random.default_rng(3).normal(0, 0.01, (2, 60))
    proxy, real = 0.2 + 0.5 * steps + noise[0], 0.05 + 0.1 * noise[1]
    found = FINDING.check(make(reward=proxy + real, **{"reward/g": proxy, "reward/f": real}))
    assert isinstance(found, Finding)
    check_outcome(found, "reward-hacking")
    assert found.severity is Severity.NOTE
    assert "of it by g; f has" in found.headline
    both = FINDING.check(make(reward=2 * proxy, **{"reward/g": proxy, "reward/f": proxy + noise[1]}))
    assert isinstance(both, CannotTell)


def test_a_component_that_pays_nothing_is_a_warning_unless_nothing_is_its_aim(make: Any) -> None:
    steps = np.linspace(0, 1, 60)
    noise = np.random.default_rng(4).normal(0, 0.01, (2, 60))
    proxy = 0.2 + 0.5 * steps + noise[0]
    # The rise is 0.44 between eighths, so nothing is at most 0.022: 0.01 is, 0.04 is not.
    for level, name, severity in (
        (0.01, "f", Severity.WARNING),
        (0.04, "f", Severity.NOTE),
        (0, "f", Severity.NOTE),  # switched off
        (-0.01, "repetition", Severity.NOTE),
        (0.01, "speed_bonus", Severity.NOTE),
        (0.01, "soft_format", Severity.NOTE),
    ):
        real = (level + 0.1 * noise[1]) * (level != 0)
        found = FINDING.check(make(reward=proxy + real, **{"reward/g": proxy, f"reward/{name}": real}))
        assert isinstance(found, Finding)
        check_outcome(found, "reward-hacking")
        assert found.severity is severity, (level, name)
        assert ("paid next to nothing" in found.headline) == (severity is Severity.WARNING)


def test_addends_of_a_hand_written_loop_are_components(make: Any, around: Callable[..., Any]) -> None:
    form, right = around(0.2 + 0.6 * T, 0.01), around(0.3 - 0.1 * T, 0.01, 1)
    found = FINDING.check(make(reward=form + right, mean_format=form, mean_correctness=right))
    assert isinstance(found, Finding)
    assert "mean_correctness has fallen" in found.headline
    assert found.prescriptions[0].action.startswith("Pay mean_format only where the answer is right")
    bonus = FINDING.check(make(reward=form + 2 * right, cold_bonus_mean=form, ndcg_mean=right))
    assert isinstance(bonus, Finding)
    assert "ndcg_mean has fallen" in bonus.headline  # the reward rises by 0.6 - 2 * 0.1
    bent = around(0.3 + 0.3 * T**4, 0.01, 2)
    other = FINDING.check(make(reward=bent, mean_format=form, mean_correctness=right))
    assert not isinstance(other, Finding)  # they do not add up to it
