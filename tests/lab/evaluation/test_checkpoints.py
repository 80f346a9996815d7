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
from breadth.lab.demo.plan import FULL_DEMO, chain_with_anchor
from breadth.lab.evaluation.checkpoints import (
    VALIDATION_TOKENS,
    VALIDATION_VOTE,
    ArmEvals,
    CheckpointEval,
    CheckpointEvalPlan,
    base_eval_trial,
    evals_by_arm,
    evaluate_on_validation,
    grpo_trial,
    summarize_checkpoint,
    validation_interval,
    validation_table,
)
from breadth.lab.evaluation.evaluate import evaluate
from breadth.lab.grpo import RUN_FOLDER, GrpoRun
from breadth.lab.reasoner import Reasoner, load_reasoner
from breadth.lab.task.problems import draw_held_out
from breadth.lab.trials.experiment import ExperimentSetup, ExperimentTrial, FinishedTrial, list_finished, load_setup
from breadth.lab.trials.runner import TrialObserver, run_trials
from breadth.measure.diversity import transfer_gap
from breadth.measure.intervals import Interval
from breadth.runs.reader import Run
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.loss.clipped_policy import ClippedPolicy

LOOKS = CheckpointEvalPlan(
    problems=4,
    samples=4,
    intermediate_problems=3,
    intermediate_samples=2,
    validation_problems=3,
    validation_samples=2,
    every=2,
)
COURSE = GrpoRun(
    Chain((GroupAdvantage(), ClippedPolicy())), steps=3, prompts=2, group=2, problems=8, max_completion_length=40
)


def test_looks_on_the_way_and_at_the_end_the_same_for_the_same_seed(tmp_path: Path, memorised_folder: Path) -> None:
    bench = load_setup(memorised_folder, 1)
    trials = [
        base_eval_trial(LOOKS, bench),
        *(grpo_trial(f"{name}/seed-0", COURSE, LOOKS, bench) for name in ("one", "same")),
    ]
    told: dict[str, int] = {}
    assert (
        run_trials(
            trials,
            tmp_path,
            memorised_folder,
            2,
            TrialObserver(on_units=lambda trial, units: told.update({trial.name: units})),
        )
        == []
    )
    base, one, same = list_finished(trials, tmp_path)
    assert one.result == same.result
    assert told == {trial.name: trial.units for trial in trials}
    looks = [CheckpointEval.from_row(row) for row in one.result["evals"]]
    assert [(look.step, look.table.shape) for look in looks] == [(2, (3, 2)), (3, (4, 4))]
    assert CheckpointEval.from_row(base.result["evals"][0]).step == 0
    assert one.result["train"]["steps"] == [1, 2, 3]
    assert one.result["validation"]["passed"] <= one.result["validation"]["covered"] <= 1

    run = Run.open(tmp_path / "one" / "seed-0" / RUN_FOLDER)
    rows = run.query(
        "SELECT step, count(*) AS rows, avg(correct::INT) AS passed FROM rollouts WHERE split = 'eval' GROUP BY step"
        " ORDER BY step"
    )
    assert rows["rows"].to_pylist() == [6, 16]
    assert rows["passed"].to_pylist()[1] == pytest.approx(looks[1].pass_at_k(1).mean())
    assert overview(run).sections


def test_work_is_counted_in_steps() -> None:
    # 61 steps, three looks between of 1,600 replies each, at the end one of 12,800 and 2,048 beside it; 400 replies a
    # unit.
    assert (
        grpo_trial("one", replace(COURSE, steps=61), CheckpointEvalPlan(), ExperimentSetup(1)).units == 61 + 3 * 4 + 38
    )


def test_no_problem_is_no_look() -> None:
    with pytest.raises(SettingsError, match="problems"):
        CheckpointEvalPlan(problems=0)


LOOK = CheckpointEval(
    3, [1, 2], [[1, 1, 0, 4], [3, 3, -1, 2]], 0.5, math.nan, 0.7, 0.875, 20.0, {"infix": 1.0}, {"add": 1.0}
)
"""Two problems, four replies each: two right of four, one right of four with one that is none."""


def test_numbers_by_hand() -> None:
    assert LOOK.right.tolist() == [[True, True, False, False], [False, False, False, True]]
    assert LOOK.pass_at_k(1) == pytest.approx([0.5, 0.25])
    # pass@2: 1 - C(2, 2) / C(4, 2) = 5/6 and 1 - C(3, 2) / C(4, 2) = 1/2.
    assert LOOK.pass_at_k(2) == pytest.approx([5 / 6, 1 / 2])
    assert LOOK.pass_at_k(4).tolist() == [1, 1]
    # The votes of all four: 1 leads with two of four; 3 leads with two of three that vote.
    assert LOOK.majority_at_k(4).tolist() == [1, 0]
    assert LOOK.distinct_answers(4).tolist() == [3, 2]
    # Of two drawn: answer 1 is missed in C(2, 2) of 6 pairs, 0 and 4 each in C(3, 2) = 3 of 6: 5/6 + 1/2 + 1/2.
    assert LOOK.distinct_answers(2)[0] == pytest.approx(11 / 6)


def test_it_comes_back_from_json_with_its_gaps() -> None:
    back = CheckpointEval.from_row(orjson.loads(orjson.dumps(LOOK.to_row())))
    assert math.isnan(back.planning)
    assert (back.entropy, back.answers, back.gold, back.styles) == (LOOK.entropy, LOOK.answers, LOOK.gold, LOOK.styles)


def test_a_policy_has_no_transfer_gap_to_itself() -> None:
    same = CheckpointEval(0, [9], [[1, 2, 3, -1]], 0, 0, 0, 0, 0, {}, {})
    gap = transfer_gap(same.to_arm_samples, same.to_arm_samples)
    assert gap.every.shared.value == 0
    assert gap.every.base.distinct.value == 3


def test_an_evaluation_keeps_its_numbers(memorised: Reasoner) -> None:
    evaluation = evaluate(memorised, draw_held_out(7, "medium")[:3], 4, seed=2)
    look = summarize_checkpoint(evaluation, 5)
    assert look.step == 5
    assert look.samples == 4
    for k in (1, 2, 4):
        assert look.pass_at_k(k) == pytest.approx(evaluation.pass_by_problem(k))
        assert look.majority_at_k(k) == pytest.approx(evaluation.majority_by_problem(k))
    assert look.entropy == evaluation.entropy()
    assert np.array_equal(look.table, evaluation.answers)


def look(*answers: list[int], step: int = 4, planning: float = 0.5) -> CheckpointEval:
    """Every right answer is 1."""
    return CheckpointEval(step, [1] * len(answers), answers, 1.0, planning, 0.2, 1.0, 9.0, {}, {})


def finished_trials(name: str, *looks: CheckpointEval) -> FinishedTrial:
    return FinishedTrial(ExperimentTrial(name, "m:w"), {"evals": [one.to_row() for one in looks]}, 1.0)


RIGHT, WRONG, HALF = [1, 1], [0, 0], [1, 0]
FOUND = evals_by_arm(
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
    found = ARM.seed_interval(lambda one: one.pass_at_k(1))
    assert (found.value, found.low, found.high) == pytest.approx((0.875, 0, 1))
    # Problems have (1 + 1) / 2 and (0.5 + 1) / 2.
    assert ARM.problem_interval(lambda one: one.pass_at_k(1)).value == pytest.approx(0.875)


def test_gains_are_paired_by_seed() -> None:
    # Seed 0: 0.75 - 0.25, seed 1: 1 - 0.5; seed 2 has no partner. No spread: the interval is a point.
    gain = ARM.gain_over_seeds(CONTROL, lambda one: one.pass_at_k(1))
    assert gain is not None
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.5, 0.5, 0.5))
    over_problems = ARM.gain_over_problems(CONTROL, lambda one: one.pass_at_k(1))
    assert over_problems is not None
    assert over_problems.value == pytest.approx(0.5)  # 0.5 and 0.5 on the two problems


def test_arms_without_a_common_seed_are_not_compared() -> None:
    other = ArmEvals({7: [look(RIGHT, RIGHT)]})
    assert ARM.gain_over_seeds(other, lambda one: one.pass_at_k(1)) is None
    assert ARM.gain_over_problems(other, lambda one: one.pass_at_k(1)) is None


def test_a_number_that_a_look_lacks_is_undefined() -> None:
    arm = ArmEvals({0: [look(RIGHT)], 1: [look(RIGHT, planning=math.nan)]})
    assert math.isnan(arm.scalar_interval(lambda one: one.planning, (0.0, math.inf)).value)
    assert ARM.scalar_interval(lambda one: one.planning, (0.0, math.inf)).value == 0.5


def test_the_numbers_are_those_of_the_problems_beside(memorised_folder: Path) -> None:
    reasoner, course = load_reasoner(memorised_folder), GrpoRun(chain_with_anchor(0.0), problems=8, seed=3)
    prime = reasoner.teacher.facts.prime
    problems = course.validation_problems(5, prime)
    assert not {*problems} & {*course.training_problems(prime)}
    found = evaluate(reasoner, problems, 4, seed=3)
    votes = min(4, int(FULL_DEMO.thinking / found.tokens.mean()))
    assert evaluate_on_validation(reasoner, course, 5, 4) == {
        "passed": found.right.mean(),
        "voted": found.majority_at(votes).value,
        "covered": found.right.any(1).mean(),
        "tokens": found.tokens.mean(),
    }


TRIALS = [{"validation": {"passed": 0.1, "voted": vote, "covered": 0.5, "tokens": 20.0}} for vote in (0.2, 0.4)]


def test_numbers_over_seeds() -> None:
    assert validation_interval(TRIALS, VALIDATION_VOTE).value == pytest.approx(0.3)
    assert validation_interval(TRIALS[:1], VALIDATION_VOTE).high == 1.0
    assert math.isinf(validation_interval(TRIALS[:1], VALIDATION_TOKENS).high)


def test_a_row_a_course() -> None:
    table = validation_table("course", {"one": TRIALS}, 16, "a note")
    assert [column.name for column in table.columns] == [
        "course",
        "pass@1",
        "vote for 192 tokens",
        "pass@16",
        "tokens per reply",
    ]
    ((name, *cells),) = table.rows
    assert name == "one"
    assert [cell.value for cell in cells if isinstance(cell, Interval)] == pytest.approx([0.1, 0.3, 0.5, 20.0])
