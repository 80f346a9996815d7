"""The reasoner behind the driver agrees with the one-at-a-time sampler; many at once, cancelled cleanly."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import Any

import pytest

from breadth.base.errors import ServerError
from breadth.inference.halting import Halt, Watcher
from breadth.inference.records import Answer, Ask, Budget, Candidate, Reading, Run, Sampling, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.online_confidence_vote import OnlineConfidenceVote
from breadth.inference.strategy import Strategy
from breadth.inference.thinking import Thinking
from breadth.lab.reasoner import Reasoner, ReasonerShape, build_reasoner
from breadth.lab.sampling.sampler import ReasonerSampler
from breadth.lab.task.grammar import parse
from breadth.lab.task.problems import read_problem
from breadth.lab.task.teacher import ArithmeticFacts, Teacher
from breadth.runtime.driver import Driver, solve_all
from breadth.runtime.sampler import Meter, SampleRequest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")

from breadth.runtime.samplers.transformers import TransformersSampler  # noqa: E402 - only where torch is

QUESTION = "( 3 + 4 ) * ( 5 + 6 ) ="
CHAT = ({"role": "user", "content": QUESTION},)
PLAIN = Sampling(temperature=1.0, top_p=1.0, max_tokens=120)
MARKED = Thinking(open="<think>", close="</think>", cue=" again", final="")
WAIT = 20.0


def run(reasoner: Reasoner, work: Any) -> Any:
    """Run a coroutine function with a sampler that is closed behind it."""

    async def main() -> Any:
        sampler = ReasonerSampler(reasoner)
        try:
            return await work(sampler)
        finally:
            await sampler.close()

    return asyncio.run(main())


def drawn(reasoner: Reasoner, *draws: SampleRequest, meters: list[Meter] | None = None) -> list[Candidate]:
    async def work(sampler: ReasonerSampler) -> list[Candidate]:
        return list(
            await asyncio.gather(
                *(
                    sampler.sample(draw, meter)
                    for draw, meter in zip(draws, meters or [Meter() for _ in draws], strict=True)
                )
            )
        )

    found: list[Candidate] = run(reasoner, work)
    return found


def columns(candidate: Candidate) -> list[list[float]]:
    assert candidate.logprobs is not None
    assert candidate.confidences is not None
    return [column.tolist() for column in (candidate.logprobs, candidate.confidences, candidate.message["entropies"])]


async def idle(sampler: ReasonerSampler) -> bool:
    deadline = time.monotonic() + WAIT
    while sampler.engine.open and time.monotonic() < deadline:
        await asyncio.sleep(0.002)
    return sampler.engine.open == 0


@pytest.fixture(scope="module")
def endless() -> Reasoner:
    """A reasoner that says '1' for ever."""
    reasoner = build_reasoner(
        Teacher(ArithmeticFacts(prime=7)), ReasonerShape(hidden=32, layers=1, heads=2, inner=32, context=2048)
    )
    with torch.no_grad():
        reasoner.model.model.embed_tokens.weight[:] = 1.0
        reasoner.model.model.embed_tokens.weight[reasoner.tokenizer.convert_tokens_to_ids("1")] = 9.0
    return reasoner


def test_numbers_and_text_are_those_of_the_sampler_that_draws_one_at_a_time(memorised: Reasoner) -> None:
    slow = TransformersSampler(memorised.model, memorised.tokenizer)
    for sampling in (
        Sampling(temperature=0, max_tokens=40),
        Sampling(temperature=0, max_tokens=10),
        Sampling(temperature=0, max_tokens=40, top_logprobs=5),
    ):
        meters = [Meter(), Meter()]
        ours = drawn(memorised, SampleRequest(CHAT, sampling), meters=meters[:1])[0]
        theirs = asyncio.run(slow.sample(SampleRequest(CHAT, sampling), meters[1]))
        assert (ours.text, ours.reasoning, ours.finish) == (theirs.text, theirs.reasoning, theirs.finish)
        assert (ours.tokens, ours.thinking_tokens, ours.prompt_tokens) == (
            theirs.tokens,
            theirs.thinking_tokens,
            theirs.prompt_tokens,
        )
        for one, other in zip(columns(ours), columns(theirs), strict=True):
            assert one == pytest.approx(other, abs=1e-4)
        assert meters[0] == meters[1]
    asyncio.run(slow.close())


def test_replies_read_as_the_grammar_has_them(memorised: Reasoner) -> None:
    replies = drawn(memorised, *(SampleRequest(QUESTION, PLAIN, seed=seed) for seed in range(40)))
    formed = 0
    for reply in replies:
        words = f"<think>{reply.reasoning}</think>{reply.text} <eos>".split()
        formed += parse(read_problem(QUESTION), words).well_formed
        assert reply.finish != "stop" or reply.tokens == len(words)
        assert reply.thinking_tokens == len(reply.reasoning.split()) + 2  # with both marks
    assert formed >= 20, "some steps teach it the grammar well, not perfectly"
    assert len({reply.reasoning for reply in replies}) > 2
    again = drawn(memorised, SampleRequest(CHAT, PLAIN, seed=7))[0]
    assert (again.reasoning, again.text) == (replies[7].reasoning, replies[7].text), "alone, and as a chat"


def test_a_prefix_is_continued(memorised: Reasoner) -> None:
    greedy = Sampling(temperature=0, max_tokens=60)
    whole = drawn(memorised, SampleRequest(QUESTION, greedy))[0]
    reply = f"<think>{whole.reasoning}</think>{whole.text}"
    words = reply.split()
    for given in (words[:1], words[:4], words[:-1]):
        for gap in ("", " ", "\n"):
            rest = drawn(memorised, SampleRequest(QUESTION, greedy, prefix=" ".join(given) + gap))[0]
            assert rest.full_text.split() == words
            assert rest.text.startswith(" ") == (gap == "")
            assert (rest.reasoning, rest.thinking_tokens) == ("", 0)
            assert rest.prompt_tokens == 1 + len(QUESTION.split()) + len(given)


def test_stop_texts_end_it_and_are_left_out(memorised: Reasoner) -> None:
    greedy = Sampling(temperature=0, max_tokens=60)
    whole = drawn(memorised, SampleRequest(QUESTION, greedy, prefix="<think>"))[0].text
    words = whole.split()
    stops = ("</think>", f"{words[2]} {words[3]}", words[1])  # the second is of two tokens
    rules = [Sampling(temperature=0, max_tokens=60, stop=(stop,)) for stop in stops]
    for reply, stop in zip(
        drawn(memorised, *(SampleRequest(QUESTION, rule, prefix="<think>") for rule in rules)), stops, strict=True
    ):
        assert (reply.text, reply.finish) == (whole.partition(stop)[0], "stop")
        assert reply.tokens == len(
            (reply.text + stop).split()
        )  # the token that completes the stop text is written and paid for
    assert "</think>" in whole


@dataclass(frozen=True)
class After(Halt):
    """Ends a completion after some tokens, or breaks."""

    tokens: int = 3
    sound: bool = True

    def watch(self) -> Watcher:
        return _Counter(self.tokens, self.sound)


@dataclass
class _Counter:
    left: int
    sound: bool

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        if not self.sound:
            raise ValueError("a rule that breaks")
        assert text == " 1"
        assert logprob <= 0
        assert confidence > 0
        self.left -= 1
        return self.left <= 0


def test_halts_caps_and_deadlines_end_it(endless: Reasoner) -> None:
    async def work(sampler: ReasonerSampler) -> None:
        long = Sampling(temperature=0, max_tokens=1900)
        meter = Meter()
        halted = await sampler.sample(SampleRequest(QUESTION, long, "<think>", halt=After(3)), meter)
        assert (halted.tokens, halted.finish, halted.text, meter.tokens) == (3, "halt", " 1 1 1", 3)
        capped = await sampler.sample(SampleRequest(QUESTION, Sampling(temperature=0, max_tokens=5)), Meter())
        assert (capped.finish, capped.text) == ("length", "1 1 1 1 1")
        thought = await sampler.sample(
            SampleRequest(QUESTION, Sampling(temperature=0, max_tokens=5, thinking_tokens=2), "<think> 3"), Meter()
        )
        assert thought.text == " 1 </think> 1 1 1"
        with pytest.raises(ServerError, match="longer than"):
            await sampler.sample(SampleRequest(QUESTION, long, seconds=0.05), Meter())
        with pytest.raises(ValueError, match="a rule that breaks"):
            await sampler.sample(SampleRequest(QUESTION, long, halt=After(sound=False)), Meter())
        with pytest.raises(ServerError, match="penalty") as caught:
            await sampler.sample(SampleRequest(QUESTION, Sampling(presence_penalty=1.0)), Meter())
        assert caught.value.fatal
        assert await idle(sampler)

    run(endless, work)


def test_a_cancelled_draw_stops_at_the_source_and_is_charged_for_what_it_used(endless: Reasoner) -> None:
    async def work(sampler: ReasonerSampler) -> None:
        meters = [Meter() for _ in range(20)]
        long = Sampling(temperature=0, max_tokens=1900)
        tasks = [
            asyncio.create_task(sampler.sample(SampleRequest(QUESTION, long, seed=seed), meter))
            for seed, meter in enumerate(meters)
        ]
        while meters[-1].tokens < 2:
            await asyncio.sleep(0.001)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        used = [meter.tokens for meter in meters]
        assert await idle(sampler)
        assert [meter.tokens for meter in meters] == used
        assert all(2 <= tokens < 1900 for tokens in used)

    run(endless, work)


@dataclass(frozen=True)
class Hasty(Strategy):
    """Asks for many, some of them endless, and returns on the first."""

    def __call__(self, task: Task) -> Run:
        yield Ask(60, sampling=Sampling(temperature=0, max_tokens=1900), wait=0)
        first: list[Candidate] = yield Ask(1, sampling=Sampling(temperature=0, max_tokens=2), wait=1)
        return Answer(first[0], candidates=tuple(first))


def test_a_strategy_that_returns_early_leaves_no_row_running(endless: Reasoner) -> None:
    async def work(sampler: ReasonerSampler) -> None:
        solved = await Driver(sampler).solve(Hasty(), Task(QUESTION))
        assert solved.answer.text == "1 1"
        assert (solved.started, solved.discarded, solved.failed) == (61, 60, 0)
        assert solved.spend.output_tokens < 60 * 1900
        assert await idle(sampler)

    run(endless, work)


def test_votes_over_many_tasks_at_once(memorised: Reasoner) -> None:
    async def work(sampler: ReasonerSampler) -> None:
        tasks = [
            Task(CHAT, name=f"task {seed}", sampling=PLAIN, reading=Reading("whole"), seed=seed) for seed in range(12)
        ]
        answers = {}
        async for solved in solve_all(Driver(sampler), AdaptiveVote(most=16), tasks, concurrency=12):
            answers[solved.task.name] = solved.answer
            assert solved.failed == 0
            assert solved.spend.output_tokens >= sum(candidate.tokens for candidate in solved.arrived)
        # Most of the traces it knows by heart end in 0, one in 4.
        assert sum(answer.key == "0" for answer in answers.values()) >= 9
        alone = await Driver(sampler).solve(AdaptiveVote(most=16), tasks[5])
        assert sorted(alone.answer.votes.items()) == sorted(answers["task 5"].votes.items())
        assert await idle(sampler)

    run(memorised, work)


def test_confidences_are_good_enough_for_strategies_that_live_on_them(memorised: Reasoner) -> None:
    async def work(sampler: ReasonerSampler) -> None:
        task = Task(CHAT, sampling=PLAIN, reading=Reading("whole"))
        solved = await Driver(sampler).solve(OnlineConfidenceVote(), task, budget=Budget(output_tokens=3000))
        assert solved.answer.key in ("0", "4")
        assert solved.spend.output_tokens <= 3000
        assert await idle(sampler)

    run(memorised, work)


def test_thinking_is_forced_by_cues_and_cut_at_its_maximum(memorised: Reasoner) -> None:
    async def work(sampler: ReasonerSampler) -> tuple[Any, Any]:
        task = Task(CHAT, sampling=Sampling(temperature=0.5, top_p=1.0, max_tokens=220), reading=Reading("number"))
        more = await Driver(sampler).solve(BudgetForcing(cues=2, thinking=MARKED), task)
        less = await Driver(sampler).solve(BudgetForcing(cues=0, maximum=6, thinking=MARKED), task)
        return more, less

    more, less = run(memorised, work)
    words = more.answer.text.split()
    assert more.answer.figures["cues"] == 2
    assert words.count("again") >= 2
    assert "<unk>" not in words
    assert words[0] == "<think>"
    assert more.answer.key == re.findall(r"\d+", more.answer.text.rpartition("</think>")[2])[-1]
    assert less.answer.figures == {"cues": 0.0, "thinking_tokens": 6.0, "forced": 1.0}
    shorter = less.answer.text.split()
    assert shorter.index("</think>") == 7  # the opening mark and six thoughts
    assert less.answer.key == re.findall(r"\d+", less.answer.text.rpartition("</think>")[2])[-1]
