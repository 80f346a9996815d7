"""Evidence: series without what is no number, the step a level was crossed for good, and what to switch on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import CannotTell


def test_a_series_leaves_out_what_is_no_number(make: Any) -> None:
    found = make(entropy=[0.5, np.nan, np.inf, 0.4]).series("entropy")
    assert found.steps.tolist() == [1, 4]
    assert make(entropy=[np.nan] * 9).series("entropy") is None
    assert Evidence("x").series("entropy") is None


def test_too_few_points_have_no_trend(make: Any) -> None:
    assert make(entropy=[0.5] * 7).trend("entropy") is None
    assert make(entropy=[0.5] * 8).trend("entropy") is not None
    short = make(entropy=[0.5] * 7).lacks("x", "entropy")
    assert short == CannotTell("x", "entropy has 7 usable points; 8 are needed", "log more often, or train on")


def test_a_level_is_crossed_where_it_stays_crossed(make: Any) -> None:
    values = [1.0] * 10 + [0.2] + [1.0] * 5 + [0.2] * 10  # one dip that does not last, then the fall at step 17
    assert make(entropy=values).crossed("entropy", 0.5, below=True) == 17
    assert make(entropy=[1.0] * 20).crossed("entropy", 0.5, below=True) is None
    assert make(entropy=[0.1] * 20).crossed("entropy", 0.5, below=True) == 1


def test_the_second_half_is_judged_by_itself(make: Any) -> None:
    steps = np.linspace(0, 1, 80)
    assert make(reward=steps).late("reward").verdict == "rising"
    assert make(reward=np.minimum(steps, 0.4)).late("reward").verdict == "flat"
    assert make(reward=steps[:10]).late("reward") is None  # five points
    assert make(entropy=steps).late("reward") is None


def test_entropy_is_judged_by_its_logarithm(make: Any) -> None:
    # Halved every ten steps: the share lost a step is the same, 1 - 0.5^0.1, all along and in the second half.
    found = make(entropy=0.5 ** (np.arange(60) / 10))
    assert [one.slope.value for one in (found.trend("entropy"), found.late("entropy"))] == pytest.approx(
        [0.5**0.1 - 1] * 2
    )


def test_switches_are_those_of_the_runs_trainer(make: Any) -> None:
    assert make(reward=[0.1], trainer="trl").switch("rollouts") == "GRPOConfig(log_completions=True)"
    assert make(reward=[0.1], trainer="nobody").switch("rollouts") == ""
