"""The contract of strategies catches what breaks it: each broken strategy below breaks one rule."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest

from breadth.inference.records import Answer, Ask, Candidate, Run, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, majority
from breadth.testing.strategies import TASK, check_strategy, drive


@dataclass(frozen=True)
class Polite(Strategy):
    """Keeps to the contract."""

    def __call__(self, task: Task) -> Run:
        poll = Poll(task)
        for _ in range(3):
            drawn: list[Candidate] = yield Ask(2)
            poll.add(drawn)
        return majority(poll)


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
        (Careless(), "cost is not whole"),
        (Brittle(), "every second draw"),
        (Silent(), "does not say so"),
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
    assert driven.spent_tokens == 15
    assert driven.answer.votes == {"a": 5.0}
