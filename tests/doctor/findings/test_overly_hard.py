"""Too hard is counted where it can be, bounded where it cannot, and never said of a run that rises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.overly_hard import FINDING, count_all_wrong, lower_bound_all_wrong
from breadth.doctor.trainer_config import TrainerConfig
from breadth.measure.intervals import Interval
from breadth.report.sections import Severity
from breadth.runs.outcomes import Outcomes
from breadth.testing.findings import check_finding, check_outcome

T = np.linspace(0, 1, 80)


def drawn(chance: Any, group: int = 8, prompts: int = 32, seed: int = 0) -> Any:
    """Return mean rewards of batches whose rollouts are right with a chance."""
    return np.random.default_rng(seed).binomial(group * prompts, chance) / (group * prompts)


def groups(chances: Any, group: int = 8, prompts: int = 40, seed: int = 0) -> dict[int, dict[str, list[Any]]]:
    """Return graded rollouts of steps, each with its chance of being right."""
    rng = np.random.default_rng(seed)
    rows = {}
    for step, chance in enumerate(chances, 1):
        problems = [f"p{step}-{number}" for number in range(prompts) for _ in range(group)]
        rows[step] = {"problem": problems, "correct": (rng.random(len(problems)) < chance).tolist()}
    return rows


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "overly-hard")


@pytest.mark.parametrize(
    ("chance", "severity"),
    # 1 - 0.5^(1/8) = 0.083 is where half of the groups are all wrong, 1 - 0.8^(1/8) = 0.0275 where four fifths are.
    [(0.0, Severity.CRITICAL), (0.01, Severity.CRITICAL), (0.05, Severity.WARNING), (0.15, None), (0.5, None)],
)
def test_the_score_bounds_the_share(make: Any, chance: float, severity: Severity | None) -> None:
    found = FINDING.check(make(reward=drawn(chance + 0 * T), levels=(0.0, 1.0), config=TrainerConfig(group=8)))
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    check_outcome(found, "overly-hard")
    assert found.severity is severity
    assert found.evidence[0].value.value == pytest.approx((1 - chance) ** 8, abs=0.08)  # type: ignore[union-attr]


def test_a_bound_is_said_to_be_one_and_follows_the_levels(make: Any) -> None:
    # A reward of -1 or 3 with a mean of -0.9 is right in (-0.9 + 1) / 4 = 2.5 % of the cases; 0.975^8 = 81.7 %.
    found = FINDING.check(make(reward=-0.9 + 0 * T, levels=(-1.0, 3.0), config=TrainerConfig(group=8)))
    assert isinstance(found, Finding)
    assert found.headline == "At least 82% of the groups have no correct answer, and the score does not rise."
    assert (
        found.cost == "In the second half 4.5 rollouts were wasted for each that could teach something."
    )  # 0.8167 / 0.1833


@pytest.mark.parametrize("to", [0.04, 0.1, 0.4])
def test_a_run_at_its_beginning_that_rises_is_left_alone(make: Any, to: float) -> None:
    for seed in range(5):
        rising = make(reward=drawn(0.01 + (to - 0.01) * T, seed=seed), levels=(0.0, 1.0), config=TrainerConfig(group=8))
        assert not isinstance(FINDING.check(rising), Finding)


def test_a_hint_of_a_rise_is_enough_to_hold_the_verdict_back(make: Any) -> None:
    outcomes = [
        FINDING.check(
            make(reward=drawn(0.005 + 0.01 * T[:40], seed=seed), levels=(0.0, 1.0), config=TrainerConfig(group=8))
        )
        for seed in range(8)
    ]
    assert any(isinstance(one, CannotTell) and "not excluded" in one.missing for one in outcomes)


def test_counts_exclude_a_rise_that_medians_of_small_shares_leave_open(make: Any) -> None:
    # 40 steps of eight groups of eight at 4 %: 0.083 - 0.04 = 0.043 more would be needed. In a half 1,280 rollouts are
    # drawn, whose share
    # right differs from that of the other half by 0.008 by chance: a run's rise is known to 0.016.
    outcomes = [FINDING.check(make(rollouts=groups(np.full(40, 0.04), prompts=8, seed=seed))) for seed in range(16)]
    assert sum(isinstance(one, Finding) for one in outcomes) >= 14
    rising = [
        FINDING.check(make(rollouts=groups(0.01 + 0.08 * np.linspace(0, 1, 40), prompts=8, seed=seed)))
        for seed in range(8)
    ]
    assert not any(isinstance(one, Finding) for one in rising)


def test_problems_that_were_solved_before_the_policy_broke_are_not_too_hard(make: Any) -> None:
    # Five of six groups had a right answer (1 - 0.8^8 = 0.83) until the last eighth, in which hardly one has.
    chances = np.concatenate([np.full(35, 0.2), np.full(5, 0.002)])
    assert isinstance(FINDING.check(make(rollouts=groups(chances, prompts=8))), Excluded)


def test_groups_are_counted_where_rollouts_are_graded(make: Any) -> None:
    found = FINDING.check(make(rollouts=groups(np.full(24, 0.01)), reward=0.5 + 0 * T))
    assert isinstance(found, Finding)
    check_outcome(found, "overly-hard")
    assert found.severity is Severity.CRITICAL
    assert found.evidence[0].value.value == pytest.approx(0.99**8, abs=0.08)  # type: ignore[union-attr]
    assert "counted in 480 groups" in found.evidence[0].note  # the last 12 of 24 steps, 40 problems each
    assert found.headline.startswith("9")  # counted: nothing about "at least"


def test_a_shaped_reward_that_rises_does_not_hide_that_nothing_gets_right(
    make: Any, around: Callable[..., Any]
) -> None:
    shaped = around(0.1 + 0.4 * T, 0.02)
    assert isinstance(FINDING.check(make(reward=shaped)), Excluded)
    assert isinstance(FINDING.check(make(reward=shaped, rollouts=groups(np.full(16, 0.005)))), Finding)


def test_a_few_easy_problems_keep_the_mean_up_and_most_groups_are_all_wrong_all_the_same(make: Any) -> None:
    # A tenth of the problems is always solved: the score of 0.1 bounds the share by 0.9^8 = 43 %, but nine tenths are
    # all wrong.
    rows = {
        step: {
            "problem": [f"p{number}" for number in range(50) for _ in range(4)],
            "correct": [number < 5 for number in range(50) for _ in range(4)],
        }
        for step in range(1, 17)
    }
    found = FINDING.check(make(rollouts=rows, reward=np.full(16, 0.1)))
    assert isinstance(found, Finding)
    assert found.evidence[0].value.value == pytest.approx(0.9)  # type: ignore[union-attr]


def test_dynamic_sampling_makes_the_score_say_nothing(make: Any) -> None:
    config = TrainerConfig(group=8, dynamic_sampling=True)
    found = FINDING.check(make(reward=drawn(0.01 + 0 * T), levels=(0.0, 1.0), config=config, trainer="verl"))
    assert isinstance(found, CannotTell)
    check_outcome(found, "overly-hard")
    assert found.switch_on.startswith("trainer.rollout_data_dir=DIR")


def test_without_levels_mixed_groups_settle_it_and_flat_ones_do_not(make: Any) -> None:
    assert isinstance(FINDING.check(make(reward=0.1 + 0 * T, zero_variance_groups=0.2 + 0 * T)), Excluded)
    found = FINDING.check(make(reward=0.1 + 0 * T, zero_variance_groups=0.9 + 0 * T))
    assert isinstance(found, CannotTell)
    assert found.switch_on == "GRPOConfig(log_completions=True)"


def test_it_says_what_is_missing(make: Any) -> None:
    assert FINDING.check(Evidence("a configuration", config=TrainerConfig(group=8))) is None
    found = FINDING.check(make(entropy=T))
    assert isinstance(found, CannotTell)
    assert found.missing == "reward is not logged"
    short = FINDING.check(make(rollouts=groups(np.full(3, 0.0))))
    assert isinstance(short, CannotTell)
    assert "fewer than 8 steps" in short.missing


def test_one_group_and_rollouts_drawn_once_prove_nothing(make: Any) -> None:
    one = {step: {"problem": ["p"] * 4, "correct": [False] * 4} for step in range(1, 13)}
    few = FINDING.check(make(rollouts=one, reward=np.zeros(12)))
    assert isinstance(few, CannotTell)
    assert few.undecided
    alone = {
        step: {"problem": [f"p{number}" for number in range(20)], "correct": [False] * 20} for step in range(1, 13)
    }
    assert isinstance(FINDING.check(make(rollouts=alone, reward=np.zeros(12))), CannotTell)


def test_completions_that_are_cut_bring_the_cap_first(make: Any) -> None:
    config = TrainerConfig(group=4, max_completion_length=512)
    found = FINDING.check(make(reward=0 * T, truncated=0.6 + 0 * T, levels=(0.0, 1.0), config=config))
    plain = FINDING.check(make(reward=0 * T, truncated=0.01 + 0 * T, levels=(0.0, 1.0), config=config))
    assert isinstance(found, Finding)
    assert isinstance(plain, Finding)
    assert found.prescriptions[0].changes[0].value == 1024
    assert plain.prescriptions[0].action.startswith("Remove problems that the policy never solves")
    assert any("8 rollouts per prompt" in one.action for one in plain.prescriptions)


def outcomes(steps: Any, problems: Any, drawn: Any, right: Any) -> Outcomes:
    """Return groups from plain lists."""
    return Outcomes(
        *(
            np.array(one, dtype=kind)
            for one, kind in ((steps, np.int64), (problems, object), (drawn, np.int64), (right, np.int64))
        )
    )


def test_the_second_half_is_counted_and_single_rollouts_are_not() -> None:
    steps = [step for step in range(1, 17) for _ in range(3)]
    problems = ["a", "b", "c"] * 16
    drawn, right = [4, 4, 1] * 16, [0, 2, 0] * 16
    right[24:] = [0, 0, 0, 0, 1, 0] * 4  # steps 9 to 16: groups of 4 with 0, 0 and 0, 1 right in turn
    found = count_all_wrong(outcomes(steps, problems, drawn, right))
    assert found is not None
    assert found.groups == 16
    assert found.share.value == pytest.approx((1 + 0.5) / 2)  # a: all, b: every other one
    assert found.start is not None
    assert found.start.value == pytest.approx(0.5)
    assert found.accuracy == pytest.approx(1 / 16)
    assert found.group == 4
    # 1 - 0.5^(1/4) = 0.1591 of the rollouts must be right for half of the groups to have one.
    assert found.gain_needed(0.5) == pytest.approx(0.15910 - 0.0625, abs=1e-5)


def test_the_rise_is_counted_in_whole_problems() -> None:
    # 12 problems, groups of 4 at steps 1 and 2: one right of four then; two of four now in every second problem, so 25
    # % to 50 %, +0.125.
    problems = [f"p{place}" for place in range(12)]
    found = count_all_wrong(outcomes([1] * 12 + [2] * 12, problems * 2, [4] * 24, [1] * 12 + [1, 2] * 6))
    assert found is not None
    assert found.rise is not None
    assert found.rise.value == pytest.approx(0.125)
    assert 0 < found.rise.low < 0.125 < found.rise.high < 0.25
    once = count_all_wrong(outcomes([1] * 12, problems, [4] * 12, [0] * 12))
    assert once is not None
    assert once.rise is None


def test_nothing_to_count_is_none() -> None:
    assert count_all_wrong(None) is None
    assert count_all_wrong(outcomes([], [], [], [])) is None
    assert count_all_wrong(outcomes([1, 2], ["a", "b"], [1, 1], [0, 0])) is None


def test_the_bound_by_hand() -> None:
    found = lower_bound_all_wrong(Interval(0.1, 0.05, 0.2), (0.0, 1.0), 8)
    assert (found.share.value, found.share.low, found.share.high) == pytest.approx(
        (0.43047, 0.16777, 0.66342), abs=1e-5
    )
    assert found.groups == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(2, 16))
@settings(max_examples=60)
def test_problems_that_differ_only_make_it_worse(chances: list[float], group: int) -> None:
    mean = float(np.mean(chances))
    true = float(np.mean([(1 - chance) ** group for chance in chances]))
    assert lower_bound_all_wrong(Interval(mean, mean, mean), (0.0, 1.0), group).share.value <= true + 1e-9


@pytest.mark.parametrize(
    ("values", "headline"),
    [
        (np.zeros(20), "No rollout was ever right: accuracy is 0 at all 20 logged steps."),
        (np.resize([0.0, -0.5], 20), "No rollout was ever right: accuracy is never above 0 at all 20 logged steps."),
        (np.r_[np.resize([0.0, -0.5], 19), 0.1], "Hardly any rollout was ever right: accuracy is above 0 at 1 of 20"),
        (np.r_[np.zeros(18), 0.1, 0.1], ""),  # 2 of 20: it may take off
        (np.zeros(19), ""),  # too few
        (np.resize([-0.5, -0.4, -0.45, -0.3, -0.1, -0.6], 24), ""),  # wrong is -1, and some are right
        (np.minimum(np.linspace(-1, 0.4, 24), 0.0), ""),  # right is zero, and learned
        (np.r_[np.resize([-0.5, 0.0, -0.45, -0.3, -0.1, -0.6], 23), 0.1], ""),  # so here: zero by chance
    ],
)
def test_nothing_was_ever_right(make: Any, values: Any, headline: str) -> None:
    reward = np.linspace(-1, 1, len(values))
    found = FINDING.check(make(reward=reward, **{"rewards/accuracy/mean": values}))
    assert isinstance(found, Finding) == bool(headline)
    if isinstance(found, Finding):
        assert found.headline.startswith(headline)


@pytest.mark.parametrize(
    ("course", "found"),
    [
        (0.012 + 0.007 * T, True),  # once more as far: 0.026
        (0.02 + 0.0 * T, True),
        (0.004 + 0.026 * T, False),  # once more as far: 0.053 (means of eighths: 0.0056 and 0.0284)
        (0.045 + 0.01 * T, False),  # above 0.05 at its best
        (-0.5 + 0.51 * T, False),  # another scale
    ],
)
def test_next_to_nothing_right_is_too_hard_also_where_it_rises(
    make: Any, around: Callable[..., Any], course: Any, found: bool
) -> None:
    part = {"rewards/bleu_reward/mean": around(course, 0.0005, 1)}
    outcome = FINDING.check(make(reward=around(0.3 + 0.2 * T, 0.01), **part))
    assert outcome is not None
    check_outcome(outcome, "overly-hard")
    assert isinstance(outcome, Finding) == found
    if isinstance(outcome, Finding):
        assert outcome.severity is Severity.WARNING
        assert "Next to nothing is ever right" in outcome.headline
    short = {name: values[:49] for name, values in part.items()}
    assert not isinstance(FINDING.check(make(reward=around(0.3 + 0.2 * T[:49], 0.01), **short)), Finding)
