"""A sampler that is not the trainer is proven by tokens, by both log-probs or by the metric, and only then."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.doctor.evidence.rollouts import training_ends
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.train_inference_mismatch import (
    FINDING,
    Proof,
    divergence,
    divergence_over_entropy,
    growth,
    prove_by_entropy,
    prove_by_logprobs,
    prove_by_metric,
    proven_divergence,
    recorded_temperatures,
    selection_bias,
    surprise,
)
from breadth.doctor.trainer_config import TrainerConfig
from breadth.report.sections import Severity
from breadth.runs.reader import MetricSeries
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
    for changes, severity in (
        ({"reward": falling, "config": SAME}, Severity.CRITICAL),
        ({"reward": falling, "config": replace(SAME, correct_mismatch=True)}, Severity.WARNING),
        ({"config": replace(SAME, correct_mismatch=True)}, Severity.NOTE),
    ):
        found = FINDING.check(run(make, *rows, **changes))
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


P = np.array([0.6, 0.3, 0.1])
ENTROPY = float(-(P * np.log(P)).sum())  # 0.897946


def drawn(
    chances: Any, *, rollouts: int = 400, tokens: int = 20, seed: int = 0, sampler: bool = False
) -> dict[str, Any]:
    """Rollouts whose tokens are drawn with these chances and scored by P; half of the groups are flat."""
    picks = np.random.default_rng(seed).choice(3, (rollouts, tokens), p=chances)
    with np.errstate(divide="ignore"):
        lists = {"logprobs": np.log(P)[picks].tolist(), "entropy": [[ENTROPY] * tokens] * rollouts}
        if sampler:
            lists["old_logprobs"] = np.log(np.asarray(chances))[picks].tolist()
    groups = [place // 4 for place in range(rollouts)]
    return {
        "problem": [f"p{group}" for group in groups],
        "sample": list(range(rollouts)),
        "reward": [1.0 if group % 2 else float(place % 2) for place, group in enumerate(groups)],
        **lists,
    }


def of(make: Any, rows: dict[str, Any], **given: Any) -> Any:
    evidence = make(rollouts={1: rows, 2: rows}, **given)
    ends = training_ends(evidence)
    assert ends is not None
    return evidence, ends.now


def test_tokens_of_the_policy_itself_show_no_excess(make: Any) -> None:
    found = surprise(*_run(of(make, drawn(P))))
    assert found is not None
    assert 0.0 in found.share
    assert found.share.high - found.share.low < 0.05
    assert (found.rollouts, found.tokens) == (400, 8000)
    assert found.nats == pytest.approx(8000 * ENTROPY, rel=1e-5)


def test_cut_and_heated_tokens_show_what_arithmetic_says(make: Any) -> None:
    # top-p 0.9 leaves (2/3, 1/3, 0): 2/3 * 0.510826 + 1/3 * 1.203973 = 0.741875, which is 17.4 % below the entropy of
    # 0.897946.
    cut = surprise(*_run(of(make, drawn(np.array([2, 1, 0]) / 3))))
    assert cut is not None
    assert -0.173809 in cut.share
    assert cut.share.high < -0.1
    # Temperature 2: chances go as square roots, 0.774597 + 0.547723 + 0.316228 = 1.638547, so 0.472734, 0.334273,
    # 0.192993:
    # 0.472734 * 0.510826 + 0.334273 * 1.203973 + 0.192993 * 2.302585 = 1.088323, which is 21.2 % above.
    hot = np.sqrt(P) / np.sqrt(P).sum()
    heated = surprise(*_run(of(make, drawn(hot))))
    assert heated is not None
    assert 0.2120 in heated.share
    assert heated.excess.value == pytest.approx(0.1904, abs=0.02)


def test_the_divergence_is_that_of_the_two_policies(make: Any) -> None:
    other = np.array([0.4, 0.4, 0.2])
    found = divergence(*_run(of(make, drawn(other, sampler=True))))
    assert found is not None
    # KL = 0.4 ln(2/3) + 0.4 ln(4/3) + 0.2 ln 2 = 0.091516; the sampler's entropy is 1.054920.
    assert 0.091516 / 1.054920 in found
    same = divergence(*_run(of(make, drawn(P, sampler=True))))
    assert same is not None
    assert same.value == pytest.approx(0.0, abs=1e-6)
    assert divergence(*_run(of(make, drawn(P)))) is None
    assert divergence(*_run(of(make, drawn(P, rollouts=8, sampler=True)))) is None


def test_what_is_called_entropy_but_is_the_log_probability_is_noticed(make: Any) -> None:
    rows = drawn(P)
    rows["entropy"] = [[-one for one in tokens] for tokens in rows["logprobs"]]
    found = surprise(*_run(of(make, rows)))
    assert found is not None
    assert found.mean_gap == pytest.approx(0.0, abs=1e-6)


def test_the_samplers_log_probabilities_do_where_there_are_no_others(make: Any) -> None:
    rows = drawn(P)
    rows["old_logprobs"] = rows.pop("logprobs")
    found = surprise(*_run(of(make, rows)))
    assert found is not None
    assert 0.0 in found.share
    del rows["entropy"]
    assert surprise(*_run(of(make, rows))) is None


@pytest.mark.parametrize(
    ("change", "config", "said"),
    [
        ({}, TrainerConfig(), ""),
        ({}, TrainerConfig(dynamic_sampling=True), "were resampled"),
        ({"reward": [0.0, 1.0] * 200}, TrainerConfig(), "no group has equal rewards"),
        ({"reward": [0.0, 1.0] * 200}, TrainerConfig(dynamic_sampling=False), ""),
        ({"reward": [None] * 400}, TrainerConfig(), "no group has equal rewards"),
        ({"reward": [None] * 400, "advantage": [0.0] * 400}, TrainerConfig(), ""),
        ({"logprobs": [[-1.0]] * 390 + [None] * 10}, TrainerConfig(dynamic_sampling=False), "only 390 of 400"),
    ],
)
def test_rollouts_chosen_by_their_outcome_are_noticed(
    make: Any, change: dict[str, Any], config: TrainerConfig, said: str
) -> None:
    evidence, window = of(make, drawn(P) | change, config=config)
    found = selection_bias(evidence, evidence.run, window)
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("theirs", "value", "proven"),
    [
        ("sampling/sampling_logp_difference/mean", 0.2, 0.02),
        ("train/train_rollout_logprob_abs_diff", 0.2, 0.02),
        ("training/rollout_probs_diff_mean", 0.1, 0.02),
        ("mismatch_kl/all/mean", 0.03, 0.03),
        ("optim/kl_sample_train_v2", 0.03, 0.03),
    ],
)
def test_every_unit_is_turned_into_the_divergence_it_proves(theirs: str, value: float, proven: float) -> None:
    unit = proven_divergence(theirs)
    assert unit is not None
    assert unit[1](value) == pytest.approx(proven)


def test_a_metric_of_no_known_unit_proves_nothing() -> None:
    assert proven_divergence("mismatch") is None
    assert proven_divergence("my_mismatch_kl/all/mean") is None


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_no_unit_proves_more_than_there_is(p: float, q: float) -> None:
    """For two policies over two tokens, the divergence proven by probabilities stays below the true one."""
    true = q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))
    unit = proven_divergence("rollout_probs_diff_mean")
    assert unit is not None
    assert unit[1](abs(p - q)) <= true + 1e-12


def test_the_proven_divergence_is_weighed_against_the_larger_entropy(make: Any, around: Any) -> None:
    noise = 0.001
    evidence = make(entropy=around(np.linspace(0.8, 0.1, 80), noise), mismatch=around(np.full(80, 0.04), noise, 1))
    assert evidence.run is not None
    trend = evidence.trend("mismatch")
    assert divergence_over_entropy(evidence, trend) is None
    header = replace(evidence.run.header, names={"mismatch": "mismatch_kl/all/mean"})
    named = replace(evidence, run=replace(evidence.run, header=header))
    found = divergence_over_entropy(named, trend)
    assert found is not None
    # The first eighth of a fall from 0.8 to 0.1 lies around 0.8 - 0.7 / 16 = 0.756; 0.04 / 0.756 = 5.3 %.
    assert found.value == pytest.approx(0.04 / 0.76, rel=0.03)
    assert found.low < found.value < found.high


def test_growth_is_read_from_factors(make: Any) -> None:
    steps = np.arange(100)
    found = growth(MetricSeries("mismatch", steps, np.geomspace(0.001, 0.01, 100)))
    assert found is not None
    # Medians of the first and last 12 points lie at 5.5 and 93.5 of 99: 10 ** (88 / 99) = 7.74.
    assert found.times.value == pytest.approx(7.74, rel=0.01)
    assert found.continues
    stopped = growth(
        MetricSeries("mismatch", steps, np.concatenate([np.geomspace(0.001, 0.01, 30), np.full(70, 0.01)]))
    )
    assert stopped is not None
    assert not stopped.continues
    assert growth(MetricSeries("mismatch", steps, np.linspace(-3, 96, 100))) is None
    assert growth(MetricSeries("mismatch", steps[:12], np.linspace(1, 12, 12))) is None


def test_temperatures_are_told_only_where_both_are_recorded(make: Any) -> None:
    assert recorded_temperatures(make(reward=[1.0], config=TrainerConfig(temperature=0.7))) == (1.0, 0.7)
    assert recorded_temperatures(make(reward=[1.0])) is None
    assert (
        recorded_temperatures(
            make(
                reward=[1.0],
                config=TrainerConfig(temperature=0.7),
                kind=EntropyKind("exact", None, "token-mean", "response"),
            )
        )
        is None
    )


def _run(found: Any) -> Any:
    evidence, window = found
    return evidence.run, window


SHORT = np.linspace(0, 1, 80)


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
    return evidence, evidence.run, training_ends(evidence)


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
        mismatch=around(0.1 + 0 * SHORT, 0.002),
        entropy=around(0.5 + 0 * SHORT, 0.005, 1),
        reward=around(0.6 - 0.4 * SHORT * falls, 0.01, 2),
        config=TrainerConfig(correct_mismatch=corrected),
    )
    found = prove_by_metric(named(evidence, "vllm_kl"), 0.05, 4.0)
    assert isinstance(found, Proof)
    assert found.severity is severity
    assert found.headline == "By vllm_kl trainer and sampler diverge by at least 20% of the entropy"


def test_a_metric_that_can_be_compared_with_nothing_is_not_called_clear(make: Any) -> None:
    signed = make(mismatch=np.where(np.arange(80) % 2, 0.1, -0.1))
    short = make(mismatch=np.linspace(0.1, 5.0, 10))
    for evidence in (signed, short):
        assert (
            prove_by_metric(evidence, 0.05, 4.0)
            == "mismatch can be compared neither with the entropy nor with its own start"
        )
    assert prove_by_metric(make(reward=SHORT), 0.05, 4.0) == "the trainer-sampler mismatch is not logged"
    assert prove_by_metric(make(mismatch=0.01 + 0 * SHORT), 0.05, 4.0) is None


def test_tokens_are_proof_by_how_far_they_are_from_their_entropy(make: Any) -> None:
    # 40 rollouts of 100 tokens at 0.5 nats hold 2,000; -log p of 0.6 is a fifth more than the entropy, of 0.4 a fifth
    # less.
    for logprob, sign in ((-0.6, 1), (-0.4, -1)):
        found = prove_by_entropy(*both(make, rows(logprob, 0.5)), 0.05, 1000.0)
        assert isinstance(found, Proof)
        assert found.sign == sign
        assert found.facts[1].value.value == pytest.approx(0.2 * sign, abs=0.002)  # type: ignore[union-attr]
    assert prove_by_entropy(*both(make, rows(-0.51, 0.5)), 0.05, 1000.0) is None
    assert prove_by_entropy(*both(make, rows(-0.6, 0.5)), 0.25, 1000.0) is None
    few = prove_by_entropy(*both(make, rows(-0.6, 0.5)), 0.05, 3000.0)
    assert few == "the tokens of 40 rollouts hold 2,000 nats together; 3,000 are needed"


def test_both_log_probabilities_are_proof_by_their_divergence(make: Any) -> None:
    # The sampler gives its tokens 0.5 nats, the trainer 0.6: 0.1 apart, a fifth of the sampler's entropy.
    found = prove_by_logprobs(*both(make, rows(-0.6, 0.5, sampler=-0.5)), 0.05)
    assert isinstance(found, Proof)
    assert found.facts[0].value.value == pytest.approx(0.2, abs=0.002)  # type: ignore[union-attr]
    assert found.confidence == "likely"
    assert prove_by_logprobs(*both(make, rows(-0.51, 0.5, sampler=-0.5)), 0.05) is None
    assert (
        prove_by_logprobs(*both(make, rows(-0.6, 0.5)), 0.05)
        == "only one of trainer and sampler has its log-probabilities recorded"
    )
