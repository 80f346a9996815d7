"""The degenerate guard: mutes degenerate successes, adds nothing, leaves honest work and failures alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from breadth.base.errors import MechanismError, SettingsError
from breadth.measure.degeneracy import Gates
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.credit.degenerate_guard import DETECTORS, DegenerateGuard, DegenerateGuardState
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.planning_credit import PlanningCredit
from breadth.training.objective import Objective
from breadth.training.records import Rollouts, not_none

WORKED = """\
Janet's ducks lay 16 eggs per day. She eats 3 for breakfast and bakes muffins with 4, so 3 + 4 = 7 eggs are used.
That leaves 16 - 7 = 9 eggs. She sells each of them for $2, so she earns 9 * 2 = 18 dollars every day at the market.
The question asks for the money of a day, which we now know.
The answer is \\boxed{18}."""
BARE = "The answer is \\boxed{40}"
LOOP = "We begin with the first case. " + "so it is again the same and " * 40
STATED_ONCE = "We think about it for a while, and then some more, because 2 + 2 = 4 and 3 + 3 = 6. " * 2 + BARE


def rollouts(texts: list[str], advantages: list[float] | torch.Tensor) -> Rollouts:
    return Rollouts(
        rewards=torch.zeros(len(texts), dtype=torch.float64),
        groups=torch.zeros(len(texts), dtype=torch.int64),
        lengths=torch.ones(len(texts), dtype=torch.int64),
        advantages=torch.as_tensor(advantages, dtype=torch.float64),
        texts=texts,
    ).clean()


def guarded(
    batch: Rollouts, state: DegenerateGuardState | None = None, guard: DegenerateGuard | None = None
) -> list[Any]:
    one = guard or DegenerateGuard()
    after: list[Any] = not_none(one.apply(batch, state or one.init(), None).after.advantages).tolist()
    return after


def test_only_the_positive_advantage_of_a_degenerate_response_is_taken() -> None:
    assert guarded(rollouts([LOOP, LOOP, WORKED, WORKED], [1.5, -1.5, 1.5, -1.5])) == [0.0, -1.5, 1.5, -1.5]


def test_token_advantages_are_muted_token_by_token() -> None:
    batch = rollouts([LOOP, WORKED], torch.tensor([[1.0, -2.0, 0.5], [1.0, -2.0, 0.5]]))
    assert guarded(batch) == [[0.0, -2.0, 0.0], [1.0, -2.0, 0.5]]


def test_a_bare_answer_is_caught_once_the_run_knows_what_computing_is() -> None:
    # Early answer fires at once, but one detector is not enough; computation skipping needs the reference.
    batch = rollouts([BARE, WORKED], [1.0, 1.0])
    assert guarded(batch) == [1.0, 1.0]
    assert guarded(batch, DegenerateGuardState(generations=5, computation=15.0)) == [0.0, 1.0]
    assert guarded(batch, DegenerateGuardState(generations=4, computation=15.0)) == [1.0, 1.0]  # still settling
    assert guarded(batch, DegenerateGuardState(generations=5, computation=0.5)) == [0.0, 1.0]
    assert guarded(batch, DegenerateGuardState(generations=5, computation=0.0)) == [1.0, 1.0]  # nothing to skip


def test_the_reference_is_the_median_of_the_first_generations() -> None:
    objective = Objective(Chain((DegenerateGuard(settle=2),)))
    # "1 + 1 = 2" has five numbers and operators.
    few, many = "1 + 1 = 2 \\boxed{2}", "1 + 1 = 2 1 + 1 = 2 1 + 1 = 2 \\boxed{2}"
    objective.credit(rollouts([few, few, many], [0.0] * 3))
    objective.credit(rollouts([], []))
    objective.credit(rollouts([many], [0.0]))
    assert objective.states[0] == DegenerateGuardState(generations=2, computation=10.0)
    objective.credit(rollouts([many], [0.0]))
    assert objective.states[0] == DegenerateGuardState(generations=2, computation=10.0)


def test_stats_tell_each_detector_apart() -> None:
    effect = DegenerateGuard().apply(
        rollouts([LOOP, LOOP, WORKED, BARE], [1.0, -1.0, 1.0, 1.0]), DegenerateGuardState(5, 15.0), None
    )
    told = {name: stat.value for name, stat in effect.stats.items()}
    assert told == {
        "n_gram_repetition": 0.5,
        "tail_loop": 0.5,
        "answer_repetition": 0.0,
        "early_answer": 0.25,
        "computation_skipping": 0.25,
        "flagged": 0.75,
        "muted": pytest.approx(2 / 3),
    }
    assert len(DETECTORS) == 5


def test_gates_are_settings() -> None:
    batch = rollouts([BARE, STATED_ONCE], [1.0, 1.0])
    assert guarded(batch, guard=DegenerateGuard(gates=Gates(needed=1))) == [0.0, 1.0]
    assert guarded(batch, guard=DegenerateGuard(gates=Gates(needed=1, early=0.0))) == [1.0, 1.0]


def test_bad_input_is_refused() -> None:
    with pytest.raises(SettingsError, match="gates"):
        DegenerateGuard(gates=Gates(needed=0))
    with pytest.raises(SettingsError, match="settle"):
        DegenerateGuard(settle=0)
    with pytest.raises(MechanismError, match="0 response texts for 2"):
        guarded(replace(rollouts(["a", "b"], [1.0, 1.0]), texts=None))


def test_the_contract() -> None:
    check_mechanism(DegenerateGuard(gates=Gates(needed=1), settle=2))
    check_mechanism(DegenerateGuard(settle=2))
    check_mechanism(DegenerateGuard(settle=1), before=(GroupAdvantage(), PlanningCredit()))


def test_a_response_counts_as_positive_when_any_of_its_tokens_is() -> None:
    batch = rollouts([LOOP, WORKED, LOOP], torch.tensor([[1.0, -2.0], [1.0, -2.0], [-1.0, -2.0]]))
    stats = DegenerateGuard().apply(batch, DegenerateGuard().init(), None).stats
    assert (stats["muted"].total, stats["muted"].count) == (1, 2)
    assert (stats["flagged"].total, stats["flagged"].count) == (2, 3)
    assert DegenerateGuard().init() == DegenerateGuardState(generations=0, computation=0.0)


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(DegenerateGuard, {"settle": 5}, accepted=[{"settle": 1}], refused=[{"settle": 0}])


def test_a_response_without_an_advantage_has_nothing_to_mute() -> None:
    stats = DegenerateGuard().apply(rollouts([LOOP, LOOP], [0.0, 1.0]), DegenerateGuardState(), None).stats
    assert (stats["muted"].total, stats["muted"].count) == (1, 1)
