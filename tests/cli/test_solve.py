"""``breadth solve`` against a real server, and what it says when something is wrong."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from breadth.api import api_key, resolve_policy, server_urls
from breadth.base.errors import ServerError, SettingsError
from breadth.cli.main import app
from breadth.cli.solve import EXIT_UNREAD, describe_totals, print_answer, print_table, read_input, solve, vote_lines
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.runs.reader import Run
from breadth.runtime.driver import MAX_VOTES_LISTED
from breadth.testing.fake_replies import Reply
from breadth.testing.fake_server import FakeServer

Command = Callable[..., "subprocess.CompletedProcess[str]"]
QUESTION = "What is 3 + 4? Write only: The answer is 7."


def test_a_question_gets_its_answer_confidence_and_cost(breadth: Command, llama: str, tmp_path: Path) -> None:
    done = breadth(
        "solve",
        QUESTION,
        "--url",
        llama,
        "--max-tokens",
        40,
        "--policy",
        "adaptive-vote,most=6",
        "--out",
        tmp_path / "run",
    )
    assert done.returncode in (0, EXIT_UNREAD), done.stderr  # what the small model replies differs between processors
    for word in ("answer", "samples", "tokens written", *(("confidence", "votes") if done.returncode == 0 else ())):
        assert word in done.stdout
    run = Run.open(tmp_path / "run")
    drawn = run.query("SELECT count(*) AS n FROM rollouts").to_pylist()[0]["n"]
    assert 1 <= drawn <= 6
    again = breadth(
        "solve",
        QUESTION,
        "--url",
        llama,
        "--max-tokens",
        40,
        "--policy",
        "adaptive-vote,most=6",
        "--out",
        tmp_path / "run",
    )
    assert again.returncode == done.returncode
    assert Run.open(tmp_path / "run").query("SELECT count(*) AS n FROM rollouts").to_pylist()[0]["n"] == drawn
    other = breadth("solve", "What is 1 + 1?", "--url", llama, "--out", tmp_path / "run")
    assert other.returncode == 2
    assert "another prompt, policy or seed" in other.stderr


def test_machines_get_json_and_a_budget_is_kept_to(breadth: Command, llama: str) -> None:
    done = breadth(
        "solve", QUESTION, "--url", llama, "--max-tokens", 30, "--policy", "vote,n=4", "--budget-tokens", 70, "--json"
    )
    said = json.loads(done.stdout)
    assert said["strategy"] == "vote"
    assert 0 < said["cost"]["output_tokens"] <= 70
    assert said["arrived"] >= 2
    assert said["confidence"] is None or 0.5 <= said["confidence"] < 1


def test_the_model_can_judge_its_own_candidates(breadth: Command, llama: str) -> None:
    done = breadth("solve", QUESTION, "--url", llama, "--max-tokens", 20, "--policy", "best-of-n,n=2", "--json")
    said = json.loads(done.stdout)
    assert said["arrived"] == 2
    assert said["cost"]["calls"] > 2, "judgements are charged"


@pytest.mark.parametrize("allocator", [(), ("--allocator", "round-robin")])
def test_a_file_of_questions(breadth: Command, llama: str, tmp_path: Path, allocator: tuple[str, ...]) -> None:
    rows = [
        {"id": f"q{number}", "question": f"What is {number} + 1? Write only the answer.", "answer": str(number + 1)}
        for number in range(3)
    ]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = (
        "--url",
        llama,
        "--max-tokens",
        12,
        "--answer-format",
        "number",
        "--policy",
        "vote,n=2",
        "--budget-tokens",
        150,
    )
    done = breadth("solve", "--tasks", tmp_path / "tasks.jsonl", *arguments, *allocator)
    assert done.returncode in (0, EXIT_UNREAD), done.stderr
    assert "3 questions" in done.stdout
    assert "of 3" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("", "--url", "http://127.0.0.1:9"), "The question is empty"),
        (("q", "--url", "http://127.0.0.1:9"), "No server answers"),
        (("q", "--url", "http://127.0.0.1:9", "--policy", "adaptve-vote"), "Did you mean 'adaptive-vote'"),
        (("q", "--url", "http://127.0.0.1:9", "--temperature", "-1"), "temperature"),
        (("q", "--url", "http://127.0.0.1:9", "--answer-format", "wohle"), "whole"),
        (("--url", "http://127.0.0.1:9"), "Give one question or --tasks"),
        (("--url", "http://127.0.0.1:9", "--tasks", "missing.jsonl"), "missing.jsonl"),
        (("q",), "No server was given"),
        (("caf\udce9", "--url", "http://127.0.0.1:9"), "not UTF-8"),
        (("q", "--system", "caf\udce9", "--url", "http://127.0.0.1:9"), "not UTF-8"),
        (("q", "--policy", "nowhere.toml", "--url", "http://127.0.0.1:9"), "nowhere.toml: cannot be read"),
        (("q", "--concurrency", "0", "--url", "http://127.0.0.1:9"), "--concurrency"),
    ],
)
def test_bad_input_gets_two_sentences(
    breadth: Command, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    for name in ("BREADTH_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    done = breadth("solve", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("q", "--model", "gpt-9"), "has no model 'gpt-9'"),
        (("word " * 3000,), "does not fit the model's context"),
        (("q", "--budget-tokens", "0"), "budget was spent"),
    ],
)
def test_what_the_server_cannot_do_is_said(breadth: Command, llama: str, arguments: tuple[str, ...], said: str) -> None:
    done = breadth("solve", *arguments, "--url", llama, "--max-tokens", 10)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_line_comes_on_top_of_the_policy() -> None:
    policy = resolve_policy(
        "adaptive-vote,most=3", None, {"max_tokens": 9, "temperature": None}, {"model": None, "system": "Be brief."}
    )
    assert (policy.sampling.max_tokens, policy.sampling.temperature, policy.system) == (9, 0.7, "Be brief.")


def test_addresses_come_from_the_environment_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BREADTH_URL", "http://one")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://two/v1")
    assert server_urls(None) == ["http://one"]
    assert server_urls(["http://three"]) == ["http://three"]
    monkeypatch.delenv("BREADTH_URL")
    assert server_urls([]) == ["http://two/v1"]


def test_one_question_or_a_file() -> None:
    assert [question.prompt for question in read_input("6 x 7?", None)] == ["6 x 7?"]
    with pytest.raises(SettingsError, match="not both"):
        read_input("q", Path("tasks.jsonl"))


def test_a_key_with_a_line_break_is_trimmed_and_one_with_two_lines_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BREADTH_KEY", "secret\n")
    assert api_key() == "secret"
    monkeypatch.setenv("BREADTH_KEY", "se\ncret")
    with pytest.raises(SettingsError, match="BREADTH_KEY"):
        api_key()
    monkeypatch.setenv("BREADTH_KEY", " ")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    assert api_key() is None


def test_the_policy_is_prepared_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[object] = []
    monkeypatch.setattr(AdaptiveVote, "prepare", lambda strategy: prepared.append(strategy))
    with pytest.raises(ServerError, match="No server answers"):
        solve("q", ["http://127.0.0.1:9"], "adaptive-vote,most=3", temperature=0.5)
    assert prepared == [AdaptiveVote(most=3)]


def solve_with(reply: Reply, *settings: str) -> int:
    """Solve one question on a server with one constant reply; return the exit status."""

    async def work() -> int:
        async with FakeServer(reply) as server:
            arguments = ["solve", "7 + 12?", "--url", server.url, "--policy", "vote,n=2", *settings]
            return await asyncio.to_thread(run_verb, arguments)

    def run_verb(arguments: list[str]) -> int:
        try:
            app(arguments)
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return asyncio.run(work())


def test_a_reply_that_is_only_a_number_is_its_own_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert solve_with(Reply.from_text("19"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["answer"] == "19"


def test_a_reader_who_follows_it_opens_few_files() -> None:
    tool = Path(__file__).parents[2] / "tools" / "count_visited_files.py"

    async def work() -> subprocess.CompletedProcess[str]:
        async with FakeServer(Reply.from_text("19")) as server:
            command = [sys.executable, str(tool), "solve", "7 + 12?", "--url", server.url]
            return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)

    done = asyncio.run(work())
    assert "19" in done.stdout
    assert int(done.stderr.splitlines()[-1].split()[0]) <= 32


def test_replies_without_a_readable_answer_are_said_so_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert solve_with(Reply.from_text("I would have to think about it")) == EXIT_UNREAD
    heard = capsys.readouterr()
    assert "I would have to think" in heard.out
    assert "No answer could be read in any of 2 replies" in heard.err
    assert "--answer-format number" in heard.err
    assert solve_with(Reply.from_text("one two three four five six"), "--max-tokens", "3") == EXIT_UNREAD
    assert "Raise --max-tokens" in capsys.readouterr().err
    for empty in (Reply(), Reply.from_text("", reasoning="I would have to think about it")):
        assert solve_with(empty) == EXIT_UNREAD
        assert "2 of them without any text.\n  -> Look at the server's log" in capsys.readouterr().err
    assert solve_with(Reply.from_text("I would have to think about it"), "--policy", "single") == EXIT_UNREAD
    assert "could be read in the reply." in capsys.readouterr().err
    assert solve_with(Reply.from_text("I would have to think about it"), "--answer-format", "whole") == 0


def row(**changes: Any) -> dict[str, Any]:
    cost = {"calls": 5, "input_tokens": 50, "cached_tokens": 10, "output_tokens": 1234, "seconds": 1.5, "money": 0.0}
    base: dict[str, Any] = {
        "question": "q",
        "text": "It is 42.",
        "answer": "42",
        "confidence": 0.96875,
        "basis": "leader against runner-up",
        "votes": [{"answer": "42", "votes": 4.0, "share": 0.8}, {"answer": "41", "votes": 1.0, "share": 0.2}],
        "tied": [],
        "stopped": "agreed",
        "drawn": 5,
        "arrived": 5,
        "failed": 0,
        "discarded": 0,
        "unread": 0,
        "cost": cost,
        "notes": [],
        "errors": [],
    }
    return base | changes


def printed(**changes: Any) -> str:
    console = Console(width=100, record=True, force_terminal=False, file=None, quiet=False)
    with console.capture() as captured:
        print_answer(row(**changes), console)
    return captured.get()


def test_the_reply_comes_first_and_the_cost_last() -> None:
    lines = printed().splitlines()
    assert lines[0].strip() == "It is 42."
    assert "0.969 that the model gives this answer most often" in "\n".join(lines)
    assert "1,234 tokens written, 50 read (10 cached), 1.50 s" in lines[-1]
    assert "█████" in "\n".join(lines)
    assert "4 for 42" in "\n".join(lines)


def test_failures_ties_and_notes_are_said() -> None:
    said = printed(
        failed=2, errors=[{"problem": "status 500", "times": 2}], tied=["1", "2"], notes=["Confidence was not used."]
    )
    assert "2 failed" in said
    assert "2 x status 500" in said
    assert "2 answers had as many votes" in said
    assert "Confidence was not used." in said


def test_escape_codes_and_markup_of_a_model_do_nothing() -> None:
    said = printed(text="\x1b]0;owned\x07[red]x[/red]\x1b[2J", answer="\x1b[31m", notes=["[bold]n"])
    assert "\x1b" not in said
    assert "[red]x[/red]" in said


def test_a_long_tail_of_answers_is_summed_up() -> None:
    votes = [{"answer": f"{'long ' * 20}{number}", "votes": 1.0, "share": 0.1} for number in range(10)]
    lines = [line.plain for line in vote_lines(votes)]
    assert len(lines) == 7
    assert lines[-1] == "and 4 more answers with 4"
    assert max(map(len, lines)) < 70


def test_a_tail_that_was_cut_is_not_counted_as_all() -> None:
    votes = [{"answer": str(number), "votes": 1.0, "share": 0.02} for number in range(MAX_VOTES_LISTED)]
    assert vote_lines(votes)[-1].plain == "and at least 14 more answers with at least 14"


def test_a_file_ends_with_its_sums() -> None:
    rows = [row(correct=True), row(correct=False, answer=None, confidence=None)]
    # Wilson at 1 of 2: (0.09, 0.91).
    assert describe_totals(rows) == (
        "2 questions, 10 samples (0 failed), 2,468 tokens written; right: 1 of 2 (9% to 91%), 2,468 tokens per"
        " right answer"
    )
    console = Console(width=100)
    with console.capture() as captured:
        print_table(rows, console)
    assert "yes" in captured.get()
