"""Prompt variation: prompts by lot, the vote as it is."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from breadth.base.errors import SettingsError
from breadth.inference.records import Ask, Candidate, Task
from breadth.inference.stopping.rule import Never
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.prompt_variation import PromptVariation, Variant
from breadth.testing.strategies import DriveResult, check_strategy, drive

TASK = Task(({"role": "user", "content": "6 * 7?"},), seed=3)
THREE = (Variant(), Variant(suffix="Draw it."), Variant(system="You are a cook."))


def agreed(ask: Ask, number: int) -> Candidate:
    return Candidate("The answer is 42.", "42", "42", tokens=3)


def prompts(result: DriveResult) -> list[object]:
    return [ask.prompt for ask in result.requests if isinstance(ask, Ask) and ask.n]


def test_each_trace_has_its_own_lot() -> None:
    strategy = PromptVariation(THREE, AdaptiveVote(400, 8, Never()))
    drawn = prompts(drive(strategy, TASK, agreed))
    counts = Counter(map(repr, drawn))
    assert counts.keys() == {repr(variant.apply(TASK.prompt)) for variant in THREE}
    # Uniform: 400 / 3 each with a standard deviation of 9.4.
    assert all(abs(count - 400 / 3) < 4 * 9.4 for count in counts.values())
    # Independent of one another: pairs of neighbours are alike in a third of the cases, not in none as in a rotation.
    alike = sum(first == second for first, second in pairwise(drawn))
    assert abs(alike - 399 / 3) < 4 * 9.4


def test_the_seed_draws_the_lots() -> None:
    first, again, other = (
        prompts(drive(PromptVariation(THREE, AdaptiveVote(30, stop=Never())), TASK.with_seed(seed), agreed))
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert prompts(drive(PromptVariation(THREE), TASK.with_seed(-1), agreed))


def test_the_vote_stops_as_it_would_alone() -> None:
    varied = drive(PromptVariation(THREE), TASK, agreed)
    plain = drive(AdaptiveVote(), TASK, agreed)
    assert (varied.answer.key, varied.answer.votes, varied.answer.confidence) == (
        plain.answer.key,
        plain.answer.votes,
        plain.answer.confidence,
    )
    assert len(varied.drawn) == len(plain.drawn)
    assert varied.answer.independent
    assert sum(varied.answer.figures.values()) == len(varied.drawn)


def test_draws_are_started_before_any_is_waited_for() -> None:
    asks = [
        ask
        for ask in drive(PromptVariation(THREE, AdaptiveVote(width=4)), TASK, agreed).requests
        if isinstance(ask, Ask)
    ]
    assert [(ask.n, ask.wait) for ask in asks[:4]] == [(1, 0), (1, 0), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    "strategy", [PromptVariation(), PromptVariation(THREE[:1]), PromptVariation(THREE, AdaptiveVote(5, 1))]
)
def test_the_contract(strategy: PromptVariation) -> None:
    check_strategy(strategy)


@pytest.mark.parametrize("bad", [{"variants": ()}, {"vote": Never()}])
def test_bad_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(bad))):
        PromptVariation(**bad)  # type: ignore[arg-type]  # wrong on purpose
