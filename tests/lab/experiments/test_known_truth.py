"""Known truth as trials and as a page."""

from __future__ import annotations

import pytest

from breadth.base import settings
from breadth.lab.experiments.known_cases import CASES, SYMPTOM_NUMBERS, KnownCase
from breadth.lab.experiments.known_truth import KNOWN_TRUTH, KnownTruth
from breadth.lab.trials.experiment import ExperimentSetup, ExperimentTrial, FinishedTrial
from breadth.report.sections import Severity, Table, Verdict


def done(name: str, *missing: str) -> FinishedTrial:
    return FinishedTrial(
        ExperimentTrial(name, "m:w"),
        {"numbers": dict.fromkeys(SYMPTOM_NUMBERS, 0.5), "missing": list(missing), "why": "because"},
        1.0,
    )


def test_every_case_at_every_seed() -> None:
    trials = KNOWN_TRUTH.trials(ExperimentSetup(2, weights="abc"))
    assert len(trials) == 2 * len(CASES) == 16
    for trial in trials:
        case = settings.from_table(KnownCase, trial.settings["case"])
        label, _, seed = trial.name.partition("/seed-")
        assert trial.settings["label"] == label
        assert case.grpo_run.seed == int(seed)
        assert case.fault == CASES[label].fault
        assert case.symptoms == CASES[label].symptoms


def test_smaller_courses_are_asked_for_by_field() -> None:
    assert {trial.units for trial in KnownTruth(overrides={"steps": 2}).trials(ExperimentSetup(1))} == {2}


@pytest.mark.parametrize(
    ("missing", "severity"), [((), Severity.GOOD), (("no: flat is 0.5, wanted 0.75 or more",), Severity.WARNING)]
)
def test_a_run_without_its_failure_is_named(missing: tuple[str, ...], severity: Severity) -> None:
    verdict, table = KNOWN_TRUTH.page(
        [done("healthy/seed-0"), done("zero-variance-groups/seed-1", *missing)], ExperimentSetup(2)
    ).sections
    assert isinstance(verdict, Verdict)
    assert verdict.severity is severity
    assert ("zero-variance-groups/seed-1" in verdict.headline) == bool(missing)
    assert isinstance(table, Table)
    assert [row[:3] for row in table.rows] == [
        ("healthy", "0", "yes"),
        ("zero-variance-groups", "1", missing[0] if missing else "yes"),
    ]
