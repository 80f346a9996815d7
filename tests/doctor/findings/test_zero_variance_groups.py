"""Starved groups are told by their share, and on which side they lie by counting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.zero_variance_groups import FINDING
from breadth.doctor.trainer_config import TrainerConfig
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

T = np.linspace(0, 1, 120)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "zero-variance-groups")


@pytest.mark.parametrize(("end", "severity"), [(0.95, Severity.CRITICAL), (0.7, Severity.WARNING), (0.4, None)])
def test_severity_follows_the_share_now(
    make: Any, around: Callable[..., Any], end: float, severity: Severity | None
) -> None:
    found = FINDING.check(
        make(zero_variance_groups=np.clip(around(0.2 + (end - 0.2) * np.minimum(2 * T, 1), 0.02), 0, 1))
    )
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    check_outcome(found, "zero-variance-groups")
    assert found.severity is severity


def test_waste_is_counted_by_rollouts_that_taught(make: Any) -> None:
    found = FINDING.check(make(zero_variance_groups=np.full(40, 0.75)))
    assert isinstance(found, Finding)
    # Three of four are wasted: three for each that taught something.
    assert found.cost == "Over the whole run 75% of the rollouts were wasted: 3.0 for each that taught something."


def test_rollouts_say_on_which_side_flat_groups_lie(make: Any) -> None:
    rows = {
        "problem": ["a"] * 4 + ["b"] * 4 + ["c"] * 4,
        "reward": [0.0] * 8 + [1.0, 0.0, 1.0, 0.0],
        "correct": [False] * 8 + [True, False] * 2,
    }
    found = FINDING.check(
        make(
            zero_variance_groups=np.full(16, 2 / 3),
            rollouts=dict.fromkeys(range(1, 17), rows),
            config=TrainerConfig(group=4),
        )
    )
    assert isinstance(found, Finding)
    assert found.headline == "67% of the groups have no difference in reward and teach nothing, most of them all wrong."
    assert "easier" in found.prescriptions[0].action


def test_a_larger_group_is_worked_out(make: Any) -> None:
    found = FINDING.check(
        make(
            zero_variance_groups=np.full(16, 0.6),
            reward=np.full(16, 0.1),
            levels=(0.0, 1.0),
            config=TrainerConfig(group=4),
        )
    )
    assert isinstance(found, Finding)
    # 0.1^4 + 0.9^4 = 0.6562; 0.1^8 + 0.9^8 = 0.4305
    assert any(
        "66% of groups of 4 would have zero variance, against 43% of groups of 8" in one.why
        for one in found.prescriptions
    )


def test_without_the_share_it_cannot_tell(make: Any) -> None:
    assert isinstance(FINDING.check(make(reward=T)), CannotTell)


def test_problems_that_were_solved_before_the_run_began_taught_it_nothing(
    make: Any, around: Callable[..., Any]
) -> None:
    score = np.clip(around(np.full(120, 0.95), 0.01), 0, 1)
    for start, severity in ((0.9, Severity.WARNING), (0.3, Severity.NOTE)):
        flat = np.clip(around(np.linspace(start, 0.95, 120), 0.01), 0, 1)
        found = FINDING.check(make(reward=score, zero_variance_groups=flat))
        assert isinstance(found, Finding)
        assert found.severity is severity


def test_steps_without_a_difference_are_a_note_where_the_score_is_at_its_best(make: Any) -> None:
    idle = np.r_[np.full(40, 0.5), np.zeros(80)]
    for last, severity in ((2.0, Severity.NOTE), (1.0, Severity.CRITICAL)):
        score = np.r_[np.linspace(0.5, 2.0, 40), np.full(80, last)]
        found = FINDING.check(make(reward=score, reward_std=idle))
        assert isinstance(found, Finding)
        assert found.severity is severity


def test_a_score_that_is_at_its_best_from_the_start_taught_nothing(make: Any) -> None:
    # Penalties only: nought is the best there is, and the run begins there.
    score = np.tile([0.0, 0.0, 0.0, 0.0, -0.1, 0.0], 20)
    found = FINDING.check(make(reward=score, reward_std=(score < 0) * 0.2))
    assert isinstance(found, Finding)
    assert found.severity is Severity.WARNING


def test_few_steps_leave_open_whether_most_have_no_difference(make: Any) -> None:
    # 7 of 12 steps of the second half: Wilson's interval is 32 % to 81 %.
    spread = np.tile([0.4, 0.0], 12)
    spread[-1] = spread[-2] = 0.0
    score = np.linspace(0.2, 0.4, 24)
    found = FINDING.check(make(reward=score, reward_std=spread))
    assert isinstance(found, CannotTell)
    assert found.undecided
    assert "at 58% of the steps of the second half" in found.missing
    assert "(32% to 81%)" in found.missing
