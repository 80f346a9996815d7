"""The outcome bonus: the three baselines by hand, counts over generations and checkpoints, bad input, the contract."""

import json
import math
from dataclasses import replace

import pytest
import torch

from breadth.base.errors import MechanismError, SettingsError
from breadth.base.stats import Counts
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.outcome_bonus import OutcomeBonus, OutcomeCounts
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Rollouts, not_none

ANSWERS = ["a", "b", "c", "d", "e"]
SEEN = OutcomeCounts({"x": {"b": 1, "c": 4, "d": 16, "e": 25}, "y": {"a": 100}})


def _rollouts(outcomes: list[str | None], rewards: list[float] | None = None) -> Rollouts:
    count = len(outcomes)
    return Rollouts(
        rewards=torch.tensor(rewards or [0.0] * count, dtype=torch.float64),
        groups=torch.zeros(count, dtype=torch.long),
        lengths=torch.ones(count),
        problems=["x"] * count,
        outcomes=outcomes,
    )


def _bonus(mechanism: OutcomeBonus, record: Rollouts, state: OutcomeCounts = SEEN) -> list[float]:
    return list(not_none(mechanism.apply(record.clean(), state, None).after.advantages).tolist())


def test_bonus_of_each_baseline() -> None:
    # N = 0, 1, 4, 16, 25; the mean bonus is 2.95 / 5 = .59
    record = _rollouts([*ANSWERS])
    assert _bonus(OutcomeBonus(1.0, "none"), record) == pytest.approx([1, 1, 0.5, 0.25, 0.2], abs=1e-6)
    assert _bonus(OutcomeBonus(1.0, "constant", 0.5), record) == pytest.approx([0.5, 0.5, 0, -0.25, -0.3], abs=1e-6)
    assert _bonus(OutcomeBonus(1.0, "mean"), record) == pytest.approx([0.41, 0.41, -0.09, -0.34, -0.39], abs=1e-6)


def test_the_mean_baseline_sums_to_nothing() -> None:
    assert sum(_bonus(OutcomeBonus(1.0, "mean"), _rollouts(["a", "c", "c", None, "e"]))) == pytest.approx(0.0, abs=1e-9)


def test_it_adds_to_the_estimators_advantage() -> None:
    record = _rollouts([*ANSWERS], [1.0, 0, 0, 0, 0])
    bare = not_none(Objective(Chain((GroupAdvantage(),))).credit(record)[0].advantages)
    objective = Objective(Chain((GroupAdvantage(), OutcomeBonus(0.1, "constant"))))
    objective.states[1] = SEEN
    added = not_none(objective.credit(record)[0].advantages) - bare
    assert added.tolist() == pytest.approx([0.05, 0.05, 0, -0.025, -0.03], abs=1e-6)


def test_it_must_stand_after_the_estimator() -> None:
    with pytest.raises(MechanismError, match="after group-advantage"):
        Chain((OutcomeBonus(), GroupAdvantage()))


def test_an_unparsable_answer_gets_nothing_and_is_not_counted() -> None:
    for baseline in ("none", "mean", "constant"):
        mechanism = OutcomeBonus(1.0, "mean" if baseline == "mean" else "none" if baseline == "none" else "constant")
        effect = mechanism.apply(_rollouts([None, "c", "", None]).clean(), SEEN, None)
        assert not_none(effect.after.advantages)[[0, 3]].tolist() == [0.0, 0.0]
        assert effect.stats["answers"].value == {("x", "c"): 1.0, ("x", ""): 1.0}
    # the mean is over the two parsed ones only: (.5 + 1) / 2 = .75
    assert _bonus(OutcomeBonus(1.0, "mean"), _rollouts([None, "c", "a"])) == pytest.approx([0.0, -0.25, 0.25], abs=1e-6)


def test_a_rollout_without_reward_gets_nothing_but_its_answer_is_counted() -> None:
    record = _rollouts(["a", "b"], [math.nan, 1.0])
    effect = OutcomeBonus(1.0, "none").apply(record.clean(), SEEN, None)
    assert not_none(effect.after.advantages).tolist() == [0.0, 1.0]
    assert effect.stats["answers"].value == {("x", "a"): 1.0, ("x", "b"): 1.0}


def test_token_advantages_get_it_on_every_token() -> None:
    record = replace(_rollouts(["a", "e"]), advantages=torch.zeros(2, 3, dtype=torch.float64)).clean()
    after = not_none(OutcomeBonus(1.0, "none").apply(record, SEEN, None).after.advantages)
    assert after.flatten().tolist() == pytest.approx([1.0] * 3 + [0.2] * 3, abs=1e-6)


def test_counts_are_those_from_before_the_generation() -> None:
    objective = Objective(Chain((OutcomeBonus(1.0, "none"),)))
    record = _rollouts(["7", "7", "7", "7", "5", None])
    found = []
    for _ in range(3):
        after, metrics = objective.credit(record)
        found.append(not_none(after.advantages).tolist())
    # "7" was given 0, 4 and 8 times before, "5" 0, 1 and 2 times
    assert found[0] == pytest.approx([1, 1, 1, 1, 1, 0], abs=1e-6)
    assert found[1] == pytest.approx([0.5] * 4 + [1, 0], abs=1e-6)
    assert found[2] == pytest.approx([8**-0.5] * 4 + [2**-0.5, 0], abs=1e-6)
    assert objective.states[0] == OutcomeCounts({"x": {"7": 12, "5": 3}})
    assert metrics["outcome-bonus/new"] == 0.0
    assert metrics["outcome-bonus/bonus"] == pytest.approx((4 * 8**-0.5 + 2**-0.5) / 5, abs=1e-6)


def test_counts_survive_a_checkpoint() -> None:
    objective = Objective(Chain((OutcomeBonus(),)))
    objective.credit(_rollouts(["7", 'x = "y"', "", "7"]))
    again = Objective(Chain((OutcomeBonus(),)))
    again.restore(json.loads(json.dumps(objective.state())))
    assert again.states[0] == objective.states[0] == OutcomeCounts({"x": {"7": 2, 'x = "y"': 1, "": 1}})


def test_counts_of_two_ranks_merge_and_the_old_state_is_left_alone() -> None:
    mechanism = OutcomeBonus()
    parts = Counts({("x", "b"): 2.0, ("z", "q"): 1.0}) + Counts({("x", "b"): 1.0, ("x", "new"): 1.0})
    after = mechanism.update(SEEN, {"answers": parts})
    assert after.counts == {"x": {"b": 4, "c": 4, "d": 16, "e": 25, "new": 1}, "y": {"a": 100}, "z": {"q": 1}}
    assert SEEN.counts["x"] == {"b": 1, "c": 4, "d": 16, "e": 25}
    assert mechanism.update(SEEN, {}) == SEEN


def test_problems_have_counts_of_their_own() -> None:
    record = replace(_rollouts(["a", "a"]), problems=["x", "y"])
    assert _bonus(OutcomeBonus(1.0, "none"), record) == pytest.approx([1.0, 0.1], abs=1e-6)


def test_as_many_answers_as_rollouts() -> None:
    with pytest.raises(MechanismError, match="There are 2 rollouts, but 2 problems and 1 outcomes"):
        _bonus(OutcomeBonus(), replace(_rollouts(["a", "b"]), outcomes=["a"]))


def test_settings_are_checked() -> None:
    with pytest.raises(SettingsError, match="coefficient"):
        OutcomeBonus(coefficient=-0.1)
    with pytest.raises(SettingsError, match="constant"):
        OutcomeBonus(constant=1.5)


def test_it_tells_where_it_cannot_act() -> None:
    assert OutcomeBonus(baseline="mean").no_effect(Regime(group_size=1)) is not None
    assert OutcomeBonus(baseline="constant").no_effect(Regime(group_size=1)) is None
    assert OutcomeBonus(baseline="mean").no_effect(Regime(group_size=4)) is None


@pytest.mark.parametrize(
    "mechanism", [OutcomeBonus(baseline="none"), OutcomeBonus(baseline="mean"), OutcomeBonus(baseline="constant")]
)
def test_contract(mechanism: OutcomeBonus) -> None:
    check_mechanism(mechanism)


def test_a_misspelt_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match="OutcomeBonus got baseline = 'group'"):
        OutcomeBonus(baseline="group")  # type: ignore[arg-type]  # what a user may write


def test_stats_count_new_answers_among_the_counted_ones() -> None:
    # a and g are new, b was seen once, an unparsable answer and one without a reward are not counted
    record = _rollouts(["a", "g", "b", "c", None, "f"], [0.0] * 5 + [float("nan")])
    stats = OutcomeBonus(1.0, "none").apply(record.clean(), SEEN, None).stats
    assert (stats["new"].total, stats["new"].count) == (2, 4)
    assert (stats["bonus"].total, stats["bonus"].count) == (3.5, 4)  # 1 + 1 + 1 + 0.5


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        OutcomeBonus,
        {"coefficient": 0.1, "baseline": "constant", "constant": 0.5},
        accepted=[
            {"coefficient": 0.0},
            {"constant": 0.0},
            {"constant": 1.0},
            {"baseline": "none"},
            {"baseline": "mean"},
        ],
        refused=[{"coefficient": -0.1}, {"constant": -0.1}, {"constant": 1.1}, {"baseline": "other"}],
    )
