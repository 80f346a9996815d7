"""Fixtures every test may use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

if TYPE_CHECKING:
    from breadth.lab.demo.plan import DemoPlan

SMOLLM2 = Path(sys.prefix) / "share" / "breadth" / "SmolLM2-135M-Instruct.Q4_1.gguf"
"""Where ``tools/fetch_model.py`` puts the model."""


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Folder of real logs, votes and curves that the project does not carry."""
    folder = os.environ.get("BREADTH_FIXTURES")
    if not folder:
        pytest.skip("BREADTH_FIXTURES is not set: the real files are not here")
    return Path(folder)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The model file the real server serves."""
    model = Path(os.environ.get("BREADTH_SMOLLM2") or SMOLLM2)
    if not model.is_file():
        pytest.skip(f"no model at {model}: run tools/fetch_model.py, or set BREADTH_SMOLLM2")
    return model


@pytest.fixture(scope="session")
def llama(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a real llama.cpp server with SmolLM2-135M-Instruct: 8 slots of 1024 tokens, model name "smollm2"."""
    with _served([str(smollm2)], tmp_path_factory.mktemp("llama")) as url:
        yield url


@pytest.fixture(scope="session")
def thinking_llama(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same with a chat template that opens ``<think>``: reasoning is parsed, thinking budgets are enforced."""
    with _served([str(smollm2), "--thinking"], tmp_path_factory.mktemp("thinking_llama")) as url:
        yield url


@contextmanager
def _served(arguments: list[str], folder: Path) -> Iterator[str]:
    """Run tests/llama_server.py until the test session ends, here or by being killed."""
    if find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp, the llama.cpp server of the tests, is not installed (extra 'dev')")
    log = folder / "server.log"
    command = [sys.executable, str(Path(__file__).with_name("llama_server.py")), *arguments]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, f"the llama.cpp server did not start:\n{log.read_text()[-2000:]}"
            _wait_until_healthy(url)
            yield url
        finally:
            process.kill()


def _wait_until_healthy(url: str, patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            with urlopen(f"{url}/health", timeout=5) as reply:  # noqa: S310 - the address of our own server
                if reply.status == 200:
                    return
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


@pytest.fixture(scope="session")
def tiny_plan() -> DemoPlan:
    """A demo of two steps and four problems: everything a demo does, in seconds."""
    from breadth.lab.demo.plan import DemoPlan

    return DemoPlan(
        steps=2,
        prompts=2,
        group=4,
        train_problems=8,
        max_completion_length=40,
        problems=4,
        samples=4,
        votes=2,
        budgets=(8, 24),
        budget_samples=2,
        thinking=40,
        repeats=2,
    )
