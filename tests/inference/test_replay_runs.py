"""Strategies replayed draw by draw: forks, judges, halts, and what a store cannot give."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from breadth.base.errors import StrategyError
from breadth.inference.halting import Halt
from breadth.inference.records import Answer, Ask, Candidate, Fork, Judge, Run, Sampling, Task
from breadth.inference.replay import replay
from breadth.inference.stored_votes import StoredVotes
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, best_scored, majority


def store(*answers: str) -> dict[str, list[Candidate]]:
    """One question for each text; each letter is a candidate with that answer, '-' one without."""
    return {
        f"q{place}": [
            Candidate(f"is {key}", key, key, tokens=10 + number) if key != "-" else Candidate("?", tokens=3)
            for number, key in enumerate(keys)
        ]
        for place, keys in enumerate(answers)
    }


@dataclass(frozen=True)
class Halves(Strategy):
    """Two votes of two side by side, then the best of the two by score; for the requests a vote does not make."""

    sampling: Sampling | None = None
    prefix: str = ""
    judged: bool = False

    def __call__(self, task: Task) -> Run:
        answers: list[Answer] = yield Fork((Vote(2)(task), Vote(2)(task)))
        poll = Poll(task)
        poll.add(one for answer in answers for one in answer.candidates)
        poll.add((yield Ask(1, sampling=self.sampling, prefix=self.prefix)))
        if self.judged:
            yield Judge(tuple(poll.seen))
            return best_scored(poll)
        return majority(poll)


def test_forks_draw_from_one_store() -> None:
    outcome = replay(store("aaabb"), {"halves": Halves()}, repeats=3, truths={"q0": "a"}).outcomes["halves"]
    assert outcome.samples.value == outcome.started.value == 5
    assert outcome.by_question["accuracy"].tolist() == [1]


def test_a_judge_needs_stored_scores() -> None:
    with pytest.raises(StrategyError, match="none is stored"):
        replay(store("aaabb"), {"halves": Halves(judged=True)})
    scored = {"q0": [replace(one, score=float(one.key == "b")) for one in store("aaabb")["q0"]]}
    outcome = replay(scored, {"halves": Halves(judged=True)}, truths={"q0": "b"}).outcomes["halves"]
    assert outcome.by_question["accuracy"].tolist() == [1]


def test_what_was_not_stored_is_refused() -> None:
    with pytest.raises(StrategyError, match="beginning of the reply"):
        replay(store("aaaaa"), {"prefix": Halves(prefix="Well")})
    with pytest.raises(StrategyError, match="another way to draw"):
        replay(store("aaaaa"), {"hot": Halves(Sampling(temperature=1.5))})
    replay(store("aaaaa"), {"log-probs of the same draw": Halves(Sampling(top_logprobs=20))})


@dataclass(frozen=True)
class Needy(Strategy):
    """Needs what it says."""

    needs: ClassVar[frozenset[str]] = frozenset({"confidences"})

    def __call__(self, task: Task) -> Run:
        poll = Poll(task)
        poll.add((yield Ask(4, halt=Hesitation())))
        return majority(poll)


@dataclass(frozen=True)
class Hesitation(Halt):
    """Ends a completion at its first token of confidence below 1."""

    def watch(self) -> Hesitation:
        return self

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        return confidence < 1


def test_a_strategy_whose_needs_are_not_stored_is_refused_at_the_start() -> None:
    with pytest.raises(StrategyError, match="needs confidences, and 4 of"):
        replay(store("aabb"), {"needy": Needy()})
    with pytest.raises(StrategyError, match="only counts"):
        replay(StoredVotes.of_classes([[0, 1]]), {"needy": Needy()})


def test_a_halt_is_replayed_on_stored_confidences() -> None:
    sure, unsure = np.full(10, 5, dtype=np.float32), np.array([5, 5, 0.5, 5], dtype=np.float32)
    held = [Candidate("", key, key, tokens=len(c), confidences=c) for key, c in (("a", unsure), ("a", unsure), ("a", unsure), ("b", sure))]
    outcome = replay({"q": held}, {"needy": Needy()}, repeats=2, truths={"q": "b"}).outcomes["needy"]
    assert outcome.by_question["accuracy"].tolist() == [1], "the three cut ones do not vote"
    assert outcome.tokens.value == 3 * 3 + 10


def test_a_lower_cap_cuts_longer_candidates() -> None:
    # Tokens 10, 11, 12, 13, 14: with a cap of 12 on the last draw it is cut, and no vote, in two orders of five.
    outcome = replay(store("ababa"), {"halves": Halves(Sampling(max_tokens=12))}, repeats=400).outcomes["halves"]
    whole = replay(store("ababa"), {"halves": Halves()}, repeats=400).outcomes["halves"]
    assert whole.tokens.value == 60
    # The last draw loses 1 token of 13 or 2 of 14 with chance 1/5 each.
    assert 60 - outcome.tokens.value == pytest.approx(3 / 5, abs=0.15)
