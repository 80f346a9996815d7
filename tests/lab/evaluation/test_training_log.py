"""How a training run went, worked out by hand from run folders of a few replies."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from breadth.base.errors import MeasureError
from breadth.lab.evaluation.training_log import TrainingLog, read_training_log, seed_interval, seed_ranks, trailing_mean
from breadth.measure.intervals import Interval
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter, problem_id

PROMPT = "( 3 + 4 ) * 2 ="
REPLY = "<think> add 3 + 4 =0 0 * 2 =0 </think> 0"
"""With its end thirteen tokens: one operation is four of them."""


def write(
    run: Path, step: int, rewards: list[float], replies: list[str], entropies: list[list[float]], cut: list[bool]
) -> None:
    writer = RunWriter(run)
    count = len(rewards)
    rows = {
        "problem": [problem_id(PROMPT)] * count,
        "group": [f"{step}-0"] * (count // 2) + [f"{step}-1"] * (count - count // 2),
        "sample": list(range(count)),
        "completion": replies,
        "reward": rewards,
        "truncated": cut,
        "entropy": entropies,
    }
    writer.rollouts(rows, step)
    writer.problems({"problem": [problem_id(PROMPT)], "prompt": [PROMPT]})


def test_routes_by_hand(tmp_path: Path) -> None:
    # Form, route, three of planning, execution, three of planning, execution, planning, execution, form.
    whole = [0.0, 1.0, 1.0, 1.0, 1.0, 0.2, 1.0, 1.0, 1.0, 0.2, 1.0, 0.2, 0.0]
    stray = "<think> add </think> nonsense"
    write(
        tmp_path,
        1,
        [1, 0, 0, 0],
        [REPLY, REPLY.replace("</think> 0", "</think> 5"), stray, stray],
        [whole, whole, [], []],
        [False] * 4,
    )
    write(tmp_path, 3, [1, 1], [REPLY, "<think> left"], [whole, [0.5, 0.5]], [False, True])
    log = read_training_log(tmp_path, grammar=True)
    assert log.steps == (1, 3)
    assert log.reward == (0.25, 1.0)
    assert log.solved == (0.5, 1.0)
    assert log.distinct == (1.0, 0.5)  # {0, 5} and none; {0} and none
    assert log.planning[0] == pytest.approx(1.0)
    assert log.execution == pytest.approx([0.2, 0.2])
    assert log.entropy[0] == pytest.approx((8 * 1.0 + 3 * 0.2) / 13)
    assert log.planning[1] == pytest.approx((8 * 1.0 + 0.5) / 9)  # the route of the reply that was cut
    assert log.to_row()["steps"] == (1, 3)


def test_without_entropies_there_are_none(tmp_path: Path) -> None:
    write(tmp_path, 1, [1, 0], [REPLY, REPLY], [[], []], [False, False])
    log = read_training_log(tmp_path, grammar=True)
    assert all(map(math.isnan, (*log.entropy, *log.planning, *log.execution)))


def test_by_hand(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, Header(name="by hand"))
    # Step 1: group a is right once of two, group b never; one of four replies is cut; tokens have 1, 1, 2 and 0 nats.
    writer.rollouts(
        {
            "problem": ["p", "p", "q", "q"],
            "group": ["a", "a", "b", "b"],
            "sample": [0, 1, 2, 3],
            "reward": [1.0, 0.0, 0.0, 0.0],
            "truncated": [False, True, False, False],
            "entropy": [[1.0], [1.0], [2.0], [0.0]],
        },
        1,
    )
    rows = {
        "problem": ["p", "p"],
        "group": ["c", "c"],
        "sample": [0, 1],
        "reward": [1.0, 1.0],
        "truncated": [False, False],
    }
    writer.rollouts({**rows, "entropy": [[0.5, 0.1], [0.3]]}, 2)
    found = read_training_log(tmp_path)
    assert found.steps == (1, 2)
    assert found.reward == (0.25, 1.0)
    assert found.entropy == pytest.approx((1.0, 0.3))
    assert found.truncated == (0.25, 0.0)
    assert found.zero_variance == (0.5, 1.0)


def test_the_ends_of_a_series() -> None:
    values = (0.0, 1.0, 2.0, 3.0, 4.0, 10.0, 11.0)
    log = TrainingLog(tuple(range(7)), values, values, values, values)
    # The first five: 0 + 1 + 2 + 3 + 4 = 10; the last five: 2 + 3 + 4 + 10 + 11 = 30.
    assert log.endpoints("reward") == (2.0, 6.0)


def test_a_run_without_training_is_refused(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, Header(name="empty"))
    writer.rollouts({"problem": ["p"], "sample": [0], "reward": [1.0]}, 1, split="eval")
    with pytest.raises(MeasureError, match="no training rollouts"):
        read_training_log(tmp_path)


def test_some_generations_only() -> None:
    log = TrainingLog((1, 2, 3), (0.1, 0.2, 0.3), (0.9, math.nan, 0.7))
    assert log.select([0, 2]) == TrainingLog((1, 3), (0.1, 0.3), (0.9, 0.7))


def test_three_seeds_by_hand() -> None:
    # Mean 0.4, standard deviation 0.1, standard error 0.1 / sqrt(3) = 0.057735; t(2, 0.975) = 4.302653: reach 0.248414.
    found = seed_interval([0.3, 0.4, 0.5])
    assert (found.value, found.low, found.high) == pytest.approx((0.4, 0.151586, 0.648414), abs=1e-6)
    assert found.method == "Student's t over 3 seeds"


def test_two_seeds_are_cut_at_what_a_share_can_be() -> None:
    # Standard error 0.1, t(1, 0.975) = 12.7062: reach 1.27, beyond both ends.
    found = seed_interval([0.4, 0.6], bounds=(0.0, 1.0))
    assert (found.value, found.low, found.high) == (0.5, 0.0, 1.0)


def test_one_seed_tells_nothing_of_the_spread() -> None:
    assert seed_interval([0.25], bounds=(0.0, 1.0)) == Interval(0.25, 0.0, 1.0, 0.95, "one seed")
    assert seed_interval([2.0]).low == -math.inf


def test_no_seed_is_refused() -> None:
    with pytest.raises(MeasureError):
        seed_interval([])


def test_arms_that_overlap_share_places() -> None:
    arms = {
        "a": Interval(0.9, 0.8, 1.0),
        "b": Interval(0.7, 0.6, 0.85),
        "c": Interval(0.65, 0.5, 0.7),
        "d": Interval(0.1, 0.0, 0.2),
    }
    # a overlaps b and lies above c and d; b overlaps a and c; c lies below a and overlaps b; d lies below all.
    assert seed_ranks(arms) == {"a": "1-2", "b": "1-3", "c": "2-3", "d": "4"}


def test_running_means_by_hand() -> None:
    assert trailing_mean([1, 2, 6, 1], 2).tolist() == [1, 1.5, 4, 3.5]
    assert trailing_mean([1, 2, 6], 10).tolist() == [1, 1.5, 3]
    assert trailing_mean([], 3).tolist() == []
