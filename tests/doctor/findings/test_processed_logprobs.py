"""Processed log-probs are what the probe says they are; they matter where somebody looks at them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Change, Excluded, Finding
from breadth.doctor.findings.processed_logprobs import FINDING
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.inference.strategies.vote import Vote
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

PROCESSED = {"logprobs": "processed", "top_logprobs": 20}
TRUSTING = Policy(strategy=ConfidenceVote(8, trust=True))
TABLE = np.zeros((12, 8), dtype=np.int64)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "processed-logprobs")


@pytest.mark.parametrize(
    ("policy", "severity"),
    [(TRUSTING, Severity.WARNING), (Policy(strategy=Vote(8)), Severity.NOTE), (None, Severity.NOTE)],
)
def test_the_probe_decides_and_the_policy_how_bad_it_is(policy: Policy | None, severity: Severity) -> None:
    found = FINDING.check(Evidence("server", server=PROCESSED, policy=policy))
    assert isinstance(found, Finding)
    check_outcome(found, "processed-logprobs")
    assert found.severity is severity
    assert found.prescriptions[0].changes == (Change("logprobs_raw", True),)


def test_the_headline_names_how_is_drawn() -> None:
    found = FINDING.check(Evidence("server", server=PROCESSED, policy=TRUSTING))
    assert isinstance(found, Finding)
    assert "of temperature 0.7 and top-p 0.95" in found.headline


def test_at_temperature_one_with_nothing_cut_off_both_are_the_same() -> None:
    plain = Policy(strategy=TRUSTING.strategy, sampling=Sampling(temperature=1.0, top_p=1.0))
    assert isinstance(FINDING.check(Evidence("server", server=PROCESSED, policy=plain)), Excluded)
    cut = Policy(strategy=TRUSTING.strategy, sampling=Sampling(temperature=1.0, top_p=1.0, top_k=50))
    assert isinstance(FINDING.check(Evidence("server", server=PROCESSED, policy=cut)), Finding)


def test_raw_ones_are_fine(swept: Any) -> None:
    assert isinstance(FINDING.check(swept(TABLE, server={"logprobs": "raw"}, policy=TRUSTING)), Excluded)


def test_where_nobody_knows_only_who_looks_is_told(swept: Any, recorded: Any) -> None:
    assert FINDING.check(swept(TABLE)) is None
    for evidence in (
        swept(TABLE, policy=TRUSTING),
        swept(TABLE, sampling=Sampling(top_logprobs=20)),
        recorded(TABLE, TRUSTING),
        swept(TABLE, policy=TRUSTING, server={"logprobs": "unknown"}),
    ):
        found = FINDING.check(evidence)
        assert isinstance(found, CannotTell)
        check_outcome(found, "processed-logprobs")
        assert "breadth probe" in found.switch_on


def test_a_sweep_says_how_was_drawn(swept: Any) -> None:
    found = FINDING.check(swept(TABLE, server=PROCESSED, sampling=Sampling(temperature=0.5)))
    assert isinstance(found, Finding)
    assert "temperature 0.5" in found.headline
