"""``breadth show`` reads a run folder or a trainer's files, for people and for machines."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from breadth.base.errors import BrokenFileError
from breadth.cli import main
from breadth.cli.show import open_runs
from breadth.doctor.overview import overview
from breadth.runs.importing import import_files
from breadth.runs.paths import locate

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_log_is_shown_without_being_imported_first(breadth: Command, log: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    done = breadth("show", log)
    assert done.returncode == 0, done.stderr
    assert "falling" in done.stdout
    assert "log_completions" in done.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_run_folder_and_files_show_the_same_numbers(breadth: Command, log: Path, tmp_path: Path) -> None:
    import_files([log], tmp_path / "out-copy")
    direct, folder = (json.loads(breadth("show", path, "--json").stdout) for path in (log, tmp_path / "out-copy"))
    (run,), (copy,) = direct["runs"], folder["runs"]
    assert {**run, "name": copy["name"]} == copy


def test_json_gives_numbers_by_name(breadth: Command, log: Path) -> None:
    document = json.loads(breadth("show", log, "--json").stdout)
    assert document["schema"] == 1
    (run,) = document["runs"]
    assert (run["name"], run["trainer"], run["files"]) == ("out", "trl", [str(log)])
    assert run["steps"] == {"first": 1, "last": 40, "logged": 40}
    assert (run["rollouts"], run["eval_metrics"]) == (None, {})
    entropy = run["metrics"]["entropy"]
    assert (entropy["logged_as"], entropy["unit"], entropy["points"]) == ("entropy", "nats", 40)
    assert entropy["direction"] == "falling"
    assert entropy["start"]["value"] == pytest.approx(0.8 * 0.93**3)  # the median of the first eighth: five steps
    assert entropy["now"]["low"] <= entropy["now"]["value"] == pytest.approx(0.8 * 0.93**38)
    assert run["metrics"]["zero_variance_groups"]["logged_as"] == "frac_reward_zero_std"
    assert run["switch_on"]["rollouts"] == "GRPOConfig(log_completions=True)"


@pytest.fixture
def two_logs(log: Path, tmp_path: Path) -> Path:
    """A folder with the logs of two runs, in folders of the same name."""
    for parent, factor in (("a", 1.0), ("b", 2.0)):
        folder = tmp_path / "both" / parent / "seed" / "out"
        folder.mkdir(parents=True)
        state = json.loads(log.read_text())
        history = [{**row, "reward": row["reward"] * factor} for row in state["log_history"]]
        (folder / "trainer_state.json").write_text(json.dumps({**state, "log_history": history}))
    return tmp_path / "both"


def test_several_runs_are_a_list_and_never_pooled(breadth: Command, two_logs: Path) -> None:
    done = breadth("show", two_logs)
    assert done.returncode == 0, done.stderr
    assert "2 runs" in done.stdout
    assert "b/seed/out" in done.stdout
    document = json.loads(breadth("show", two_logs, "--json").stdout)
    assert [run["name"] for run in document["runs"]] == ["a/seed/out", "b/seed/out"]
    first, second = (run["metrics"]["reward"]["now"]["value"] for run in document["runs"])
    assert second == pytest.approx(2 * first)
    for choice in ("2", "b/seed/out"):
        (run,) = json.loads(breadth("show", two_logs, "--run", choice, "--json").stdout)["runs"]
        assert run == document["runs"][1]
    unknown = breadth("show", two_logs, "--run", "b/seed/ou")
    assert unknown.returncode == 2
    assert "Did you mean 'b/seed/out'?" in unknown.stderr


def test_a_configuration_alone_is_no_run(breadth: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from trl import GRPOConfig\nargs = GRPOConfig(num_generations=4)\n")
    done = breadth("show", tmp_path / "train.py")
    assert done.returncode == 2
    assert "holds no run" in done.stderr


def test_the_page_is_one_file_that_asks_for_nothing(breadth: Command, log: Path, tmp_path: Path) -> None:
    done = breadth("show", log, "--html", tmp_path / "report.html")
    assert "wrote" in done.stderr
    page = (tmp_path / "report.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "http://" not in page.replace("http://www.w3.org/", "")
    assert "https://" not in page


@pytest.mark.parametrize("how", [["--json"], []])
def test_the_password_of_an_address_is_not_shown(log: Path, tmp_path: Path, how: list[str]) -> None:
    addresses = [f"memory://user:hunter22@store-{name}/{name}" for name in "ab"]
    for address in addresses:
        import_files([log], (folder := tmp_path / address[-1]))
        (locate(address) / "run.toml").write_text((folder / "run.toml").read_text(), encoding="utf-8")
        (locate(address) / "metrics.jsonl").write_text("no row\n" + (folder / "metrics.jsonl").read_text())
    result = CliRunner().invoke(main.app, ["show", *addresses, *how])
    assert result.exit_code == 0, result.output
    assert "***@store-a" in result.output
    assert "hunter22" not in result.output


@pytest.mark.parametrize("address", ["simplecache::http://user:hunter22@h/x", " http://user:hunter22@h "])
def test_a_page_is_written_to_no_address(log: Path, tmp_path: Path, address: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    with contextlib.chdir(tmp_path):
        result = CliRunner().invoke(main.app, ["show", str(log), "--html", address])
    assert "is an address" in str(result.exception)
    assert "hunter22" not in result.output + str(result.exception)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("words", ["{}", "serve --upstream x --port {}", "solve 1 2 {}", "show {}"])
def test_a_complaint_about_the_command_line_repeats_no_password(breadth: Command, words: str) -> None:
    done = breadth(*words.format("ftp://user:hunter22@127.0.0.1:9/x?key=hunter22").split())
    assert done.returncode == 2
    assert "hunter22" not in done.stdout + done.stderr


def test_an_infinite_reward_is_no_grade_and_errors_name_the_users_file(breadth: Command, tmp_path: Path) -> None:
    path = tmp_path / "i.jsonl"
    row = '{"example_id":1,"prompt":"q","completion":"%d","answer":"4","reward":%s}\n'
    path.write_text(row % (4, "Infinity") + row % (5, "0.0"))
    done = breadth("show", path)
    assert done.returncode == 0, done.stderr
    with open_runs([path]) as (run,):
        with pytest.raises(BrokenFileError, match="cannot answer") as caught:
            run.query("SELECT nothing FROM rollouts")
        assert caught.value.path == path


def test_the_temporary_run_is_gone_afterwards(tmp_path: Path) -> None:
    votes = tmp_path / "votes.jsonl"
    votes.write_text('{"question_id": "q", "answer": "4", "correct": true}\n')
    with open_runs([votes]) as (run,):
        folder = run.folder
        assert folder.exists()
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == [votes]


def test_what_a_killed_command_left_goes_with_the_next(
    breadth: Command, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    votes = tmp_path / "votes.jsonl"
    votes.write_text('{"question_id": "q", "answer": "4", "correct": true}\n')
    script = (
        "import os, sys; from breadth.cli.show import open_runs\nwith open_runs([sys.argv[1]]): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(votes)], check=False).returncode == -9
    (left,) = place.iterdir()
    for part in (left, *left.rglob("*")):
        os.utime(part, (0, 0))  # hours ago
    assert breadth("show", log).returncode == 0
    assert list(place.iterdir()) == []


def test_a_run_that_is_just_called_run_is_shown_by_the_end_of_its_path(log: Path, tmp_path: Path) -> None:
    import_files([log], tmp_path / "exp3" / "run")
    with open_runs([tmp_path / "exp3" / "run"]) as (run,):
        assert overview(run).title == f"{tmp_path.name}/exp3"
    with open_runs([log]) as (run,):
        assert overview(run).title == "out"


@pytest.mark.parametrize(("address", "words"), [("/", "is a whole disk"), ("s3://bucket/run", "needs s3fs")])
def test_an_address_that_cannot_be_read_gets_two_sentences(
    address: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.setattr(sys, "argv", ["breadth", "show", address])
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert ended.value.code == main.BAD_INPUT
    assert words in capsys.readouterr().err
