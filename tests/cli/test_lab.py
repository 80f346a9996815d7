"""``breadth lab``: the server as a command, from its first line to its end; files of questions."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from typer.testing import CliRunner, Result

from breadth.base.errors import BreadthError
from breadth.cli.main import app
from breadth.lab.reasoner import ReasonerShape, build_reasoner, check_files, load_reasoner, save_reasoner
from breadth.lab.task.teacher import ArithmeticFacts, Teacher
from breadth.lab.task.vocabulary import vocabulary_words
from breadth.lab.trials.experiment import ExperimentTrial
from breadth.lab.trials.runner import TrialFailure
from breadth.runtime.questions import read_questions

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("BREADTH_", "OPENAI_"))}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small untaught reasoner in a folder."""
    folder = tmp_path_factory.mktemp("lab") / "small"
    save_reasoner(
        build_reasoner(
            Teacher(ArithmeticFacts(prime=7)), ReasonerShape(hidden=32, layers=1, heads=2, inner=32, context=2048)
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


WORK = """
from pathlib import Path
def work(settings, folder, base, told):
    told(1)
    if settings["value"] == 1 and not (Path(folder) / "mended").exists():
        raise ValueError("no luck")
    return {"value": settings["value"]}
"""
EXPERIMENT = """
from dataclasses import dataclass
from breadth.lab.trials.experiment import ExperimentTrial
from breadth.report.sections import Page
from breadth.report.sections import Fact, Facts
@dataclass(frozen=True)
class Small:
    name: str = "small"
    statement: str = "Three values."
    seeds: int = 3
    def trials(self, bench):
        asked = [(f"t/seed-{n}", n) for n in range(bench.seeds)] + [("x/seed-0", 9)]
        settings = {name: {"value": number, "weights": bench.weights} for name, number in asked}
        return tuple(ExperimentTrial(name, "work_of_cli:work", values) for name, values in settings.items())
    def page(self, done, bench):
        return Page("Small", [Facts("Found", [Fact(one.trial.name, one.result["value"]) for one in done])])
SMALL = Small()
"""


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["lab", *map(str, arguments)])


@pytest.fixture
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An experiment of four quick trials, the second of which fails at first."""
    (tmp_path / "work_of_cli.py").write_text(WORK)
    (tmp_path / "experiment_of_cli.py").write_text(EXPERIMENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr("breadth.base.catalogue.Catalogue.table", lambda _: {"small": "experiment_of_cli:SMALL"})


@pytest.mark.parametrize("arguments", [(), ("--list",)])
def test_experiments_are_listed_one_a_line(arguments: tuple[str, ...]) -> None:
    result = call("run", *arguments)
    assert result.exit_code == 0
    lines = {line.split("  ")[0]: line for line in result.stdout.splitlines()}
    assert {"remedies", "choices", "known-truth"} <= lines.keys()
    assert json.loads(call("run", "--list", "--json").stdout)[0].keys() == {"name", "statement"}


def test_an_unknown_experiment_is_refused() -> None:
    error = call("run", "remedy").exception
    assert isinstance(error, BreadthError)
    assert "remedies" in str(error)


@pytest.mark.usefixtures("_small")
def test_a_failure_is_told_and_the_same_command_goes_on(tmp_path: Path, base: Path) -> None:
    out = tmp_path / "out"
    arguments = ("run", "small", "--base", base, "--jobs", "2", "--out", out, "--json")
    first = call(*arguments)
    assert first.exit_code == 1
    assert "t/seed-1 failed: ValueError: no luck" in first.stderr
    page = json.loads(first.stdout)
    assert [fact["name"] for fact in page["sections"][0]["facts"]] == ["t/seed-0", "t/seed-2", "x/seed-0"]
    states = {row["name"]: row["state"] for row in json.loads((out / "results.json").read_text())["trials"]}
    assert states == {"t/seed-0": "done", "t/seed-1": "failed", "t/seed-2": "done", "x/seed-0": "done"}
    (out / "t" / "seed-1" / "mended").touch()
    second = call(*arguments)
    assert second.exit_code == 0
    assert "t/seed-0" not in second.stderr  # it had ended
    more = call(*arguments[:-1], "--seeds", "4", "--html", tmp_path / "page.html")
    assert more.exit_code == 0
    assert "t/seed-3" in more.stdout
    assert (tmp_path / "page.html").read_text().startswith("<!")


@pytest.mark.usefixtures("_small")
def test_one_arm_alone_is_run_and_an_unknown_one_refused(tmp_path: Path, base: Path) -> None:
    error = call("run", "small", "--only", "u", "--out", tmp_path / "lab", "--base", base).exception
    assert isinstance(error, BreadthError)
    assert "The arms are: t, x." in str(error)
    result = call("run", "small", "--only", "x", "--out", tmp_path / "lab", "--base", base, "--json")
    assert result.exit_code == 0
    whole = json.loads((tmp_path / "lab" / "results.json").read_text())
    assert {trial["name"]: trial["state"] for trial in whole["trials"]} == {
        "t/seed-0": "not run",
        "t/seed-1": "not run",
        "t/seed-2": "not run",
        "x/seed-0": "done",
    }
    assert whole["command"] == "breadth lab run small --seeds 3 --only x"


@pytest.mark.usefixtures("_small")
def test_another_base_in_the_same_folder_is_refused(tmp_path: Path, base: Path) -> None:
    call("run", "small", "--base", base, "--seeds", "1", "--out", tmp_path / "out")
    other = tmp_path / "other"
    save_reasoner(
        build_reasoner(
            Teacher(ArithmeticFacts(prime=7)), ReasonerShape(hidden=32, layers=1, heads=2, inner=32), seed=1
        ),
        other,
    )
    error = call("run", "small", "--base", other, "--seeds", "1", "--out", tmp_path / "out").exception
    assert isinstance(error, BreadthError)
    assert "weights was" in str(error)


def test_the_gate_is_not_met_by_an_untaught_base(base: Path) -> None:
    result = call("gate", "--base", base, "--problems", "4", "--samples", "8")
    assert result.exit_code == 1
    assert "pass@1" in result.stdout
    page = json.loads(call("gate", "--base", base, "--problems", "4", "--samples", "8", "--json").stdout)
    rows = page["sections"][1]["rows"]
    assert rows[0][:2] == ["pass@1", "0.1 to 0.4"]
    assert rows[0][3] == "no"


def test_a_base_is_made_and_the_same_again(tmp_path: Path) -> None:
    for name in ("one", "same"):
        result = call("pretrain", tmp_path / name, "--prime", "7", "--steps", "2")
        assert result.exit_code == 0, result.output
        assert "breadth lab gate" in result.stderr
        check_files(tmp_path / name)
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "same")]
    assert files[0] == files[1]
    assert load_reasoner(tmp_path / "one").teacher.facts.prime == 7


def test_a_folder_that_is_there_is_refused_before_the_work(base: Path) -> None:
    error = call("pretrain", base).exception
    assert isinstance(error, BreadthError)
    assert "is there already" in str(error)


def call_smollm2(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["lab", "smollm2", *map(str, arguments)])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "small.gguf"
    file.write_bytes(b"GGUF")
    return file


@pytest.mark.parametrize(("content", "words"), [(None, "cannot be read"), (b"PK", "is no GGUF file")])
def test_what_is_no_model_is_refused(content: bytes | None, words: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.gguf"
    if content is not None:
        file.write_bytes(content)
    error = call_smollm2(file, "--out", tmp_path / "out").exception
    assert isinstance(error, BreadthError)
    assert words in str(error)
    assert not (tmp_path / "out").exists()


def test_without_gguf_it_says_what_to_install(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breadth.lab.smollm2.policy.find_spec", lambda name: None if name == "gguf" else object())
    error = call_smollm2(model, "--out", tmp_path / "out").exception
    assert isinstance(error, BreadthError)
    assert 'pip install "gguf' in str(error)


def test_what_failed_is_told_with_its_reason(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def run_trials(
        trials: Sequence[ExperimentTrial], folder: Path, base: Path, jobs: int, _: Any
    ) -> list[TrialFailure]:
        asked.update(
            names=[trial.name for trial in trials], folder=folder, base=base, jobs=jobs, plan=trials[0].settings["plan"]
        )
        return [TrialFailure(trials[-1], "no luck", folder / "log.txt")]

    monkeypatch.setattr("breadth.cli.lab.check_libraries", lambda _: None)
    monkeypatch.setattr("breadth.cli.lab.unpack_model", lambda place, folder: folder.mkdir(parents=True))
    monkeypatch.setattr("breadth.cli.lab.run_trials", run_trials)
    out = tmp_path / "out"
    result = call_smollm2(
        model, "--seeds", "2", "--steps", "3", "--jobs", "1", "--out", out, "--json", "--html", tmp_path / "page.html"
    )
    assert result.exit_code == 1
    assert "base failed: no luck" in result.stderr
    assert json.loads(result.stdout)["sections"][0]["headline"] == "At no seed have both arms ended."
    assert (tmp_path / "page.html").read_text().startswith("<!")
    # SHA-256 of the four letters.
    weights = "b83633aa78534479"
    assert asked["names"] == ["protected/seed-0", "plain/seed-0", "protected/seed-1", "plain/seed-1", "base"]
    assert (asked["folder"], asked["base"], asked["jobs"], asked["plan"]["steps"]) == (
        out,
        out / f"model-{weights}",
        1,
        3,
    )
    written = json.loads((out / "results.json").read_text())
    assert written["command"] == "breadth lab smollm2 small.gguf --seeds 2 --steps 3"
    assert written["base"] == weights
