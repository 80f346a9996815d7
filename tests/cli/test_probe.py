"""``breadth probe`` shows what a real server does, saves it, and says when nobody is there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from breadth.runtime.probe import Capabilities

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_real_server_is_shown_and_saved(breadth: Command, llama: str, tmp_path: Path) -> None:
    done = breadth("probe", llama, "--save", tmp_path / "server.toml")
    assert done.returncode == 0, done.stderr
    assert "llama-cpp" in done.stdout
    assert "raw" in done.stdout
    found = Capabilities.load(tmp_path / "server.toml")
    assert (found.model, found.prefix, found.slots) == ("smollm2", "yes", 8)


def test_machines_get_json(breadth: Command, llama: str) -> None:
    said = json.loads(breadth("probe", llama, "--json", "--dialect", "openai").stdout)
    assert said["dialect"]["kind"] == "openai"
    assert "logprobs" in said["offers"]


def test_nobody_there(breadth: Command) -> None:
    done = breadth("probe", "http://127.0.0.1:9")
    assert done.returncode == 2
    assert "No server answers" in done.stderr
