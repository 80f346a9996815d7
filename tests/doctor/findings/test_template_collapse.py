"""Template collapse is a fall of mutual information, or of retrieval above chance, whatever entropy does."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.template_collapse import FINDING, MEASURE_COMMAND, chance_level
from breadth.report.sections import Severity
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter
from breadth.testing.findings import check_finding, check_outcome

T = np.linspace(0, 1, 80)
FALLS = 1.5 * np.clip(1 - 2 * T, 0.02, None)
SCORES = {
    "falls": np.clip(0.6 - 0.5 * T, 0.1, None),
    "stays": np.full(80, 0.4),
    "rises": 0.3 + 0.4 * T,
    "is solved": np.full(80, 0.97),
}


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "template-collapse")


@pytest.mark.parametrize(
    ("score", "severity"),
    [
        ("falls", Severity.CRITICAL),
        ("stays", Severity.WARNING),
        ("rises", Severity.NOTE),
        ("is solved", Severity.NOTE),
    ],
)
def test_severity_follows_the_score(make: Any, around: Callable[..., Any], score: str, severity: Severity) -> None:
    found = FINDING.check(
        make(
            mutual_information=around(FALLS, 0.03),
            mutual_information_limit=np.full(80, math.log(16)),
            entropy=around(np.full(80, 0.8), 0.02, 1),
            reward=around(SCORES[score], 0.01, 2),
        )
    )
    assert isinstance(found, Finding)
    check_outcome(found, "template-collapse")
    assert found.severity is severity
    assert "while entropy is at" in found.headline
    assert any(fact.name == "the most it can be" for fact in found.evidence)


def test_retrieval_is_compared_above_chance(make: Any, around: Callable[..., Any]) -> None:
    """From 90 to 8 percent looks like a tenth; chance is 6 percent, so 2 percent are left."""
    share = np.clip(around(0.08 + 0.82 * np.clip(1 - 2 * T, 0, None), 0.005), 0, 1)
    found = FINDING.check(make(prompt_retrieval=share, prompt_retrieval_chance=np.full(80, 1 / 16)))
    assert isinstance(found, Finding)
    check_outcome(found, "template-collapse")
    assert "chance is 6%" in found.headline
    assert "entropy" not in found.headline


def test_entropy_that_falls_too_is_not_called_steady(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(make(mutual_information=around(FALLS, 0.03), entropy=around(1 - 0.9 * T, 0.01)))
    assert isinstance(found, Finding)
    assert "entropy" not in found.headline


def test_a_collapse_that_came_back_is_a_note(make: Any, around: Callable[..., Any]) -> None:
    dip = 1.5 - 1.45 * np.exp(-(((T - 0.5) / 0.15) ** 4))
    found = FINDING.check(make(mutual_information=around(dip, 0.02), reward=around(SCORES["stays"], 0.01)))
    assert isinstance(found, Finding)
    assert found.severity is Severity.NOTE
    assert "came back" in found.headline


def test_information_that_stays_is_excluded_with_its_number(make: Any, around: Callable[..., Any]) -> None:
    result = FINDING.check(make(mutual_information=around(1.5 - 0.6 * T, 0.05)))
    assert isinstance(result, Excluded)
    assert "of its start" in result.because


def test_noise_and_a_start_at_nothing_decide_nothing(make: Any, around: Callable[..., Any]) -> None:
    unsure = FINDING.check(make(mutual_information=around(1.0 - 0.8 * T, 0.4)))
    assert isinstance(unsure, CannotTell)
    assert unsure.undecided
    nothing = FINDING.check(make(mutual_information=around(np.zeros(80), 0.1)))
    assert isinstance(nothing, CannotTell)
    assert not nothing.undecided
    assert isinstance(FINDING.check(make(mutual_information=[1.0, 0.5, 0.1])), CannotTell)


def test_chance_is_one_over_the_prompts_where_it_is_not_logged(make: Any) -> None:
    assert chance_level(make(mutual_information_limit=np.full(9, math.log(8)))) == pytest.approx(1 / 8)
    assert chance_level(make(prompt_retrieval_chance=np.full(9, 0.2))) == pytest.approx(0.2)
    assert chance_level(make(reward=T)) is None
    assert isinstance(FINDING.check(make(prompt_retrieval=np.full(80, 0.5), reward=T)), CannotTell)


def test_it_invites_to_measure_where_rollouts_have_their_prompts(make: Any, tmp_path: Path) -> None:
    assert FINDING.check(make(reward=T)) is None
    writer = RunWriter(tmp_path / "run", Header(name="run", trainer="trl"))
    writer.metrics(1, {"reward": 0.5})
    writer.rollouts({"problem": ["a"], "completion": ["x"]}, 1)
    writer.problems({"problem": ["a"], "prompt": ["A"]})
    result = FINDING.check(Evidence("run", Run.open(writer.folder)))
    assert isinstance(result, CannotTell)
    assert result.switch_on == MEASURE_COMMAND
    assert not result.undecided
