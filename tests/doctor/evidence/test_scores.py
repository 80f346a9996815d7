"""Held-out scores are found under every trainer's names, and components under theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.scores import (
    component_name,
    count_evaluations,
    eval_score_change,
    excludes_rise,
    is_component,
    is_training_run,
    reward_components,
    reward_for_correct,
    reward_parts,
)
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter

E = np.linspace(0, 1, 12)


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (("reward", "reward_std", "length", "rewards/accuracy_reward/mean"), "rewards/accuracy_reward/mean"),
        (("reward", "entropy", "rewards/format_reward/mean"), "reward"),
        (
            ("val-core/challenge/acc/mean@8", "val-core/challenge/acc/best@8/mean", "val-aux/num_turns/mean"),
            "val-core/challenge/acc/mean@8",
        ),
        (("gsm8k_pass1", "gsm8k_passN", "gsm8k_pass4", "runtime"), "gsm8k_pass1"),
        (
            ("core/nq/em/mean@1", "core/nq/em/best@4/mean", "aux/nq/has_answer/mean@1", "aux/nq/acc/mean@1"),
            "core/nq/em/mean@1",
        ),
        (("reward", "all/pass_at_8", "all/mean_positive_reward"), "reward"),
        (("sokoban/success", "sokoban/num_actions"), "sokoban/success"),
        (("aime24", "aime24-truncated_ratio", "aime24/response_len/mean"), "aime24"),
        (("env/all/correct", "all_correct_groups", "env/all/reward"), "env/all/correct"),
        (("math/pass@1", "math/pass@8", "math/pass@16"), "math/pass@1"),
        (("aime/avg@16", "aime/completion_len/mean"), "aime/avg@16"),
        (("val/test_score/gsm8k", "val/loss"), "val/test_score/gsm8k"),
    ],
)
def test_the_telling_metric_is_taken(make: Any, names: tuple[str, ...], taken: str) -> None:
    # Every other one falls: the wrong choice would show.
    found = eval_score_change(
        make(reward=E, evals={name: 0.2 + (0.3 if name == taken else -0.1) * E for name in names})
    )
    assert found is not None
    assert found.name == taken
    assert found.verdict == "rising"


def test_data_sets_are_averaged_at_the_steps_they_share(make: Any) -> None:
    found = eval_score_change(
        make(reward=E, evals={"val-core/a/acc/mean@1": 0.2 + 0.4 * E, "val-core/b/acc/mean@1": 0.6 - 0.2 * E[:10]})
    )
    assert found is not None
    assert found.name == "the mean of 2 held-out scores"
    # (0.8 + 0.2 e) / 2 at steps 1 to 10; medians of the first and the last three lie 7 steps apart.
    assert found.start == pytest.approx(0.4 + 0.1 * E[1])
    assert found.change.value == pytest.approx(0.1 * 7 / 11)


def test_graded_rollouts_at_two_steps_are_compared_problem_by_problem(make: Any) -> None:
    problems = [f"p{number}" for number in range(40) for _ in range(2)]
    before = [number % 2 == 0 for number in range(40) for _ in range(2)]
    after = [number % 2 == 0 or number < 20 for number in range(40) for _ in range(2)]
    found = eval_score_change(
        make(
            reward=E, held_out={1: {"problem": problems, "correct": before}, 9: {"problem": problems, "correct": after}}
        )
    )
    assert found is not None
    assert found.change.value == pytest.approx(0.25)  # ten odd numbers below twenty
    assert found.verdict == "rising"
    assert found.where == "the same 40 problems at steps 1 and 9"


def test_graded_rollouts_at_many_steps_are_a_series(make: Any) -> None:
    rows = {
        step: {"problem": [f"p{place}" for place in range(20)], "correct": [place < 20 - step for place in range(20)]}
        for step in range(1, 13)
    }
    found = eval_score_change(make(held_out=rows))
    assert found is not None
    assert found.verdict == "falling"
    assert found.change.value == pytest.approx(-9 / 20)  # from step 2 to step 11, the middles of three


def test_nothing_held_out_is_none(make: Any) -> None:
    assert eval_score_change(make(reward=E)) is None
    assert eval_score_change(Evidence("nothing")) is None
    assert eval_score_change(make(reward=E, evals={"reward": [0.1, 0.2]})) is None
    assert count_evaluations(make(reward=E, evals={"reward": [0.1, 0.2]})) == 2
    once = {5: {"problem": ["a", "b"], "correct": [True, False]}}
    assert eval_score_change(make(reward=E, held_out=once)) is None
    other = {9: {"problem": ["c", "d"], "correct": [True, False]}}
    assert eval_score_change(make(reward=E, held_out=once | other)) is None


def test_what_counts_as_training(make: Any, tmp_path: Any) -> None:
    assert is_training_run(make(reward=E))
    assert not is_training_run(Evidence("a configuration"))
    rows = {"problem": ["a"], "correct": [True]}
    assert is_training_run(make(rollouts={1: rows, 2: rows}))
    assert not is_training_run(make(held_out={1: rows, 2: rows}))
    RunWriter(tmp_path / "sweep", Header(config={"plan": {}})).metrics(1, {"reward": 1.0})
    assert not is_training_run(Evidence("a sweep", Run.open(tmp_path / "sweep")))


def test_a_rise_that_matters_is_excluded_or_not(make: Any, around: Any) -> None:
    t = np.linspace(0, 1, 80)
    level, up, hidden = (
        make(reward=values).late_trend("reward")
        for values in (around(0.5 + 0 * t, 0.01), around(0.5 + t, 0.01), around(0.1 + 0 * t, 0.4))
    )
    assert level is not None
    assert up is not None
    assert hidden is not None
    assert excludes_rise(level)
    assert not excludes_rise(up)
    assert not excludes_rise(hidden)
    assert make(reward=E).late_trend("reward") is None  # six points in the second half


def test_components_are_those_of_the_reward(make: Any) -> None:
    trl = {
        "reward": E,
        "rewards/a_func/mean": E,
        "rewards/b_func/mean": E,
        "rewards/b_func/std": E,
        "rewards/short/mean": E[:4],
    }
    assert [component_name(one.name) for one in reward_components(make(**trl))] == ["a_func", "b_func"]
    tinker = {"reward": E, "env/all/correct": E, "env/all/format": E, "env/all/reward/total": E}
    assert [component_name(one.name) for one in reward_components(make(**tinker))] == ["correct", "format"]
    own = {
        "reward/correctness_f": E,
        "reward/compilable_g": E,
        "reward/mean_of_all": E,
        "reward/std": E,
        "reward/total": E,
    }
    assert [component_name(one.name) for one in reward_components(make(**own))] == [
        "correctness_f",
        "compilable_g",
        "mean_of_all",
    ]
    assert reward_components(make(reward=E)) == ()
    assert reward_components(Evidence("nothing")) == ()


def test_components_of_rollouts_are_averaged_by_step(make: Any) -> None:
    rows = {
        step: {
            "problem": ["a", "b"],
            "reward/right": [0.0, step / 10],
            'reward/odd " name': [1.0, 3.0],
            "reward/none": [None, None],
        }
        for step in range(1, 10)
    }
    found = reward_components(make(rollouts=rows))
    assert [component_name(one.name) for one in found] == ['odd " name', "right"]
    assert found[0].values.tolist() == [2.0] * 9
    assert found[1].values == pytest.approx(np.arange(1, 10) / 20)


def test_what_right_is_worth_is_read_from_rollouts(make: Any) -> None:
    rows = {"problem": list("abcd"), "correct": [True, True, False, False], "reward": [1.7, 1.9, 0.2, 0.4]}
    found: Evidence = make(rollouts={1: rows})
    assert found.run is not None
    assert reward_for_correct(found.run) == pytest.approx(1.5)
    plain: Evidence = make(rollouts={1: {"problem": ["a"], "correct": [True]}})
    assert plain.run is not None
    assert reward_for_correct(plain.run) is None


T = np.linspace(0, 1, 64)
RIGHT, FORM = "rewards/accuracy/mean", "rewards/format/mean"


def test_weights_are_read_from_a_log_that_adds_up(make: Any, around: Any) -> None:
    right, form = around(0.2 + 0.4 * T, 0.02), around(0.5 + 0.2 * T, 0.02, 1)
    found = {
        one.name: one for one in reward_parts(make(**{"reward": 2 * right - 0.5 * form, RIGHT: right, FORM: form}))
    }
    assert found["accuracy"].weight == pytest.approx(2)
    assert found["format"].weight == pytest.approx(-0.5)
    assert found["accuracy"].means_correct
    assert not found["format"].means_correct
    shares = [one.share for one in found.values()]
    assert shares[0] is not None
    assert shares[1] is not None
    # 2 x 0.4 and -0.5 x 0.2 of 0.7.
    assert shares == pytest.approx([8 / 7, -1 / 7], abs=0.1)


def test_weights_that_do_not_add_up_are_not_guessed(make: Any, around: Any) -> None:
    series = {"reward": around(T**2, 0.05), RIGHT: around(0 * T, 0.1, 1), FORM: around(0 * T, 0.1, 2)}
    assert [one.share for one in reward_parts(make(**series))] == [None, None]


def test_parts_that_still_rise_are_told_from_those_that_are_done(make: Any, around: Any) -> None:
    right, form = around(0.2 + 0.4 * T, 0.01), around(1 - np.exp(-12 * T), 0.01, 1)
    found = {
        one.name: one.still_rises for one in reward_parts(make(**{"reward": right + form, RIGHT: right, FORM: form}))
    }
    assert found == {"accuracy": True, "format": False}


def test_grades_are_a_part_unless_the_reward_is_nothing_else(make: Any) -> None:
    rows = {
        step: {
            "problem": list("abcd"),
            "correct": [True, False] * 2,
            "reward": [1.0 + step, 0.5 + step, 1.0 + step, 0.5 + step],
        }
        for step in range(1, 13)
    }
    series = np.arange(1.0, 13.0) + 0.75
    (part,) = reward_parts(make(reward=series, rollouts=rows))
    assert part.name == "the share of correct rollouts"
    assert part.means_correct
    assert part.weight == pytest.approx(0.5)
    assert part.share == pytest.approx(0)
    assert reward_parts(make(reward=series, rollouts=rows, levels=(0.0, 1.0))) == ()
    assert reward_parts(make(entropy=series)) == ()


def test_components_that_lost_their_slashes_are_components() -> None:
    assert is_component("rewards_correctness_reward_func_mean")
    assert component_name("rewards_correctness_reward_func_mean") == "correctness_reward_func"
    assert not is_component("rewards_correctness_reward_func_std")
    assert not is_component("reward_mean")
