"""The model as a judge: its score is read, its cost is charged, its silence is no score."""

from __future__ import annotations

import asyncio

import pytest

from breadth.inference.records import Ask, Candidate, Task
from breadth.inference.strategies.best_of_n import BestOfN
from breadth.runtime.driver import Driver, Solved
from breadth.runtime.judges import ModelJudge
from breadth.runtime.sampler import Draw
from breadth.runtime.samplers.scripted import Said, ScriptedSampler
from breadth.runtime.solving import Verdict

TASK = Task(({"role": "user", "content": "6 x 7?"},))


def verdict(reply: str | None) -> tuple[Verdict, list[Ask]]:
    asked: list[Ask] = []

    async def draw(ask: Ask) -> Candidate | None:
        asked.append(ask)
        return None if reply is None else Candidate(reply)

    return asyncio.run(ModelJudge()(TASK, Candidate("It is 42."), draw)), asked


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("All right. Score: 9", 0.9),
        ("Score: 2 at first.\nScore: **10**", 1.0),
        ("score = 0", 0.0),
        ("Score: 55", None),
        ("I cannot say.", None),
        ("", None),
        (None, None),
    ],
)
def test_the_last_score_counts(reply: str | None, score: float | None) -> None:
    assert verdict(reply)[0].score == score


def test_it_sees_question_and_solution_and_draws_greedily() -> None:
    (ask,) = verdict("Score: 5")[1]
    assert isinstance(ask.prompt, tuple)
    assert "6 x 7?" in ask.prompt[0]["content"]
    assert "It is 42." in ask.prompt[0]["content"]
    assert ask.sampling is not None
    assert ask.sampling.temperature == 0


def test_the_best_scored_wins_and_judgements_are_charged() -> None:
    def say(draw: Draw, number: int) -> Said:
        text = str(draw.prompt)
        if "Proposed solution" in text:
            return "Score: 9" if "is 42" in text else "Score: 1"
        return f"The answer is {40 + number}."

    async def main() -> Solved:
        return await Driver(ScriptedSampler(say), judges={"default": ModelJudge()}).solve(BestOfN(3), TASK)

    solved = asyncio.run(main())
    assert solved.answer.key == "42"
    assert solved.spend.calls == 6
