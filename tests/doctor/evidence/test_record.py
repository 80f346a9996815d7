"""Evidence: series without what is no number, the step a level was crossed for good, and what to switch on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from breadth.base.settings import to_table
from breadth.doctor.evidence.record import (
    SCORE_MARGIN,
    Evidence,
    clip_to_range,
    is_inference_run,
    is_recorded_solve,
    is_sweep,
    rollout_windows,
)
from breadth.doctor.finding import CannotTell
from breadth.inference.policy import Policy
from breadth.measure.intervals import Interval
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter
from breadth.tuning import choice


def test_a_series_leaves_out_what_is_no_number(make: Any) -> None:
    found = make(entropy=[0.5, np.nan, np.inf, 0.4]).series("entropy")
    assert found.steps.tolist() == [1, 4]
    assert make(entropy=[np.nan] * 9).series("entropy") is None
    assert Evidence("x").series("entropy") is None


def test_too_few_points_have_no_trend(make: Any) -> None:
    assert make(entropy=[0.5] * 7).trend("entropy") is None
    assert make(entropy=[0.5] * 8).trend("entropy") is not None
    short = make(entropy=[0.5] * 7).missing_metric("x", "entropy")
    assert short == CannotTell("x", "entropy has 7 usable points; 8 are needed", "log more often, or train longer")


def test_a_level_is_crossed_where_it_stays_crossed(make: Any) -> None:
    values = [1.0] * 10 + [0.2] + [1.0] * 5 + [0.2] * 10  # one dip that does not last, then the fall at step 17
    assert make(entropy=values).first_step_past("entropy", 0.5, below=True) == 17
    assert make(entropy=[1.0] * 20).first_step_past("entropy", 0.5, below=True) is None
    assert make(entropy=[0.1] * 20).first_step_past("entropy", 0.5, below=True) == 1


def test_the_second_half_is_judged_by_itself(make: Any) -> None:
    steps = np.linspace(0, 1, 80)
    assert make(reward=steps).late_trend("reward").verdict == "rising"
    assert make(reward=np.minimum(steps, 0.4)).late_trend("reward").verdict == "flat"
    assert make(reward=steps[:10]).late_trend("reward") is None  # five points
    assert make(entropy=steps).late_trend("reward") is None


def test_entropy_is_judged_by_its_logarithm(make: Any) -> None:
    # Halved every ten steps: the share lost a step is the same, 1 - 0.5^0.1, all along and in the second half.
    found = make(entropy=0.5 ** (np.arange(60) / 10))
    assert [one.slope.value for one in (found.trend("entropy"), found.late_trend("entropy"))] == pytest.approx(
        [0.5**0.1 - 1] * 2
    )


def test_switches_are_those_of_the_runs_trainer(make: Any) -> None:
    assert make(reward=[0.1], trainer="trl").how_to_log("rollouts") == "GRPOConfig(log_completions=True)"
    assert make(reward=[0.1], trainer="nobody").how_to_log("rollouts") == ""


def test_an_eighth_at_each_end(run: Run) -> None:
    start, end = rollout_windows(run)
    assert (start.name, start.first, start.last) == ("steps 1 to 2", 1, 2)
    assert (end.name, len(end.samples)) == ("steps 15 to 16", 16)
    assert start.is_graded
    assert start.classes[:4].tolist() == [0, 0, 1, 2]
    assert (start.classes == -1).sum() == 2


def test_one_step_is_one_window_and_none_is_none(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    assert rollout_windows(Run.open(tmp_path)) == ()
    writer.rollouts({"problem": ["a"], "reward": [None]}, 5)
    (only,) = rollout_windows(Run.open(tmp_path))
    assert only.name == "step 5"
    assert not only.is_graded


@pytest.mark.parametrize(
    ("name", "given", "cut"),
    [
        ("zero_variance_groups", (0.875, 0.78, 1.047), (0.875, 0.78, 1.0)),
        ("truncated", (0.01, -0.02, 0.04), (0.01, 0.0, 0.04)),
        ("entropy", (0.1, -0.1, 2.0), (0.1, 0.0, 2.0)),
        ("reward", (-0.5, -1.5, 0.5), (-0.5, -1.5, 0.5)),
        ("zero_variance_groups", (87.5, 80.0, 95.0), (87.5, 80.0, 95.0)),  # in percent: no share, and nothing is cut
    ],
)
def test_it_is_cut_to_what_can_be(
    name: str, given: tuple[float, float, float], cut: tuple[float, float, float]
) -> None:
    found = clip_to_range(name, Interval(*given, 0.95, "by hand"))
    assert (found.value, found.low, found.high) == cut
    assert found.method == "by hand"


POLICY = to_table(Policy())


def opened(folder: Path, config: dict[str, Any], trainer: str = "", files: tuple[str, ...] = ()) -> Run:
    RunWriter(folder, Header(name="x", trainer=trainer, files=files, config=config))
    return Run.open(folder)


@pytest.mark.parametrize(
    ("config", "trainer", "files", "sweep", "recorded"),
    [
        ({"plan": {"questions": 3}}, "", (), True, False),
        ({"policy": POLICY}, "", (), False, True),
        ({"plan": {"questions": 3}, "policy": POLICY}, "", (), True, False),
        ({"policy": {"model_name": "x", "lr": 1e-6}}, "", (), False, False),
        ({"policy": "greedy"}, "", (), False, False),
        ({"policy": POLICY, "plan": {}}, "verl", (), False, False),
        ({"policy": POLICY}, "", ("log.jsonl",), False, False),
        ({}, "", (), False, False),
    ],
)
def test_the_header_tells(
    tmp_path: Path, config: Any, trainer: str, files: tuple[str, ...], sweep: bool, recorded: bool
) -> None:
    run = opened(tmp_path / "run", config, trainer, files)
    assert (is_sweep(run), is_recorded_solve(run)) == (sweep, recorded)
    assert is_inference_run(Evidence("x", run)) is (sweep or recorded)


def test_a_bare_configuration_is_none() -> None:
    assert not is_inference_run(Evidence("x", policy=Policy()))


def test_the_margin_is_that_of_tuning() -> None:
    assert SCORE_MARGIN == choice.SCORE_TOLERANCE


def test_a_run_without_a_reward_counts_by_its_accuracy(make: Any) -> None:
    values = np.linspace(0.2, 0.6, 20)
    other = make(accuracy=values, entropy=np.full(20, 0.5))
    assert other.logged_name("reward") == "accuracy"
    series = other.series("reward")
    assert series is not None
    assert series.values.tolist() == pytest.approx(values.tolist())
    both = make(accuracy=values, reward=2 * values)
    assert both.logged_name("reward") == "reward"
    assert make(entropy=values).series("reward") is None
