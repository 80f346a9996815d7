"""Strategies that continue a reply, on a real llama.cpp server: models with and without marked thinking.

What a small model writes differs between processors. So the server holds it to a grammar: words and commas without end.
"""

from __future__ import annotations

import asyncio

from breadth.inference.records import Reading, Sampling, Task
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.early_exit import EarlyExit
from breadth.inference.strategies.parallel_thinking import ParallelThinking
from breadth.inference.strategy import Strategy
from breadth.inference.thinking import UNMARKED_THINKING
from breadth.runtime.connect import connect
from breadth.runtime.driver import Driver, SolveResult

TASK = Task(
    ({"role": "user", "content": "What is 6 times 7? Think step by step."},),
    sampling=Sampling(max_tokens=60),
    reading=Reading("number"),
    seed=1,
    options={"grammar": 'root ::= ([a-z]{1,8} ", ")+', "ignore_eos": True},
)


def solved(url: str, *strategies: Strategy) -> list[SolveResult]:
    async def main() -> list[SolveResult]:
        sampler = await connect([url])
        try:
            return [await Driver(sampler).solve(strategy, TASK) for strategy in strategies]
        finally:
            await sampler.close()

    return asyncio.run(main())


def test_a_plain_model_thinks_exactly_so_long_and_is_made_to_answer(llama: str) -> None:
    (result,) = solved(llama, BudgetForcing(cues=0, minimum=24, maximum=24, thinking=UNMARKED_THINKING))
    first, answer = result.answer.candidates[0], result.answer.candidates[-1]
    assert result.answer.figures["thinking_tokens"] == 24
    assert answer.prefix == first.text.rstrip("\n") + "\nFinal Answer:"
    assert answer.text
    assert result.spend.output_tokens == sum(candidate.tokens for candidate in result.answer.candidates) <= 60


def test_a_marked_model_thinks_exactly_so_long_and_is_made_to_answer(thinking_llama: str) -> None:
    (result,) = solved(thinking_llama, BudgetForcing(cues=0, minimum=40, maximum=40))
    thinking = result.answer.candidates[:-1]
    assert sum(candidate.tokens for candidate in thinking) == 40
    assert result.answer.text.startswith("<think>\n")
    assert result.answer.text.count("</think>") == 1
    assert result.answer.text.count("Wait") >= result.answer.figures["cues"]


def test_a_sure_trial_ends_the_thinking_at_the_turn(llama: str) -> None:
    sure, never = solved(
        llama,
        EarlyExit(threshold=0.0, turns=(",",), thinking=UNMARKED_THINKING),
        EarlyExit(threshold=1.0, trials=1, turns=(",",), thinking=UNMARKED_THINKING),
    )
    piece, trial, answer = sure.answer.candidates
    assert piece.finish == "halt"
    assert piece.text.count(",") == 1
    assert trial.prefix == piece.text.partition(",")[0] + "\n**Final Answer**\n\\boxed"
    assert trial.logprobs is not None
    assert 0 < sure.answer.figures["trial_confidence"] <= 1
    assert answer.prefix == piece.text.partition(",")[0] + "\nFinal Answer:"
    assert never.answer.figures["exited"] == 0
    thought = never.answer.candidates[0]
    assert never.answer.text.startswith(thought.text)
    assert len(never.answer.text) > len(thought.text)


def test_traces_side_by_side_keep_to_their_tokens(llama: str) -> None:
    (result,) = solved(llama, ParallelThinking(200, width=4))
    assert result.spend.output_tokens == result.answer.figures["tokens"] <= 200
    assert result.answer.figures["traces"] >= 3
