"""One policy answers the same prompts at equal tokens by one long thought, and by a vote over independent replies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from breadth.base.errors import require
from breadth.inference.records import Budget, Reading, Sampling, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategy import Strategy
from breadth.inference.thinking import Thinking
from breadth.lab.evaluation.evaluate import PLAIN_SAMPLING
from breadth.lab.reasoner import Reasoner
from breadth.lab.sampling.sampler import ReasonerSampler
from breadth.lab.task.grammar import AGAIN, CLOSE, OPEN
from breadth.lab.task.problems import Problem
from breadth.measure.answers import answer_key
from breadth.measure.diversity import answer_entropy
from breadth.measure.validate import FloatArray
from breadth.runtime.driver import Driver, SolveResult
from breadth.runtime.sampler import Sampler
from breadth.runtime.solve_context import gather_or_cancel

MAX_CONCURRENT = 128
"""Problems answered concurrently: enough to fill the batches, few enough for little memory."""
ROUTES_ANSWER_TOKENS = 8
"""Tokens kept for the answer behind forced thinking; it takes two."""
ROUTES_THINKING = Thinking(open=OPEN, close=CLOSE, cue=f" {AGAIN}", final="")
"""How the reasoner marks its thinking; ``again`` is its own word for one more attempt."""


@dataclass(frozen=True)
class FinalAnswers:
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
    def unreadable(self) -> float:
        """Share of repeats without a readable answer."""
        return float(np.mean([answer == "" for row in self.answers for answer in row]))


@dataclass(frozen=True)
class ExtendedVsParallel:
    """The same problems answered by one long thought and by vote."""

    thinking: int
    """Thinking tokens that were forced."""
    extended: FinalAnswers
    """One long thought to each."""
    parallel: FinalAnswers
    """A vote, for at most what the long thought has cost on the same problem and repeat."""


@dataclass(frozen=True)
class GradedPrompt:
    """A prompt with its right answer, for any model."""

    prompt: str
    """The text that is continued."""
    answer: str
    """The right answer."""
    thinking: Thinking
    """How thinking is marked in the reply, and what makes it continue."""


@dataclass(frozen=True)
class AnswerPlan:
    """How prompts are answered."""

    thinking: int
    """Tokens of the long thought: exactly so many."""
    repeats: int = 4
    """Answers to each question, each way."""
    seed: int = 0
    """Seed of all sampling."""
    sampling: Sampling = PLAIN_SAMPLING
    """How the replies that vote are drawn."""
    answer_tokens: int = ROUTES_ANSWER_TOKENS
    """Tokens kept for the answer behind the long thought."""
    reading: Reading = Reading("whole")
    """How to read the answer in a reply, after its thinking."""

    def __post_init__(self) -> None:
        require(self, "thinking", self.thinking >= 1, "1 or more tokens")
        require(self, "repeats", self.repeats >= 1, "1 or more")
        require(self, "answer_tokens", self.answer_tokens >= 1, "1 or more tokens")

    def tasks(self, questions: Sequence[GradedPrompt], sampling: Sampling) -> list[Task]:
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

    def strategies(self, questions: Sequence[GradedPrompt]) -> list[Strategy]:
        """Return the long thought for each question and repeat."""
        return [
            BudgetForcing(cues=0, minimum=self.thinking, maximum=self.thinking, thinking=question.thinking)
            for question in questions
            for _ in range(self.repeats)
        ]


def answer_extended_and_parallel(
    reasoner: Reasoner, problems: Sequence[Problem], *, thinking: int, repeats: int = 4, seed: int = 0
) -> ExtendedVsParallel:
    """Let the reasoner answer problems by both modes; thinking that ends before the budget starts one more attempt."""
    prime = reasoner.teacher.facts.prime
    questions = [GradedPrompt(problem.text, str(problem.answer(prime)), ROUTES_THINKING) for problem in problems]
    return answer_prompts(lambda: ReasonerSampler(reasoner), questions, AnswerPlan(thinking, repeats, seed))


def answer_prompts(
    opened: Callable[[], Sampler], questions: Sequence[GradedPrompt], ways: AnswerPlan
) -> ExtendedVsParallel:
    """Answer each prompt several times by a thought of an exact length, then by a vote that may cost no more.

    Both go through the driver, with a sampler that is opened and closed here. The long thought is budget forcing:
    thinking that ends before the budget is made to continue, and at the budget it is cut. The vote is adaptive:
    independent replies one after the other, until the leading answer is unlikely to be overtaken or another reply of
    usual length no longer fits into what the long thought has used; what it does not need it saves. One after the
    other, so that nothing depends on which of several arrives first: the same seed gives the same answers.
    """
    return asyncio.run(_answer_all(opened, list(questions), ways))


async def _answer_all(
    opened: Callable[[], Sampler], questions: list[GradedPrompt], ways: AnswerPlan
) -> ExtendedVsParallel:
    sampler = opened()
    try:
        forced = replace(ways.sampling, max_tokens=ways.thinking + ways.answer_tokens)
        long = await _solve_all(sampler, ways.strategies(questions), ways.tasks(questions, forced), None)
        spent = [result.spend.output_tokens for result in long]
        tasks = ways.tasks(questions, ways.sampling)
        short = await _solve_all(sampler, [AdaptiveVote(width=1)] * len(tasks), tasks, spent)
    finally:
        await sampler.close()
    return ExtendedVsParallel(
        ways.thinking,
        _collect_answers(long, questions, ways.repeats, spent),
        _collect_answers(short, questions, ways.repeats, spent),
    )


async def _solve_all(
    sampler: Sampler, strategies: Sequence[Strategy], tasks: Sequence[Task], most: Sequence[int] | None
) -> list[SolveResult]:
    """Solve tasks, each by its own strategy within its own budget; a failed sample raises, as it is no wrong answer."""
    driver, places = Driver(sampler), asyncio.Semaphore(MAX_CONCURRENT)

    async def one(place: int, task: Task) -> SolveResult:
        async with places:
            solved = await driver.solve(
                strategies[place], task, budget=Budget(output_tokens=None if most is None else most[place])
            )
        if solved.last_error is not None:
            raise solved.last_error
        return solved

    return await gather_or_cancel(one(place, task) for place, task in enumerate(tasks))


def _collect_answers(
    solved: list[SolveResult], questions: list[GradedPrompt], repeats: int, allowed: list[int]
) -> FinalAnswers:
    keys = [result.answer.key or "" for result in solved]
    truths = [answer_key(question.answer) for question in questions for _ in range(repeats)]
    right = [key == truth for key, truth in zip(keys, truths, strict=True)]
    rows = [slice(start, start + repeats) for start in range(0, len(solved), repeats)]
    tokens = [result.spend.output_tokens for result in solved]
    return FinalAnswers(
        tuple(tuple(keys[row]) for row in rows),
        tuple(tuple(right[row]) for row in rows),
        tuple(tuple(tokens[row]) for row in rows),
        tuple(tuple(allowed[row]) for row in rows),
    )
