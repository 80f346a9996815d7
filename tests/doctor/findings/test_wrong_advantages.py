"""Advantages are recomputed by the known rules; what contradicts the rewards in any rule is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings import wrong_advantages
from breadth.doctor.findings.wrong_advantages import (
    FINDING,
    RULES,
    Rule,
    Scored,
    agreement,
    centre,
    find_rule,
    group_scores,
    groups_that_differ,
    leave_one_out,
    read_scored,
    spread_over,
)
from breadth.doctor.trainer_config import TrainerConfig
from breadth.measure.validate import FloatArray
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

STEPS, GROUPS, SIZE = 4, 12, 8
NUMBERS = np.repeat(np.arange(STEPS * GROUPS), SIZE)
STEP_OF = NUMBERS // GROUPS


def draw_rewards(seed: int = 0, *, shaped: bool = False) -> FloatArray:
    rng = np.random.default_rng(seed)
    hits = (rng.random(len(NUMBERS)) < 0.4).astype(float)
    return hits + (0.2 * rng.random(len(NUMBERS)) if shaped else 0)


def scored(rewards: FloatArray, advantages: FloatArray | None = None) -> Scored:
    return Scored(rewards, rewards if advantages is None else advantages, NUMBERS, STEP_OF)


def rollouts(rewards: FloatArray, advantages: FloatArray, **more: Any) -> dict[int, Mapping[str, Sequence[Any]]]:
    """Return rollouts by step, as they are logged."""
    table: dict[int, Mapping[str, Sequence[Any]]] = {}
    for step in range(STEPS):
        rows = np.flatnonzero(step == STEP_OF)
        table[step + 1] = {
            "problem": [f"p{number}" for number in NUMBERS[rows]],
            "reward": rewards[rows].tolist(),
            "advantage": advantages[rows].tolist(),
            **{name: [values[row] for row in rows] for name, values in more.items()},
        }
    return table


def as_bfloat16(values: FloatArray) -> FloatArray:
    """Round to eight significant bits."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "wrong-advantages")


def test_the_rules_give_the_numbers_worked_out_by_hand() -> None:
    """Rewards 1, 0, 0, 1 have mean 1/2, standard deviation 1/2 over all and 1/sqrt(3) as a sample."""
    group = Scored(
        np.array([1.0, 0.0, 0.0, 1.0]), np.zeros(4), np.zeros(4, dtype=np.int64), np.zeros(4, dtype=np.int64)
    )
    assert centre(group) == pytest.approx([0.5, -0.5, -0.5, 0.5])
    assert leave_one_out(group) == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3])
    assert group_scores(group, sample=False) == pytest.approx([1, -1, -1, 1])
    assert group_scores(group, sample=True) == pytest.approx(np.array([1, -1, -1, 1]) * np.sqrt(3) / 2)
    assert spread_over(group.rewards[:1], np.zeros(1, dtype=np.int64), sample=True) == pytest.approx([0])


@pytest.mark.parametrize(("name", "rule"), RULES)
def test_a_rule_is_recognised_and_named(make: Any, name: str, rule: Rule) -> None:
    rewards = draw_rewards(shaped=True)
    result = FINDING.check(make(rollouts=rollouts(rewards, rule(scored(rewards)))))
    assert isinstance(result, Excluded)
    assert result.because.endswith(name)
    assert f"{len(NUMBERS):,}" in result.because


@pytest.mark.parametrize("epsilon", [0.0, 1e-8, 1e-6, 1e-4])
def test_epsilons_and_rounding_are_allowed(epsilon: float) -> None:
    rewards = draw_rewards(shaped=True)
    spread = spread_over(rewards, NUMBERS, sample=True)
    advantages = as_bfloat16(as_bfloat16(rewards - as_bfloat16(rewards - centre(scored(rewards)))) / (spread + epsilon))
    assert find_rule(scored(rewards, advantages), 0.99) == RULES[0][0]


def test_a_tenth_off_is_no_rounding() -> None:
    rewards = draw_rewards(shaped=True)
    assert find_rule(scored(rewards, 1.1 * group_scores(scored(rewards), sample=True)), 0.99) == ""


def test_zeroed_rollouts_are_no_contradiction(make: Any) -> None:
    """Three in ten are masked as truncated; their group's mean is taken with them."""
    rewards = draw_rewards(shaped=True)
    masked = np.random.default_rng(1).random(len(rewards)) < 0.3
    advantages = np.where(masked, 0.0, group_scores(scored(rewards), sample=True))
    result = FINDING.check(make(rollouts=rollouts(rewards, advantages, truncated=masked.tolist())))
    assert isinstance(result, Excluded)
    assert "z-scores" in result.because


def test_a_reversed_sign_is_critical(make: Any) -> None:
    rewards = draw_rewards()
    found = FINDING.check(make(rollouts=rollouts(rewards, -group_scores(scored(rewards), sample=True))))
    assert isinstance(found, Finding)
    check_outcome(found, "wrong-advantages")
    assert (found.severity, found.confidence) == (Severity.CRITICAL, "certain")
    assert "In 100% of the pairs" in found.headline


@pytest.mark.parametrize(("shift", "words"), [(1, "rollout after its own"), (-1, "rollout before its own")])
def test_advantages_moved_by_a_row_are_found_with_their_rule(make: Any, shift: int, words: str) -> None:
    rewards = draw_rewards(shaped=True)
    right = leave_one_out(scored(rewards))
    moved = np.concatenate([np.roll(right[step == STEP_OF], shift) for step in range(STEPS)])
    found = FINDING.check(make(rollouts=rollouts(rewards, moved)))
    assert isinstance(found, Finding)
    check_outcome(found, "wrong-advantages")
    assert found.severity is Severity.WARNING
    (fact,) = [fact for fact in found.evidence if fact.name == "what they are"]
    assert "RLOO" in str(fact.value)
    assert words in str(fact.value)


def test_shuffled_advantages_are_found_without_a_rule(make: Any) -> None:
    rewards = draw_rewards()
    mixed = np.random.default_rng(2).permutation(group_scores(scored(rewards), sample=True))
    found = FINDING.check(make(rollouts=rollouts(rewards, mixed)))
    assert isinstance(found, Finding)
    assert found.severity is Severity.WARNING
    assert all(fact.name != "what they are" for fact in found.evidence)


@pytest.mark.parametrize("value", [0.0, 0.7])
def test_the_same_advantage_for_different_rewards_is_found(make: Any, value: float) -> None:
    rewards = draw_rewards()
    found = FINDING.check(make(rollouts=rollouts(rewards, np.full(len(rewards), value))))
    assert isinstance(found, Finding)
    check_outcome(found, "wrong-advantages")
    assert "the same advantage" in found.headline


def test_an_unknown_rule_in_the_right_order_is_excluded_by_its_order(make: Any) -> None:
    rewards = draw_rewards(shaped=True)
    odd = centre(scored(rewards)) ** 3 + 0.1
    result = FINDING.check(make(rollouts=rollouts(rewards, odd)))
    assert isinstance(result, Excluded)
    assert "none of the rules" in result.because
    assert "100.0%" in result.because


def test_with_several_components_only_a_reversed_sign_is_reported(make: Any) -> None:
    rewards = draw_rewards(shaped=True)
    parts = {"reward/a": rewards.tolist(), "reward/b": np.zeros(len(rewards)).tolist()}
    mixed = np.random.default_rng(2).permutation(group_scores(scored(rewards), sample=True))
    assert isinstance(FINDING.check(make(rollouts=rollouts(rewards, mixed, **parts))), Excluded)
    reversed_ = FINDING.check(make(rollouts=rollouts(rewards, -leave_one_out(scored(rewards)), **parts)))
    assert isinstance(reversed_, Finding)


def test_advantages_per_token_count_where_they_are_the_same_at_each(make: Any) -> None:
    rewards = draw_rewards()
    right = group_scores(scored(rewards), sample=True)
    table = rollouts(rewards, right)
    per_token = {
        step: {name: rows[name] for name in ("problem", "reward")}
        | {"advantages": [[value] * 3 for value in rows["advantage"]]}
        for step, rows in table.items()
    }
    result = FINDING.check(make(rollouts=per_token))
    assert isinstance(result, Excluded)
    assert f"{len(rewards):,} rollouts are the z-scores" in result.because
    per_token[1]["advantages"][0] = [1.0, -1.0, 0.0]  # of a rule that tells tokens apart: not read
    assert len(read_scored(make(rollouts=per_token).run)) == len(rewards) - 1


def test_what_has_no_group_advantages_is_not_asked(make: Any) -> None:
    rewards = draw_rewards()
    table = rollouts(rewards, -rewards)
    assert FINDING.check(make(rollouts=table, config=TrainerConfig(estimator="gae"))) is None
    assert FINDING.check(make(reward=[0.1] * 9)) is None
    assert FINDING.check(make(rollouts={1: {"problem": ["a"], "reward": [1.0]}})) is None


def test_few_groups_with_a_difference_decide_nothing(make: Any) -> None:
    rewards = np.ones(len(NUMBERS))
    rewards[: 9 * SIZE : SIZE] = 0
    result = FINDING.check(make(rollouts=rollouts(rewards, -rewards)))
    assert isinstance(result, CannotTell)
    assert "9 groups" in result.missing


def test_few_advantages_that_are_not_zero_decide_nothing(make: Any) -> None:
    rewards = draw_rewards()
    advantages = np.zeros(len(rewards))
    advantages[::SIZE] = 1.0
    assert isinstance(FINDING.check(make(rollouts=rollouts(rewards, advantages))), CannotTell)


def test_long_runs_and_large_groups_are_read_in_part(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rewards = draw_rewards()
    evidence = make(rollouts=rollouts(rewards, -rewards))
    monkeypatch.setattr(wrong_advantages, "MAX_STEPS_READ", 2)
    assert len(read_scored(evidence.run)) == len(rewards) / 2
    monkeypatch.setattr(wrong_advantages, "MAX_GROUPS_COMPARED", 10)
    whole = scored(rewards, -rewards)
    chosen = list(wrong_advantages.each_group(whole, groups_that_differ(whole)))
    assert 5 <= len(chosen) <= 10
    monkeypatch.setattr(wrong_advantages, "MAX_GROUP_ROLLOUTS", 3)
    assert {len(one) for one, _ in wrong_advantages.each_group(whole, groups_that_differ(whole))} == {3}


def test_rewards_that_differ_by_rounding_are_the_same() -> None:
    rewards = np.ones(len(NUMBERS))
    rewards[0] += 1e-3
    assert not len(groups_that_differ(scored(rewards)))
    assert agreement(scored(rewards), rewards) == 0
