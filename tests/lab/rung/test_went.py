"""How a training went, by hand from a run folder of six replies."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.base.errors import MeasureError
from breadth.lab.rung.went import Went, went
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter


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
    found = went(tmp_path)
    assert found.steps == (1, 2)
    assert found.reward == (0.25, 1.0)
    assert found.entropy == pytest.approx((1.0, 0.3))
    assert found.cut == (0.25, 0.0)
    assert found.flat == (0.5, 1.0)


def test_the_ends_of_a_series() -> None:
    values = (0.0, 1.0, 2.0, 3.0, 4.0, 10.0, 11.0)
    one = Went(tuple(range(7)), values, values, values, values)
    # The first five: 0 + 1 + 2 + 3 + 4 = 10; the last five: 2 + 3 + 4 + 10 + 11 = 30.
    assert one.ends("reward") == (2.0, 6.0)


def test_a_run_without_training_is_refused(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, Header(name="empty"))
    writer.rollouts({"problem": ["p"], "sample": [0], "reward": [1.0]}, 1, split="eval")
    with pytest.raises(MeasureError, match="no rollouts"):
        went(tmp_path)
