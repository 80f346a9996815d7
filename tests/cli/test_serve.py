"""``breadth serve``: the command, its address, its signals, its errors."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from typer.testing import CliRunner

from breadth.base.errors import BreadthError
from breadth.cli.main import app
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.testing.fake_server import spawn_server

KEY = "correct-horse-battery"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("BREADTH_", "OPENAI_"))}


@contextmanager
def serve(*arguments: str | Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command; yields the process and its address."""
    command = [sys.executable, "-m", "breadth", "serve", *map(str, arguments), "--port", "0", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT | environment
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            yield process, json.loads(line)["url"]
        finally:
            process.kill()


def test_what_clients_leave_behind_does_not_wait_for_hours() -> None:
    code = """
import gc, weakref
from breadth.cli.main import GC_THRESHOLD
from breadth.cli.serve import collect_garbage_often

class Reply:
    pass

gc.set_threshold(GC_THRESHOLD)
collect_garbage_often()
reply = Reply()
reply.itself, gone = reply, weakref.ref(reply)
gc.collect(0), gc.collect(1)  # it is among the oldest now
del reply
later = [[] for _ in range(200_000)]
print(gone() is None, gc.get_freeze_count() > 20_000)
"""
    reply = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert reply.stdout.split() == ["True", "True"]


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run the command in this process; it must fail with an error of ours, which is returned as it would be printed."""
    for name in set(os.environ) - set(ENVIRONMENT):
        monkeypatch.delenv(name)

    def run(*arguments: str) -> str:
        error = CliRunner().invoke(app, ["serve", *arguments]).exception
        assert isinstance(error, BreadthError), repr(error)
        return str(error)

    return run


def ask(url: str, key: str = "") -> tuple[int, str]:
    body = json.dumps({"messages": [{"role": "user", "content": "?"}]}).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        with urlopen(Request(f"{url}/v1/chat/completions", body, headers), timeout=60) as reply:  # noqa: S310 - our own server
            return reply.status, reply.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_it_prints_its_address_answers_and_ends_when_told() -> None:
    with (
        spawn_server("--tokens", "3") as upstream,
        serve("--upstream", upstream, "--policy", "vote,n=3") as (process, url),
    ):
        status, said = ask(url)
        assert status == 200
        assert json.loads(said)["breadth"]["arrived"] == 3
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0
        assert re.search(r" policy=vote status=200 .*samples=3 ", errors)


def test_a_request_in_flight_is_answered_before_the_end() -> None:
    got: list[tuple[int, str]] = []
    with (
        spawn_server("--tokens", "2", "--wait", "1.0") as upstream,
        serve("--upstream", upstream, "--policy", "single") as (process, url),
    ):
        asking = threading.Thread(target=lambda: got.append(ask(url)))
        asking.start()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        asking.join(60)
        process.wait(60)
        assert process.returncode == 0
    assert got[0][0] == 200


def test_keys_come_from_the_environment_and_a_file(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# the app\nanother-key-entirely\n")
    with (
        spawn_server("--tokens", "3") as upstream,
        serve("--upstream", upstream, "--keys-file", keys, BREADTH_KEY=KEY) as (_, url),
    ):
        assert [ask(url, key)[0] for key in (KEY, "another-key-entirely", "wrong", "")] == [200, 200, 401, 401]


def test_several_upstreams_share_the_work() -> None:
    with (
        spawn_server("--tokens", "3") as one,
        spawn_server("--tokens", "3") as two,
        serve("--upstream", one, "--upstream", two) as (_, url),
    ):
        assert json.loads(ask(url)[1])["breadth"]["arrived"] >= 3
        for upstream in (one, two):
            with urlopen(f"{upstream}/fake/requests", timeout=60) as reply:  # noqa: S310 - our own server
                assert json.loads(reply.read())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--upstream", "http://127.0.0.1:9"], "127.0.0.1:9"),
        (["--upstream", "http://127.0.0.1:9", "--policy", "adaptve-vote"], "'adaptive-vote'"),
        (["--upstream", "http://127.0.0.1:9", "--policy", "absent.toml"], "absent.toml"),
        (["--upstream", "http://127.0.0.1:9", "--host", "0.0.0.0"], "everybody"),  # noqa: S104 - refused
        (["--upstream", "http://127.0.0.1:9", "--max-requests", "0"], "max_requests"),
        (["--upstream", "http://127.0.0.1:9", "--max-samples", "0"], "max_samples"),
        (["--upstream", "http://127.0.0.1:9", "--max-tokens", "0"], "max_tokens"),
        (["--upstream", "http://127.0.0.1:9", "--deadline", "nan"], "seconds"),
        (["--upstream", "http://127.0.0.1:9", "--read-timeout", "0"], "read_seconds"),
        (["--upstream", "http://127.0.0.1:9", "--max-body", "nan"], "body"),
        (["--upstream", "http://127.0.0.1:9", "--max-body", "0"], "body"),
        (["--upstream", "http://127.0.0.1:9", "--drain", "-1"], "drain"),
        (["--upstream", "http://127.0.0.1:9", "--add-policy", "x"], "--add-policy"),
        (["--upstream", "http://127.0.0.1:9", "--keys-file", "absent"], "absent"),
        (["--upstream", "nonsense://x"], "nonsense"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_served(
    failed: Callable[..., str], arguments: list[str], said: str
) -> None:
    assert said in failed(*arguments)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter22@127.0.0.1:9",
        "http://user:hun/hunter22@127.0.0.1:9/v1",
        "http://127.0.0.1:9?key=hunter22",
        "http://127.0.0.1:9/v1#hunter22",
    ],
)
@pytest.mark.parametrize(
    "verb", ["serve --upstream {}", "solve --url {} 2+2", "tune {} --tasks {} --out out --yes", "doctor {}", "probe {}"]
)
@pytest.mark.parametrize("key", ["", "some-key-or-other"])
def test_a_password_in_an_address_is_refused_in_words_and_not_printed(
    verb: str, url: str, key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BREADTH_UPSTREAM_KEY", key)
    monkeypatch.setenv("BREADTH_KEY", key)
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"question": "2 + 2?", "answer": "4"}\n')
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, verb.format(url, tasks).split())
    assert isinstance(result.exception, BreadthError), repr(result.exception)
    assert "has a user name, a password or a query in it" in str(result.exception)
    assert "hunter22" not in str(result.exception) + result.output


def test_a_key_that_would_be_guessed_is_refused_and_not_printed(
    failed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BREADTH_KEY", "abc1")
    said = failed("--upstream", "http://127.0.0.1:9")
    assert "key" in said
    assert "abc1" not in said


def test_every_policy_is_prepared_before_anything_is_served(
    failed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[object] = []
    monkeypatch.setattr(AdaptiveVote, "prepare", lambda strategy: prepared.append(strategy))
    failed(
        "--upstream",
        "http://127.0.0.1:9",
        "--policy",
        "adaptive-vote,most=3",
        "--add-policy",
        "more=adaptive-vote,most=9",
    )
    assert prepared == [AdaptiveVote(most=3), AdaptiveVote(most=9)]


def test_a_line_that_is_no_http_leaves_no_traceback_in_the_log() -> None:
    with spawn_server("--tokens", "3") as upstream, serve("--upstream", upstream) as (process, url):
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as line:
            line.sendall(b"POST /\x1b[31m HTTP/1.1\r\nX: \x1b[31m\r\n\r\n")
            assert b" 400 " in line.recv(4096)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors
    assert "\x1b" not in errors


def test_the_upstreams_key_may_end_in_a_line_end_and_have_no_other_in_it(
    failed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        spawn_server("--tokens", "3") as upstream,
        serve("--upstream", upstream, BREADTH_UPSTREAM_KEY="secret\n") as (_, url),
    ):
        assert ask(url)[0] == 200
        with urlopen(f"{upstream}/fake/requests", timeout=60) as reply:  # noqa: S310 - our own server
            assert json.loads(reply.read())[0]["headers"]["authorization"] == "Bearer secret"
    monkeypatch.setenv("BREADTH_UPSTREAM_KEY", "secret\r\nX-Evil: 1")
    said = failed("--upstream", "http://127.0.0.1:9")
    assert "control characters" in said
    assert "secret" not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_an_address_that_cannot_be_told_is_an_error_in_words() -> None:
    with spawn_server("--tokens", "3") as upstream, Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "breadth", "serve", "--upstream", upstream, "--port", "0"]
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, timeout=60, check=False
        )
    assert ended.returncode == 2
    assert "cannot be written to standard output" in ended.stderr
    assert "Traceback" not in ended.stderr
