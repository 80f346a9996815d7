"""The proxy next to its peers: latency added, start-up, size on disk, and what it does when things go wrong.

Latency: the same question asked directly and through the proxy in turn, from one client over open connections to one
upstream in a process of its own; the figure is the median of the paired differences. Start-up: from the command to the
first answer. Faults: the same broken upstreams under ``breadth serve``, its_hub and optillm; the peers take part where
an interpreter that has them is named:

    python -m venv its && its/bin/pip install "its_hub[iaas]==1.2.0"
    python benchmarks/proxy.py --its its/bin/python --optillm optillm/bin/python --save docs/data/proxy.json

``--size`` installs breadth into a fresh environment and weighs it (a few minutes, needs a package index).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from install_size import measure_core, megabytes

from breadth.testing.fake_replies import Reply
from breadth.testing.fake_server import Arrival, FakeServer, spawn_server
from breadth.testing.faults import Fault, Hang, Scheduled, Status, every

PAIRS, WARM_UP, STARTS = 300, 20, 5
MOST_ADDED_MS, MOST_START_SECONDS, OPTILLM_MEGABYTES = 3.0, 1.5, 2572
"""The limits; the last is optillm 0.4.0 with its dependencies and a torch without CUDA, weighed once."""
GIVES_UP = 25.0
"""Seconds after which the client of the fault table gives up."""
DEADLINE = 10.0
"""Seconds that a request to ours may take in the fault table."""
QUESTION = "What is 2 + 2?"
FAULTS: Mapping[str, tuple[Fault | Scheduled, ...]] = {
    "none": (),
    "every 3rd 500": (every(3, Status(500)),),
    "5 of 6 500": (Scheduled(Status(500), lambda number: number % 6 > 0),),
    "always 500": (Status(500),),
    "always 429, Retry-After 1": (Status(429, retry_after=1),),
    "hangs": (Hang(),),
    "2 of 3 hang": (Scheduled(Hang(), lambda number: number % 3 > 0),),
}


@dataclass(frozen=True)
class Tool:
    """A proxy that can be started in front of an upstream."""

    name: str
    command: Callable[[str, int], list[str]]
    """Upstream and port -> command line."""
    asks: Mapping[str, Mapping[str, Any]]
    """What is asked of it -> fields of the request."""
    configure: Callable[[str], Mapping[str, Any]] | None = None
    """Upstream -> what is posted to ``/configure`` first."""
    environment: Mapping[str, str] = field(default_factory=dict)


def tools(its: str | None, optillm: str | None) -> list[Tool]:
    """Return ours and the peers that are there."""
    limited = {"breadth": {"budget": {"seconds": DEADLINE}}}
    asks = {
        f"breadth {policy}": {"model": f"fake@{policy}"} | limited for policy in ("vote,n=8", "adaptive-vote,most=8")
    }
    serve = [sys.executable, "-m", "breadth", "serve", "--quiet", "--policy", "single", "--allow-client-policies"]
    found = [Tool("breadth", lambda upstream, port: [*serve, "--upstream", upstream, "--port", str(port)], asks)]
    if its:
        settings = {
            "api_key": "x",
            "model": "fake",
            "alg": "self-consistency",
            "regex_patterns": [r"answer is (\d+)"],
            "budget": 8,
        }
        run = [its, "-m", "its_hub.integration.iaas.app_server", "--log-level", "ERROR", "--port"]
        asked = {"its_hub self-consistency, 8": {"model": "fake", "budget": 8}}
        found.append(
            Tool(
                "its_hub",
                lambda _, port: [*run, str(port)],
                asked,
                lambda upstream: settings | {"endpoint": f"{upstream}/v1"},
            )
        )
    if optillm:
        run_it = [str(Path(optillm).with_name("optillm")), "--model", "fake", "--best-of-n", "8", "--log", "error"]
        asked = {
            f"optillm {method}": {"model": f"{method}-fake"}
            for method in ("self_consistency", "bon", "majority_voting")
        }
        key = {"OPENAI_API_KEY": "x"}
        found.append(
            Tool(
                "optillm",
                lambda up, port: [*run_it, "--base-url", f"{up}/v1", "--port", str(port)],
                asked,
                environment=key,
            )
        )
    return found


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(tool: Tool, upstream: str) -> Iterator[str]:
    """Run a tool; yields its address, which may not answer yet."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            tool.command(upstream, port),
            cwd=folder,
            env={**os.environ, **tool.environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


async def ask(http: aiohttp.ClientSession, url: str, fields: Mapping[str, Any], mark: str = "") -> tuple[int, str]:
    """Ask the question; returns status and body.

    The mark tells its upstream requests from those an earlier question left behind.
    """
    headers, messages = {"Authorization": "Bearer unused"}, [{"role": "user", "content": f"{QUESTION} {mark}"}]
    async with http.post(
        f"{url}/v1/chat/completions", json={"messages": messages, "max_tokens": 64, **fields}, headers=headers
    ) as reply:
        return reply.status, await reply.text()


async def first_answer(
    http: aiohttp.ClientSession, tool: Tool, url: str, upstream: str, patience: float = 240.0
) -> None:
    """Ask until the first answer comes."""
    fields = next(iter(tool.asks.values()))
    async with asyncio.timeout(patience):
        while True:
            try:
                if tool.configure is not None:
                    await (await http.post(f"{url}/configure", json=tool.configure(upstream))).read()
                if (await ask(http, url, fields))[0] == 200:
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.01)


async def added_ms(tool: Tool, pairs: int, fields: Mapping[str, Any]) -> tuple[float, float]:
    """Return the median milliseconds of a direct request, and the median that the proxy adds to it."""
    direct: list[float] = []
    added: list[float] = []
    with spawn_server("--tokens", "20") as upstream, running(tool, upstream) as url:
        async with aiohttp.ClientSession() as http:
            await first_answer(http, tool, url, upstream)
            for number in range(pairs + WARM_UP):
                times = {}
                for address in (upstream, url) if number % 2 else (url, upstream):
                    begun = time.perf_counter()
                    status, _ = await ask(http, address, fields)
                    times[address] = (time.perf_counter() - begun) * 1000
                    if status != 200:
                        raise SystemExit(f"{address} answered with status {status}")
                if number >= WARM_UP:
                    direct.append(times[upstream])
                    added.append(times[url] - times[upstream])
    return statistics.median(direct), statistics.median(added)


async def start_seconds(tool: Tool, starts: int) -> dict[str, float]:
    """Return the median seconds from the command to the first answer, by the clock and of the processor."""
    times, worked = [], []
    with spawn_server("--tokens", "20") as upstream:
        async with aiohttp.ClientSession() as http:
            for _ in range(starts):
                begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
                with running(tool, upstream) as url:
                    await first_answer(http, tool, url, upstream)
                    times.append(time.perf_counter() - begun)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                worked.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"seconds": round(statistics.median(times), 2), "processor_seconds": round(statistics.median(worked), 2)}


async def fault_rows(tool: Tool) -> list[dict[str, Any]]:
    """Return what a tool does with every broken upstream."""
    rows, port = [], free_port()
    upstream = f"http://127.0.0.1:{port}"
    async with FakeServer(reply, port=port) as healthy:
        with running(tool, upstream) as url:
            async with aiohttp.ClientSession() as http:
                await first_answer(http, tool, url, upstream)
                await healthy.__aexit__(None, None, None)
                for label, fields in tool.asks.items():
                    for fault, faults in FAULTS.items():
                        rows.append({"tool": label, "upstream": fault} | await met(http, url, port, faults, fields))
                    rows.append(
                        {"tool": label, "upstream": "client leaves after 1 s"} | await left(http, url, port, fields)
                    )
    return rows


async def met(
    http: aiohttp.ClientSession, url: str, port: int, faults: tuple[Fault | Scheduled, ...], fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what came back from one broken upstream."""
    mark = secrets.token_hex(8)
    async with FakeServer(reply, faults=faults, port=port) as fake:
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(GIVES_UP):
                status, body = await ask(http, url, fields, mark)
            told = said(body)
        except TimeoutError:
            status, told = 0, f"no answer in {GIVES_UP:g} s"
        except aiohttp.ClientError as error:
            status, told = 0, type(error).__name__
        seconds = round(time.perf_counter() - begun, 2)
    return {"status": status, "seconds": seconds, "requests": len(marked(fake, mark)), "said": told}


async def left(http: aiohttp.ClientSession, url: str, port: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many upstream requests were ended within a second of the client's leaving."""
    mark = secrets.token_hex(8)
    async with FakeServer(Reply.from_text("word " * 100, delay=0.1), port=port) as fake:
        try:
            async with asyncio.timeout(1.0):
                await ask(http, url, fields, mark)
        except (TimeoutError, aiohttp.ClientError):
            pass
        await asyncio.sleep(1.0)
        ours = marked(fake, mark)
        ended = sum(arrival.left is not None for arrival in ours)
    return {"status": 0, "seconds": 1.0, "requests": len(ours), "said": f"{ended} of {len(ours)} ended within 1 s"}


def marked(fake: FakeServer, mark: str) -> list[Arrival]:
    """Return the requests that belong to one question."""
    return [arrival for arrival in fake.requests if mark in json.dumps(arrival.body)]


def reply(body: dict[str, Any], number: int) -> Reply:
    """Answer 4 three times in four."""
    del body
    return Reply.from_text("So the answer is 5." if number % 4 == 0 else "So the answer is 4.", wait=0.05)


def said(body: str) -> str:
    """Return the answer or the error in a body, and what is told about failed draws."""
    try:
        found = json.loads(body)
    except ValueError:
        return body[:80]
    if not isinstance(found, dict) or not found.get("choices"):
        error = found.get("error", found.get("detail", found)) if isinstance(found, dict) else found
        return "error: " + str(error.get("message", error) if isinstance(error, dict) else error)[:90]
    text = str(found["choices"][0]["message"]["content"])[:60]
    about = found.get("breadth")
    return (
        text
        if about is None
        else f"{text} [{about['arrived']} arrived, {about['failed']} failed, {about['discarded']} ended]"
    )


def told_by(python: str, code: str) -> str:
    """Return what a line of code prints in another environment."""
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def report(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table."""
    print(f"\n{title}")
    for row in rows:
        print(
            "  "
            + "  ".join(
                f"{value!s:<28}" if name in ("tool", "upstream") else f"{value!s:>6}" for name, value in row.items()
            )
        )


def figures(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure everything asked for, printing on the way."""
    ours, *peers = found = tools(chosen.its, chosen.optillm)
    plain, ending = asyncio.run(added_ms(ours, chosen.pairs, {"model": "fake"})), "(the limit is {} {})"
    print(
        f"one request: direct {plain[0]:.2f} ms, the proxy adds {plain[1]:.2f} ms at the median",
        ending.format(MOST_ADDED_MS, "ms"),
    )
    done: dict[str, Any] = {"direct_ms": round(plain[0], 2), "added_ms": round(plain[1], 2), "pairs": chosen.pairs}
    done["start"] = {
        tool.name: asyncio.run(start_seconds(tool, 1 if tool.name == "optillm" else STARTS)) for tool in found
    }
    print(
        f"seconds from the command to the first answer: {done['start']}",
        ending.format(MOST_START_SECONDS, "s for ours"),
    )
    if chosen.size:
        others = {"its_hub": chosen.its, "optillm": chosen.optillm}
        where = {
            name: Path(told_by(python, "import sys; print(sys.prefix)")) for name, python in others.items() if python
        }
        done["megabytes"] = {"breadth": measure_core()["megabytes"]} | {
            name: megabytes(folder) for name, folder in where.items()
        }
        ratio = done["megabytes"]["breadth"] / OPTILLM_MEGABYTES
        print(
            f"megabytes installed: {done['megabytes']}; ours is {ratio:.3f}x of {OPTILLM_MEGABYTES} (the limit is 0.2x)"
        )
    if peers:
        done["faults"] = [row for tool in found for row in asyncio.run(fault_rows(tool))]
        report("what each does (status, seconds, requests upstream, what it said)", done["faults"])
    return done


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--its", help="a Python that has its_hub[iaas]")
    parser.add_argument("--optillm", help="a Python that has optillm")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs of requests for the latency")
    parser.add_argument("--size", action="store_true", help="weigh a fresh environment")
    parser.add_argument("--save", type=Path, help="write the figures as JSON")
    chosen = parser.parse_args()
    done = figures(chosen)
    if chosen.save:
        names = [(sys.executable, "breadth"), (chosen.its, "its_hub"), (chosen.optillm, "optillm")]
        code = "import importlib.metadata as m; print(m.version('{}'))"
        versions = {name: told_by(python, code.format(name)) for python, name in names if python} | {
            "python": platform.python_version()
        }
        options = [name for name in ("its", "optillm", "size") if getattr(chosen, name)]
        command = " ".join(
            ["python benchmarks/proxy.py", *(f"--{name}" + ("" if name == "size" else " PYTHON") for name in options)]
        )
        chosen.save.write_text(json.dumps({"command": command, "versions": versions} | done, indent=1) + "\n")


if __name__ == "__main__":
    main()
