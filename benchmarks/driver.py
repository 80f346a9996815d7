"""512 streams with top-20 log-probs through our driver, beside the openai SDK and a bare aiohttp + msgspec loop.

Each client runs in a process of its own against the same fake server in another one; all work out the mean of the 20
log-probs of every token. What counts is tokens per second of processor time of the client, which a busy machine changes
little. The SDK gets fewer streams at a time, of the same length, for it takes so long.
Then draws are cancelled among 512 streams at a reader's pace, and the server says when it noticed.

Run: python benchmarks/driver.py
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import aiohttp
import msgspec

from breadth.inference.records import Answer, Ask, Candidate, Run, Sampling, Task
from breadth.inference.strategy import Strategy
from breadth.runtime.driver import Driver
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.openai import OpenAISampler
from breadth.testing.fake_server import spawn_server

STREAMS, TOKENS, TOP = 512, 200, 20
SDK_STREAMS = 128
ROUNDS = 4
REPEATS = 3
CANCELLED = 200
PACE, FAST_PACE = 0.1, 0.04
"""Seconds between tokens while samples are cancelled: 512 streams give 5,120 tokens a second, and 12,800.

For the latter the fake server and the client need more than one core, so it is printed and decides nothing.
"""
WANTED_OVER_SDK, WANTED_OVER_BARE, WANTED_CANCEL, WANTED_GROWTH = 10.0, 1.5, 0.05, 1.1
CHAT = ({"role": "user", "content": "Count."},)
BODY = {
    "model": "fake",
    "messages": [dict(CHAT[0])],
    "max_tokens": 100_000,
    "logprobs": True,
    "top_logprobs": TOP,
    "stream_options": {"include_usage": True},
}


@dataclass(frozen=True)
class Wide(Strategy):
    """Ask for everything at once and look at all of it."""

    draws: int = STREAMS
    """Completions."""

    def __call__(self, task: Task) -> Run:
        """Return the run."""
        del task
        seen: list[Candidate] = yield Ask(self.draws)
        return Answer(seen[0], candidates=tuple(seen))


class Place(msgspec.Struct):
    """An alternative, for the bare loop."""

    logprob: float


class Entry(msgspec.Struct):
    """A token."""

    logprob: float
    top_logprobs: list[Place]


class Content(msgspec.Struct):
    """Log-probs of an event."""

    content: list[Entry]


class Delta(msgspec.Struct):
    """Text of an event."""

    content: str | None = None


class Choice(msgspec.Struct):
    """A completion's part of an event."""

    delta: Delta
    logprobs: Content | None = None


class Event(msgspec.Struct):
    """An event."""

    choices: list[Choice]


async def ours(url: str, streams: int) -> int:
    """Draw through our driver; return the tokens that came."""
    sampler = OpenAISampler(url)
    task = Task(CHAT, model="fake", sampling=Sampling(max_tokens=100_000, top_logprobs=TOP))
    solved = await Driver(sampler).solve(Wide(streams), task)
    await sampler.close()
    scored = [candidate.confidences for candidate in solved.answer.candidates if candidate.confidences is not None]
    return sum(map(len, scored))


async def bare(url: str, streams: int) -> int:
    """Draw with the least that can be written by hand."""
    decode = msgspec.json.Decoder(Event).decode

    async def one(session: aiohttp.ClientSession) -> int:
        texts, means, rest = [], [], b""
        async with session.post(f"{url}/v1/chat/completions", json=BODY | {"stream": True}) as response:
            while data := await response.content.readany():
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    if event == b"data: [DONE]":
                        continue
                    for choice in decode(event[6:]).choices:
                        texts.append(choice.delta.content)
                        if choice.logprobs is not None:
                            tops = choice.logprobs.content[0].top_logprobs
                            means.append(-sum([place.logprob for place in tops]) / len(tops))
        return len(means)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        return sum(await asyncio.gather(*(one(session) for _ in range(streams))))


async def sdk(url: str, streams: int) -> int:
    """Draw with the openai SDK."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")  # takes up to 1,000 connections

    async def one() -> int:
        texts, means = [], []
        stream = await client.chat.completions.create(**BODY, stream=True)  # type: ignore[call-overload]  # the body is plain JSON
        async for chunk in stream:
            for choice in chunk.choices:
                texts.append(choice.delta.content)
                if choice.logprobs is not None and choice.logprobs.content:
                    tops = choice.logprobs.content[0].top_logprobs
                    means.append(-sum(place.logprob for place in tops) / len(tops))
        return len(means)

    tokens = sum(await asyncio.gather(*(one() for _ in range(streams))))
    await client.close()
    return tokens


CLIENTS: dict[str, Callable[[str, int], Awaitable[int]]] = {"ours": ours, "bare": bare, "sdk": sdk}


async def client(name: str, url: str, streams: int, rounds: int) -> dict[str, list[float]]:
    """Repeat the work; return tokens per processor second and the memory held afterwards in MB, for each."""
    figures: dict[str, list[float]] = {"rate": [], "memory": []}
    await CLIENTS[name](url, 8)
    for _ in range(rounds):
        began = time.process_time()
        tokens = await CLIENTS[name](url, streams)
        figures["rate"].append(tokens / (time.process_time() - began))
        if tokens != streams * TOKENS:
            raise SystemExit(f"{name} got {tokens} tokens instead of {streams * TOKENS}")
        figures["memory"].append(held())
    return figures


def held() -> float:
    """Return the memory this process holds on to, in MB: what it once needed and has freed is given back first."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
    pages = Path("/proc/self/statm")
    if pages.exists():
        return int(pages.read_text().split()[1]) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def cancelling(url: str) -> dict[str, list[float]]:
    """Cancel draws one by one among 512 running ones; return by what delay the server noticed each."""
    sampler, when = OpenAISampler(url), dict[int, float]()
    sampling = Sampling(max_tokens=100_000, top_logprobs=TOP)
    draws = [
        asyncio.create_task(sampler.sample(SampleRequest(CHAT, sampling, model="fake", seed=seed), Meter()))
        for seed in range(STREAMS)
    ]
    await asyncio.sleep(3)
    for seed in range(CANCELLED):
        when[seed] = time.monotonic()
        draws[seed].cancel()
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    with urlopen(f"{url}/fake/requests", timeout=60) as reply:  # noqa: S310 - our own server
        arrivals = json.load(reply)
    for draw in draws:
        draw.cancel()
    await asyncio.gather(*draws, return_exceptions=True)
    await sampler.close()
    left = {arrival["body"]["seed"]: arrival["left"] for arrival in arrivals}
    missed = sum(left.get(seed) is None for seed in when)
    return {
        "delays": [left[seed] - moment for seed, moment in when.items() if left.get(seed) is not None],
        "missed": [missed],
    }


def measured(*arguments: str) -> dict[str, list[float]]:
    """Run a client in a process of its own and return its figures."""
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def throughput() -> bool:
    """Print tokens per processor second of each client and the ratios; say whether they are as wanted."""
    rates: dict[str, list[float]] = {name: [] for name in CLIENTS}
    memory: list[float] = []
    with spawn_server("--tokens", str(TOKENS)) as url:
        for _ in range(REPEATS):
            for name in CLIENTS:
                streams, rounds = (SDK_STREAMS, 1) if name == "sdk" else (STREAMS, ROUNDS)
                figures = measured("--client", name, url, str(streams), str(rounds))
                rates[name].append(statistics.median(figures["rate"]))
                memory = figures["memory"] if name == "ours" else memory
    print(
        f"{STREAMS} streams of {TOKENS} tokens with top-{TOP} log-probs (SDK: {SDK_STREAMS} streams), median of"
        f" {REPEATS}"
    )
    middle = {name: statistics.median(values) for name, values in rates.items()}
    for name, rate in middle.items():
        print(f"  {name:5} {rate:9,.0f} tokens per second of one core {1e6 / rate:7.1f} us a token")
    over_sdk, over_bare, growth = (
        middle["ours"] / middle["sdk"],
        middle["bare"] / middle["ours"],
        memory[-1] / memory[0],
    )
    print(f"  ours / openai SDK: {over_sdk:.1f}x (wanted: at least {WANTED_OVER_SDK:g}x)")
    print(f"  bare loop / ours: {over_bare:.2f}x (wanted: at most {WANTED_OVER_BARE:g}x)")
    print(
        f"  memory: {memory[0]:.0f} MB after a quarter, {memory[-1]:.0f} MB after all: {growth:.2f}x (wanted: at most"
        f" {WANTED_GROWTH:g}x)"
    )
    return over_sdk >= WANTED_OVER_SDK and over_bare <= WANTED_OVER_BARE and growth <= WANTED_GROWTH


def cancellation(pace: float) -> bool:
    """Print how fast cancellations reach the server, all runs together; say whether that is as wanted."""
    delays: list[float] = []
    middles: list[str] = []
    missed = 0.0
    for _ in range(REPEATS):
        with spawn_server("--tokens", "2000", "--delay", str(pace)) as url:
            figures = measured("--cancel", url)
        delays += figures["delays"]
        missed += figures["missed"][0]
        middles.append(f"{statistics.median(figures['delays']) * 1e3:.1f}")
    middle, late = statistics.median(delays), statistics.quantiles(delays, n=20)[-1]
    rate = f"{STREAMS / pace:,.0f} tokens a second"
    print(
        f"{CANCELLED} of {STREAMS} streams cancelled at {rate}, {REPEATS} runs with medians of {', '.join(middles)} ms"
    )
    print(
        f"  noticed by the server after {middle * 1e3:.1f} ms at the median (wanted: at most"
        f" {WANTED_CANCEL * 1e3:g} ms)"
    )
    print(f"  95 % within {late * 1e3:.1f} ms, never noticed: {missed:.0f}")
    return middle <= WANTED_CANCEL and not missed


def main() -> int:
    """Print the tables; exit with 1 when a figure is not as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", nargs=4, metavar=("NAME", "URL", "STREAMS", "ROUNDS"), help="be one of the clients")
    parser.add_argument("--cancel", metavar="URL", help="be the client that cancels")
    chosen = parser.parse_args()
    if chosen.client:
        name, url, streams, rounds = chosen.client
        print(json.dumps(asyncio.run(client(name, url, int(streams), int(rounds)))))
        return 0
    if chosen.cancel:
        print(json.dumps(asyncio.run(cancelling(chosen.cancel))))
        return 0
    held_to = [throughput(), cancellation(PACE)]
    cancellation(FAST_PACE)
    return 0 if all(held_to) else 1


if __name__ == "__main__":
    raise SystemExit(main())
