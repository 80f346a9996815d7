"""Soak `breadth serve`: load with faults and disconnects for some minutes; memory, descriptors, tasks and the ledger.

    python -m tools.soak --minutes 60 --out docs/data/soak.json

The proxy runs in a process of its own, in front of a fake server that fails, stalls, breaks off and talks nonsense on
a schedule. Clients ask for votes and for single samples, whole and streamed, send bad requests, and leave in the
middle. Every few seconds resident memory, descriptors, threads and asyncio tasks of the proxy are read. Then:

- memory: the robust slope after the warm-up, with its interval, as growth per hour; the objects held at rest, garbage
  not counted, before and after the load: what is kept for each request would show there, whatever the allocator does;
- descriptors, threads and tasks: back to what they were at rest before the load;
- the ledger: in a last round without disconnects, exactly the sum of what the log says each request was charged;
  over the whole time at most what the fake server wrote.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from breadth.measure.trends import robust_slope
from breadth.testing.fake_replies import Reply, ReplyToken
from breadth.testing.fake_server import FakeServer, wait_until
from breadth.testing.faults import Cut, ErrorInStream, Hang, MalformedJson, Slow, Status, every

CLIENTS = 12
TOKENS = 40
DEADLINE = 5.0
"""Seconds the proxy gives a request: those that hang end then."""
SAMPLE_SECONDS = 2.0
WARM_UP_SHARE = 0.2
"""Share of the time whose memory does not count: caches fill, the allocator settles."""
MAX_GROWTH_PER_HOUR = 0.05
"""Growth of memory that still counts as flat, as a share of its level; the upper end of the interval is held to it."""
MIN_MINUTES = 60.0
"""Minutes after which memory must be shown to be flat; fewer may leave its growth open."""
MAX_OBJECT_GROWTH = 0.02
"""Growth of the number of objects at rest that still counts as flat, as a share: counters get new labels."""
MAX_STORED = 100
"""Readings of memory that are written, evenly spaced."""
REST_SECONDS = 120.0
"""Seconds in which descriptors and tasks must be back at rest: idle connections are kept for some time."""
FAULTS = (
    every(7, Status(500)),
    every(11, Cut()),
    every(13, MalformedJson()),
    every(17, ErrorInStream()),
    every(19, Status(429, retry_after=0.1)),
    every(23, Slow(0.02)),
    every(97, Hang()),
)
KINDS = ("vote", "vote streamed", "single", "single streamed", "bad body", "no such model")
CHARGED = re.compile(r"tokens=(\d+)\+(\d+)")
OUT_TOKENS = re.compile(r'^breadth_tokens_total\{direction="out"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True)
class Reading:
    """What the proxy holds at one time."""

    seconds: float
    """Since the start of the load."""
    memory: int
    """Resident bytes."""
    descriptors: int
    """Open file descriptors."""
    threads: int
    """Threads."""
    tasks: int
    """Asyncio tasks."""


@dataclass
class ProxyProcess:
    """The proxy in its process, and what the system says of it."""

    process: subprocess.Popen[str]
    """The process."""
    url: str
    """Its address."""
    folder: Path
    """Where it writes its log and its number of tasks."""

    async def read(self, started: float) -> Reading:
        """Read what it holds; it writes its number of tasks when it is signalled."""
        place = self.folder / "tasks"
        place.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR1)
        await wait_until(lambda: place.exists() and place.read_text().endswith("\n"), timeout=60.0)
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        lines = dict(line.split(":", 1) for line in status.splitlines())
        memory, threads = (int(lines[name].split()[0]) for name in ("VmRSS", "Threads"))
        descriptors = len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))
        seconds = round(time.monotonic() - started, 1)
        return Reading(seconds, memory * 1024, descriptors, threads, int(place.read_text()))

    async def count_objects(self) -> int:
        """Return how many objects it holds that can hold others; it looks for garbage first."""
        place = self.folder / "objects"
        place.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR2)
        await wait_until(lambda: place.exists() and place.read_text().endswith("\n"), timeout=60.0)
        return int(place.read_text())

    async def tokens_charged(self) -> int:
        """Return the output tokens of the ledger."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}/metrics") as reply:
            found = OUT_TOKENS.search(await reply.text())
        return int(float(found[1])) if found else 0

    def tokens_logged(self) -> int:
        """Return the output tokens that the log says requests were charged."""
        return sum(int(found[2]) for found in CHARGED.finditer((self.folder / "log").read_text(encoding="utf-8")))


def serve_counted(folder: Path, arguments: Sequence[str]) -> None:
    """Run ``breadth serve`` in this process; SIGUSR1 makes it write the number of its tasks, SIGUSR2 of its objects."""
    from breadth.cli.main import run

    def count(number: int, frame: object) -> None:
        del number, frame
        with suppress(RuntimeError):  # the loop has not begun yet
            (folder / "tasks").write_text(f"{len(asyncio.all_tasks())}\n")

    def count_objects(number: int, frame: object) -> None:
        del number, frame
        gc.collect()
        (folder / "objects").write_text(f"{gc.get_freeze_count() + len(gc.get_objects())}\n")

    signal.signal(signal.SIGUSR1, count)
    signal.signal(signal.SIGUSR2, count_objects)
    sys.argv = ["breadth", "serve", *arguments]
    run()


def start_proxy(upstream: str, folder: Path) -> ProxyProcess:
    """Start the proxy with a vote as its policy, and single samples under a name."""
    settings = ["--upstream", upstream, "--policy", "vote,n=3", "--add-policy", "direct=single", "--port", "0",
                "--json", "--deadline", str(DEADLINE), "--attempts", "2"]  # fmt: skip
    command = [sys.executable, "-m", "tools.soak", "--child", str(folder), *settings]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("BREADTH_", "OPENAI_"))}
    with (folder / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=plain)
    assert process.stdout is not None  # noqa: S101 - for the type checker
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"the proxy did not start: {(folder / 'log').read_text()}")
    return ProxyProcess(process, json.loads(line)["url"], folder)


@dataclass
class Load:
    """Clients that ask without pause."""

    url: str
    """The proxy."""
    rng: random.Random
    """Chooses what is asked and who leaves."""
    leaving: float
    """Share of the requests whose client leaves before the end."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Replies by status, and clients that left."""

    async def ask_until(self, end: float) -> None:
        """Ask one request after the other until the time is up."""
        async with aiohttp.ClientSession() as http:
            while time.monotonic() < end:
                await self.ask(http)

    async def ask(self, http: aiohttp.ClientSession) -> None:
        """Ask once; perhaps leave before the reply is complete."""
        kind = self.rng.choice(KINDS)
        patience = self.rng.uniform(0.0, 0.15) if self.rng.random() < self.leaving else 60.0
        try:
            async with asyncio.timeout(patience):
                async with http.post(f"{self.url}/v1/chat/completions", json=self.body(kind)) as reply:
                    await reply.read()
                    self.outcomes[f"{kind}: {reply.status}"] += 1
        except TimeoutError:
            self.outcomes[f"{kind}: left"] += 1
        except aiohttp.ClientError as error:
            self.outcomes[f"{kind}: {type(error).__name__}"] += 1

    def body(self, kind: str) -> dict[str, Any]:
        """Return a request of a kind."""
        number = self.rng.randrange(10**6)
        body = {"messages": [{"role": "user", "content": f"What is {number} + 1? " * self.rng.choice((1, 1, 50))}]}
        if kind == "bad body":
            return {"messages": number}
        if kind == "no such model":
            return {**body, "model": "absent"}
        return {**body, "model": "fake@direct" if "single" in kind else "fake", "stream": "streamed" in kind}


async def run_load(proxy: ProxyProcess, load: Load, minutes: float, fake: FakeServer) -> tuple[list[Reading], int]:
    """Load the proxy for some minutes; return the readings, and how many requests reached the fake server."""
    started, arrived = time.monotonic(), 0
    readings: list[Reading] = []
    clients = [asyncio.create_task(load.ask_until(started + 60 * minutes)) for _ in range(CLIENTS)]
    while not all(client.done() for client in clients):
        await asyncio.wait(clients, timeout=SAMPLE_SECONDS, return_when=asyncio.ALL_COMPLETED)
        readings.append(await proxy.read(started))
        if not fake.open_requests:  # the fake server remembers every request, which here nobody reads
            arrived += len(fake.requests)
            fake.requests.clear()
    await asyncio.gather(*clients)
    return readings, arrived + len(fake.requests)


async def wait_for_rest(proxy: ProxyProcess, rest: Reading | None = None) -> Reading:
    """Wait until the proxy holds no more than at rest, or no longer changes, or the time is up."""
    started = time.monotonic()
    before = await proxy.read(started)
    while time.monotonic() - started < REST_SECONDS:
        await asyncio.sleep(SAMPLE_SECONDS)
        now = await proxy.read(started)
        if rest is not None and now.descriptors <= rest.descriptors and now.tasks <= rest.tasks:
            return now
        same = (now.descriptors, now.tasks) == (before.descriptors, before.tasks)
        if rest is None and same and now.seconds > 20.0:  # idle connections have been closed by then
            return now
        before = now
    return before


def judge_memory(readings: Sequence[Reading]) -> dict[str, Any]:
    """Return the growth of memory per hour after the warm-up with its interval, and whether it is flat.

    Where the time was too short for an interval, ``flat`` is None: such a run shows neither.
    """
    kept = [reading for reading in readings if reading.seconds >= WARM_UP_SHARE * readings[-1].seconds]
    slope = robust_slope([reading.seconds for reading in kept], [float(reading.memory) for reading in kept]).interval()
    per_hour = {name: 3600 * getattr(slope, name) / 1e6 for name in ("value", "low", "high")}
    level = sorted(reading.memory for reading in kept)[len(kept) // 2] / 1e6
    return {
        "readings": len(kept),
        "median_megabytes": round(level, 1),
        "max_megabytes": round(max(reading.memory for reading in readings) / 1e6, 1),
        "megabytes_per_hour": {
            name: round(value, 2) if math.isfinite(value) else None for name, value in per_hour.items()
        },
        "flat": per_hour["high"] <= MAX_GROWTH_PER_HOUR * level if math.isfinite(per_hour["high"]) else None,
        "megabytes": [round(reading.memory / 1e6, 1) for reading in readings[:: max(1, len(readings) // MAX_STORED)]],
    }


def judge_objects(before: int, after: int) -> dict[str, Any]:
    """Return the objects held at rest before and after the load, and whether they are as many."""
    return {"before": before, "after": after, "flat": after <= (1 + MAX_OBJECT_GROWTH) * before}


async def soak(minutes: float, seed: int) -> dict[str, Any]:
    """Run everything and return what was measured."""
    reply = Reply(tuple(ReplyToken(f" {number}") for number in range(TOKENS)), delay=0.001)
    with tempfile.TemporaryDirectory(prefix="breadth-soak-") as folder:
        async with FakeServer(reply, faults=FAULTS) as fake:
            proxy = await asyncio.to_thread(start_proxy, fake.url, Path(folder))
            try:
                return await measure(proxy, fake, minutes, random.Random(seed))  # noqa: S311 - nothing secret
            finally:
                proxy.process.kill()
                proxy.process.wait()


async def measure(proxy: ProxyProcess, fake: FakeServer, minutes: float, rng: random.Random) -> dict[str, Any]:
    """Load the proxy and return what was measured."""
    await run_load(proxy, Load(proxy.url, rng, 0.0), 0.1, fake)
    rest = await wait_for_rest(proxy)
    before, objects = await proxy.tokens_charged(), await proxy.count_objects()
    load = Load(proxy.url, rng, 0.3)
    readings, arrived = await run_load(proxy, load, minutes, fake)
    after = await wait_for_rest(proxy, rest)
    kept = judge_objects(objects, await proxy.count_objects())
    charged, logged = await proxy.tokens_charged(), proxy.tokens_logged()
    await run_load(proxy, Load(proxy.url, rng, 0.0), 0.2, fake)
    await wait_for_rest(proxy, rest)
    exact = (await proxy.tokens_charged() - charged, proxy.tokens_logged() - logged)
    return {
        "minutes": minutes,
        "clients": CLIENTS,
        "requests": sum(load.outcomes.values()),
        "outcomes": dict(sorted(load.outcomes.items())),
        "upstream_requests": arrived,
        "memory": judge_memory(readings),
        "objects": kept,
        "rest_before": {name: value for name, value in asdict(rest).items() if name != "seconds"},
        "rest_after": {name: value for name, value in asdict(after).items() if name != "seconds"},
        "most_descriptors": max(reading.descriptors for reading in readings),
        "most_tasks": max(reading.tasks for reading in readings),
        "nothing_leaked": after.descriptors <= rest.descriptors and after.tasks <= rest.tasks,
        "ledger": {
            "charged": charged - before,
            "written_at_most": arrived * TOKENS,
            "last_round_charged": exact[0],
            "last_round_logged": exact[1],
            "exact": exact[0] == exact[1] > 0 and charged - before <= arrived * TOKENS,
        },
    }


def name_failures(result: Mapping[str, Any]) -> list[str]:
    """Return what a soak found wrong, in words."""
    memory = result["memory"]
    is_unknown = memory["flat"] is None and result["minutes"] < MIN_MINUTES
    faults = {
        f"Memory is not shown to be flat: {memory['megabytes_per_hour']} MB an hour.": not (
            memory["flat"] or is_unknown
        ),
        f"The proxy keeps objects: {result['objects']}.": not result["objects"]["flat"],
        "Descriptors or tasks are left over: see rest_before and rest_after.": not result["nothing_leaked"],
        f"The ledger is wrong: {result['ledger']}.": not result["ledger"]["exact"],
    }
    return [fault for fault, holds in faults.items() if holds]


def main() -> int:
    """Soak as asked; 1 when memory grows, something is leaked or the ledger is wrong."""
    if sys.argv[1:2] == ["--child"]:
        serve_counted(Path(sys.argv[2]), sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=60.0, help="minutes of load")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the load")
    parser.add_argument("--out", type=Path, help="file for what was measured")
    options = parser.parse_args()
    result = asyncio.run(soak(options.minutes, options.seed))
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    failures = name_failures(result)
    for failure in failures:
        print(failure)
    if result["memory"]["flat"] is None:
        print(f"{options.minutes:g} minutes cannot show whether memory is flat: soak for {MIN_MINUTES:g} or more.")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
