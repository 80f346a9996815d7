"""A cap is ignored when samples are longer than it, or when the probe saw thinking go on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Change, Excluded, Finding
from breadth.doctor.findings.max_tokens_ignored import FINDING
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.strategies.vote import Vote
from breadth.report.sections import Severity
from breadth.runs.reader import Run
from breadth.testing.findings import check_finding, check_outcome

TABLE = np.zeros((20, 4), dtype=np.int64)
ONE = TABLE[:, :1]


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "max-tokens-ignored")


def test_thinking_past_its_budget_is_counted(swept: Any) -> None:
    thought = np.full(ONE.shape, 128)
    thought[:5] = 328  # five of the twenty samples at a budget of 128; 100 samples in all with the plain ones
    found = FINDING.check(swept(TABLE, {128: ONE}, thinking={128: thought}))
    assert isinstance(found, Finding)
    check_outcome(found, "max-tokens-ignored")
    assert (found.severity, found.confidence) == (Severity.WARNING, "certain")
    assert found.headline == "5 of 100 samples are longer than the request allowed: thinking 328 tokens, 128 allowed."
    assert found.evidence[0].value.value == pytest.approx(0.05)  # type: ignore[union-attr]
    assert found.cost.startswith("1,000 tokens were written over the caps")
    changes = [change for one in found.prescriptions for change in one.changes]
    assert changes == [Change("thinking_budget", 128), Change("max_tokens", 228)]


def test_one_sample_alone_is_a_note(swept: Any) -> None:
    thought = np.full(ONE.shape, 128)
    thought[0] = 328
    found = FINDING.check(swept(TABLE, {128: ONE}, thinking={128: thought}))
    assert isinstance(found, Finding)
    assert found.severity is Severity.NOTE


def test_a_closing_text_on_top_of_the_cap_is_allowed(swept: Any) -> None:
    assert isinstance(FINDING.check(swept(TABLE, {128: ONE}, thinking={128: 144})), Excluded)
    assert isinstance(FINDING.check(swept(TABLE, {128: ONE}, thinking={128: 145})), Finding)


def test_completions_past_the_length_cap_are_counted(swept: Any, recorded: Any) -> None:
    sampling = Sampling(max_tokens=512)
    for evidence in (
        swept(TABLE, sampling=sampling, tokens=600),
        recorded(TABLE, Policy(strategy=Vote(4), sampling=sampling), tokens=600),
    ):
        found = FINDING.check(evidence)
        assert isinstance(found, Finding)
        assert (
            found.headline
            == "80 of 80 samples are longer than the request allowed: the completion 600 tokens, 512 allowed."
        )


def test_a_recorded_policy_may_cap_thinking_itself(recorded: Any) -> None:
    policy = Policy(strategy=Vote(4), sampling=Sampling(thinking_tokens=200))
    assert isinstance(FINDING.check(recorded(TABLE, policy, thinking=200)), Excluded)
    found = FINDING.check(recorded(TABLE, policy, thinking=900))
    assert isinstance(found, Finding)
    assert "thinking 900 tokens, 200 allowed" in found.headline


def test_what_keeps_to_its_caps_is_fine(swept: Any, recorded: Any) -> None:
    assert isinstance(FINDING.check(swept(TABLE, {128: ONE})), Excluded)
    assert isinstance(FINDING.check(recorded(TABLE, Policy(strategy=Vote(4)))), Excluded)


@pytest.mark.parametrize(
    ("policy", "severity"),
    [
        (None, Severity.NOTE),
        (Policy(), Severity.NOTE),
        (Policy(sampling=Sampling(thinking_tokens=256)), Severity.WARNING),
    ],
)
def test_the_probe_is_believed(policy: Policy | None, severity: Severity) -> None:
    server = {"thinking_cap": "no", "speculative": "yes", "remarks": []}
    found = FINDING.check(Evidence("server", server=server, policy=policy))
    assert isinstance(found, Finding)
    check_outcome(found, "max-tokens-ignored")
    assert found.severity is severity
    assert "speculative" in found.prescriptions[0].action


@pytest.mark.parametrize(
    "server",
    [
        {"thinking_cap": "unknown"},
        {},
        {"thinking_cap": "no", "remarks": ["a cap on thinking: the server refused the request (400)"]},
    ],
)
def test_a_cap_that_is_refused_or_was_not_tried_is_not_ignored(server: dict[str, Any]) -> None:
    assert FINDING.check(Evidence("server", server=server)) is None


def test_a_cap_that_was_kept_in_the_probe_is_not_ignored() -> None:
    assert isinstance(FINDING.check(Evidence("server", server={"thinking_cap": "yes"})), Excluded)


def test_a_sweep_without_rollouts_is_no_crash(swept: Any) -> None:
    evidence = swept(TABLE)
    for path in evidence.run.rollout_files:
        path.unlink()
    assert FINDING.check(Evidence("cut", Run.open(evidence.run.folder))) is None
