"""Curves of a course, from rollouts worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.lab.courses.train_curve import train_curve
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


def test_by_hand(tmp_path: Path) -> None:
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
    curve = train_curve(tmp_path)
    assert curve.steps == [1, 3]
    assert curve.passed == [0.25, 1.0]
    assert curve.covered == [0.5, 1.0]
    assert curve.distinct == [1.0, 0.5]  # {0, 5} and none; {0} and none
    assert curve.planning[0] == pytest.approx(1.0)
    assert curve.execution == pytest.approx([0.2, 0.2])
    assert curve.entropy[0] == pytest.approx((8 * 1.0 + 3 * 0.2) / 13)
    assert curve.planning[1] == pytest.approx((8 * 1.0 + 0.5) / 9)  # the route of the reply that was cut
    assert curve.to_row()["steps"] == [1, 3]


def test_without_entropies_there_are_none(tmp_path: Path) -> None:
    write(tmp_path, 1, [1, 0], [REPLY, REPLY], [[], []], [False, False])
    assert train_curve(tmp_path).entropy == [None]
