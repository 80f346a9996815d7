"""The settings of a course: what is refused, which problems it trains on, and that it goes to TOML and back."""

from __future__ import annotations

from typing import Any

import pytest

from breadth.base import settings
from breadth.base.errors import SettingsError
from breadth.lab.courses.course import Course
from breadth.lab.task.tasks import held_out
from breadth.training.recipes import RECIPES

PLAIN = RECIPES["grpo"].chain


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"prompts": 0},
        {"group": 1},
        {"rate": 0.0},
        {"rate": 1.0},
        {"updates": 0},
        {"level": "harder"},
        {"seed": -1},
    ],
)
def test_what_cannot_be_run_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Course(PLAIN, **wrong)


def test_a_generation_divides_into_its_updates() -> None:
    # 3 problems x 5 replies are 15 rollouts: they go into 3 or 5 updates, not into 2.
    assert Course(PLAIN, prompts=3, group=5, updates=3).updates == 3
    with pytest.raises(SettingsError, match="divides into the updates"):
        Course(PLAIN, prompts=3, group=5, updates=2)


def test_the_problems_are_the_same_for_every_seed_and_none_is_held_out() -> None:
    trained = Course(PLAIN, problems=50, seed=0).trained_on(11)
    assert trained == Course(PLAIN, problems=50, seed=9).trained_on(11)
    assert len({problem.canonical for problem in trained}) == 50
    assert not {problem.canonical for problem in trained} & {problem.canonical for problem in held_out(11, "medium")}


def test_problems_beside_are_neither_trained_on_nor_held_out() -> None:
    course = Course(PLAIN, problems=50)
    beside, taken = course.beside(40, 11), [*course.trained_on(11), *held_out(11, "medium")]
    assert len({problem.canonical for problem in beside}) == 40
    assert not {problem.canonical for problem in beside} & {problem.canonical for problem in taken}


def test_toml_and_back() -> None:
    course = Course(RECIPES["thermostat"].chain, steps=7, rate=1e-3, level="hard")
    assert settings.loads(Course, settings.dumps(course)) == course
