"""The contract of strategies catches what breaks it: each broken strategy below breaks one rule."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, replace

import pytest

from breadth.inference.policy import Policy
from breadth.inference.records import Answer, Ask, Candidate, Run, Sampling, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategy import Strategy
from breadth.inference.thinking import UNMARKED_THINKING
from breadth.inference.voting import Poll, majority
from breadth.runtime.driver import Driver
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.testing.strategies import ANSWER_CUE, TASK, THINKING_WORD, HumpModel, check_strategy, drive


@dataclass(frozen=True)
class Polite(Strategy):
    """Keeps to the contract."""

    def __call__(self, task: Task) -> Run:
        poll = Poll(task)
        for _ in range(3):
            drawn: list[Candidate] = yield Ask(2)
            poll.add(drawn)
        return replace(majority(poll), stopped="most")


class Wordless(Polite):
    """Does not say why it stopped."""

    def __call__(self, task: Task) -> Run:
        answer = yield from super().__call__(task)
        return replace(answer, stopped="")


@dataclass(frozen=True)
class Unexampled(Polite):
    """Has a setting without a default, and no example."""

    size: int
    """A setting."""


class Stubborn(Polite):
    """Asks until it has three candidates, for ever."""

    def __call__(self, task: Task) -> Run:
        seen: list[Candidate] = []
        while len(seen) < 3:
            seen += yield Ask(1)
        return Answer(seen[0], candidates=tuple(seen))


class AllOrNothing(Polite):
    """Answers only from a full house."""

    def __call__(self, task: Task) -> Run:
        drawn: list[Candidate] = yield Ask(4)
        return Answer(drawn[0], candidates=tuple(drawn)) if len(drawn) == 4 and drawn[0].key else Answer()


COUNT = itertools.count()


class Fickle(Polite):
    """Does not answer the same twice."""

    def __call__(self, task: Task) -> Run:
        drawn: list[Candidate] = yield Ask(4)
        return Answer(drawn[next(COUNT) % len(drawn)] if drawn and drawn[0].key else None, candidates=tuple(drawn))


class Guesser(Polite):
    """Answers although nothing could be read."""

    def __call__(self, task: Task) -> Run:
        drawn: list[Candidate] = yield Ask(2)
        return Answer(Candidate("42", "42", "42"), candidates=tuple(drawn)) if drawn else Answer()


class Forgetful(Polite):
    """Invents candidates it was never sent."""

    def __call__(self, task: Task) -> Run:
        drawn: list[Candidate] = yield Ask(2)
        return Answer(drawn[0] if drawn else None, candidates=(*drawn, Candidate("extra")))


class Careless(Polite):
    """Keeps the candidates that voted only."""

    def __call__(self, task: Task) -> Run:
        poll = Poll(task)
        poll.add((yield Ask(4)))
        answer = majority(poll)
        return replace(answer, candidates=tuple(candidate for candidate in poll.seen if candidate.key == answer.key))


class Brittle(Polite):
    """Answers only when no draw has failed."""

    def __call__(self, task: Task) -> Run:
        first: list[Candidate] = yield Ask(1)
        second: list[Candidate] = yield Ask(1)
        third: list[Candidate] = yield Ask(1)
        seen = (*first, *second, *third)
        return Answer(None if third and not second else next(iter(seen), None), candidates=seen)


class Silent(Polite):
    """Needs log-probs and does not say that it had none."""

    needs = frozenset({"logprobs"})


@dataclass(frozen=True)
class Unsettled(Polite):
    """Has a setting that TOML cannot hold."""

    pattern: object = object()
    """No setting."""


def test_those_that_keep_to_it_pass() -> None:
    check_strategy(Polite())
    check_strategy(AdaptiveVote(3))


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (Stubborn(), "did not end"),
        (AllOrNothing(), "budget of"),
        (Fickle(), "another answer"),
        (Guesser(), "voted on"),
        (Forgetful(), "never drawn"),
        (Careless(), "cost is not complete"),
        (Brittle(), "every second sample"),
        (Silent(), "does not say so"),
        (Wordless(), "why it stopped"),
        (Unexampled(3), "'example' lacks a setting.*'size' is missing"),
    ],
)
def test_each_broken_one_is_caught(strategy: Strategy, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_strategy(strategy)


def test_settings_that_no_file_can_hold_are_caught() -> None:
    with pytest.raises((AssertionError, TypeError)):
        check_strategy(Unsettled())


def test_driving_by_hand_tells_what_was_asked_and_spent() -> None:
    driven = drive(Polite(), TASK, [Candidate("a", "a", "a", tokens=3)] * 5)
    assert [request.n for request in driven.requests if isinstance(request, Ask)] == [2, 2, 2]
    assert driven.total_tokens == 15
    assert driven.answer.votes == {"a": 5.0}


TRUTHS = {"1 + 1?": "2"}
PROMPT = ({"role": "user", "content": "1 + 1?"},)


def drawn(model: HumpModel, draw: SampleRequest) -> tuple[Candidate, Meter]:
    meter = Meter()
    return asyncio.run(model.sample(draw, meter)), meter


def test_left_alone_it_thinks_and_answers() -> None:
    candidate, meter = drawn(
        HumpModel(lambda _: 1.0, TRUTHS, natural_length=5), SampleRequest(PROMPT, Sampling(max_tokens=50))
    )
    assert candidate.text == THINKING_WORD * 5 + "The answer is 2."
    assert (candidate.finish, candidate.tokens, meter.tokens, meter.calls) == ("stop", 9, 9, 1)


def test_without_room_it_is_cut_and_after_the_final_mark_it_answers_at_once() -> None:
    model = HumpModel(lambda words: float(words >= 7), TRUTHS, natural_length=5)
    assert drawn(model, SampleRequest(PROMPT, Sampling(max_tokens=8)))[0].text == THINKING_WORD * 8
    enough = SampleRequest(PROMPT, prefix=THINKING_WORD * 7 + ANSWER_CUE)
    assert drawn(model, enough)[0].text == " 2."
    assert drawn(model, replace(enough, prefix=THINKING_WORD * 6 + ANSWER_CUE))[0].text == " 3."


def test_wrong_answers_are_one_or_many() -> None:
    same, many = (HumpModel(lambda _: 0.0, TRUTHS, common_error_share=share) for share in (1.0, 0.0))
    assert len({drawn(same, SampleRequest("1 + 1?", seed=seed))[0].text for seed in range(10)}) == 1
    assert len({drawn(many, SampleRequest("1 + 1?", seed=seed))[0].text for seed in range(10)}) > 5


def test_confidences_come_when_asked_for() -> None:
    model = HumpModel(lambda _: 1.0, TRUTHS, confidence_gap=100.0)
    assert drawn(model, SampleRequest(PROMPT))[0].confidences is None
    sure = drawn(model, SampleRequest(PROMPT, Sampling(top_logprobs=20)))[0].confidences
    assert sure is not None
    assert sure[0] > 100


def test_forced_thinking_sees_the_accuracy_of_its_length() -> None:
    # 64 tokens: one piece of 36 (32 words and the answer), a cue, 28 words cut: 60 words.
    seen: list[int] = []

    def accuracy(words: int) -> float:
        seen.append(words)
        return float(words == 60)

    model = HumpModel(accuracy, TRUTHS)
    strategy = BudgetForcing(0, 64, 64, UNMARKED_THINKING)
    solved = asyncio.run(Driver(model).solve(strategy, Policy().task("1 + 1?")))
    assert seen == [32, 60]
    assert solved.answer.answer == "2"
    assert solved.spend.output_tokens == 64 + 4
