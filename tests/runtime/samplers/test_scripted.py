"""A scripted sampler keeps to its script and to what a draw allows, and is charged as it speaks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest

from breadth.base.errors import ServerError
from breadth.inference.halting import Halt, Watcher
from breadth.inference.records import Candidate, Sampling
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.scripted import ScriptedSampler
from breadth.testing.fake_server import wait_until


def test_a_list_is_handed_out_in_order() -> None:
    async def main() -> None:
        sampler = ScriptedSampler(["a b", Candidate("c", tokens=7, finish="length"), ServerError("broken", "wait")])
        meter = Meter()
        first = await sampler.sample(SampleRequest("q", seed=3, prefix="p"), meter)
        assert (first.text, first.tokens, first.seed, first.prefix, first.finish) == ("a b", 2, 3, "p", "stop")
        assert meter == Meter(calls=1, prompt_tokens=10, tokens=2)
        second = await sampler.sample(SampleRequest("q"), Meter())
        assert (second.tokens, second.finish) == (7, "length")
        with pytest.raises(ServerError, match="broken"):
            await sampler.sample(SampleRequest("q"), Meter())
        with pytest.raises(ServerError, match="3 lines"):
            await sampler.sample(SampleRequest("q"), Meter())
        assert len(sampler.requests) == 4
        await sampler.close()
        assert sampler.closed

    asyncio.run(main())


def test_a_function_sees_the_draw_and_its_number() -> None:
    async def main() -> None:
        sampler = ScriptedSampler(lambda draw, number: f"{draw.prompt} {number}")
        assert [(await sampler.sample(SampleRequest(one), Meter())).text for one in "xy"] == ["x 0", "y 1"]

    asyncio.run(main())


def test_caps_and_stop_texts_cut() -> None:
    async def main() -> None:
        sampler = ScriptedSampler(lambda draw, number: "one two three four")
        cut = await sampler.sample(SampleRequest("q", Sampling(max_tokens=2)), Meter())
        assert (cut.text, cut.tokens, cut.finish) == ("one two", 2, "length")
        stopped = await sampler.sample(SampleRequest("q", Sampling(stop=("three", "four"))), Meter())
        assert (stopped.text, stopped.finish) == ("one two ", "stop")

    asyncio.run(main())


@dataclass(frozen=True)
class Below(Halt):
    """Ends a completion at the first confidence under a limit."""

    limit: float = 1.0

    def watch(self) -> Watcher:
        return _Below(self.limit)


@dataclass
class _Below:
    limit: float

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        return confidence < self.limit


def test_a_halt_rule_is_run_word_by_word() -> None:
    async def main() -> None:
        values = np.array([3, 2, 0.5, 3], np.float32)
        sampler = ScriptedSampler([Candidate("a b c d", confidences=values), "no confidences at all"])
        halted = await sampler.sample(SampleRequest("q", halt=Below()), Meter())
        assert (halted.text, halted.tokens, halted.finish) == ("a b c", 3, "halt")
        assert halted.confidences is not None
        assert halted.confidences.tolist() == [3, 2, 0.5]
        assert (await sampler.sample(SampleRequest("q", halt=Below()), Meter())).finish == "stop"

    asyncio.run(main())


def test_a_draw_cancelled_half_way_has_used_half() -> None:
    async def main() -> None:
        sampler, meter = ScriptedSampler(["a b c d e f g h i j"], seconds=1.0), Meter()
        draw = asyncio.create_task(sampler.sample(SampleRequest("q"), meter))
        await wait_until(lambda: meter.tokens >= 3)
        assert sampler.in_flight == 1
        draw.cancel()
        await asyncio.gather(draw, return_exceptions=True)
        assert 3 <= meter.tokens < 10
        assert (sampler.cancelled, sampler.in_flight, sampler.max_in_flight) == (1, 0, 1)

    asyncio.run(main())


def test_a_draw_that_takes_too_long_fails() -> None:
    async def main() -> None:
        sampler = ScriptedSampler(lambda draw, number: "a", seconds=lambda number: 5.0 * number)
        assert (await sampler.sample(SampleRequest("q", seconds=0.1), Meter())).text == "a"
        with pytest.raises(ServerError, match=r"longer than 0\.1 s"):
            await sampler.sample(SampleRequest("q", seconds=0.1), Meter())

    asyncio.run(main())
