"""A dead run is told to go back first and then to remove the cause; numbers of a page can be read."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from breadth.doctor.collect import CollectedEvidence
from breadth.doctor.diagnosis import diagnose_run
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Finding
from breadth.doctor.findings.entropy_explosion import FINDING as EXPLOSION
from breadth.doctor.findings.no_learning import FINDING as NO_LEARNING
from breadth.doctor.findings.numerical_failure import FINDING as FAILURE
from breadth.doctor.findings.score_collapse import FINDING as SCORE_COLLAPSE
from breadth.doctor.findings.zero_variance_groups import FINDING as ZERO_VARIANCE
from breadth.doctor.overview import metric_curve
from breadth.doctor.page import doctor_page
from breadth.doctor.trainer_config import TrainerConfig
from breadth.report.cells import format_cell
from breadth.report.sections import Curve, Fact, Facts, Verdict

STEPS = 120
HALF = np.arange(STEPS) < STEPS // 2
CONFIG = TrainerConfig(learning_rate=3e-6)


@pytest.fixture
def dead(make: Any, around: Any) -> Evidence:
    """Entropy explodes in the middle, and the score is gone since."""
    case: Evidence = make(
        entropy=around(np.where(HALF, 0.5, 8.0), 0.02),
        reward=around(np.where(HALF, 0.6, 0.02), 0.005),
        config=CONFIG,
    )
    return case


def actions(found: object) -> list[str]:
    assert isinstance(found, Finding)
    return [remedy.action for remedy in found.prescriptions]


def test_a_dead_run_goes_back_first_and_then_removes_the_cause(dead: Evidence) -> None:
    for check in (SCORE_COLLAPSE, EXPLOSION):
        first, *rest = actions(check.check(dead))
        assert re.match(r"Go back to the last checkpoint up to step \d+$", first)
        assert int(first.rpartition(" ")[2]) <= STEPS // 2 + 1
        assert any("Lower the learning rate" in action for action in rest)
        assert not any("with one of the changes above" in action for action in rest)


def test_a_score_that_fell_after_truncation_names_the_cap(make: Any, around: Any) -> None:
    config = TrainerConfig(max_completion_length=512)
    case = make(
        truncated=np.where(HALF, 0.0, 0.9),
        reward=around(np.where(HALF, 0.6, 0.05), 0.005),
        config=config,
        levels=(0, 1),
    )
    assert "Allow longer completions: 1,024 tokens instead of 512" in actions(SCORE_COLLAPSE.check(case))


def test_a_rate_of_zero_is_told_to_set_one_and_a_late_death_to_go_back(make: Any, around: Any) -> None:
    still = make(learning_rate=np.zeros(STEPS), reward=around(np.full(STEPS, 0.3), 0.01))
    assert actions(NO_LEARNING.check(still))[0].startswith("Give the optimizer a learning rate")
    late = make(grad_norm=np.where(HALF, 1.0, 0.0), reward=around(np.full(STEPS, 0.3), 0.01))
    assert actions(NO_LEARNING.check(late))[0].startswith("Go back to the last checkpoint")


def test_a_numerical_failure_goes_back_and_its_number_is_written_out(make: Any, around: Any) -> None:
    loss = around(np.full(STEPS, 0.1), 0.01)
    loss[80:90] = 123_456_789.0
    found = FAILURE.check(make(loss=loss, reward=around(np.full(STEPS, 0.3), 0.01)))
    assert actions(found)[0] == "Go back to the last checkpoint up to step 80"
    assert isinstance(found, Finding)
    assert "reached 123,456,789, first above" in found.headline


def test_no_page_of_a_dead_run_shows_a_number_nobody_can_read(dead: Evidence) -> None:
    page = doctor_page([diagnose_run(dead)], CollectedEvidence())
    texts = [section.headline + section.body for section in page.sections if isinstance(section, Verdict)]
    facts: list[Fact] = [fact for section in page.sections if isinstance(section, Facts) for fact in section.facts]
    texts += [f"{format_cell(fact.value, fact.unit)} {fact.note}" for fact in facts]
    for text in texts:
        assert not re.search(r"\de[+-]?\d|\d{7,}|-0(?:\.0+)?%|\binf|kl_reference|zero_variance_groups", text), text


def test_waste_beyond_counting_is_not_counted(make: Any, around: Any) -> None:
    case = make(zero_variance_groups=np.ones(STEPS), reward=around(np.full(STEPS, 0.3), 0.01), config=CONFIG)
    found = ZERO_VARIANCE.check(case)
    assert isinstance(found, Finding)
    assert found.cost.endswith("were wasted: more than 99 for each that taught something.")


def test_metrics_go_by_the_trainers_name_or_by_plain_words(make: Any, around: Any) -> None:
    case = make(kl_reference=around(np.linspace(0.01, 0.1, STEPS), 0.001))
    assert case.logged_name("kl_reference") == "kl_reference"
    assert case.logged_name("zero_variance_groups") == "the share of zero-variance groups"
    assert case.missing_metric("x", "mismatch").missing == "the mismatch of trainer and sampler is not logged"
    case.run.header.names["kl_reference"] = "kl"
    curve = metric_curve(case.run, "kl_reference")
    assert isinstance(curve, Curve)
    assert (curve.title, curve.y.label) == ("KL to the reference", "kl")
