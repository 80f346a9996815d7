"""A check of a loop that the evidence does not tell of was not made."""

from __future__ import annotations

from typing import Any

from breadth.adapters.trl.settings import SETTINGS
from breadth.bridge.doctor.evidence import Evidence
from breadth.bridge.doctor.loops import loops_of
from breadth.inference.policy import Policy


def test_what_each_kind_of_evidence_tells_of(make: Any) -> None:
    assert loops_of(Evidence("x")) == set()
    assert loops_of(make(entropy=[0.5] * 9)) == {"training"}
    assert loops_of(make(entropy=[0.5] * 9, knobs=SETTINGS.knobs({"num_generations": 4}))) == {"training", "configuration"}
    assert loops_of(Evidence("x", policy=Policy())) == {"inference", "both", "configuration"}
    assert loops_of(Evidence("x", data=("a",))) == {"training"}
