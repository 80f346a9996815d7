"""The generated courses: one seed gives one log, labels are true of the noise-free curves, shares are shares."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from breadth.doctor.collect import collect_evidence

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SHAPES = ((20, 1), (100, 5), (60, 10))


@pytest.fixture
def courses(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("doctor_courses")


@pytest.fixture
def curves(courses: ModuleType) -> ModuleType:
    return import_module("courses.curves")


def draw_all(courses: ModuleType, seed: int = 3) -> list[Any]:
    return [courses.draw_course(name, *shape, seed, 0) for name in courses.STORIES for shape in SHAPES]


def test_the_seed_decides_everything(courses: ModuleType) -> None:
    for name in courses.STORIES:
        first, again = (courses.draw_course(name, 20, 1, 5, 1) for _ in range(2))
        assert str(first.rows()) == str(again.rows())  # as text: NaN equals no number
        assert first.held_out == again.held_out
        assert first.rows() != courses.draw_course(name, 20, 1, 6, 1).rows()
        assert first.rows() != courses.draw_course(name, 20, 1, 5, 2).rows()


def test_labels_are_true_and_healthy_runs_have_no_failure(courses: ModuleType, curves: ModuleType) -> None:
    failures = {name: holds for name, holds in curves.DEFINITIONS.items() if name != "healthy"}
    for course in draw_all(courses):
        size = course.setting.size
        assert curves.DEFINITIONS[course.story.label](course.curves, size), course.story.name
        true = {name for name, holds in failures.items() if holds(course.curves, size)}
        assert (true == set()) == (course.story.label == "healthy"), course.story.name
        assert curves.is_healthy(course.curves, size) == (course.story.label == "healthy"), course.story.name
        assert true - course.story.misleading <= course.right_findings


def test_a_frozen_end_is_no_collapse_of_entropy(courses: ModuleType, curves: ModuleType) -> None:
    course = courses.draw_course("explodes, dies and freezes", 100, 1, 3, 0)
    assert curves.has_entropy_collapse(course.curves, course.setting.size)
    assert "entropy-collapse" not in course.right_findings  # its remedy is more entropy, which killed the run
    assert {"score-collapse", "entropy-explosion"} <= course.right_findings


def test_shares_are_counts_between_none_and_all(courses: ModuleType) -> None:
    for course in draw_all(courses):
        setting = course.setting
        for name, counted in (("zero_variance_groups", setting.groups), ("truncated", setting.groups * setting.size)):
            values = course.columns.get(name, np.zeros(1))
            assert values.min() >= 0
            assert values.max() <= 1
            counts = values * counted * setting.interval
            np.testing.assert_allclose(counts, np.round(counts), atol=1e-6)
        reward = (course.columns["reward"] - setting.lowest) / setting.span
        assert reward.min() >= -1e-9
        assert reward.max() <= 1 + 1e-9
        assert course.columns["length_max"].min() >= 1


def test_a_log_opens_as_one_run_with_every_point(courses: ModuleType, tmp_path: Path) -> None:
    for number, course in enumerate(draw_all(courses)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (case,) = collect_evidence([course.write(folder)], folder / "work").cases
        reward = case.series("reward")
        assert reward is not None
        assert len(reward) == course.setting.points
        assert reward.steps[-1] == course.setting.points * course.setting.interval
        assert case.run is not None
        assert ("entropy" in case.run.metric_names()) == ("entropy" in course.setting.logged)
        assert (case.series("reward", "eval") is not None) or not course.held_out or course.setting.trainer == "verl"


def test_a_restart_repeats_steps_with_other_samples(courses: ModuleType) -> None:
    course = courses.draw_course("restarts and repeats steps", 50, 1, 1, 0)
    last, first = course.setting.restart
    rows = course.rows()
    assert [row["step"] for row in rows] == [*range(1, last + 1), *range(first + 1, 51)]
    assert rows[last]["reward_std"] != rows[first]["reward_std"] or rows[last]["loss"] != rows[first]["loss"]


def test_shares_of_flat_groups_by_hand(curves: ModuleType) -> None:
    one = np.ones(1)
    # an even distribution of chances: each count of right answers from 0 to 4 is as likely, two of five are flat
    assert curves.flat_share(0.5 * one, 2 * one, 4)[0] == pytest.approx(2 / 5)
    # all problems alike, solved half of the time: 2 / 2^4
    assert curves.flat_share(0.5 * one, 1e7 * one, 4)[0] == pytest.approx(1 / 8, rel=1e-4)


def test_a_fall_is_measured_from_the_best_stretch_before_it(curves: ModuleType) -> None:
    score = np.array([0.2, 0.2, 0.8, 0.8, 0.4, 0.4, 0.6, 0.6]).repeat(2)
    assert curves.fall_from_best(score) == pytest.approx(0.5)
    assert curves.fall_from_best(np.sort(score)) == pytest.approx(0)
    assert curves.fall_from_best(np.zeros(16)) == 0


def test_saturation_names_no_failure_and_right_findings_do(courses: ModuleType) -> None:
    right = frozenset({"score-collapse", "no-learning", "saturation"})

    def judged(*alarms: str) -> Any:
        return courses.Judged("breadth", "rots slowly", 100, 1, 0, "trl", right, alarms)

    assert judged("score-collapse").is_exact
    assert judged("no-learning").is_named
    assert not judged("no-learning").is_exact
    assert not judged("saturation").is_named
    assert not judged("saturation").is_astray
    assert judged("truncation").is_astray
