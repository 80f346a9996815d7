"""Training is worded for the trainer, inference for our policy and the server that was probed."""

from __future__ import annotations

from breadth.adapters.trl.config import SETTINGS
from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import Change, Finding, Loop, Prescription
from breadth.doctor.words.wording import patch
from breadth.report.sections import Severity


def finding(loop: Loop) -> Finding:
    return Finding("x", Severity.NOTE, "strong", loop, "1.", (), "")


def test_by_loop() -> None:
    raised = Prescription("Raise it.", "Why.", (Change("clip_high", 0.28),))
    capped = Prescription("Cap it.", "Why.", (Change("thinking_budget", 512),))
    case = Evidence("x", dialect=SETTINGS, server={"dialect": {"kind": "vllm"}})
    assert patch(raised, finding("training"), case) == ("GRPOConfig(epsilon_high=0.28)",)
    lines = patch(capped, finding("inference"), case)
    assert lines[:2] == ("[sampling]", "thinking_tokens = 512")
    assert any("thinking_token_budget" in line for line in lines[2:])
    assert patch(raised, finding("training"), Evidence("x")) == ()
