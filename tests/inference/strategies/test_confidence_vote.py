"""DeepConf offline: who is kept, what a vote weighs, and when confidence has no say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from breadth.base.errors import SettingsError
from breadth.inference.confidence import ConfidenceGate, Gauge
from breadth.inference.records import Ask, Candidate, Sampling, Task
from breadth.inference.strategies.confidence_vote import ConfidenceVote, WeightedPoll
from breadth.inference.voting import Poll
from breadth.measure.intervals import Interval
from breadth.testing.strategies import check_strategy, drive


def votes_of(*pairs: tuple[str | None, float], task: Task | None = None) -> WeightedPoll:
    votes = WeightedPoll(Poll(task or Task("q")))
    for key, weight in pairs:
        votes.add(Candidate("", key, key), weight)
    return votes


def test_weights_decide_and_counts_give_the_confidence() -> None:
    answer = votes_of(("a", 10.0), ("b", 4.0), ("b", 4.0), (None, 99.0)).answer()
    assert answer.key == "a"
    assert answer.votes == {"a": 10, "b": 8}
    # One vote against two: 1 - I_1/2(2, 3) = 5/16.
    assert answer.confidence == pytest.approx(5 / 16)
    assert "each counted once" in answer.basis


def test_share_and_shortfall_by_hand() -> None:
    votes = votes_of(("a", 6.0), ("a", 6.0), ("b", 6.0))
    assert votes.share == pytest.approx(2 / 3)
    # (12 + 6m) / (18 + 6m) >= 0.95 at m = 17: 114 / 120.
    assert votes.samples_to_reach(0.95, 40) == 17
    assert votes.samples_to_reach(0.95, 8) == 8
    assert votes.samples_to_reach(0.75, 40) == 1
    assert votes.samples_to_reach(1.0, 40) == 40


def test_nothing_to_weigh() -> None:
    votes = votes_of((None, 3.0))
    assert votes.share == 0
    assert votes.samples_to_reach(0.95, 8) == 1
    assert votes.answer().key is None
    assert votes.answer().confidence is None


def test_without_any_weight_votes_count_alike() -> None:
    answer = votes_of(("a", 0.0), ("b", 0.0), ("b", 0.0)).answer()
    assert answer.key == "b"
    assert "No vote had any weight" in answer.notes[0]


OPEN = ConfidenceGate(Interval(0.7, 0.6, 0.8), Interval(0.7, 0.6, 0.8), 30, 480)
SHUT = replace(OPEN, within=Interval(0.53, 0.46, 0.60))
TASK = Task("q", sampling=Sampling(temperature=1.0))


def trace(key: str | None, confidence: float, tokens: int = 3) -> Candidate:
    return Candidate(f"so {key}", key, key, tokens=tokens, confidences=np.full(tokens, confidence, dtype=np.float32))


# Three unsure votes for b against two sure ones for a.
SPLIT = [trace("b", 5), trace("a", 12), trace("b", 6), trace("a", 13), trace("b", 7)]


@pytest.mark.parametrize(
    "strategy",
    [
        ConfidenceVote(),
        ConfidenceVote(trust=True),
        ConfidenceVote(gate=OPEN, keep=0.1, weights="rank"),
        ConfidenceVote(12, gate=OPEN, gauge=Gauge("tail", 8)),
        ConfidenceVote(5, gate=SHUT, weights="equal"),
    ],
)
def test_contract(strategy: ConfidenceVote) -> None:
    check_strategy(strategy)


def test_confidences_are_the_weights() -> None:
    driven = drive(ConfidenceVote(5, keep=1.0, gate=OPEN), TASK, SPLIT)
    assert driven.requests == (Ask(5, sampling=Sampling(temperature=1.0, top_logprobs=20)),)
    answer = driven.answer
    assert answer.votes == {"a": 25, "b": 18}
    assert answer.key == "a"
    assert answer.confidence == pytest.approx(beta(2, 3))
    assert answer.notes[-1].startswith("Confidence was used: ")
    assert answer.figures == {"threshold": 5, "kept": 5}


def test_the_least_sure_are_left_out() -> None:
    # Of 5, 6, 7, 12, 13 the percentile 40 is 6.6: b keeps one vote.
    answer = drive(ConfidenceVote(5, keep=0.6, weights="equal", gate=OPEN), TASK, SPLIT).answer
    assert answer.votes == {"a": 2, "b": 1}
    assert answer.figures["threshold"] == pytest.approx(6.6)
    assert len(answer.candidates) == 5
    top = drive(ConfidenceVote(5, keep=0.1, gate=OPEN), TASK, SPLIT).answer
    assert top.votes == {"a": 13}
    assert top.confidence == pytest.approx(0.75)  # one vote to none


def test_votes_by_rank() -> None:
    # Ranks from the surest: a 13, a 12, b 7, b 6, b 5.
    answer = drive(ConfidenceVote(5, keep=1.0, weights="rank", gate=OPEN), TASK, SPLIT).answer
    assert answer.votes == pytest.approx({"a": math.sqrt(5) + 2, "b": math.sqrt(3) + math.sqrt(2) + 1})


def test_unread_completions_neither_vote_nor_move_the_threshold() -> None:
    with_unread = [trace(None, 1), *SPLIT, trace(None, 40)]
    answer = drive(ConfidenceVote(7, keep=0.6, weights="equal", gate=OPEN), TASK, with_unread).answer
    assert answer.votes == {"a": 2, "b": 1}
    assert answer.unread == 2


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (ConfidenceVote(5), "no evidence"),
        (ConfidenceVote(5, gate=SHUT), "AUROC 0.530, 95% interval 0.460 to 0.600"),
        (ConfidenceVote(5, gate=OPEN, gauge=Gauge("mean")), "fitted for Gauge(measure='lowest'"),
        (ConfidenceVote(5, gate=replace(OPEN, model="other")), "fitted on other, not on mine"),
    ],
)
def test_without_evidence_the_plain_vote_decides_and_log_probs_are_not_asked_for(
    strategy: ConfidenceVote, words: str
) -> None:
    driven = drive(strategy, replace(TASK, model="mine"), SPLIT)
    assert driven.requests == (Ask(5),)
    assert driven.answer.key == "b"
    assert driven.answer.votes == {"b": 3, "a": 2}
    assert words in driven.answer.notes[-1]


def test_trust_uses_confidence_without_a_gate() -> None:
    answer = drive(ConfidenceVote(5, keep=1.0, trust=True), TASK, SPLIT).answer
    assert answer.key == "a"
    assert "without evidence" in answer.notes[-1]


def test_it_needs_confidences_only_where_it_may_use_them() -> None:
    assert ConfidenceVote(trust=True).needs == ConfidenceVote(gate=OPEN).needs == {"confidences"}
    assert ConfidenceVote().needs == ConfidenceVote(gate=SHUT).needs == frozenset()


def test_when_confidences_do_not_come_the_plain_vote_decides() -> None:
    bare = [replace(candidate, confidences=None) for candidate in SPLIT[:3]] + SPLIT[3:]
    answer = drive(ConfidenceVote(5, gate=OPEN), TASK, bare).answer
    assert answer.votes == {"b": 3, "a": 2}
    assert answer.notes == ("3 completions with an answer came without token confidences: the plain vote decided.",)


def test_a_few_without_confidences_do_not_vote_and_are_told_about() -> None:
    blank = replace(SPLIT[0], confidences=np.full(3, np.nan, dtype=np.float32))
    answer = drive(ConfidenceVote(5, keep=1.0, gate=OPEN), TASK, [blank, *SPLIT[1:]]).answer
    assert answer.votes == {"a": 25, "b": 13}
    assert answer.notes[0].startswith("1 completions")


def test_clipped_log_probs_are_told_about() -> None:
    # Of three tokens one is clipped; one in a hundred is nothing to speak of.
    masked = [replace(candidate, message={"clipped_logprobs": 1}) for candidate in SPLIT[:2]]
    seldom = replace(trace("b", 7, 100), message={"clipped_logprobs": 1})
    notes = drive(ConfidenceVote(4, keep=1.0, gate=OPEN), TASK, [*masked, SPLIT[3], seldom]).answer.notes
    assert notes[0].startswith("2 completions came with log-probs masked")
    assert len(notes) == 2


def test_equivalent_answers_are_one() -> None:
    task = replace(TASK, equivalent=lambda first, second: {first, second} == {"1/2", "0.50"})
    answer = drive(
        ConfidenceVote(3, keep=1.0, trust=True), task, [trace("1/2", 6), trace("3", 10), trace("0.50", 6)]
    ).answer
    assert answer.votes == {"0.50": 12, "3": 10}


def test_a_confidence_that_knows_beats_a_majority_that_errs() -> None:
    rng = np.random.default_rng(0)
    right = {"sure": 0, "plain": 0}
    for seed in range(60):
        # 45 % are right, and surer: AUROC = Phi(2 / sqrt 2) = 0.92.
        truths = rng.random(32) < 0.45
        drawn = [trace("right" if true else "wrong", rng.normal(12 if true else 10, 1)) for true in truths]
        for name, strategy in (
            ("sure", ConfidenceVote(keep=0.5, gate=OPEN)),
            ("plain", ConfidenceVote(keep=0.5, gate=SHUT)),
        ):
            right[name] += drive(strategy, TASK.with_seed(seed), drawn).answer.key == "right"
    assert right["sure"] >= 55
    assert right["plain"] <= 25  # about 30 % of such votes, ties shared, find a majority for the right answer


@pytest.mark.parametrize(
    "wrong", [{"n": 0}, {"keep": 0.0}, {"keep": 1.1}, {"weights": "loud"}, {"trust": True, "gate": OPEN}]
)
def test_bad_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        ConfidenceVote(**wrong)


def beta(first: int, second: int) -> float:
    draws = first + second + 1
    return float(sum(math.comb(draws, wins) for wins in range(first + 1)) / 2**draws)
