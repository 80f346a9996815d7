"""Samples from a real llama.cpp server: text, log-probs, seeds, prefixes, halts, cancelling, caps, refusals.

What a small model writes differs between processors: where a test needs some text, the server holds it to a grammar.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.request import urlopen

import pytest

from breadth.adapters.llama_cpp import LlamaCppDialect
from breadth.base.errors import ServerError
from breadth.inference.halting import Phrase
from breadth.inference.records import Candidate, Sampling
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.openai import OpenAISampler

CHAT = ({"role": "user", "content": "Count from one to twenty in words."},)
SHORT = Sampling(temperature=1.0, top_p=1.0, max_tokens=24)
COUNTING = {"grammar": 'root ::= "one two, three, four, " ([a-z]{1,8} ", ")+', "ignore_eos": True}
"""It counts to four, goes on in words and never ends."""


def use(url: str, work: Callable[[OpenAISampler], Awaitable[Any]], dialect: LlamaCppDialect = LlamaCppDialect()) -> Any:  # noqa: B008 - frozen
    async def main() -> Any:
        sampler = OpenAISampler(url, dialect=dialect)
        try:
            return await work(sampler)
        finally:
            await sampler.close()

    return asyncio.run(main())


def drawn(url: str, draw: SampleRequest, meter: Meter | None = None) -> Candidate:
    candidate: Candidate = use(url, lambda sampler: sampler.sample(draw, meter or Meter()))
    return candidate


def busy(url: str) -> int:
    with urlopen(f"{url}/slots", timeout=60) as reply:  # noqa: S310 - the address of our own server
        return sum(slot["is_processing"] for slot in json.load(reply))


def decoded(url: str) -> int:
    """Return how many tokens, or batches of them, the server has computed since it started."""
    with urlopen(f"{url}/metrics", timeout=60) as reply:  # noqa: S310 - the address of our own server
        lines = reply.read().decode().splitlines()
    return next(int(float(line.split()[1])) for line in lines if line.startswith("llamacpp:n_decode_total"))


def test_a_draw_with_log_probs(llama: str) -> None:
    meter = Meter()
    candidate = drawn(
        llama, SampleRequest(CHAT, Sampling(temperature=0, max_tokens=16, top_logprobs=20), options=COUNTING), meter
    )
    assert candidate.finish == "length"
    assert candidate.model == "smollm2"
    assert candidate.tokens == meter.tokens == 16
    assert candidate.prompt_tokens == meter.prompt_tokens > 10
    assert candidate.logprobs is not None
    assert candidate.confidences is not None
    assert len(candidate.logprobs) == len(candidate.confidences) == 16
    assert (candidate.logprobs <= 0).all()
    assert (candidate.confidences > 1.0).all(), "minus the mean of 20 log-probs is at least ln 20 minus the rest"
    assert candidate.text.strip()


def test_seeds_repeat_and_differ(llama: str) -> None:
    alone = {"cache_prompt": False}  # a server that batches draws, or reuses a prompt, rounds differently each time

    async def work(sampler: OpenAISampler) -> list[str]:
        requests = [SampleRequest(CHAT, SHORT, seed=seed, options=alone) for seed in (1, 1, 2, 3, 1, 4)]
        return [(await sampler.sample(request, Meter())).text for request in requests]

    texts = use(llama, work)
    assert texts[0] == texts[1] == texts[4]
    assert len(set(texts)) > 1


def test_a_beginning_is_continued_and_not_repeated(llama: str) -> None:
    four = {"grammar": 'root ::= " four"'}
    candidate = drawn(llama, SampleRequest(CHAT, Sampling(max_tokens=8), prefix="One, two, three,", options=four))
    assert (candidate.text, candidate.full_text) == (" four", "One, two, three, four")


def test_a_halt_frees_the_slot(llama: str) -> None:
    async def work(sampler: OpenAISampler) -> Candidate:
        await sampler.sample(SampleRequest(CHAT, Sampling(temperature=0, max_tokens=2)), Meter())
        meter = Meter()
        candidate = await sampler.sample(
            SampleRequest(CHAT, Sampling(temperature=0, max_tokens=400), halt=Phrase((",",)), options=COUNTING), meter
        )
        assert meter.tokens == candidate.tokens < 100
        assert meter.prompt_tokens == candidate.prompt_tokens > 10
        async with asyncio.timeout(120):
            while await asyncio.to_thread(busy, llama):
                await asyncio.sleep(0.01)
        return candidate

    candidate = use(llama, work)
    assert candidate.finish == "halt"
    assert candidate.text.startswith("one two,")
    assert candidate.text.count(",") == 1


def test_a_cancelled_draw_frees_its_slot(llama: str) -> None:
    async def work(sampler: OpenAISampler) -> None:
        for seed in range(5):
            meter, sampling = Meter(), Sampling(max_tokens=900)
            request = SampleRequest(CHAT, sampling, seed=seed, options={"ignore_eos": True})
            draw = asyncio.create_task(sampler.sample(request, meter))
            while meter.tokens < 3:
                await asyncio.sleep(0.01)
            assert await asyncio.to_thread(busy, llama) == 1
            draw.cancel()
            await asyncio.gather(draw, return_exceptions=True)
            while await asyncio.to_thread(busy, llama):
                await asyncio.sleep(0.002)
            assert meter.prompt_tokens > 0

    before = decoded(llama)
    use(llama, work)
    assert 15 <= decoded(llama) - before < 5 * 900 / 2  # it would have written all of them


def test_more_draws_than_slots_all_arrive(llama: str) -> None:
    async def work(sampler: OpenAISampler) -> list[Candidate]:
        return list(
            await asyncio.gather(
                *(sampler.sample(SampleRequest(CHAT, SHORT, seed=seed), Meter()) for seed in range(20))
            )
        )

    candidates = use(llama, work)
    assert len({candidate.text for candidate in candidates}) > 10
    assert all(0 < candidate.tokens <= 24 for candidate in candidates)


def test_a_stop_text_is_not_in_the_text_but_in_the_cost(llama: str) -> None:
    stopping = Sampling(temperature=0, max_tokens=60, stop=("three",))
    candidate = drawn(llama, SampleRequest(CHAT, stopping, options=COUNTING))
    assert (candidate.finish, candidate.text.strip()) == ("stop", "one two,")
    assert candidate.tokens >= 4


def test_a_prompt_that_is_too_long_is_refused_in_words(llama: str) -> None:
    with pytest.raises(ServerError, match=r"status 400.*context") as caught:
        drawn(llama, SampleRequest(({"role": "user", "content": "word " * 3000},), SHORT))
    assert caught.value.fatal
    assert "shorten" in caught.value.remedy


def test_models(llama: str) -> None:
    assert use(llama, lambda sampler: sampler.list_models()) == ["smollm2"]


def test_a_plain_text_is_continued(llama: str) -> None:
    candidate = drawn(
        llama,
        SampleRequest(
            "1, 2, 3, 4, 5, 6, 7, 8,",
            Sampling(temperature=0, max_tokens=4, top_logprobs=5),
            prefix=" 9, 10,",
            options={"grammar": 'root ::= " 11, 12, 13, 14"'},
        ),
    )
    assert candidate.text.startswith(" 11")
    assert candidate.full_text.startswith(" 9, 10, 11")
    assert candidate.logprobs is not None
    assert candidate.confidences is not None
    assert len(candidate.logprobs) == 4


def test_thinking_comes_apart_and_its_cap_is_checked(thinking_llama: str) -> None:
    endless = {"ignore_eos": True}
    free = drawn(thinking_llama, SampleRequest(CHAT, Sampling(temperature=0, max_tokens=60), options=COUNTING))
    assert free.reasoning
    capped = drawn(
        thinking_llama, SampleRequest(CHAT, Sampling(temperature=0, max_tokens=60, thinking_tokens=5), options=endless)
    )
    assert 0 < capped.thinking_tokens <= 5 + 16 < free.thinking_tokens
    assert "cap_ignored" not in capped.message


def test_a_connection_that_was_closed_behind_our_back_costs_no_draw(llama: str) -> None:
    async def work() -> int:
        sampler = OpenAISampler(llama, dialect=LlamaCppDialect(), attempts=1)
        meter = Meter()
        try:
            for number in range(25):  # one after the other, so that each finds the connection of the one before
                await sampler.sample(SampleRequest("one two", Sampling(max_tokens=1), seed=number), meter)
        finally:
            await sampler.close()
        return meter.calls

    assert asyncio.run(work()) == 25
