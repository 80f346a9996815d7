"""Stored completions are handed out each once; what was never drawn is refused in words."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest

from breadth.base.errors import ServerError
from breadth.inference.halting import Halt, Watcher
from breadth.inference.records import Candidate, Prompt, Sampling
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.recorded import RecordedSampler, prompt_key

CHAT = ({"role": "user", "content": "2 + 2?"},)


def drawn(count: int) -> list[Candidate]:
    return [Candidate(str(number), tokens=number + 1, prompt_tokens=9, cached_tokens=1) for number in range(count)]


async def texts(sampler: RecordedSampler, count: int, prompt: Prompt = CHAT) -> list[str]:
    return [(await sampler.sample(SampleRequest(prompt), Meter())).text for _ in range(count)]


def test_each_once_in_stored_order_by_prompt() -> None:
    async def main() -> None:
        sampler = RecordedSampler([(CHAT, drawn(3)), ("text", [Candidate("t")])])
        assert await texts(sampler, 2) == ["0", "1"]
        assert await texts(sampler, 1, "text") == ["t"]
        assert sampler.num_remaining == 1
        meter = Meter()
        assert (await sampler.sample(SampleRequest(CHAT), meter)).text == "2"
        assert meter == Meter(1, 9, 1, 3)
        with pytest.raises(ServerError, match="All 3 stored") as caught:
            await texts(sampler, 1)
        assert caught.value.fatal
        await sampler.close()

    asyncio.run(main())


def test_a_seed_draws_the_order() -> None:
    async def main() -> None:
        orders = [await texts(RecordedSampler([(CHAT, drawn(8))], shuffle=seed), 8) for seed in (1, 1, 2)]
        assert orders[0] == orders[1] != orders[2]
        assert all(sorted(order) == list("01234567") for order in orders)

    asyncio.run(main())


def test_what_was_never_drawn_is_refused() -> None:
    async def main() -> None:
        sampler = RecordedSampler([(CHAT, drawn(3))])
        for draw, said in (
            (SampleRequest("other"), "No completion of this prompt"),
            (SampleRequest(CHAT, prefix="It is"), "given prefix"),
        ):
            with pytest.raises(ServerError, match=said):
                await sampler.sample(draw, Meter())
        await texts(sampler, 2)
        with pytest.raises(ServerError, match="3 tokens, and 2 are allowed"):
            await sampler.sample(SampleRequest(CHAT, Sampling(max_tokens=2)), Meter())
        assert sampler.num_remaining == 1, "what is refused is not used up"

    asyncio.run(main())


def test_it_offers_what_all_have() -> None:
    scored = Candidate("a", logprobs=np.zeros(1, np.float32), confidences=np.zeros(1, np.float32))
    assert RecordedSampler([(CHAT, [scored])]).offers == {"logprobs", "confidences"}
    assert RecordedSampler([(CHAT, [scored, Candidate("b")])]).offers == set()
    assert RecordedSampler([]).offers == set()


@dataclass(frozen=True)
class Unsure(Halt):
    """Ends a completion at the first confidence under 1."""

    def watch(self) -> Watcher:
        return _Unsure()


class _Unsure:
    def push(self, text: str, logprob: float, confidence: float) -> bool:
        return confidence < 1


def test_a_halt_rule_is_run_over_what_is_stored() -> None:
    async def main() -> None:
        values = np.array([5, 5, 0, 5], np.float32)
        sampler = RecordedSampler([(CHAT, [Candidate("abcdefgh", tokens=4, logprobs=-values, confidences=values)] * 2)])
        meter = Meter()
        halted = await sampler.sample(SampleRequest(CHAT, halt=Unsure()), meter)
        assert (halted.text, halted.tokens, halted.finish, meter.tokens) == ("abcdef", 3, "halt", 3)
        assert halted.confidences is not None
        assert halted.confidences.tolist() == [5, 5, 0]
        assert (await sampler.sample(SampleRequest(CHAT), Meter())).finish == "stop"

    asyncio.run(main())


def test_prompts_are_told_apart_by_roles_and_texts() -> None:
    other = ({"role": "system", "content": "2 + 2?"},)
    parts = ({"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]},)
    assert prompt_key(CHAT) != prompt_key(other)
    assert prompt_key(CHAT) == prompt_key(parts)
