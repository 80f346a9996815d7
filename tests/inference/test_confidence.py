"""Confidence of tokens and completions: DeepConf's statistics by hand, and the traps of servers."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import BrokenFileError, MeasureError, SettingsError
from breadth.base.settings import dump, load
from breadth.inference.confidence import (
    LOGPROB_FLOOR,
    ConfidenceGate,
    Gauge,
    agreement_with_vote,
    borda_weights,
    decide_gate,
    fit_gate,
    group_confidences,
    keep_threshold,
    self_certainty,
    token_confidence,
)
from breadth.inference.records import Candidate, Sampling, Task
from breadth.inference.voting import Poll
from breadth.measure.intervals import Interval


def sure(*confidences: float) -> Candidate:
    return Candidate("", confidences=np.array(confidences, dtype=np.float32))


DIP = sure(8, 8, 2, 2, 8, 8, 8, 8)


def test_token_confidence_of_uniform_and_peaked_distributions() -> None:
    uniform = [math.log(1 / 20)] * 20
    peaked = [math.log(0.99)] + [math.log(0.01 / 19)] * 19
    for logprobs, wanted in ((uniform, 2.9957), (peaked, 7.1726)):  # the first is ln 20
        value, clipped = token_confidence(logprobs, 20)
        assert value == pytest.approx(wanted, abs=5e-5)
        assert not clipped


def test_the_sampled_token_outside_the_top_k_is_left_out_wherever_it_stands() -> None:
    top = [-0.1, -3.0, -4.0]
    assert token_confidence([-9.0, *top], 3) == token_confidence([*top, -9.0], 3) == token_confidence(top, 3)
    assert token_confidence(top, 3)[0] == pytest.approx(7.1 / 3)


@pytest.mark.parametrize("masked", [-math.inf, -9999.0, float(np.finfo(np.float32).min)])
def test_masked_tokens_are_clipped_and_flagged(masked: float) -> None:
    value, clipped = token_confidence([-0.1, masked, masked], 3)
    assert value == pytest.approx((0.1 + 50 + 50) / 3)
    assert clipped


def test_a_distribution_cut_down_to_one_token_is_surer_than_an_open_one() -> None:
    alone, open_one = token_confidence([0.0], 20), token_confidence([math.log(0.05)] * 20, 20)
    assert alone[1]
    assert alone[0] == pytest.approx(-LOGPROB_FLOOR * 19 / 20)
    assert alone[0] > open_one[0]


@pytest.mark.parametrize("nothing", [[], [math.nan]])
def test_a_token_without_log_probs_has_no_confidence(nothing: list[float]) -> None:
    value, clipped = token_confidence(nothing, 20)
    assert math.isnan(value)
    assert not clipped


def test_the_four_measures_by_hand() -> None:
    assert group_confidences([8, 8, 2, 2, 8, 8, 8, 8], 4).tolist() == pytest.approx([5, 5, 5, 6.5, 8])
    wanted = {"lowest": 5, "bottom": 5, "tail": 8, "mean": 6.5}
    assert {name: Gauge(name, window=4).confidence_of(DIP) for name in ("lowest", "bottom", "tail", "mean")} == wanted


def test_bottom_averages_the_lowest_tenth_of_many_groups() -> None:
    # Window 1 makes every token a group; of 1..20 the lowest tenth is 1 and 2.
    assert Gauge("bottom", window=1).confidence_of(sure(*range(20, 0, -1))) == 1.5
    assert Gauge("bottom", window=1).confidence_of(sure(*range(19, 0, -1))) == 1.0  # a tenth of 19 is one


@pytest.mark.parametrize("measure", ["lowest", "bottom", "tail", "mean"])
def test_a_completion_shorter_than_the_window_is_one_group(measure: Any) -> None:
    assert Gauge(measure).confidence_of(sure(1, 2, 6)) == 3


@settings(max_examples=60)
@given(st.lists(st.floats(0, 60, width=32), min_size=1, max_size=80), st.integers(1, 100))
def test_running_sums_equal_naive_windows(values: list[float], window: int) -> None:
    size = min(window, len(values))
    naive = [sum(values[start : start + size]) / size for start in range(len(values) - size + 1)]
    assert group_confidences(values, window).tolist() == pytest.approx(naive, abs=1e-6)


def test_running_sums_stay_exact_over_a_long_completion() -> None:
    values = np.random.default_rng(0).uniform(0, 50, 40_000)
    groups = group_confidences(values, 2048)
    assert groups[-1] == pytest.approx(values[-2048:].mean(), abs=1e-9)
    assert groups.min() == pytest.approx(
        min(values[start : start + 2048].mean() for start in range(len(values) - 2047)), abs=1e-9
    )


def test_tokens_without_confidence_are_passed_over() -> None:
    with_gaps = sure(8, math.nan, 8, 2, math.inf, 2, 8, 8, 8, 8)
    for measure in ("lowest", "bottom", "tail", "mean"):
        assert Gauge(measure, window=4).confidence_of(with_gaps) == Gauge(measure, window=4).confidence_of(DIP)


@pytest.mark.parametrize("bare", [Candidate("text"), sure(), sure(math.nan, math.nan)])
def test_a_candidate_without_confidences_has_none(bare: Candidate) -> None:
    assert math.isnan(Gauge().confidence_of(bare))


def test_completions_that_were_just_as_sure_are_equal_whatever_their_length() -> None:
    assert len({Gauge("mean").confidence_of(sure(*[8.1] * length)) for length in range(1, 200)}) == 1
    assert len({Gauge("lowest", window=16).confidence_of(sure(*[8.1] * length)) for length in range(1, 200)}) == 1


def test_the_published_defaults() -> None:
    assert Gauge() == Gauge("lowest", window=2048, top_logprobs=20)


def test_a_gauge_asks_for_the_log_probs_it_needs_and_leaves_the_rest() -> None:
    assert Gauge(top_logprobs=5).with_logprobs(Sampling(temperature=0.3, top_logprobs=1)) == Sampling(
        temperature=0.3, top_logprobs=5
    )


@pytest.mark.parametrize("wrong", [{"measure": "least"}, {"window": 0}, {"top_logprobs": 0}])
def test_bad_gauges_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Gauge(**wrong)


def test_the_threshold_is_the_interpolated_percentile() -> None:
    warm_up = list(range(5, 15))
    assert keep_threshold(warm_up, 0.9) == pytest.approx(5.9)
    assert keep_threshold(warm_up, 0.1) == pytest.approx(13.1)
    assert keep_threshold(warm_up, 1.0) == 5


@pytest.mark.parametrize("tenths", range(1, 11))
def test_a_score_on_the_threshold_is_kept_in_spite_of_rounding(tenths: int) -> None:
    # Of 0..10 the percentiles 0, 10, ..., 100 are whole numbers.
    threshold = keep_threshold(range(11), tenths / 10)
    assert sum(score >= threshold for score in range(11)) == tenths + 1


def test_the_threshold_of_equal_scores_keeps_all() -> None:
    assert keep_threshold([8.1] * 7, 0.1) == 8.1


def test_borda_weights_by_hand() -> None:
    # N = 4, power 0.5: roots of 4, 3, 2, 1.
    assert borda_weights([9, 7, 5, 3]).tolist() == pytest.approx([2, 1.7320508, 1.4142136, 1])
    assert borda_weights([3, 9, 5, 7]).tolist() == pytest.approx([1, 2, 1.4142136, 1.7320508])
    assert borda_weights([5, 1, 9], power=0).tolist() == [1, 1, 1]
    assert borda_weights([2, 2, 1], power=1).tolist() == [2.5, 2.5, 1]  # the two share 3 and 2
    large = borda_weights([5, 1, 9], power=200)
    assert large[2] > 1e9 * (large[0] + large[1])


@pytest.mark.parametrize("bad", [[], [1, math.nan]])
def test_borda_weights_refuse_what_cannot_be_ranked(bad: list[float]) -> None:
    with pytest.raises(MeasureError):
        borda_weights(bad)
    with pytest.raises(MeasureError, match="power"):
        borda_weights([1, 2], power=-1)


def test_self_certainty_by_hand() -> None:
    uniform, peaked = [math.log(0.25)] * 4, [math.log(0.97), *[math.log(0.01)] * 3]
    assert self_certainty([uniform]) == pytest.approx(0, abs=1e-12)
    # -(ln 0.97 + 3 ln 0.01) / 4 - ln 4
    assert self_certainty([peaked]) == pytest.approx(2.0752, abs=5e-5)
    assert self_certainty([uniform, peaked]) == pytest.approx(2.0752 / 2, abs=5e-5)
    assert self_certainty([[0.0, -math.inf]]) == pytest.approx(25 - math.log(2))


@pytest.mark.parametrize("bad", [[], [0.1, 0.2], [[math.nan, 0.0]]])
def test_self_certainty_refuses_what_is_not_a_matrix(bad: list[Any]) -> None:
    with pytest.raises(MeasureError):
        self_certainty(bad)


def test_a_window_needs_a_token() -> None:
    with pytest.raises(MeasureError, match="window"):
        group_confidences([1.0], 0)
    assert group_confidences([], 4).tolist() == []


GAUGE = Gauge(window=64)
OPEN = ConfidenceGate(Interval(0.7, 0.6, 0.8), Interval(0.75, 0.7, 0.8), 30, 480, gauge=GAUGE, model="small")


def evidence(
    questions: int, each: int, lift: float, *, seed: int = 0, difficulty: float = 0.0
) -> tuple[list[float], list[bool], list[str]]:
    """Make completions whose confidence rises by ``lift`` where they are right, and with how easy their question is."""
    rng = np.random.default_rng(seed)
    scores, correct, names = [], [], []
    for question in range(questions):
        easy = rng.uniform(0.1, 0.9)
        right = rng.random(each) < easy
        scores += (rng.normal(size=each) + lift * right + difficulty * easy).tolist()
        correct += right.tolist()
        names += [f"q{question}"] * each
    return scores, correct, names


def test_pairs_of_one_question_by_hand() -> None:
    # a: right 5, 3 against wrong 4 and 3: 5 beats both, 3 loses one and ties one: 2.5 of 4. b: right 1 against 2: 0 of
    # 1. c: no pair.
    gate = fit_gate([5, 3, 4, 3, 1, 2, 9], [1, 1, 0, 0, 1, 0, 1], ["a", "a", "a", "a", "b", "b", "c"], gauge=GAUGE)
    assert gate.within.value == pytest.approx(2.5 / 5)
    assert (gate.questions, gate.completions) == (2, 7)
    # Pooled: right 5, 3, 1, 9 against wrong 4, 3, 2: 3 + 1.5 + 0 + 3 of 12.
    assert gate.pooled.value == pytest.approx(7.5 / 12)
    assert not gate.open
    assert "at least 8" in gate.reason


def test_a_confidence_that_tells_right_from_wrong_opens_it() -> None:
    gate = fit_gate(*evidence(60, 16, 1.0), gauge=GAUGE)
    # Two normals one apart: AUROC = Phi(1 / sqrt 2) = 0.760.
    assert gate.within.low < 0.760 < gate.within.high
    assert gate.within.value == pytest.approx(0.760, abs=0.03)
    assert gate.open
    assert f"AUROC {gate.within.value:.3f}" in gate.reason
    assert gate.questions == 59  # one had right completions only
    assert "59 questions" in gate.reason


def test_a_confidence_that_only_knows_easy_questions_does_not_open_it() -> None:
    gate = fit_gate(*evidence(60, 16, 0.0, difficulty=6.0), gauge=GAUGE)
    assert gate.pooled.low > 0.6
    assert 0.5 in gate.within
    assert not gate.open


def test_a_useless_confidence_opens_it_about_as_seldom_as_the_level_says() -> None:
    opened = sum(fit_gate(*evidence(12, 8, 0.0, seed=seed, difficulty=4.0), gauge=GAUGE).open for seed in range(200))
    assert opened <= 13  # 2.5 % of 200 is 5; more than 13 would come up once in a thousand


def test_an_inverted_confidence_stays_shut() -> None:
    assert not fit_gate(*evidence(60, 16, -1.0), gauge=GAUGE).open


def test_seven_questions_are_too_few_and_eight_are_not() -> None:
    for questions, opened in ((7, False), (8, True)):
        gate = fit_gate(*evidence(questions, 40, 3.0), gauge=GAUGE)
        assert gate.questions == questions
        assert gate.open is opened


def test_perfect_separation_opens_it() -> None:
    right = [True, False] * 12
    gate = fit_gate([float(one) for one in right], right, np.repeat(np.arange(12), 2), gauge=GAUGE)
    assert gate.within.value == 1
    assert gate.open


@pytest.mark.parametrize("correct", [[True] * 6, [False] * 6, [True, False] * 3])
def test_one_completion_a_question_or_one_outcome_is_no_evidence(correct: list[bool]) -> None:
    gate = fit_gate(range(6), correct, list("abcdef"), gauge=GAUGE)
    assert (gate.within.low, gate.within.high, gate.questions) == (0, 1, 0)
    assert not gate.open


@pytest.mark.parametrize(
    ("scores", "correct", "problems"),
    [([], [], []), ([1.0, float("nan")], [1, 0], "ab"), ([1, 2], [1], ["a", "b"]), ([1, 2], [1, 2], ["a", "b"])],
)
def test_bad_evidence_is_refused(scores: Any, correct: Any, problems: Any) -> None:
    with pytest.raises(MeasureError):
        fit_gate(scores, correct, list(problems), gauge=GAUGE)


def test_it_is_a_file(tmp_path: Path) -> None:
    for number, gate in enumerate(
        (OPEN, fit_gate(*evidence(9, 8, 0.5), gauge=Gauge("tail", 32, 5), evidence="self-consistent", model="m"))
    ):
        path = tmp_path / f"{number}.toml"
        dump(gate, path)
        assert load(ConfidenceGate, path) == gate
        assert pickle.loads(pickle.dumps(gate)) == gate
    path.write_text(path.read_text().replace("self-consistent", "hearsay"))
    with pytest.raises(BrokenFileError, match="hearsay"):
        load(ConfidenceGate, path)


@pytest.mark.parametrize(
    "wrong",
    [{"within": Interval(0.7, 0.8, 0.9)}, {"pooled": Interval(1.2, 0.5, 1.3)}, {"questions": 481}, {"evidence": "x"}],
)
def test_bad_gates_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        replace(OPEN, **wrong)


def test_rulings() -> None:
    shut = replace(OPEN, within=Interval(0.53, 0.46, 0.60))
    assert decide_gate(OPEN, GAUGE, model="small").open
    assert "0.700" in decide_gate(OPEN, GAUGE).note
    assert not decide_gate(shut, GAUGE).open
    assert "AUROC 0.530, 95% interval 0.460 to 0.600" in decide_gate(shut, GAUGE).note
    assert not decide_gate(None, GAUGE).open
    assert "trust = true" in decide_gate(None, GAUGE).note
    assert decide_gate(None, GAUGE, trust=True).open
    assert "without evidence" in decide_gate(None, GAUGE, trust=True).note


def test_evidence_about_another_gauge_or_model_is_none() -> None:
    assert "window=64" in decide_gate(OPEN, Gauge()).note
    assert not decide_gate(OPEN, Gauge()).open
    assert "small, not on large" in decide_gate(OPEN, GAUGE, model="large").note
    assert not decide_gate(OPEN, GAUGE, model="large").open
    assert decide_gate(replace(OPEN, model=""), GAUGE, model="large").open


def poll_of(*keys: str | None, task: Task | None = None) -> Poll:
    poll = Poll(task or Task("q"))
    poll.add(Candidate("", key, key) for key in keys)
    return poll


def test_agreement_with_the_full_vote() -> None:
    assert agreement_with_vote(poll_of("4", None, "5", "4")) == [True, None, False, True]
    assert agreement_with_vote(poll_of("4", "5", None)) == [None, None, None]  # tied
    assert agreement_with_vote(poll_of(None)) == [None]
    assert agreement_with_vote(poll_of()) == []


def test_agreement_counts_equivalent_answers_as_one() -> None:
    task = Task("q", equivalent=lambda first, second: {first, second} == {"0.5", "half"})
    assert agreement_with_vote(poll_of("0.5", "half", "half", "3", task=task)) == [True, True, True, False]
