"""A sampler that is not the trainer is proven by tokens, by both log-probs or by the metric, and only then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.train_inference_mismatch import FINDING
from breadth.doctor.trainer_config import TrainerConfig
from breadth.report.sections import Severity
from breadth.runs.schema import EntropyKind
from breadth.testing.findings import check_finding, check_outcome

NAME = "train-inference-mismatch"
T = np.linspace(0, 1, 120)
SAME = TrainerConfig(updates=1, dynamic_sampling=False)


def tokens(
    temperature: float = 1.0, *, seed: int = 0, rollouts: int = 300, stale: bool = False, top_p: bool = False
) -> dict[str, Any]:
    """Rollouts of 20 tokens, each one of two with logits spread as in a real policy; scored at temperature 1."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(1.0, 2.0, (rollouts, 20))
    scored, sampled = 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(-logits / temperature))
    if top_p:
        sampled = np.where(scored > 0.9, 1.0, np.where(scored < 0.1, 0.0, scored))
    first = rng.random(scored.shape) < sampled
    entropy = -(scored * np.log(scored) + (1 - scored) * np.log1p(-scored))
    rows = {
        "problem": [f"p{place // 4}" for place in range(rollouts)],
        "sample": list(range(rollouts)),
        "reward": [float(place % 8 == 0) for place in range(rollouts)],
        "logprobs": np.log(np.where(first, scored, 1 - scored)).tolist(),
        "entropy": entropy.tolist(),
    }
    if stale:
        with np.errstate(divide="ignore"):
            rows["old_logprobs"] = np.log(np.where(first, sampled, 1 - sampled)).tolist()
    return rows


def run(make: Any, start: dict[str, Any], now: dict[str, Any], **given: Any) -> Any:
    return make(rollouts={1: start, 2: now}, **given)


def named(evidence: Any, theirs: str) -> Any:
    return replace(evidence, run=replace(evidence.run, header=replace(evidence.run.header, names={"mismatch": theirs})))


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, NAME)


@pytest.mark.parametrize("seed", range(12))
def test_tokens_of_the_policy_itself_are_no_finding(make: Any, seed: int) -> None:
    assert isinstance(FINDING.check(run(make, tokens(seed=seed), tokens(seed=100 + seed), config=SAME)), Excluded)


def test_hotter_and_colder_are_told_apart_with_what_to_do(make: Any) -> None:
    hot = FINDING.check(run(make, tokens(), tokens(1.5), config=SAME))
    cold = FINDING.check(run(make, tokens(), tokens(top_p=True), config=replace(SAME, top_p=0.9)))
    assert isinstance(hot, Finding)
    assert isinstance(cold, Finding)
    for found in (hot, cold):
        check_outcome(found, NAME)
        assert found.severity is Severity.WARNING
        assert found.confidence == "strong"
    assert "more surprising" in hot.headline
    assert "hotter" in hot.headline
    assert "less surprising" in cold.headline
    assert hot.evidence[1].value.low > 0.05  # type: ignore[union-attr]
    assert cold.evidence[1].value.high < -0.05  # type: ignore[union-attr]
    assert cold.prescriptions[0].action.startswith("Sample rollouts from the full distribution: top-p 1 instead of 0.9")
    assert not any("top-p" in one.action for one in hot.prescriptions)
    assert {"correct_mismatch"} == {change.setting for change in hot.prescriptions[0].changes}


def test_a_falling_score_makes_it_critical_and_weights_make_it_milder(make: Any, around: Callable[..., Any]) -> None:
    falling = around(0.6 - 0.4 * T, 0.02)
    rows = (tokens(), tokens(1.5))
    for given, severity in (
        ({"reward": falling, "config": SAME}, Severity.CRITICAL),
        ({"reward": falling, "config": replace(SAME, correct_mismatch=True)}, Severity.WARNING),
        ({"config": replace(SAME, correct_mismatch=True)}, Severity.NOTE),
    ):
        found = FINDING.check(run(make, *rows, **given))
        assert isinstance(found, Finding)
        assert found.severity is severity


def test_temperatures_that_would_explain_it_make_it_a_note(make: Any) -> None:
    explained = FINDING.check(run(make, tokens(), tokens(0.6), config=replace(SAME, temperature=0.6)))
    assert isinstance(explained, Finding)
    assert explained.severity is Severity.NOTE
    assert explained.evidence[2].value == "1, 0.6"
    assert explained.prescriptions[0].changes[0].value == 1.0
    # Drawn hotter than recorded temperatures say, and at the temperature of the entropies: neither explains it.
    for recorded in (0.6, 1.0):
        found = FINDING.check(run(make, tokens(), tokens(1.5), config=replace(SAME, temperature=recorded)))
        assert isinstance(found, Finding)
        assert found.severity is Severity.WARNING


def test_an_unknown_estimator_is_believed_only_where_the_start_was_clean(make: Any) -> None:
    unknown = EntropyKind()
    for start, severity in ((tokens(), Severity.WARNING), (tokens(1.5, seed=3), Severity.NOTE)):
        found = FINDING.check(run(make, start, tokens(1.5), config=SAME, kind=unknown))
        assert isinstance(found, Finding)
        assert found.severity is severity
        assert found.confidence == "likely"


def test_several_updates_of_a_generation_are_allowed_for(make: Any) -> None:
    # At temperature 1.2 the excess is about 9 %: beyond one update's 5 %, within the 20 % of four.
    rows = (tokens(), tokens(1.2, rollouts=1000))
    assert isinstance(FINDING.check(run(make, *rows, config=SAME)), Finding)
    assert isinstance(FINDING.check(run(make, *rows, config=replace(SAME, updates=4))), Excluded)


def test_rollouts_left_out_by_their_outcome_are_not_judged(make: Any) -> None:
    """Four tokens of chance 0.95 must all be drawn; groups without a failure are dropped, and failures surprise."""
    rng = np.random.default_rng(0)
    good = rng.random((500, 8, 4)) < 0.95
    right = np.all(good, axis=2)
    mixed = np.repeat(np.ptp(right.astype(int), axis=1) > 0, 8)
    logprobs = np.log(np.where(good, 0.95, 0.05)).reshape(4000, 4)[mixed]
    entropy = -(0.95 * np.log(0.95) + 0.05 * np.log(0.05))
    rows = {
        "problem": [f"p{place // 8}" for place in np.flatnonzero(mixed)],
        "sample": np.flatnonzero(mixed).tolist(),
        "reward": right.reshape(4000)[mixed].astype(float).tolist(),
        "logprobs": logprobs.tolist(),
        "entropy": np.full(logprobs.shape, entropy).tolist(),
    }
    assert (-logprobs - entropy).mean() > 0.1 * entropy
    for config in (TrainerConfig(), TrainerConfig(dynamic_sampling=True)):
        found = FINDING.check(run(make, rows, rows, config=config))
        assert isinstance(found, CannotTell)
        assert "outcome" in found.missing


def test_few_tokens_decide_nothing(make: Any) -> None:
    found = FINDING.check(run(make, tokens(), tokens(3.0, rollouts=40), config=SAME))
    assert isinstance(found, CannotTell)
    assert "nats" in found.missing


def test_both_log_probabilities_prove_it_without_entropies(make: Any) -> None:
    start, now = tokens(stale=True), tokens(2.0, stale=True)
    for rows in (start, now):
        del rows["entropy"]
    found = FINDING.check(run(make, start, now, config=SAME))
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.headline.startswith("The sampler is ")
    assert found.confidence == "strong"
    assert isinstance(FINDING.check(run(make, start, start, config=SAME)), Excluded)


@pytest.mark.parametrize(
    ("theirs", "value", "found"),
    [
        ("mismatch_kl/all/mean", 0.05, True),
        ("mismatch_kl/all/mean", 0.01, False),
        ("sampling/sampling_logp_difference/mean", 0.05, False),
        ("sampling/sampling_logp_difference/mean", 0.3, True),
        ("training/rollout_probs_diff_mean", 0.02, False),
        ("training/rollout_probs_diff_mean", 0.15, True),
        ("something else", 0.3, False),
    ],
)
def test_the_metric_is_judged_in_its_own_unit(
    make: Any, around: Callable[..., Any], theirs: str, value: float, found: bool
) -> None:
    """Against an entropy of 0.5 a divergence of 0.025 nats is 5 %: |log p - log q| of 0.22, |p - q| of 0.11."""
    evidence = named(make(entropy=around(0.5 + 0 * T, 0.01), mismatch=around(value + 0 * T, 0.02 * value, 1)), theirs)
    outcome = FINDING.check(evidence)
    if not found:
        assert isinstance(outcome, Excluded)
        return
    assert isinstance(outcome, Finding)
    check_outcome(outcome, NAME)
    assert outcome.severity is Severity.WARNING
    assert theirs in outcome.headline


@pytest.mark.parametrize(
    ("curve", "reward", "severity"),
    [
        (np.exp(2.5 * T), 0.5 + 0 * T, Severity.NOTE),
        (np.exp(2.5 * T), 0.6 - 0.4 * T, Severity.WARNING),
        (np.exp(0.7 * T), 0.6 - 0.4 * T, None),
        (1 + 7 * np.minimum(1, 4 * T), 0.6 - 0.4 * T, None),
        (np.exp(-2.5 * T), 0.6 - 0.4 * T, None),
    ],
    ids=["grows", "grows while the score falls", "doubles", "grew and stopped", "shrinks"],
)
def test_growth_counts_when_it_is_manifold_and_goes_on(
    make: Any, around: Callable[..., Any], curve: Any, reward: Any, severity: Severity | None
) -> None:
    evidence = make(
        mismatch=0.001 * around(curve, 0.02), reward=around(reward, 0.01, 1), entropy=around(0.5 + 0 * T, 0.01, 2)
    )
    found = FINDING.check(evidence)
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is severity
    # exp(2.5 t), median of the last eighth over that of the first: exp(2.5 * 14 / 16) = 8.9.
    assert found.evidence[2].value.value == pytest.approx(8.9, rel=0.1)  # type: ignore[union-attr]


def test_without_metric_and_tokens_it_says_what_to_switch_on(make: Any) -> None:
    found = FINDING.check(make(reward=T, trainer="verl"))
    assert isinstance(found, CannotTell)
    check_outcome(found, NAME)
    assert found.switch_on == "actor_rollout_ref.rollout.calculate_log_probs=true"
    assert "is not logged" in found.missing
    assert isinstance(FINDING.check(make(reward=T, config=TrainerConfig(engine="hf"))), Excluded)


def test_log_probabilities_without_entropies_are_named_as_missing(make: Any) -> None:
    rows = tokens()
    del rows["entropy"]
    found = FINDING.check(run(make, rows, rows, trainer="prime-rl"))
    assert isinstance(found, CannotTell)
    assert "entropies of the tokens are not recorded" in found.missing
    assert found.switch_on == "trainer.enable_token_export = true"


@pytest.mark.parametrize(
    "kind", [EntropyKind("top-k", 1.0, "token-mean", "response"), EntropyKind("sampled", 1.0, "token-mean", "response")]
)
def test_an_entropy_of_another_kind_proves_nothing(make: Any, kind: EntropyKind) -> None:
    assert isinstance(FINDING.check(run(make, tokens(), tokens(1.5), config=SAME, kind=kind)), CannotTell)


def test_one_engine_is_given_no_remedy_for_two(make: Any) -> None:
    found = FINDING.check(run(make, tokens(), tokens(0.4), config=replace(SAME, engine="hf", updates=2)))
    assert isinstance(found, Finding)
    assert [one.action.partition(":")[0].partition(",")[0] for one in found.prescriptions] == [
        "Sample rollouts from the full distribution",
        "Take 1 update per generation instead of 2",
    ]
