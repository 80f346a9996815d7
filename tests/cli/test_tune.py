"""``breadth tune``: the price first, then the sweep, the report and a policy that ``solve`` can run."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from breadth.base.errors import BreadthError, BrokenFileError, ServerError, SettingsError
from breadth.cli import tune as verb
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.single import Single
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.sweep import Sweep
from breadth.testing.fake_replies import Reply
from breadth.testing.fake_server import FakeServer
from breadth.testing.strategies import HumpModel

TRUTHS = {f"What is {number} + 1?": str(number + 1) for number in range(16)}
Command = Callable[..., Any]


def scripted(model: HumpModel) -> Callable[[dict[str, Any], int], Reply]:
    """Let the scripted model speak through the fake server; a last message of the assistant's is what it continues."""

    def reply(body: dict[str, Any], number: int) -> Reply:
        del number
        asked = [message["content"] for message in body["messages"] if message["role"] == "user"][-1]
        begun = body["messages"][-1]["content"] if body["messages"][-1]["role"] == "assistant" else ""
        drawing = model.sample(
            SampleRequest(asked, Sampling(max_tokens=body["max_tokens"]), begun, seed=body["seed"]), Meter()
        )
        try:
            drawing.send(None)
        except StopIteration as end:
            return Reply.from_text(end.value.text)
        raise AssertionError("the model waits for something")

    return reply


@pytest.fixture
def url() -> Iterator[str]:
    """A fake server whose model is better the longer it thinks, up to 64 words."""
    loop, up, down = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[str] = []

    async def serve() -> None:
        model = HumpModel(lambda words: 0.15 if words < 20 else 0.3 if words < 50 else 0.95, TRUTHS)
        async with FakeServer(scripted(model)) as server:
            found.append(server.url)
            up.set()
            await down.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert up.wait(20)
    yield found[0]
    loop.call_soon_threadsafe(down.set)
    thread.join()
    loop.close()


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps({"question": text, "answer": answer}) + "\n" for text, answer in TRUTHS.items()))
    return path


@pytest.fixture
def tune(tmp_path: Path, tasks: Path) -> Command:
    """Run the verb in this process; what it raised is raised again."""
    app = typer.Typer()
    app.command()(verb.tune)

    def run(*arguments: object, questions: Path = tasks, **settings: Any) -> Any:
        out = ["--tasks", questions, "--out", tmp_path / "run"]
        done = CliRunner().invoke(app, [str(argument) for argument in [*arguments, *out]], **settings)
        if isinstance(done.exception, BreadthError):
            raise done.exception
        return done

    return run


SMALL = ("--dialect", "llama-cpp", "--widths", "1,2", "--samples", "2", "--max-tokens", "256")


def test_the_best_budget_is_found_and_the_policy_written(tune: Command, url: str, tmp_path: Path) -> None:
    done = tune(
        url,
        *SMALL,
        "--budgets",
        "16,64",
        "--yes",
        "--html",
        tmp_path / "page.html",
        "--policy-out",
        tmp_path / "best.toml",
    )
    assert done.exit_code == 0, done.output
    assert "16 questions x (2 plain + 2 budgets x 2 forced) = 96 samples" in done.stderr
    assert "still to come: about" in done.stderr
    assert "Use 64 thinking tokens" in done.stdout
    policy = Policy.parse(str(tmp_path / "best.toml"))
    assert isinstance(policy.strategy, BudgetForcing)
    assert policy.strategy.maximum == 64
    assert "Use 64 thinking tokens" in (tmp_path / "page.html").read_text()


def test_json_is_all_there_is_on_standard_output(tune: Command, url: str, tmp_path: Path) -> None:
    done = tune(url, *SMALL, "--budgets", "none", "--yes", "--json")
    page = json.loads(done.stdout)
    assert f"--policy {tmp_path / 'run' / 'policy.toml'}" in done.stdout, "the path as it was written"
    assert page["title"].startswith("Tuning: ")
    assert page["title"] != "Tuning: run"
    assert page["sections"][0]["severity"] == "cannot tell"
    assert done.exit_code == verb.EXIT_CANNOT_TELL
    assert Policy.parse(str(tmp_path / "run" / "policy.toml")).strategy == Single()


def test_a_server_without_prefixes_is_tuned_by_width_only(tune: Command, url: str) -> None:
    done = tune(url, "--widths", "1,2", "--yes", "--questions", "4")
    assert "only widths were measured" in done.stderr
    assert "4 questions x (2 plain) = 8 samples" in done.stderr


def test_answers_that_cannot_be_read_are_told_before_the_sweep(tune: Command, url: str) -> None:
    done = tune(url, *SMALL[:-1], "16", "--budgets", "none", "--yes")
    assert "no answer could be read in 3 of these samples" in done.stderr
    assert "raise --max-tokens" in done.stdout


def test_nobody_to_ask_and_no_ceiling_is_refused_before_anything(tune: Command) -> None:
    with pytest.raises(SettingsError, match="no token limit"):
        tune("http://127.0.0.1:9")


def test_a_missing_address_is_told_as_this_verb_takes_it(tune: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BREADTH_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError) as refused:
        tune("--yes")
    assert refused.value.remedy.startswith("Give http://localhost:8000, or set BREADTH_URL")


def test_a_ceiling_of_nothing_is_refused_before_anything(tune: Command) -> None:
    done = tune("http://127.0.0.1:9", "--budget-tokens", "0")
    assert done.exit_code == 2
    assert "--budget-tokens" in done.stderr


def test_a_ceiling_is_consent(tune: Command, url: str) -> None:
    done = tune(url, *SMALL, "--budgets", "16", "--budget-tokens", "700")
    # 2 x 36 + 2 x 20 = 112 tokens per question; nine tenths of 700 pay for five.
    assert "5 questions of 16 (within the token limit) x (2 plain + 1 budget x 2 forced)" in done.stderr


def test_a_no_keeps_the_pilot_and_stops(
    tune: Command, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "is_interactive", lambda: True)
    done = tune(url, *SMALL, "--budgets", "16", input="n\n")
    assert done.exit_code == verb.EXIT_DECLINED
    assert "the pilot is kept" in done.stderr
    assert not (tmp_path / "run" / "policy.toml").exists()
    assert tune(url, *SMALL, "--budgets", "16", input="y\n").exit_code in (0, verb.EXIT_CANNOT_TELL)


def test_an_interrupt_says_how_to_go_on(tune: Command, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*_: object) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Sweep, "collect", interrupted)
        done = tune(url, *SMALL, "--budgets", "none", "--yes")
    assert done.exit_code == verb.EXIT_INTERRUPTED
    assert "resumes from there" in done.stderr
    assert tune(url, *SMALL, "--budgets", "none", "--yes").exit_code == verb.EXIT_CANNOT_TELL


def test_questions_without_answers_beside_others_are_left_out_and_told(tune: Command, url: str, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed.jsonl"
    rows = [{"question": text, "answer": answer} for text, answer in list(TRUTHS.items())[:4]]
    mixed.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"question": "What is 9 + 1?"}]))
    done = tune(url, *SMALL, "--budgets", "none", "--yes", questions=mixed)
    assert "1 of 5 questions have no right answer" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (("--widths", "1,two"), SettingsError, "--widths got '1,two'"),
        (("--widths", "0"), SettingsError, "--widths got '0'"),
        (("--budgets", "64;128"), SettingsError, "--budgets got"),
        (("--budgets", "64", "--max-tokens", "64"), SettingsError, "thinking budget of 64"),
        (("--answer-format", "guess"), SettingsError, "guess"),
        (("--model", "gpt-9"), ServerError, "gpt-9"),
    ],
)
def test_bad_settings_are_refused_in_words(
    tune: Command, url: str, arguments: tuple[str, ...], error: type[BreadthError], said: str
) -> None:
    with pytest.raises(error, match=said):
        tune(url, "--yes", *arguments)


def test_a_server_that_is_not_there_is_told(tune: Command) -> None:
    with pytest.raises(ServerError, match=r"127\.0\.0\.1"):
        tune("http://127.0.0.1:9", "--yes")


def test_a_bad_file_of_questions_names_the_row(tune: Command, url: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"question": "1?"}\n{"text": "2?"}\n')
    with pytest.raises(BrokenFileError, match="row 2"):
        tune(url, "--yes", questions=bad)


def test_another_sweep_s_folder_is_not_mixed_up(tune: Command, url: str) -> None:
    tune(url, *SMALL, "--budgets", "none", "--yes", "--questions", "4")
    with pytest.raises(BrokenFileError, match=r"other settings \(seed\)|other questions"):
        tune(url, *SMALL, "--budgets", "none", "--yes", "--questions", "4", "--seed", "1")


@pytest.mark.parametrize(("seconds", "said"), [(4.4, "4 s"), (89, "89 s"), (300, "5.0 min"), (7200, "2.0 h")])
def test_durations_are_round(seconds: float, said: str) -> None:
    assert verb.format_duration(seconds) == said
