"""One policy answers the same questions both ways at equal tokens: one long thought, and independent ones that vote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from breadth.base.checks import require
from breadth.inference.budget import Budget
from breadth.inference.records import Reading, Sampling, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategy import Strategy
from breadth.inference.thinking import Thinking
from breadth.lab.evaluation.evaluate import PLAIN
from breadth.lab.model.reasoner import Reasoner
from breadth.lab.sampling.sampler import ReasonerSampler
from breadth.lab.task.grammar import AGAIN, CLOSE, OPEN
from breadth.lab.task.problems import Problem
from breadth.measure.answers import answer_key
from breadth.measure.diversity import answer_entropy
from breadth.measure.validate import FloatArray
from breadth.runtime.driver import Driver, SolveResult
from breadth.runtime.sampler import Sampler
from breadth.runtime.solve_context import gather_or_cancel

AT_ONCE = 128
"""Problems being answered at one time: enough to fill the batches, few enough for little memory."""
ANSWER = 8
"""Tokens kept for the answer behind forced thinking; it takes two."""
MARKS = Thinking(open=OPEN, close=CLOSE, cue=f" {AGAIN}", final="")
"""How the reasoner marks its thinking; one more attempt is what it says itself where it goes on."""


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

    def accuracies(self) -> FloatArray:
        """Return the share of right answers of each problem."""
        return np.asarray(np.mean(self.right, 1), np.float64)

    def entropies(self) -> FloatArray:
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


@dataclass(frozen=True)
class Question:
    """What is asked, of whatever model."""

    prompt: str
    """The text that is continued."""
    answer: str
    """The right answer."""
    marks: Thinking
    """How thinking is marked in the reply, and what makes it go on."""


@dataclass(frozen=True)
class Ways:
    """How questions are answered."""

    thinking: int
    """Tokens of the long thought: exactly so many."""
    repeats: int = 4
    """Answers to each question, each way."""
    seed: int = 0
    """Of every draw."""
    sampling: Sampling = PLAIN
    """How the replies that vote are drawn."""
    room: int = ANSWER
    """Tokens kept for the answer behind the long thought."""
    reading: Reading = Reading("whole")
    """Where the answer stands in a reply, behind its thinking."""

    def __post_init__(self) -> None:
        require(self, "thinking", self.thinking >= 1, "1 or more tokens")
        require(self, "repeats", self.repeats >= 1, "1 or more")
        require(self, "room", self.room >= 1, "1 or more tokens")

    def tasks(self, questions: Sequence[Question], sampling: Sampling) -> list[Task]:
        """Return a task for each question and repeat, question by question."""
        return [
            Task(
                question.prompt,
                f"{place}-{repeat}",
                sampling=sampling,
                reading=self.reading,
                seed=self.seed * self.repeats + repeat,
            )
            for place, question in enumerate(questions)
            for repeat in range(self.repeats)
        ]

    def strategies(self, questions: Sequence[Question]) -> list[Strategy]:
        """Return the long thought for each question and repeat."""
        return [
            BudgetForcing(cues=0, minimum=self.thinking, maximum=self.thinking, thinking=question.marks)
            for question in questions
            for _ in range(self.repeats)
        ]


def answer_both_ways(
    reasoner: Reasoner, problems: Sequence[Problem], *, thinking: int, repeats: int = 4, seed: int = 0
) -> BothWays:
    """Let the reasoner answer problems both ways; an end of thinking before the budget becomes one more attempt."""
    prime = reasoner.teacher.facts.prime
    questions = [Question(problem.text, str(problem.answer(prime)), MARKS) for problem in problems]
    return answer_questions(lambda: ReasonerSampler(reasoner), questions, Ways(thinking, repeats, seed))


def answer_questions(opened: Callable[[], Sampler], questions: Sequence[Question], ways: Ways) -> BothWays:
    """Answer each question several times by a thought of exactly so many tokens, then by a vote for no more than that has cost.

    Both go through the driver, with the sampler that is opened here and closed in the end. The long thought is budget
    forcing: thinking that ends before the budget is made to go on, and at the budget it is cut. The vote is adaptive:
    independent replies one after the other, until the leading answer is unlikely to be overtaken or another reply of
    usual length no longer fits into what the long thought has used; what it does not need it saves. One after the
    other, so that nothing depends on which of several arrives first: the same seed gives the same answers.
    """
    return asyncio.run(_both(opened, list(questions), ways))


async def _both(opened: Callable[[], Sampler], questions: list[Question], ways: Ways) -> BothWays:
    sampler = opened()
    try:
        forced = replace(ways.sampling, max_tokens=ways.thinking + ways.room)
        long = await _solved(sampler, ways.strategies(questions), ways.tasks(questions, forced), None)
        spent = [one.spend.output_tokens for one in long]
        tasks = ways.tasks(questions, ways.sampling)
        short = await _solved(sampler, [AdaptiveVote(width=1)] * len(tasks), tasks, spent)
    finally:
        await sampler.close()
    return BothWays(
        ways.thinking, _replies(long, questions, ways.repeats, spent), _replies(short, questions, ways.repeats, spent)
    )


async def _solved(
    sampler: Sampler, strategies: Sequence[Strategy], tasks: Sequence[Task], most: Sequence[int] | None
) -> list[SolveResult]:
    """Solve tasks, each by its own strategy within its own budget; a draw that breaks breaks the whole, for it is no wrong answer."""
    driver, places = Driver(sampler), asyncio.Semaphore(AT_ONCE)

    async def one(place: int, task: Task) -> SolveResult:
        async with places:
            solved = await driver.solve(
                strategies[place], task, budget=Budget(output_tokens=None if most is None else most[place])
            )
        if solved.last_error is not None:
            raise solved.last_error
        return solved

    return await gather_or_cancel(one(place, task) for place, task in enumerate(tasks))


def _replies(solved: list[SolveResult], questions: list[Question], repeats: int, allowed: list[int]) -> Replies:
    keys = [one.answer.key or "" for one in solved]
    truths = [answer_key(question.answer) for question in questions for _ in range(repeats)]
    right = [key == truth for key, truth in zip(keys, truths, strict=True)]
    rows = [slice(start, start + repeats) for start in range(0, len(solved), repeats)]
    tokens = [one.spend.output_tokens for one in solved]
    return Replies(
        tuple(tuple(keys[row]) for row in rows),
        tuple(tuple(right[row]) for row in rows),
        tuple(tuple(tokens[row]) for row in rows),
        tuple(tuple(allowed[row]) for row in rows),
    )
