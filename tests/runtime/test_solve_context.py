"""The model as a judge: its score is read, its cost is charged, its silence is no score."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from pathlib import Path

import pytest

from breadth.base.errors import ServerError, StrategyError
from breadth.inference.halting import Loop, Phrase
from breadth.inference.records import Ask, Budget, Candidate, Sampling, Spend, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.best_of_n import BestOfN
from breadth.runtime import solve_context
from breadth.runtime.driver import Driver, SolveResult
from breadth.runtime.journal import Journal, JournalEvent
from breadth.runtime.ledger import Ledger
from breadth.runtime.sampler import SampleRequest
from breadth.runtime.samplers.scripted import ScriptedOutcome, ScriptedSampler
from breadth.runtime.solve_context import (
    JUDGE_PATH,
    JudgeFunction,
    Judgement,
    JudgeSampler,
    ModelJudge,
    SolveContext,
    clean_surrogates,
    estimate_prompt_tokens,
    gather_or_cancel,
    new_trace_id,
    sample_seed,
)

TASK = Task("6 x 7 =", "q", sampling=Sampling(max_tokens=9), seed=3)


def test_seeds_depend_on_task_seed_and_place_and_nothing_else() -> None:
    seeds = {
        sample_seed(task, place)
        for task in (TASK, TASK.with_seed(4), Task("", "r", seed=3))
        for place in ("0.0", "0.1")
    }
    assert len(seeds) == 6
    assert sample_seed(TASK, "0.0") == sample_seed(Task("another prompt", "q", seed=3), "0.0")


def test_the_prompt_of_a_task_is_estimated_once_for_all_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts: list[object] = []

    def estimate(prompt: object, prefix: str = "") -> int:
        prompts.append(prompt)
        return estimate_prompt_tokens(prompt, prefix)

    monkeypatch.setattr(solve_context, "estimate_prompt_tokens", estimate)

    async def sample() -> None:
        context = SolveContext(TASK, ScriptedSampler(lambda draw, number: Candidate("42")), Ledger())
        for number in range(3):
            await context.sample(Ask(), f"0.{number}", "")
        await context.sample(Ask(prompt="another"), "1", "")
        await context.sample(Ask(prefix="It is"), "2", "")

    asyncio.run(sample())
    assert prompts == [TASK.prompt, "another", TASK.prompt]


def test_a_failed_sample_leaves_no_garbage_behind() -> None:
    sampler = ScriptedSampler(lambda draw, number: ServerError("down", "Start it."))

    async def sample() -> int:
        context = SolveContext(TASK, sampler, Ledger())
        gc.collect()
        gc.disable()
        try:
            for number in range(20):
                await context.sample(Ask(), f"0.{number}", "")
            del context
            return gc.collect()
        finally:
            gc.enable()

    assert asyncio.run(sample()) < 20, "its error held the frames, and they the error"


def test_a_prompt_is_guessed_generously() -> None:
    text = "What is the sum of the first hundred whole numbers? " * 10
    assert estimate_prompt_tokens(text, "") > 11 * 10
    assert estimate_prompt_tokens(({"role": "user", "content": text},), "and so") > estimate_prompt_tokens(
        ({"role": "user", "content": text},), ""
    )
    assert estimate_prompt_tokens("", "") == 1
    assert estimate_prompt_tokens(["abc", "def"]) == 3, "several prompts"
    assert estimate_prompt_tokens([[5, 17], [3]]) == 4, "token ids"
    assert estimate_prompt_tokens([5, "abc", None]) == 4
    chat = {"role": "user", "content": "?"}
    plain = estimate_prompt_tokens((chat,))
    picture = {"type": "image_url", "image_url": {"url": "x" * 10**6}}
    for fields in (
        {"name": text},
        {"reasoning_content": text},
        {"tool_calls": [{"function": {"name": "f", "arguments": text}}]},
        {"content": [{"type": "text", "text": text}]},
    ):
        assert estimate_prompt_tokens((chat | fields,)) >= plain + 11 * 10
    assert plain + 1000 < estimate_prompt_tokens((chat | {"content": [picture]},)) < plain + 5000


def test_further_fields_count_against_the_budget() -> None:
    task = replace(TASK, options={"tools": [{"function": {"description": "word " * 100, "parameters": {"a" * 90: 1}}}]})
    for budget, samples in ((Budget(input_tokens=196), 0), (Budget(input_tokens=300), 1)):
        sampler = ScriptedSampler(["= 42"])
        asyncio.run(SolveContext(task, sampler, Ledger(budget)).sample(Ask(), "0.0", ""))
        assert len(sampler.requests) == samples


def test_no_strategy_asks_for_longer_completions_than_the_task_allows() -> None:
    sampler = ScriptedSampler(["= 42", "good"])
    context = SolveContext(TASK, sampler, Ledger())
    long = Ask(sampling=Sampling(max_tokens=10**6))
    asyncio.run(context.sample(long, "0.0", ""))
    asyncio.run(context.sample(long, "0.0:judge", JUDGE_PATH))
    assert [request.sampling.max_tokens for request in sampler.requests] == [9, 10**6], "a judge writes its own kind"


def test_halves_of_characters_are_replaced_and_nothing_else() -> None:
    assert clean_surrogates("naïve \U0001f600") == "naïve \U0001f600"
    assert clean_surrogates("a\ud83db") == "a?b"


def test_a_draw_is_sent_what_the_task_and_the_request_say() -> None:
    sampler = ScriptedSampler(["= 42"])
    solving = SolveContext(TASK, sampler, Ledger())
    ask = Ask(prefix="It is", model="other", sampling=Sampling(temperature=0.0, max_tokens=5))
    candidate = asyncio.run(solving.sample(ask, "0.0", ""))
    (draw,) = sampler.requests
    assert (draw.prompt, draw.prefix, draw.model, draw.sampling.temperature) == ("6 x 7 =", "It is", "other", 0.0)
    assert candidate is not None
    assert candidate.full_text == "It is= 42"
    assert candidate.draw_id == "0.0"


def test_ids_differ() -> None:
    assert len({new_trace_id() for _ in range(100)}) == 100


def judged(
    judge: JudgeFunction,
    sampler: ScriptedSampler,
    budget: Budget = Budget(),  # noqa: B008 - frozen
    by: str = "default",
) -> tuple[Candidate, SolveContext]:
    async def main() -> tuple[Candidate, SolveContext]:
        solving = SolveContext(TASK, sampler, Ledger(budget), {"default": judge})
        return await solving.judge(Candidate("x", draw_id="0.0"), by), solving

    return asyncio.run(asyncio.wait_for(main(), 10))


async def asking_judge(task: Task, candidate: Candidate, draw: JudgeSampler) -> Judgement:
    reply = await draw(Ask(purpose="judgement"))
    return Judgement(None if reply is None else 1.0)


def test_a_judge_that_hangs_ends_at_the_deadline() -> None:
    async def hanging(task: Task, candidate: Candidate, draw: JudgeSampler) -> Judgement:
        await asyncio.sleep(60)
        return Judgement(1.0)

    candidate, solving = judged(hanging, ScriptedSampler([]), Budget(seconds=0.05))
    assert candidate.score is None
    assert solving.budget_exhausted


def test_a_judge_that_is_not_there_is_named() -> None:
    with pytest.raises(StrategyError, match="need the judge 'nobody'"):
        judged(asking_judge, ScriptedSampler([]), by="nobody")


def test_a_judge_that_is_refused_for_good_does_not_stop_the_draws() -> None:
    def script(draw: SampleRequest, number: int) -> str | ServerError:
        return ServerError("too long", "shorten it", fatal=True) if number == 0 else "x"

    candidate, solving = judged(asking_judge, ScriptedSampler(script))
    assert candidate.score is None
    assert asyncio.run(solving.sample(Ask(), "0.1", "")) is not None
    assert asyncio.run(solving.sample(Ask(purpose="judgement"), "0.2", "")) is None, "nor is the judge tried again"


def test_a_candidate_judged_twice_is_taken_up_twice(tmp_path: Path) -> None:
    async def main(sampler: ScriptedSampler, journal: Journal) -> None:
        solving = SolveContext(TASK, sampler, Ledger(), {"default": asking_judge}, journal)
        for _ in range(2):
            await solving.judge(Candidate("x", draw_id="0.0"), "default")

    asyncio.run(main(ScriptedSampler(["a", "b"]), Journal(tmp_path)))
    idle = ScriptedSampler([])
    asyncio.run(main(idle, Journal.open(tmp_path)))
    assert idle.requests == []


def test_when_one_of_several_breaks_the_others_are_cancelled() -> None:
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("slow")

    async def broken() -> None:
        await asyncio.sleep(0)
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        asyncio.run(asyncio.wait_for(gather_or_cancel([slow(), broken()]), 10))
    assert ended == ["slow"]


def test_what_earlier_attempts_spent_is_charged_before_the_first_draw(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for path, kind in (("", "arrived"), ("0.1/", "arrived"), ("0.2/", "discarded"), ("judge", "failed")):
        candidate = Candidate("x") if kind == "arrived" else None
        journal.append(JournalEvent("q", path, "0.0", kind, Spend(calls=1, output_tokens=5), candidate))  # type: ignore[arg-type] # literals
    solving = SolveContext(TASK, ScriptedSampler([]), Ledger(), journal=Journal.open(tmp_path))
    assert solving.ledger.spent == Spend(calls=4, output_tokens=20)


def test_a_task_of_which_nothing_arrived_is_begun_again_and_once_only(tmp_path: Path) -> None:
    def drawn(sampler: ScriptedSampler) -> SolveResult:
        return asyncio.run(Driver(sampler, journal=Journal.open(tmp_path)).solve(AdaptiveVote(), TASK))

    down = drawn(ScriptedSampler(lambda draw, number: ServerError("status 500", "try again")))
    assert not down.arrived
    up = drawn(ScriptedSampler(lambda draw, number: "The answer is 42."))
    assert up.answer.key == "42"
    assert up.spend.calls == down.spend.calls + 4
    idle = ScriptedSampler([])
    assert drawn(idle).answer == up.answer
    assert idle.requests == []


def test_the_halt_of_a_task_holds_where_the_request_brings_none() -> None:
    looping = replace(TASK, sampling=Sampling(max_tokens=2000), halt=Loop(least=60, every=8))
    sampler = ScriptedSampler(lambda draw, number: "and so on, " * 400)
    cut = asyncio.run(SolveContext(looping, sampler, Ledger()).sample(Ask(), "0.0", ""))
    assert cut is not None
    assert cut.finish == "halt"
    assert cut.tokens < 300
    own = asyncio.run(SolveContext(looping, sampler, Ledger()).sample(Ask(halt=Phrase(("on,",))), "0.0", ""))
    assert own is not None
    assert own.tokens == 3


TASK_JUDGES = Task(({"role": "user", "content": "6 x 7?"},))


def verdict(reply: str | None) -> tuple[Judgement, list[Ask]]:
    asked: list[Ask] = []

    async def draw(ask: Ask) -> Candidate | None:
        asked.append(ask)
        return None if reply is None else Candidate(reply)

    return asyncio.run(ModelJudge()(TASK_JUDGES, Candidate("It is 42."), draw)), asked


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
    def say(draw: SampleRequest, number: int) -> ScriptedOutcome:
        text = str(draw.prompt)
        if "Proposed solution" in text:
            return "Score: 9" if "is 42" in text else "Score: 1"
        return f"The answer is {40 + number}."

    async def main() -> SolveResult:
        return await Driver(ScriptedSampler(say), judges={"default": ModelJudge()}).solve(BestOfN(3), TASK_JUDGES)

    solved = asyncio.run(main())
    assert solved.answer.key == "42"
    assert solved.spend.calls == 6
