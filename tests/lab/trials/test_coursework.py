"""The work of a course, done for real on a tiny scale by real processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from breadth.base.errors import SettingsError
from breadth.doctor.overview import overview
from breadth.lab.courses.course import Course
from breadth.lab.courses.training import RUN
from breadth.lab.measuring.looks import Look
from breadth.lab.trials.coursework import Looks, base_trial, course_trial
from breadth.lab.trials.experiment import Bench, bench_of
from breadth.lab.trials.folder import done
from breadth.lab.trials.runner import Watch, run_trials
from breadth.runs.reader import Run
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.loss.clipped_policy import ClippedPolicy

LOOKS = Looks(
    problems=4, samples=4, problems_between=3, samples_between=2, problems_beside=3, samples_beside=2, every=2
)
COURSE = Course(Chain((GroupAdvantage(), ClippedPolicy())), steps=3, prompts=2, group=2, problems=8, longest=40)


def test_looks_on_the_way_and_at_the_end_the_same_for_the_same_seed(tmp_path: Path, memorised_folder: Path) -> None:
    bench = bench_of(memorised_folder, 1)
    trials = [
        base_trial(LOOKS, bench),
        *(course_trial(f"{name}/seed-0", COURSE, LOOKS, bench) for name in ("one", "same")),
    ]
    told: dict[str, int] = {}
    assert (
        run_trials(
            trials, tmp_path, memorised_folder, 2, Watch(units=lambda trial, units: told.update({trial.name: units}))
        )
        == []
    )
    base, one, same = done(trials, tmp_path)
    assert one.result == same.result
    assert told == {trial.name: trial.units for trial in trials}
    looks = [Look.from_row(row) for row in one.result["looks"]]
    assert [(look.step, look.table.shape) for look in looks] == [(2, (3, 2)), (3, (4, 4))]
    assert Look.from_row(base.result["looks"][0]).step == 0
    assert one.result["train"]["steps"] == [1, 2, 3]
    assert one.result["beside"]["passed"] <= one.result["beside"]["covered"] <= 1

    run = Run.open(tmp_path / "one" / "seed-0" / RUN)
    rows = run.query(
        "SELECT step, count(*) AS rows, avg(correct::INT) AS passed FROM rollouts WHERE split = 'eval' GROUP BY step"
        " ORDER BY step"
    )
    assert rows["rows"].to_pylist() == [6, 16]
    assert rows["passed"].to_pylist()[1] == pytest.approx(looks[1].passed(1).mean())
    assert overview(run).sections


def test_work_is_counted_in_steps() -> None:
    # 61 steps, three looks between of 1,600 replies each, at the end one of 12,800 and 2,048 beside it; 400 replies a
    # unit.
    assert course_trial("one", replace(COURSE, steps=61), Looks(), Bench(1)).units == 61 + 3 * 4 + 38


def test_no_problem_is_no_look() -> None:
    with pytest.raises(SettingsError, match="problems"):
        Looks(problems=0)
