"""What a page draws: courses as they are, scribbles as means, held-out scores and the components of the reward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from breadth.doctor.pictures import MAX_COMPONENTS, draw_components, draw_held_out_score, metric_curve
from breadth.report.sections import Curve
from breadth.runs.reader import Run
from breadth.runs.writer import RunWriter


def draw(folder: Path, name: str) -> Curve:
    curve = metric_curve(Run.open(folder), name)
    assert curve is not None
    return curve


def test_a_scribble_is_drawn_as_means_and_a_course_as_it_is(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    for step in range(1, 41):
        noisy = float("nan") if 6 <= step <= 10 else step % 2  # 35 jumps of 1 in a range of 1
        writer.metrics(step, {"reward": noisy, "entropy": step % 2 * 0.1 + step / 4})  # 40 of 0.1 and a way of 9.65
    entropy, reward = draw(tmp_path, "entropy"), draw(tmp_path, "reward")
    (course,), (means,) = entropy.series, reward.series
    assert len(course.x) == 40
    assert not course.low
    assert "Mean of" not in entropy.note
    assert list(means.x) == [3, 8, 13, 18, 23, 28, 33, 38]
    assert list(means.y)[2:] == pytest.approx([0.6, 0.4] * 3)
    assert np.isnan([means.y[1], means.low[1], means.high[1]]).all()
    assert (set(means.low) - {means.low[1]}, set(means.high) - {means.high[1]}) == ({0.0}, {1.0})
    assert reward.note.endswith("Mean of every 5 points.")


def test_a_constant_is_not_drawn(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    for step in (1, 2, 3):
        writer.metrics(step, {"reward": 0.5})
    assert metric_curve(Run.open(tmp_path), "reward") is None


def test_the_held_out_score_has_a_picture_of_its_own(make: Any) -> None:
    evals = {"accuracy": np.array([0.9, np.nan, 0.8, 0.7])}
    curve = draw_held_out_score(make(reward=np.linspace(0, 1, 4), evals=evals))
    assert curve is not None
    (line,) = curve.series
    assert list(line.y) == [0.9, 0.8, 0.7]
    assert curve.title == "Held-out score"
    assert curve.note == "Logged as accuracy."
    assert draw_held_out_score(make(reward=np.linspace(0, 1, 4))) is None


def test_components_that_moved_most_are_drawn_together_without_bands(make: Any) -> None:
    still = {f"rewards/part{place}/mean": np.linspace(0, 0.01 * place, 30) for place in range(MAX_COMPONENTS)}
    moving = np.linspace(0, 1, 30)
    curve = draw_components(make(reward=moving, **{"rewards/proxy/mean": moving}, **still))
    assert curve is not None
    assert [line.name for line in curve.series] == ["proxy", "part3", "part2", "part1"]
    assert not any(line.low for line in curve.series)
    noisy = draw_components(make(reward=moving, **{"rewards/a/mean": np.arange(30) % 2, "rewards/b/mean": moving}))
    assert noisy is not None
    assert {len(line.x) for line in noisy.series} == {6}  # one window for all lines
    assert noisy.note == "Mean of every 5 points."
    assert draw_components(make(reward=moving, **{"rewards/a/mean": moving})) is None
