"""DeepConf online: the warm-up's bar, completions ended below it, the consensus stop, and the way without evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from breadth.base.errors import SettingsError
from breadth.inference.confidence import ConfidenceGate, Gauge
from breadth.inference.halting import LowConfidence
from breadth.inference.records import Ask, Candidate, Sampling, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.inference.strategies.online_confidence_vote import OnlineConfidenceVote
from breadth.measure.intervals import Interval
from breadth.testing.strategies import check_strategy, drive

GAUGE = Gauge(window=4)
OPEN = ConfidenceGate(Interval(0.7, 0.6, 0.8), Interval(0.7, 0.6, 0.8), 30, 480, gauge=GAUGE)
SHUT = replace(OPEN, within=Interval(0.53, 0.46, 0.60))
TASK = Task("q")
WARM_UP = list(range(5, 15))
"""Lowest group confidences of ten warm-up completions."""


def trace(key: str | None, *confidences: float) -> Candidate:
    return Candidate(
        f"so {key}", key, key, tokens=len(confidences), confidences=np.array(confidences, dtype=np.float32)
    )


def served(traces: list[Candidate]) -> Callable[[Ask, int], Candidate | None]:
    """Serve completions in order, each ended where the request's halt rule says so."""

    def reply(ask: Ask, place: int) -> Candidate | None:
        if place >= len(traces):
            return None
        whole = traces[place]
        if ask.halt is None or whole.confidences is None:
            return whole
        watcher = ask.halt.watch()
        for count, confidence in enumerate(whole.confidences.tolist(), 1):
            if watcher.push("", -0.1, confidence):
                return replace(whole, finish="halt", tokens=count, confidences=whole.confidences[:count])
        return whole

    return reply


def warm_up(*keys: str) -> list[Candidate]:
    return [trace(key, *[confidence] * 5) for key, confidence in zip(keys, WARM_UP, strict=True)]


@pytest.mark.parametrize(
    "strategy",
    [
        OnlineConfidenceVote(),
        OnlineConfidenceVote(trust=True),
        OnlineConfidenceVote(gate=OPEN, gauge=GAUGE, keep=0.1),
        OnlineConfidenceVote(gate=SHUT, gauge=GAUGE),
        OnlineConfidenceVote(2, 40, 1, keep=1.0, consensus=1.0, trust=True, gauge=Gauge(window=8)),
    ],
)
def test_contract(strategy: OnlineConfidenceVote) -> None:
    check_strategy(strategy)


def test_the_published_defaults() -> None:
    # Warm-up, consensus and the cautious eta of the paper; at most as many as its public code.
    assert OnlineConfidenceVote() == OnlineConfidenceVote(
        16, 256, keep=0.9, consensus=0.95, gauge=Gauge("lowest", 2048, 20)
    )


def test_the_bar_is_the_percentile_of_the_warm_up_and_goes_into_the_halt_rule() -> None:
    traces = warm_up(*"ababababab") + [trace("a", 9, 9, 9, 9)] * 3
    for keep, bar in ((0.9, 5.9), (0.1, 13.1)):
        driven = drive(OnlineConfidenceVote(10, 13, keep=keep, gate=OPEN, gauge=GAUGE), TASK, served(traces))
        first, second = driven.requests[:2]
        assert first == Ask(10, sampling=Sampling(top_logprobs=20), purpose="warm-up")
        assert isinstance(second, Ask)
        assert isinstance(second.halt, LowConfidence)
        assert second.halt.threshold == pytest.approx(bar)
        assert (second.halt.window, second.halt.top_logprobs, second.wait) == (4, 20, 1)
        assert driven.answer.figures["threshold"] == pytest.approx(bar)


def test_ended_completions_are_charged_and_never_vote() -> None:
    # The bar is 5.9. b dips to 1 after six tokens: the window 8 8 1 1 is 4.5, so it is ended at the eighth; then a 8
    # (lowest 8) comes.
    dipping, steady = trace("b", *[8] * 6, *[1] * 90), trace("a", *[8] * 20)
    traces = [*warm_up(*"aaaaabbbbb"), dipping, steady, dipping]
    driven = drive(OnlineConfidenceVote(10, 13, 1, gate=OPEN, gauge=GAUGE), TASK, served(traces))
    # Kept of the warm-up: a 6 7 8 9, b 10 ... 14; the first a, 5, is below the bar.
    assert driven.answer.votes == {"b": 60, "a": 38}
    assert driven.answer.figures == {"threshold": pytest.approx(5.9), "kept": 10, "halted": 2}
    assert [candidate.tokens for candidate in driven.answer.candidates[10:]] == [8, 20, 8]
    assert driven.answer.stopped == "most"
    assert driven.total_tokens == 10 * 5 + 8 + 20 + 8


def test_an_ended_completion_does_not_vote_however_sure_its_beginning_was() -> None:
    ended = replace(trace("a", *[20] * 9), finish="halt")
    answer = drive(
        OnlineConfidenceVote(10, 13, gate=OPEN, gauge=GAUGE), TASK, warm_up(*"aaaaabbbbb") + [ended] * 3
    ).answer
    assert answer.votes == {"b": 60, "a": 30}
    assert answer.figures["halted"] == 3


def test_a_later_completion_below_the_bar_that_was_too_short_to_be_ended_does_not_vote() -> None:
    traces = [*warm_up(*"aaaaabbbbb"), trace("a", 1, 1)]
    answer = drive(OnlineConfidenceVote(10, 11, gate=OPEN, gauge=GAUGE), TASK, served(traces)).answer
    assert answer.votes == {"b": 60, "a": 30}
    assert answer.candidates[-1].finish == "stop"


def test_it_stops_once_the_weight_agrees() -> None:
    unanimous = drive(OnlineConfidenceVote(10, 100, gate=OPEN, gauge=GAUGE), TASK, served(warm_up(*"aaaaaaaaaa")))
    assert len(unanimous.requests) == 1
    assert unanimous.answer.stopped == "agreed"
    # One vote of weight 5 against 90 is below the bar: still unanimous. One of weight 6 against 84 is 93 %: one or more
    # needed.
    below = drive(OnlineConfidenceVote(10, 100, gate=OPEN, gauge=GAUGE), TASK, served(warm_up(*"baaaaaaaaa")))
    assert below.answer.stopped == "agreed"
    assert len(below.drawn) == 10
    above = drive(
        OnlineConfidenceVote(10, 100, gate=OPEN, gauge=GAUGE),
        TASK,
        served(warm_up(*"abaaaaaaaa") + [trace("a", *[8] * 9)] * 90),
    )
    # (84 + 8m) / (90 + 8m) >= 0.95 from m = 3.75 on.
    assert (above.answer.stopped, len(above.answer.candidates)) == ("agreed", 14)


def test_no_more_are_in_flight_than_could_bring_agreement() -> None:
    traces = warm_up(*"abaaaaaaaa") + [trace("a", *[8] * 9)] * 90
    asks = drive(OnlineConfidenceVote(10, 100, 50, gate=OPEN, gauge=GAUGE), TASK, served(traces)).requests[1:]
    # Mean weight 10 after the warm-up: 1.5 / 0.5 = 3 at the earliest. The first weighs only 8: (93.1 - 92) / 0.49 = 2.2
    # more, so three.
    assert [ask.n for ask in asks if isinstance(ask, Ask)] == [3, 1, 0, 0]


def test_fewer_than_four_votes_are_no_consensus() -> None:
    # Of the warm-up only the one at 14 is kept; three more make four.
    traces = warm_up(*"aaaaaaaaaa") + [trace("a", *[15] * 9)] * 90
    driven = drive(OnlineConfidenceVote(10, 100, keep=0.1, gate=OPEN, gauge=GAUGE), TASK, served(traces))
    assert [ask.n for ask in driven.requests if isinstance(ask, Ask)] == [10, 3, 0, 0]
    assert (driven.answer.votes, driven.answer.stopped) == ({"a": 59}, "agreed")


def test_keeping_all_is_the_weighted_vote_and_ends_nothing() -> None:
    rng = np.random.default_rng(0)
    traces = [trace("abc"[rng.integers(3)], *rng.uniform(1, 20, rng.integers(2, 30))) for _ in range(40)]
    online = drive(
        OnlineConfidenceVote(10, 40, 5, keep=1.0, consensus=1.0, gate=OPEN, gauge=GAUGE), TASK, served(traces)
    )
    offline = drive(ConfidenceVote(40, keep=1.0, gate=OPEN, gauge=GAUGE), TASK, traces)
    assert online.answer.votes == offline.answer.votes
    assert online.answer.key == offline.answer.key
    assert all(ask.halt is None for ask in online.requests if isinstance(ask, Ask))
    assert len(online.answer.candidates) == 40


def test_where_confidence_is_worth_its_gate_the_same_answer_costs_fewer_tokens() -> None:
    rng = np.random.default_rng(0)
    spent = {"online": 0, "offline": 0}
    for _ in range(20):
        # 60 % say a and stay at 10; the others lose heart after 20 of 200 tokens.
        traces = [trace("a", *rng.normal(10, 2, 200)) if rng.random() < 0.6 else losing_heart(rng) for _ in range(64)]
        gauge = Gauge(window=16)
        gate = replace(OPEN, gauge=gauge)
        online = drive(OnlineConfidenceVote(16, 64, keep=0.5, gate=gate, gauge=gauge), TASK, served(traces))
        offline = drive(ConfidenceVote(len(online.answer.candidates), keep=0.5, gate=gate, gauge=gauge), TASK, traces)
        assert online.answer.key == offline.answer.key == "a"
        spent["online"] += online.total_tokens
        spent["offline"] += offline.total_tokens
    assert spent["online"] < 0.95 * spent["offline"]


def losing_heart(rng: np.random.Generator) -> Candidate:
    return trace("bc"[rng.integers(2)], *rng.normal(10, 2, 20), *rng.normal(6, 2, 180))


@pytest.mark.parametrize(
    ("strategy", "words"),
    [(OnlineConfidenceVote(), "no evidence"), (OnlineConfidenceVote(gate=SHUT, gauge=GAUGE), "AUROC 0.530")],
)
def test_without_evidence_it_is_the_adaptive_vote(strategy: OnlineConfidenceVote, words: str) -> None:
    traces = [trace(key, 5.0) for key in "abaabaaaaaaaaaaaaa"]
    driven, plain = (drive(one, TASK, traces) for one in (strategy, AdaptiveVote(256)))
    assert driven.requests == plain.requests
    assert driven.answer == replace(plain.answer, notes=driven.answer.notes)
    assert words in driven.answer.notes[-1]


def test_without_confidences_the_warm_up_votes_plainly() -> None:
    bare = [replace(candidate, confidences=None) for candidate in warm_up(*"aabbbbbaab")]
    driven = drive(OnlineConfidenceVote(10, 50, gate=OPEN, gauge=GAUGE), TASK, bare)
    assert driven.answer.votes == {"b": 6, "a": 4}
    assert "10 completions" in driven.answer.notes[0]
    assert len(driven.requests) == 1


def test_clipped_log_probs_are_told_about() -> None:
    masked = [replace(candidate, message={"clipped_logprobs": 5}) for candidate in warm_up(*"aaaaaaaaaa")]
    answer = drive(OnlineConfidenceVote(10, 10, gate=OPEN, gauge=GAUGE), TASK, masked).answer
    assert answer.notes[0].startswith("10 completions came with log-probs masked")


def test_when_only_unsure_ones_have_answers_they_vote_plainly() -> None:
    traces = [trace("a", 5, 5, 5, 5), *(trace(None, *[confidence] * 4) for confidence in range(6, 15))]
    answer = drive(OnlineConfidenceVote(10, 10, gate=OPEN, gauge=GAUGE), TASK, served(traces)).answer
    assert (answer.key, answer.votes) == ("a", {"a": 1})


@pytest.mark.parametrize("budget", range(14))
def test_the_budget_may_die_at_any_point(budget: int) -> None:
    traces = warm_up(*"ababababab") + [trace("a", *[8] * 9)] * 90
    answer = drive(OnlineConfidenceVote(10, 100, 3, gate=OPEN, gauge=GAUGE), TASK, served(traces), budget=budget).answer
    assert len(answer.candidates) == budget
    assert (answer.key is None) == (budget == 0)
    assert answer.stopped == "budget"


@pytest.mark.parametrize(
    "wrong",
    [
        {"warm_up": 1},
        {"most": 15},
        {"width": 0},
        {"keep": 0.0},
        {"consensus": 0.4},
        {"gauge": Gauge("tail")},
        {"trust": True, "gate": OPEN},
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        OnlineConfidenceVote(**wrong)


def test_it_gives_up_after_a_warm_up_without_an_answer() -> None:
    poem = Candidate("roses", tokens=3, confidences=np.full(3, 5.0, dtype=np.float32))
    driven = drive(OnlineConfidenceVote(warm_up=4, trust=True), Task("q"), [poem] * 50)
    assert (len(driven.drawn), driven.answer.stopped) == (4, "unread")
