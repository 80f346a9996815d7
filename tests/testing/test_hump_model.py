"""The scripted model thinks as long as it is let and is right as often as it is told to be."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from breadth.inference.policy import Policy
from breadth.inference.records import Candidate, Sampling
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.thinking import PLAIN
from breadth.runtime.driver import Driver
from breadth.runtime.sampler import Draw, Meter
from breadth.testing.hump_model import FINAL, WORD, HumpModel

TRUTHS = {"1 + 1?": "2"}
PROMPT = ({"role": "user", "content": "1 + 1?"},)


def drawn(model: HumpModel, draw: Draw) -> tuple[Candidate, Meter]:
    meter = Meter()
    return asyncio.run(model.draw(draw, meter)), meter


def test_left_alone_it_thinks_and_answers() -> None:
    candidate, meter = drawn(HumpModel(lambda _: 1.0, TRUTHS, natural=5), Draw(PROMPT, Sampling(max_tokens=50)))
    assert candidate.text == WORD * 5 + "The answer is 2."
    assert (candidate.finish, candidate.tokens, meter.tokens, meter.calls) == ("stop", 9, 9, 1)


def test_without_room_it_is_cut_and_after_the_final_mark_it_answers_at_once() -> None:
    model = HumpModel(lambda words: float(words >= 7), TRUTHS, natural=5)
    assert drawn(model, Draw(PROMPT, Sampling(max_tokens=8)))[0].text == WORD * 8
    enough = Draw(PROMPT, prefix=WORD * 7 + FINAL)
    assert drawn(model, enough)[0].text == " 2."
    assert drawn(model, replace(enough, prefix=WORD * 6 + FINAL))[0].text == " 3."


def test_wrong_answers_are_one_or_many() -> None:
    same, many = (HumpModel(lambda _: 0.0, TRUTHS, misled=misled) for misled in (1.0, 0.0))
    assert len({drawn(same, Draw("1 + 1?", seed=seed))[0].text for seed in range(10)}) == 1
    assert len({drawn(many, Draw("1 + 1?", seed=seed))[0].text for seed in range(10)}) > 5


def test_confidences_come_when_asked_for() -> None:
    model = HumpModel(lambda _: 1.0, TRUTHS, surer=100.0)
    assert drawn(model, Draw(PROMPT))[0].confidences is None
    sure = drawn(model, Draw(PROMPT, Sampling(top_logprobs=20)))[0].confidences
    assert sure is not None
    assert sure[0] > 100


def test_forced_thinking_sees_the_accuracy_of_its_length() -> None:
    # 64 tokens: one piece of 36 (32 words and the answer), a cue, 28 words cut: 60 words.
    seen: list[int] = []

    def accuracy(words: int) -> float:
        seen.append(words)
        return float(words == 60)

    model = HumpModel(accuracy, TRUTHS)
    strategy = BudgetForcing(0, 64, 64, PLAIN)
    solved = asyncio.run(Driver(model).solve(strategy, Policy().task("1 + 1?")))
    assert seen == [32, 60]
    assert solved.answer.answer == "2"
    assert solved.spend.output_tokens == 64 + 4
