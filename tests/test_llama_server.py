"""The real server the tests use: it answers, has its slots, and dies with the process that started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

SERVER = Path(__file__).with_name("llama_server.py")


def ask(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"content-type": "application/json"})  # noqa: S310 - the address of our own server
    with urlopen(request, timeout=60) as reply:  # noqa: S310 - the same
        return json.load(reply)


def test_it_serves_the_model_in_eight_slots(llama: str) -> None:
    assert ask(f"{llama}/v1/models")["data"][0]["id"] == "smollm2"
    slots = ask(f"{llama}/slots")
    assert [slot["n_ctx"] for slot in slots] == [1024] * 8


def test_it_knows_a_fact(llama: str) -> None:
    reply = ask(f"{llama}/v1/completions", {"prompt": "The capital of France is", "temperature": 0, "max_tokens": 4})
    assert reply["choices"][0]["text"].startswith(" Paris")


def test_the_thinking_server_keeps_to_a_budget(thinking_llama: str) -> None:
    question = {
        "messages": [{"role": "user", "content": "What is 7*8? Think first."}],
        "temperature": 0,
        "max_tokens": 24,
    }
    free = ask(f"{thinking_llama}/v1/chat/completions", question)["choices"][0]["message"]["reasoning_content"]
    capped = ask(f"{thinking_llama}/v1/chat/completions", question | {"reasoning_budget_tokens": 4})["choices"][0][
        "message"
    ]["reasoning_content"]
    assert free.startswith(capped)
    assert 0 < len(capped) < len(free)


def test_it_dies_with_its_parent(smollm2: Path) -> None:
    starter = (
        "import subprocess, sys, time\np = subprocess.Popen([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE,"
        " stderr=subprocess.DEVNULL, text=True)\nprint(p.pid, p.stdout.readline().strip(),"
        " flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", starter, str(SERVER), str(smollm2)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, url = parent.stdout.readline().split()
        assert ask(f"{url}/health") == {"status": "ok"}
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while alive(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(int(pid))


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:  # a zombie that nobody has collected yet is dead
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
