"""One reasoner answers the same problems both ways at equal tokens: one long thought, and independent ones that vote."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from breadth.base.checks import require
from breadth.inference.budget import Budget
from breadth.inference.reading import Reading
from breadth.inference.records import Sampling, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategy import Strategy
from breadth.inference.thinking import Thinking
from breadth.lab.measuring.evaluation import LONGEST, PLAIN
from breadth.lab.model.reasoner import Reasoner
from breadth.lab.sampling.sampler import ReasonerSampler
from breadth.lab.task.grammar import AGAIN, CLOSE, OPEN
from breadth.lab.task.problems import Problem
from breadth.measure.answers import answer_key
from breadth.measure.diversity import answer_entropy
from breadth.runtime.driver import Driver, Solved
from breadth.runtime.solving import together

AT_ONCE = 128
"""Problems being answered at one time: enough to fill the batches, few enough for little memory."""
ANSWER = 8
"""Tokens kept for the answer behind forced thinking; it takes two."""
MARKS = Thinking(open=OPEN, close=CLOSE, cue=f" {AGAIN}", final="")
"""How the reasoner marks its thinking; one more attempt is what it says itself where it goes on."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Replies:
    """Final answers of one way of inference: several to each problem, each from a seed of its own."""

    answers: tuple[tuple[str, ...], ...]
    """What was answered, by problem and repeat; empty where no answer could be read."""
    right: tuple[tuple[bool, ...], ...]
    """Whether it was right."""
    tokens: tuple[tuple[int, ...], ...]
    """Tokens written for it."""
    allowed: tuple[tuple[int, ...], ...]
    """Tokens that could have been written for it."""

    def accuracies(self) -> Floats:
        """Return the share of right answers of each problem."""
        return np.asarray(np.mean(self.right, 1), np.float64)

    def entropies(self) -> Floats:
        """Return the entropy of each problem's answers in nats (Miller-Madow); no answer is an answer of its own."""
        return np.array([answer_entropy(np.unique(row, return_inverse=True)[1]) for row in self.answers])

    @property
    def unread(self) -> float:
        """Share of repeats without a readable answer."""
        return float(np.mean([answer == "" for row in self.answers for answer in row]))


@dataclass(frozen=True)
class BothWays:
    """The same problems answered both ways."""

    thinking: int
    """Thinking tokens that were forced."""
    extended: Replies
    """One long thought to each."""
    parallel: Replies
    """A vote, for at most what the long thought has cost on the same problem and repeat."""


def answer_both_ways(reasoner: Reasoner, problems: Sequence[Problem], *, thinking: int, repeats: int = 4, seed: int = 0) -> BothWays:
    """Answer each problem several times by a thought of exactly so many tokens, then by a vote for no more than that has cost.

    Both go through the driver. The long thought is budget forcing: an end of thinking before the budget becomes one more attempt, and at
    the budget it is cut. The vote is adaptive: independent traces one after the other, until the leading answer is unlikely to be
    overtaken or another trace of usual length no longer fits into what the long thought has used; what it does not need it saves.
    One after the other, so that nothing depends on which of several arrives first: the same seed gives the same answers.
    """
    plan = _Plan(thinking, repeats, seed)
    return asyncio.run(_both(reasoner, list(problems), plan))


@dataclass(frozen=True)
class _Plan:
    thinking: int
    repeats: int
    seed: int

    def __post_init__(self) -> None:
        require(self, "thinking", self.thinking >= 1, "1 or more tokens")
        require(self, "repeats", self.repeats >= 1, "1 or more")

    @property
    def extended(self) -> Strategy:
        return BudgetForcing(cues=0, minimum=self.thinking, maximum=self.thinking, thinking=MARKS)

    def sampling(self, thinking: int) -> Sampling:
        return replace(PLAIN, max_tokens=thinking + ANSWER)

    def tasks(self, problems: Sequence[Problem], sampling: Sampling) -> list[Task]:
        """Return a task for each problem and repeat, problem by problem."""
        return [
            Task(problem.text, f"{place}-{repeat}", sampling=sampling, reading=Reading("whole"), seed=self.seed * self.repeats + repeat)
            for place, problem in enumerate(problems)
            for repeat in range(self.repeats)
        ]


async def _both(reasoner: Reasoner, problems: list[Problem], plan: _Plan) -> BothWays:
    sampler = ReasonerSampler(reasoner)
    prime = reasoner.teacher.facts.prime
    try:
        long = await _solved(sampler, plan.extended, plan.tasks(problems, plan.sampling(plan.thinking)), None)
        spent = [one.spend.output_tokens for one in long]
        short = await _solved(sampler, AdaptiveVote(width=1), plan.tasks(problems, replace(PLAIN, max_tokens=LONGEST)), spent)
    finally:
        await sampler.close()
    return BothWays(
        plan.thinking, _replies(long, problems, plan.repeats, prime, spent), _replies(short, problems, plan.repeats, prime, spent)
    )


async def _solved(sampler: ReasonerSampler, strategy: Strategy, tasks: list[Task], most: Sequence[int] | None) -> list[Solved]:
    """Solve tasks, each within its own budget, some at once; a draw that breaks breaks the whole, for it is no wrong answer."""
    driver, places = Driver(sampler), asyncio.Semaphore(AT_ONCE)

    async def one(place: int, task: Task) -> Solved:
        async with places:
            solved = await driver.solve(strategy, task, budget=Budget(output_tokens=None if most is None else most[place]))
        if solved.last_error is not None:
            raise solved.last_error
        return solved

    return await together(one(place, task) for place, task in enumerate(tasks))


def _replies(solved: list[Solved], problems: list[Problem], repeats: int, prime: int, allowed: list[int]) -> Replies:
    keys = [one.answer.key or "" for one in solved]
    truths = [answer_key(str(problem.answer(prime))) for problem in problems for _ in range(repeats)]
    right = [key == truth for key, truth in zip(keys, truths, strict=True)]
    rows = [slice(start, start + repeats) for start in range(0, len(solved), repeats)]
    tokens = [one.spend.output_tokens for one in solved]
    return Replies(
        tuple(tuple(keys[row]) for row in rows),
        tuple(tuple(right[row]) for row in rows),
        tuple(tuple(tokens[row]) for row in rows),
        tuple(tuple(allowed[row]) for row in rows),
    )
