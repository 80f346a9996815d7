"""Each way of looking proves it, finds nothing, or says why it could not be gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from breadth.doctor.knobs import Knobs
from breadth.doctor.signs.mismatch_proofs import Proof, by_both, by_entropy, by_metric
from breadth.doctor.signs.token_windows import trained_ends
from breadth.report.sections import Severity

T = np.linspace(0, 1, 80)


def named(evidence: Any, theirs: str) -> Any:
    return replace(evidence, run=replace(evidence.run, header=replace(evidence.run.header, names={"mismatch": theirs})))


def rows(logprob: float, entropy: float, sampler: float | None = None, rollouts: int = 40) -> dict[str, Any]:
    """Rollouts of a hundred tokens, all alike but for a little; every group is flat."""
    wiggle = 0.01 * np.random.default_rng(0).standard_normal((rollouts, 100))
    found: dict[str, Any] = {
        "problem": [f"p{place // 4}" for place in range(rollouts)],
        "sample": list(range(rollouts)),
        "reward": [0.0] * rollouts,
        "logprobs": (logprob + wiggle).tolist(),
        "entropy": np.full((rollouts, 100), entropy).tolist(),
    }
    if sampler is not None:
        found["old_logprobs"] = (sampler + wiggle).tolist()
    return found


def both(make: Any, now: dict[str, Any]) -> tuple[Any, Any, Any]:
    evidence = make(rollouts={1: now, 2: now})
    return evidence, evidence.run, trained_ends(evidence)


@pytest.mark.parametrize(
    ("falls", "corrected", "severity"),
    [
        (False, False, Severity.WARNING),
        (True, False, Severity.CRITICAL),
        (True, True, Severity.WARNING),
        (False, True, Severity.NOTE),
    ],
)
def test_a_metric_in_a_known_unit_weighs_by_the_score_and_by_weights(
    make: Any, around: Callable[..., Any], falls: bool, corrected: bool, severity: Severity
) -> None:
    evidence = make(
        mismatch=around(0.1 + 0 * T, 0.002),
        entropy=around(0.5 + 0 * T, 0.005, 1),
        reward=around(0.6 - 0.4 * T * falls, 0.01, 2),
        knobs=Knobs(correct_mismatch=corrected),
    )
    found = by_metric(named(evidence, "vllm_kl"), 0.05, 4.0)
    assert isinstance(found, Proof)
    assert found.severity is severity
    assert found.said == "By vllm_kl trainer and sampler diverge by at least 20% of the entropy"


def test_a_metric_that_can_be_compared_with_nothing_is_not_called_clear(make: Any) -> None:
    signed = make(mismatch=np.where(np.arange(80) % 2, 0.1, -0.1))
    short = make(mismatch=np.linspace(0.1, 5.0, 10))
    for evidence in (signed, short):
        assert (
            by_metric(evidence, 0.05, 4.0) == "mismatch can be compared neither with the entropy nor with its own start"
        )
    assert by_metric(make(reward=T), 0.05, 4.0) == "mismatch is not logged"
    assert by_metric(make(mismatch=0.01 + 0 * T), 0.05, 4.0) is None


def test_tokens_are_proof_by_how_far_they_are_from_their_entropy(make: Any) -> None:
    # 40 rollouts of 100 tokens at 0.5 nats hold 2,000; -log p of 0.6 is a fifth more than the entropy, of 0.4 a fifth
    # less.
    for logprob, sign in ((-0.6, 1), (-0.4, -1)):
        found = by_entropy(*both(make, rows(logprob, 0.5)), 0.05, 1000.0)
        assert isinstance(found, Proof)
        assert found.sign == sign
        assert found.facts[1].value.value == pytest.approx(0.2 * sign, abs=0.002)  # type: ignore[union-attr]
    assert by_entropy(*both(make, rows(-0.51, 0.5)), 0.05, 1000.0) is None
    assert by_entropy(*both(make, rows(-0.6, 0.5)), 0.25, 1000.0) is None
    few = by_entropy(*both(make, rows(-0.6, 0.5)), 0.05, 3000.0)
    assert few == "the tokens of 40 rollouts hold 2,000 nats together; 3,000 are needed"


def test_both_log_probabilities_are_proof_by_their_divergence(make: Any) -> None:
    # The sampler gives its tokens 0.5 nats, the trainer 0.6: 0.1 apart, a fifth of the sampler's entropy.
    found = by_both(*both(make, rows(-0.6, 0.5, sampler=-0.5)), 0.05)
    assert isinstance(found, Proof)
    assert found.facts[0].value.value == pytest.approx(0.2, abs=0.002)  # type: ignore[union-attr]
    assert found.confidence == "likely"
    assert by_both(*both(make, rows(-0.51, 0.5, sampler=-0.5)), 0.05) is None
    assert (
        by_both(*both(make, rows(-0.6, 0.5)), 0.05)
        == "only one of trainer and sampler has its log-probabilities recorded"
    )
