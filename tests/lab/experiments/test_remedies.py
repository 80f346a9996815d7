"""The remedies as trials."""

from __future__ import annotations

import pytest

from breadth.base import settings
from breadth.lab.evaluation.checkpoints import ArmEvals, CheckpointEval, CheckpointEvalPlan
from breadth.lab.experiments.arms import ALL_ARMS
from breadth.lab.experiments.remedies import (
    MAX_SHOWN_ARMS,
    REMEDIES,
    Remedies,
    choose_shown_arms,
    remedy_curves,
    validation_sections,
)
from breadth.lab.grpo import OFF_POLICY_LEARNING_RATE, OFF_POLICY_UPDATES, GrpoRun
from breadth.lab.trials.experiment import ExperimentSetup, ExperimentTrial, FinishedTrial
from breadth.measure.intervals import Interval
from breadth.report.jsonable import render_json
from breadth.report.sections import Curve, Severity, Table, Verdict


def test_arms_of_a_regime_differ_in_their_chain_alone_and_all_see_as_many_rollouts() -> None:
    trials = REMEDIES.trials(ExperimentSetup(2, weights="abc"))
    assert [trial.name for trial in trials[:3]] == ["base", "on-policy/seed-0", "plain/seed-0"]
    assert len(trials) == 1 + 2 * len(ALL_ARMS)
    courses = {trial.name: settings.from_table(GrpoRun, trial.settings["grpo_run"]) for trial in trials[1:]}
    for name, course in courses.items():
        arm, _, seed = name.partition("/seed-")
        regime = (
            {}
            if ALL_ARMS[arm].updates == 1
            else {
                "updates": OFF_POLICY_UPDATES,
                "learning_rate": OFF_POLICY_LEARNING_RATE,
                "steps": 120 * OFF_POLICY_UPDATES,
            }
        )
        assert course == GrpoRun(ALL_ARMS[arm].chain, seed=int(seed), **regime)  # type: ignore[arg-type]  # by name


def test_all_arms_of_a_seed_come_before_the_next_seed() -> None:
    seeds = [trial.name[-1] for trial in REMEDIES.trials(ExperimentSetup(3))[1:]]
    assert seeds == sorted(seeds)


def test_smaller_courses_are_asked_for_by_field() -> None:
    (trial, *_) = Remedies(overrides={"steps": 2, "prompts": 4}).trials(ExperimentSetup(1))[1:]
    assert (trial.settings["grpo_run"]["steps"], trial.settings["grpo_run"]["prompts"]) == (2, 4)


EXPERIMENT = Remedies(eval_plan=CheckpointEvalPlan(problems=4, samples=8))
TRAIN = {"steps": [1, 2, 3, 4], "planning": [1.0, 0.8, 0.6, 0.4], "reward": [0.1, 0.2, 0.3, 0.4]}


def look(rights: list[int], step: int = 4) -> dict[str, object]:
    """Eight replies a problem, so many of them right (the answer 1), the others all different."""
    answers = [[1] * right + list(range(2, 10 - right)) for right in rights]
    return CheckpointEval(
        step, [1] * len(rights), answers, 0.5, 0.6, 0.2, 1.0, 20.0, {"infix": 1.0}, {"add": 1.0}
    ).to_row()


def done(arm: str, seed: int, rights: list[int]) -> FinishedTrial:
    return FinishedTrial(
        ExperimentTrial(f"{arm}/seed-{seed}", "m:w"), {"evals": [look(rights, 2), look(rights)], "train": TRAIN}, 1.0
    )


BASE = FinishedTrial(ExperimentTrial("base", "m:w"), {"evals": [look([1, 1, 1, 1], 0)]}, 1.0)
WIDE = [done("thermostat", seed, [4, 4, 4, 1 + seed % 2]) for seed in range(4)]
NARROW = [done("on-policy", seed, [8, 4, seed % 2, 0]) for seed in range(4)]


def cells(table: Table, row: str) -> dict[str, object]:
    (found,) = [one for one in table.rows if one[0] == row]
    return dict(zip((column.name for column in table.columns), found, strict=True))


def test_numbers_and_places_by_hand() -> None:
    page = EXPERIMENT.page([BASE, *WIDE, *NARROW], ExperimentSetup(4, weights="abc"))
    verdict, scores, gains, entropies, *pictures = page.sections
    assert isinstance(scores, Table)
    assert isinstance(gains, Table)
    assert isinstance(entropies, Table)
    # pass@8 is 1 on all four problems with the thermostat; plain solves two, and a third at odd seeds: 0.5 and 0.75,
    # mean 0.625.
    found = cells(scores, "on-policy")
    assert isinstance(found["pass@8"], Interval)
    assert found["pass@8"].value == pytest.approx(0.625)
    # Standard deviation of 0.5, 0.75, 0.5, 0.75 is 0.144338, error 0.0721688, t(3, 0.975) = 3.182446: reach 0.229673.
    assert found["pass@8"].low == pytest.approx(0.395327, abs=1e-5)
    assert cells(scores, "base")["pass@1"] == pytest.approx(0.125)
    assert cells(scores, "thermostat")["place by pass@8"] == "1"
    assert found["place by pass@8"] == "2"
    gain = cells(gains, "thermostat")
    assert gain["against"] == "on-policy"
    assert isinstance(gain["pass@8, seeds"], Interval)
    assert gain["pass@8, seeds"].value == pytest.approx(0.375)
    assert gain["pass@8, seeds"].low > 0
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.GOOD
    assert "thermostat" in verdict.headline
    assert all(isinstance(picture, Curve) for picture in pictures)
    assert render_json(page)


def test_an_arm_that_pays_with_its_score_is_not_praised() -> None:
    # pass@8 of 1 against 0.5 or 0.75, but pass@1 of an eighth against half and more.
    poor = [done("thermostat", seed, [1, 1, 1, 1]) for seed in range(4)]
    rich = [done("on-policy", seed, [8, 8, 4 + seed % 2, 0]) for seed in range(4)]
    (verdict, *_) = EXPERIMENT.page([BASE, *poor, *rich], ExperimentSetup(4)).sections
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.NOTE


def test_one_seed_proves_nothing() -> None:
    (verdict, *_) = EXPERIMENT.page([BASE, WIDE[0], NARROW[0]], ExperimentSetup(1)).sections
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.CANNOT_TELL


def test_an_unfinished_experiment_has_a_page_too() -> None:
    page = EXPERIMENT.page([WIDE[0], NARROW[1]], ExperimentSetup(2))  # no base, no common seed
    assert render_json(page)


def judged(arm: str, seed: int, voted: float) -> FinishedTrial:
    return FinishedTrial(
        ExperimentTrial(f"{arm}/seed-{seed}", "m:w"),
        {"validation": {"passed": 0.1, "voted": voted, "covered": 0.5, "tokens": 20.0}},
        1.0,
    )


def test_the_pair_has_the_best_votes_of_one_regime() -> None:
    votes = {
        "on-policy": (0.5, 0.5),
        "ucb": (0.2, 0.4),
        "anchor": (0.4, 0.4),
        "forking": (0.1, 0.3),
        "gppo": (0.9, 0.1),
    }
    verdict, table = validation_sections(
        [judged(arm, seed, vote) for arm, both in votes.items() for seed, vote in enumerate(both)], 16
    )
    assert isinstance(verdict, Verdict)
    assert verdict.headline == "The pair to try is anchor and ucb."  # gppo's 0.5 is of another regime, and alone there
    assert isinstance(table, Table)
    (row,) = [row for row in table.rows if row[0] == "ucb"]
    assert isinstance(row[2], Interval)
    assert row[2].value == pytest.approx(0.3)


def test_without_a_judgement_there_is_nothing_to_show() -> None:
    assert validation_sections([FinishedTrial(ExperimentTrial("base", "m:w"), {"evals": []}, 1.0)], 16) == []
    (table,) = validation_sections([judged("anchor", 0, 0.4)], 16)
    assert isinstance(table, Table)


def arm(*rights: int) -> ArmEvals:
    """Looks at steps 2, 4, ... at which so many of eight problems are solved by one reply of one."""
    looks = [
        CheckpointEval(2 * place + 2, [1] * 8, [[1]] * right + [[0]] * (8 - right), 0, 0, 0, 1, 1, {}, {})
        for place, right in enumerate(rights)
    ]
    return ArmEvals({0: looks})


def done_of_remedies_curves(name: str, seed: int, planning: list[float | None]) -> FinishedTrial:
    steps = list(range(1, len(planning) + 1))
    return FinishedTrial(
        ExperimentTrial(f"{name}/seed-{seed}", "m:w"), {"train": {"steps": steps, "planning": planning}}, 1.0
    )


def test_controls_and_the_best_are_drawn() -> None:
    arms = {"on-policy": arm(1), "plain": arm(1), **{f"arm-{right}": arm(right) for right in range(1, 8)}}
    assert choose_shown_arms(arms) == ["on-policy", "plain", "arm-7", "arm-6", "arm-5", "arm-4"]
    assert MAX_SHOWN_ARMS == 4


def test_points_by_hand() -> None:
    entropy, score, coverage = remedy_curves(
        {"on-policy": arm(2, 6)},
        [
            done_of_remedies_curves("on-policy", 0, [1, 2, 3, 4, 5]),
            done_of_remedies_curves("on-policy", 1, [3, 4, 5, 6]),
        ],
    )
    (line,) = entropy.series
    assert (line.x, line.y) == (
        (1, 2, 3, 4),
        (2, 3, 4, 5),
    )  # of two seeds, as far as both go; blocks of one where there are so few
    for curve in (score, coverage):  # looks of few replies: pass@8 is asked for as many as there are
        (points,) = curve.series
        assert (points.x, points.y) == ((2, 4), (0.25, 0.75))


def test_arms_of_several_updates_are_drawn_against_generations() -> None:
    _, _, coverage = remedy_curves({"plain": arm(2, 6)}, [])
    assert coverage.series[0].x == (0.5, 1.0)  # steps 2 and 4 at four updates a generation
