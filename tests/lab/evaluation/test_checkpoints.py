"""The work of a course, done for real on a tiny scale by real processes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from breadth.base.errors import SettingsError
from breadth.doctor.overview import overview
from breadth.lab.demo.plan import FULL, protected_by
from breadth.lab.evaluation.checkpoints import (
    TOKENS,
    VOTED,
    Look,
    Looks,
    MeasuredArm,
    base_trial,
    beside_table,
    course_trial,
    judge_beside,
    look_of,
    measured_arms,
    over_beside,
)
from breadth.lab.evaluation.evaluate import evaluate
from breadth.lab.grpo import RUN, Course
from breadth.lab.model.reasoner import Reasoner, load
from breadth.lab.task.problems import held_out
from breadth.lab.trials.experiment import Bench, Done, Trial, bench_of, done
from breadth.lab.trials.runner import Watch, run_trials
from breadth.measure.intervals import Interval
from breadth.measure.transfer import transfer_gap
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


LOOK = Look(3, [1, 2], [[1, 1, 0, 4], [3, 3, -1, 2]], 0.5, math.nan, 0.7, 0.875, 20.0, {"infix": 1.0}, {"add": 1.0})
"""Two problems, four replies each: two right of four, one right of four with one that is none."""


def test_numbers_by_hand() -> None:
    assert LOOK.right.tolist() == [[True, True, False, False], [False, False, False, True]]
    assert LOOK.passed(1) == pytest.approx([0.5, 0.25])
    # pass@2: 1 - C(2, 2) / C(4, 2) = 5/6 and 1 - C(3, 2) / C(4, 2) = 1/2.
    assert LOOK.passed(2) == pytest.approx([5 / 6, 1 / 2])
    assert LOOK.passed(4).tolist() == [1, 1]
    # The votes of all four: 1 leads with two of four; 3 leads with two of three that vote.
    assert LOOK.voted(4).tolist() == [1, 0]
    assert LOOK.distinct(4).tolist() == [3, 2]
    # Of two drawn: answer 1 is missed in C(2, 2) of 6 pairs, 0 and 4 each in C(3, 2) = 3 of 6: 5/6 + 1/2 + 1/2.
    assert LOOK.distinct(2)[0] == pytest.approx(11 / 6)


def test_it_comes_back_from_json_with_its_gaps() -> None:
    back = Look.from_row(orjson.loads(orjson.dumps(LOOK.to_row())))
    assert math.isnan(back.planning)
    assert (back.entropy, back.answers, back.gold, back.styles) == (LOOK.entropy, LOOK.answers, LOOK.gold, LOOK.styles)


def test_a_policy_has_no_transfer_gap_to_itself() -> None:
    same = Look(0, [9], [[1, 2, 3, -1]], 0, 0, 0, 0, 0, {}, {})
    gap = transfer_gap(same.arm, same.arm)
    assert gap.every.shared.value == 0
    assert gap.every.base.distinct.value == 3


def test_an_evaluation_keeps_its_numbers(memorised: Reasoner) -> None:
    evaluation = evaluate(memorised, held_out(7, "medium")[:3], 4, seed=2)
    look = look_of(evaluation, 5)
    assert look.step == 5
    assert look.samples == 4
    for k in (1, 2, 4):
        assert look.passed(k) == pytest.approx(evaluation.pass_by_problem(k))
        assert look.voted(k) == pytest.approx(evaluation.majority_by_problem(k))
    assert look.entropy == evaluation.entropy()
    assert np.array_equal(look.table, evaluation.answers)


def look(*answers: list[int], step: int = 4, planning: float = 0.5) -> Look:
    """Every right answer is 1."""
    return Look(step, [1] * len(answers), answers, 1.0, planning, 0.2, 1.0, 9.0, {}, {})


def finished_trials(name: str, *looks: Look) -> Done:
    return Done(Trial(name, "m:w"), {"looks": [one.to_row() for one in looks]}, 1.0)


RIGHT, WRONG, HALF = [1, 1], [0, 0], [1, 0]
FOUND = measured_arms(
    [
        finished_trials("base", look(RIGHT, RIGHT, step=0)),
        finished_trials("arm/seed-0", look(WRONG, WRONG, step=2), look(RIGHT, HALF)),
        finished_trials("arm/seed-1", look(RIGHT, RIGHT)),
        finished_trials("control/seed-0", look(HALF, WRONG)),
        finished_trials("control/seed-1", look(HALF, HALF)),
        finished_trials("control/seed-2", look(WRONG, WRONG)),
    ]
)
ARM, CONTROL = FOUND["arm"], FOUND["control"]


def test_what_has_no_seed_is_no_arm() -> None:
    assert FOUND.keys() == {"arm", "control"}


def test_only_the_last_look_counts_for_the_end() -> None:
    assert {seed: one.step for seed, one in ARM.last.items()} == {0: 4, 1: 4}


def test_means_and_intervals_by_hand() -> None:
    # Seeds 0 and 1 have 0.75 and 1: mean 0.875, standard error 0.125, t(1) = 12.7062.
    found = ARM.over_seeds(lambda one: one.passed(1))
    assert (found.value, found.low, found.high) == pytest.approx((0.875, 0, 1))
    # Problems have (1 + 1) / 2 and (0.5 + 1) / 2.
    assert ARM.over_problems(lambda one: one.passed(1)).value == pytest.approx(0.875)


def test_gains_are_paired_by_seed() -> None:
    # Seed 0: 0.75 - 0.25, seed 1: 1 - 0.5; seed 2 has no partner. No spread: the interval is a point.
    gain = ARM.gain_over_seeds(CONTROL, lambda one: one.passed(1))
    assert gain is not None
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.5, 0.5, 0.5))
    over_problems = ARM.gain_over_problems(CONTROL, lambda one: one.passed(1))
    assert over_problems is not None
    assert over_problems.value == pytest.approx(0.5)  # 0.5 and 0.5 on the two problems


def test_arms_without_a_common_seed_are_not_compared() -> None:
    other = MeasuredArm({7: [look(RIGHT, RIGHT)]})
    assert ARM.gain_over_seeds(other, lambda one: one.passed(1)) is None
    assert ARM.gain_over_problems(other, lambda one: one.passed(1)) is None


def test_a_number_that_a_look_lacks_is_undefined() -> None:
    arm = MeasuredArm({0: [look(RIGHT)], 1: [look(RIGHT, planning=math.nan)]})
    assert math.isnan(arm.number(lambda one: one.planning, (0.0, math.inf)).value)
    assert ARM.number(lambda one: one.planning, (0.0, math.inf)).value == 0.5


def test_the_numbers_are_those_of_the_problems_beside(memorised_folder: Path) -> None:
    reasoner, course = load(memorised_folder), Course(protected_by(0.0), problems=8, seed=3)
    prime = reasoner.teacher.facts.prime
    problems = course.beside(5, prime)
    assert not {*problems} & {*course.trained_on(prime)}
    found = evaluate(reasoner, problems, 4, seed=3)
    votes = min(4, int(FULL.thinking / found.tokens.mean()))
    assert judge_beside(reasoner, course, 5, 4) == {
        "passed": found.right.mean(),
        "voted": found.majority_at(votes).value,
        "covered": found.right.any(1).mean(),
        "tokens": found.tokens.mean(),
    }


TRIALS = [{"beside": {"passed": 0.1, "voted": vote, "covered": 0.5, "tokens": 20.0}} for vote in (0.2, 0.4)]


def test_numbers_over_seeds() -> None:
    assert over_beside(TRIALS, VOTED).value == pytest.approx(0.3)
    assert over_beside(TRIALS[:1], VOTED).high == 1.0
    assert math.isinf(over_beside(TRIALS[:1], TOKENS).high)


def test_a_row_a_course() -> None:
    table = beside_table("course", {"one": TRIALS}, 16, "a note")
    assert [column.name for column in table.columns] == [
        "course",
        "pass@1",
        "vote for 192 tokens",
        "pass@16",
        "tokens of a reply",
    ]
    ((name, *cells),) = table.rows
    assert name == "one"
    assert [cell.value for cell in cells if isinstance(cell, Interval)] == pytest.approx([0.1, 0.3, 0.5, 20.0])
