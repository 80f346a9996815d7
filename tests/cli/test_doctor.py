"""``breadth doctor`` as typed: a log in, verdict, proof and patch out; exit statuses; nothing executed or left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from breadth.base.errors import SettingsError
from breadth.cli.doctor import watch_verdicts
from breadth.cli.main import app
from breadth.runs.schema import EntropyKind, Header
from breadth.runs.writer import RunWriter


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A TRL log whose entropy collapses while the reward stays."""
    noise = np.random.default_rng(0).normal(0, 0.01, (2, 120))
    rows = [
        {
            "step": step + 1,
            "epoch": step / 100,
            "loss": 0.0,
            "entropy": 0.7 * 0.03 ** (step / 119) + abs(noise[0, step]),
            "reward": 0.5 + noise[1, step],
            "completions/clipped_ratio": 0.0,
            "frac_reward_zero_std": 0.3,
        }
        for step in range(120)
    ]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": rows, "global_step": 120}))
    return path


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["doctor", *map(str, words)], env={"COLUMNS": "120"})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_verdict_proof_and_patch(log: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        f"open({str(tmp_path / 'executed')!r}, 'w')\nargs = GRPOConfig(num_generations=8, num_iterations=2)\n"
    )
    status, said = run(log, tmp_path / "train.py")
    assert status == 0
    lines = said.splitlines()
    assert next(line for line in lines if line.strip()).startswith("Diagnosis of")
    assert lines.index("✖ CRITICAL") < 5  # the verdict comes first
    assert "and the score has stopped rising" in said
    assert "GRPOConfig(beta=0.01)" in said
    assert not (tmp_path / "executed").exists()


def test_a_log_is_judged_without_loading_what_it_does_not_need(log: Path) -> None:
    slow = (
        "scipy",
        "duckdb",
        "pandas",
        "yaml",
        "pyarrow.compute",
        "breadth.inference.policy",
        "breadth.doctor.findings.over_thinking",
    )
    script = (
        f"import sys; from breadth.cli.main import app; app(standalone_mode=False); print([m for m in {slow} if m in"
        " sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "doctor", str(log)], capture_output=True, text=True, check=True
    )
    assert "entropy-collapse" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_json_and_exit_status(log: Path) -> None:
    status, said = run(log, "--json", "--fail-on", "warning")
    assert status == 1
    assert json.loads(said)["findings"][0]["name"] == "entropy-collapse"
    assert run(log, "--fail-on", "critical")[0] == 1


def test_a_page_is_written_on_demand(log: Path, tmp_path: Path) -> None:
    assert run(log, "--html", tmp_path / "page.html", "--json")[0] == 0
    assert "entropy-collapse" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("words", [(), ("--fail-on", "bad", "x"), ("/nowhere",)])
def test_what_is_wrong_on_the_command_line_is_said(words: tuple[str, ...]) -> None:
    from breadth.base.errors import BreadthError

    with pytest.raises(BreadthError):
        run(*words)


def test_explain_lists_and_explains() -> None:
    assert "entropy-collapse" in run("--explain", "all")[1]
    assert "Constants, and why" in run("--explain", "entropy-collapse")[1]


def test_a_verdict_is_announced_when_it_comes_and_not_again(tmp_path: Path) -> None:
    kind = EntropyKind("exact", 1.0, "token-mean", "response")
    writer = RunWriter(tmp_path / "run", Header(name="live", trainer="trl", entropies={"entropy": kind}))
    said = watch_verdicts([tmp_path / "run"], None, 0.0)
    for step in range(1, 41):
        writer.metrics(step, {"entropy": 0.6 + 0.01 * (step % 2), "reward": 0.3 + 0.001 * step})
    assert next(said).endswith("nothing found so far")
    for step in range(41, 81):
        writer.metrics(step, {"entropy": 0.02 + 0.001 * (step % 2), "reward": 0.3 + 0.001 * step})
    assert "live, entropy-collapse: critical. Entropy has fallen to" in next(said)
    for step in range(81, 400):
        writer.metrics(step, {"entropy": 0.6 + 0.01 * (step % 2), "reward": 0.3 + 0.001 * step})
    assert next(said).endswith("live, entropy-collapse: gone.")  # nothing was said twice in between


def test_what_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    said = watch_verdicts([tmp_path / "later"], None, 0.0)
    writer_made = False

    def first() -> str:
        nonlocal writer_made
        if not writer_made:
            writer = RunWriter(tmp_path / "later", Header(name="later", trainer="trl"))
            for step in range(1, 20):
                writer.metrics(step, {"entropy": 0.5, "reward": 0.3 + 0.01 * (step % 3)})
            writer_made = True
        return next(said)

    assert "nothing found so far" in first()


def test_a_reader_who_follows_it_opens_few_files(log: Path) -> None:
    tool = Path(__file__).parents[2] / "tools" / "count_visited_files.py"
    done = subprocess.run([sys.executable, tool, "doctor", str(log)], capture_output=True, text=True, check=True)
    assert "entropy-collapse" in done.stdout
    assert int(done.stderr.splitlines()[-1].split()[0]) <= 65


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "memory://bucket/run"])
def test_an_address_is_not_followed(address: str) -> None:
    done = CliRunner().invoke(app, ["doctor", "--follow", address])
    assert isinstance(done.exception, SettingsError)
    assert "--follow watches files of this machine" in str(done.exception)
