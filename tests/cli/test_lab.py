"""``breadth lab``: the server as a command, from its first line to its end; files of questions."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from typer.testing import CliRunner

from breadth.base.errors import BreadthError
from breadth.cli.main import app
from breadth.lab.model.reasoner import ReasonerShape, build_reasoner, save_reasoner
from breadth.lab.task.teacher import ArithmeticFacts, Teacher
from breadth.lab.task.vocabulary import vocabulary_words
from breadth.runtime.questions import read_questions

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("BREADTH_", "OPENAI_"))}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small untaught reasoner in a folder."""
    folder = tmp_path_factory.mktemp("lab") / "small"
    save_reasoner(
        build_reasoner(
            Teacher(ArithmeticFacts(prime=7)), ReasonerShape(hidden=32, layers=1, heads=2, inner=32, context=512)
        ),
        folder,
    )
    return folder


@contextmanager
def serve(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "breadth", "lab", "serve", *map(str, arguments), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def refused(*arguments: str | Path) -> str:
    error = CliRunner().invoke(app, ["lab", *map(str, arguments)]).exception
    assert isinstance(error, BreadthError), repr(error)
    return str(error)


def until_stop(process: subprocess.Popen[str]) -> list[str]:
    """Return the lines that are printed when the server is ready."""
    lines: list[str] = []
    assert process.stdout is not None
    while not (lines and "Ctrl-C" in lines[-1]):
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        lines.append(line.rstrip("\n"))
    return lines


def test_it_says_what_can_be_done_with_it_and_ends_when_told(base: Path) -> None:
    with serve("--base", base) as process:
        lines = until_stop(process)
        url = lines[0].split()[3].removesuffix("/v1:")
        weights = (
            32 * len(vocabulary_words(7)) + 4 * 32 * 32 + 3 * 32 * 32 + 3 * 32
        )  # words, attention, what is behind it, norms
        assert lines[0] == f"breadth lab serves {url}/v1: model small, {weights:,} weights"
        assert "modulo 7" in lines[2]
        assert lines[2].endswith("(3+4)*(5+6)= is 0.")  # 77 = 11 * 7
        curl = next(line for line in lines if "curl" in line)
        body = curl.partition("-d '")[2].removesuffix("'")
        with urlopen(Request(f"{url}/v1/chat/completions", body.encode()), timeout=60) as reply:  # noqa: S310 - our own server
            message = json.loads(reply.read())["choices"][0]["message"]
        assert isinstance(message["content"], str)  # untrained weights may end at once: an empty reply is a reply
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0
        assert errors == "breadth: shutting down; 0 replies are being sampled\n"


def test_the_address_for_machines(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def end_at_once() -> None:
        pass  # at once

    monkeypatch.setattr("breadth.cli.lab.wait_for_signal", end_at_once)
    done = CliRunner().invoke(app, ["lab", "serve", "--base", str(base), "--port", "0", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["model"] == "small"
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", told["url"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--base", "nowhere"], "lab pretrain"),
        (["--reasoning-format", "both"], "none or deepseek"),
    ],
)
def test_what_cannot_be_served_is_said(arguments: list[str], said: str) -> None:
    assert said in refused("serve", *arguments)


def test_questions_are_written_for_those_who_read_questions(base: Path, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    done = CliRunner().invoke(
        app, ["lab", "tasks", str(file), "--count", "12", "--level", "hard", "--seed", "3", "--base", str(base)]
    )
    assert done.exit_code == 0, done.output
    assert "12 hard questions" in done.output
    questions = read_questions(file)
    assert len(questions) == 12
    for question in questions:
        assert isinstance(question.prompt, str)
        expression = question.prompt.removesuffix("=")
        assert set(expression) <= set("0123456789+*() ")
        assert question.reference == str(eval(expression) % 7)  # noqa: S307 - nothing but a sum, as was just checked


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tasks.jsonl", "--level", "harrd"], "Did you mean 'hard'?"),
        (["tasks.csv"], ".jsonl"),
        (["tasks.jsonl", "--count", "5000"], "Ask for 1 to 23"),  # a tenth of 21 * 22 / 2 = 231 pairs of the 21 sums
    ],
)
def test_questions_that_cannot_be_written(base: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    file, *options = arguments
    assert said in refused("tasks", tmp_path / file, *options, "--base", base)
    assert not list(tmp_path.iterdir())


def test_the_command_line_loads_no_torch() -> None:
    script = "import sys, breadth.cli.main; print('torch' in sys.modules, 'aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
