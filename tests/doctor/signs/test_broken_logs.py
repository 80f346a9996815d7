"""What is wrong with a log itself: NaN to the end is a warning, NaN that passes a note, two writers take verdicts back."""

from __future__ import annotations

from typing import Any

import numpy as np

from breadth.doctor.diagnosis import diagnose
from breadth.doctor.findings.unreliable_metric import FINDING as ARTEFACT
from breadth.doctor.signs.broken_logs import interleaved, no_number
from breadth.report.sections import Severity

LEVEL = np.full(60, 0.5)


def test_nan_to_the_end_is_a_warning_with_the_step_to_go_back_to(make: Any, around: Any) -> None:
    reward = around(LEVEL, 0.01)
    reward[40:] = np.nan
    (found,) = diagnose(make(entropy=around(LEVEL, 0.01), reward=reward), {"unreliable-metric": ARTEFACT}).findings
    assert (found.severity, found.confidence) == (Severity.WARNING, "certain")
    assert found.headline == "NaN or infinity in the place of reward, from step 41 to the end."
    assert [fact.note for fact in found.evidence] == ["steps 41 to 60"]
    assert "41" in found.prescriptions[-1].action


def test_nan_that_passes_is_a_note(make: Any, around: Any) -> None:
    entropy = around(LEVEL, 0.01)
    entropy[20:30] = np.nan
    found = no_number(make(entropy=entropy))
    assert found is not None
    assert found.severity is Severity.NOTE
    assert "for a while from step 21 on" in found.headline


def test_gradients_alone_that_overflow_to_the_end_are_a_note(make: Any, around: Any) -> None:
    norms = around(LEVEL, 0.01)
    norms[40:] = np.inf
    found = no_number(make(entropy=around(LEVEL, 0.01), grad_norm=norms))
    assert found is not None
    assert found.severity is Severity.NOTE


def test_numbers_all_along_are_nothing(make: Any, around: Any) -> None:
    case = make(entropy=around(LEVEL, 0.01))
    assert no_number(case) is None
    logged = case.trend("entropy")
    assert interleaved(case, logged) is None
    assert diagnose(case, {"unreliable-metric": ARTEFACT}).clear == ("unreliable-metric",)
