"""Parallel thinking: the tokens are never exceeded, cut traces never vote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from breadth.base.errors import SettingsError
from breadth.inference.records import Ask, Candidate, Sampling, Task
from breadth.inference.strategies.parallel_thinking import ParallelThinking, TokenPool
from breadth.testing.strategies import check_strategy, drive


def test_the_pilot_gets_everything_up_to_its_longest() -> None:
    assert TokenPool(1000).offer(1, 4096) == (1, 1000)
    assert TokenPool(1000).offer(1, 300) == (1, 300)


def test_several_start_with_room_for_twice_the_mean_each() -> None:
    purse = TokenPool(1000)
    purse.reserve(1, 1000)
    purse.settle(100)
    assert (purse.free, purse.mean, purse.out) == (900, 100, [])
    assert purse.offer(8, 4096) == (4, 225)  # 900 // 200 = 4
    assert purse.offer(2, 4096) == (2, 450)
    assert purse.offer(0, 4096) == (0, 0)


def test_the_last_gets_what_is_left_if_a_mean_trace_fits() -> None:
    purse = TokenPool(250, spent=100, ended=1)
    assert purse.offer(8, 4096) == (1, 150)
    purse.spent = 151
    assert purse.offer(8, 4096) == (0, 0)


def test_the_smallest_cap_that_fits_is_released() -> None:
    purse = TokenPool(1000, out=[300, 100, 200])
    purse.settle(150)
    assert purse.out == [300, 100]
    purse.settle(50)
    assert purse.out == [300]
    purse.settle(999)  # a server that went beyond its cap
    assert purse.out == []
    purse.settle(1)
    assert (purse.spent, purse.ended) == (1200, 4)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_lengths_no_more_is_written_than_there_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    purse, out = TokenPool(3000), list[int]()
    while True:
        count, cap = purse.offer(8 - len(purse.out) if purse.ended else 1, 4096)
        if not count and not out:
            break
        purse.reserve(count, cap)
        out += [cap] * count
        ended = out.pop(int(rng.integers(len(out))))  # any of them, whatever the purse believes
        purse.settle(min(ended, int(rng.geometric(1 / 150))))
        assert purse.spent + sum(out) <= 3000
    assert purse.spent <= 3000
    assert purse.spent > 2000


TASK = Task(({"role": "user", "content": "6 * 7?"},), sampling=Sampling(max_tokens=100_000))


def writing(
    length: Callable[[int], int], answer: Callable[[int], str] = lambda _: "42"
) -> Callable[[Ask, int], Candidate]:
    """Write so many tokens, or as many as the cap allows."""

    def reply(ask: Ask, number: int) -> Candidate:
        cap = (ask.sampling or TASK.sampling).max_tokens
        cut = length(number) > cap
        said = None if cut else answer(number)
        return Candidate("text", said, said, tokens=min(length(number), cap), finish="length" if cut else "stop")

    return reply


def test_equal_traces_fill_the_budget() -> None:
    # A pilot of 100, then 900 left: traces of 100 fit until the end, and the last fills it exactly.
    result = drive(ParallelThinking(1000, width=4), TASK, writing(lambda _: 100))
    assert result.answer.figures == {"traces": 10, "cut": 0, "tokens": 1000}
    assert result.answer.votes == {"42": 10}
    assert result.answer.stopped == "most"
    assert result.answer.confidence == pytest.approx(1 - 0.5**11)


def test_the_pilot_is_alone_and_may_take_everything() -> None:
    result = drive(ParallelThinking(1000), TASK, writing(lambda _: 1000))
    assert [ask for ask in result.requests if isinstance(ask, Ask)] == [
        Ask(1, sampling=replace(TASK.sampling, max_tokens=1000), wait=1)
    ]
    assert result.answer.figures == {"traces": 1, "cut": 0, "tokens": 1000}


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("seed", range(8))
def test_no_more_is_written_than_the_budget(width: int, seed: int) -> None:
    lengths = np.random.default_rng(seed).lognormal(5, 1, 1000).astype(int) + 1
    result = drive(ParallelThinking(4000, width=width), TASK, writing(lambda number: int(lengths[number])))
    assert result.total_tokens <= 4000
    assert result.total_tokens == result.answer.figures["tokens"]
    assert result.answer.independent


def test_cut_traces_are_charged_and_do_not_vote() -> None:
    # The pilot is short; of those after it every second never ends, and says 13 on its way.
    def reply(ask: Ask, number: int) -> Candidate:
        drawn = writing(lambda number: 100_000 if number % 2 else 100)(ask, number)
        return replace(drawn, answer="13", key="13") if drawn.finish == "length" else drawn

    answer = drive(ParallelThinking(3000), TASK, reply).answer
    assert answer.figures["cut"] >= 2
    assert answer.votes == {"42": answer.figures["traces"] - answer.figures["cut"]}
    assert len(answer.candidates) == answer.figures["traces"]


def test_when_all_are_cut_what_they_stated_is_better_than_nothing() -> None:
    stated = Candidate("The answer is 13 and", "13", "13", tokens=50, finish="length")
    answer = drive(ParallelThinking(50), TASK, [stated]).answer
    assert answer.key == "13"
    assert "cut at their cap were voted on" in answer.notes[0]


def test_a_trace_never_exceeds_the_completions_own_cap() -> None:
    task = replace(TASK, sampling=Sampling(max_tokens=64))
    result = drive(ParallelThinking(1000), task, writing(lambda _: 50))
    assert all(ask.sampling is None or ask.sampling.max_tokens <= 64 for ask in result.requests if isinstance(ask, Ask))
    assert result.answer.figures["traces"] == 20


def test_empty_replies_end_at_the_most() -> None:
    answer = drive(ParallelThinking(most=30), TASK, lambda *_: Candidate("")).answer
    assert (len(answer.candidates), answer.key, answer.stopped) == (30, None, "most")


@pytest.mark.parametrize("strategy", [ParallelThinking(), ParallelThinking(300, 2), ParallelThinking(5)])
def test_the_contract(strategy: ParallelThinking) -> None:
    check_strategy(strategy)


@pytest.mark.parametrize("bad", [{"tokens": 0}, {"width": 0}, {"most": 0}])
def test_bad_settings_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match=next(iter(bad))):
        ParallelThinking(**bad)
