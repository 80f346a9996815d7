"""The remedies as trials."""

from __future__ import annotations

from breadth.base import settings
from breadth.lab.courses.course import SEVERAL, SEVERAL_RATE, Course
from breadth.lab.experiments.pairing import ALL_ARMS
from breadth.lab.experiments.remedies import REMEDIES, Remedies
from breadth.lab.trials.experiment import Bench


def test_arms_of_a_regime_differ_in_their_chain_alone_and_all_see_as_many_rollouts() -> None:
    trials = REMEDIES.trials(Bench(2, weights="abc"))
    assert [trial.name for trial in trials[:3]] == ["base", "on-policy/seed-0", "plain/seed-0"]
    assert len(trials) == 1 + 2 * len(ALL_ARMS)
    courses = {trial.name: settings.from_table(Course, trial.settings["course"]) for trial in trials[1:]}
    for name, course in courses.items():
        arm, _, seed = name.partition("/seed-")
        regime = (
            {} if ALL_ARMS[arm].updates == 1 else {"updates": SEVERAL, "rate": SEVERAL_RATE, "steps": 120 * SEVERAL}
        )
        assert course == Course(ALL_ARMS[arm].chain, seed=int(seed), **regime)  # type: ignore[arg-type]  # by name


def test_all_arms_of_a_seed_come_before_the_next_seed() -> None:
    seeds = [trial.name[-1] for trial in REMEDIES.trials(Bench(3))[1:]]
    assert seeds == sorted(seeds)


def test_smaller_courses_are_asked_for_by_field() -> None:
    (trial, *_) = Remedies(course={"steps": 2, "prompts": 4}).trials(Bench(1))[1:]
    assert (trial.settings["course"]["steps"], trial.settings["course"]["prompts"]) == (2, 4)
