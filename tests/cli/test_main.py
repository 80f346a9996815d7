"""The command line: help, version, and errors as two sentences with exit status 2."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import breadth as package
from breadth.cli.lab import LabVerbs
from breadth.cli.main import LazyVerbs, Verbs, load_verb

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def test_help_lists_the_verbs_and_version_prints_it(breadth: Command) -> None:
    shown = breadth("--help").stdout
    assert all(verb in shown for verb in ("demo", "import", "show"))
    assert breadth("--version").stdout.strip() == f"breadth {package.__version__}"


def test_a_misspelt_verb_is_compared_with_all_of_them(breadth: Command) -> None:
    assert "doctor" in breadth("docter").stderr
    assert "Usage" in breadth("lab", "serve", "--help").stdout


def test_an_error_is_what_is_wrong_and_what_to_do(breadth: Command, tmp_path: Path) -> None:
    done = breadth("show", tmp_path / "nothing.log")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "nothing.log" in done.stderr
    assert "\n  -> Check the spelling" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_early_is_no_error(log: Path) -> None:
    shown = subprocess.run(  # noqa: S602
        f"{sys.executable} -m breadth show {log} | head -1", shell=True, capture_output=True, text=True
    )
    assert "Traceback" not in shown.stderr
    assert "BrokenPipe" not in shown.stderr


def test_help_of_a_verb_is_fast_to_load() -> None:
    script = (
        "import sys; from breadth.cli.main import app; print([m for m in ('duckdb', 'pyarrow', 'scipy', 'torch') if m"
        " in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
        == "[]"
    )


@pytest.mark.parametrize("verb", [("serve",), ("tune",), ("lab", "serve")])
def test_help_wraps_at_the_width_of_the_terminal_only(
    verb: tuple[str, ...], breadth: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = breadth(*verb, "--help").stdout.partition("╭")[0]
    lines = [line.strip() for line in text.splitlines()]
    for line, following in pairwise(lines):
        if line and following:
            assert len(f"{line} {following.split()[0]}") > 78, f"broken before the edge: {line}"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("buffered", [True, False])
def test_a_full_disk_under_our_output_is_told(log: Path, buffered: bool) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    command = [sys.executable, "-m", "breadth", "show", str(log)]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert ended.returncode == 2
    assert "Cannot write to standard output" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("group", [Verbs, LabVerbs])
def test_every_verb_loads_by_its_name(group: type[LazyVerbs]) -> None:
    for name, (place, line) in group.verbs.items():
        command = load_verb(name, place)
        assert command.name == name
        assert command.help, f"{name} says nothing about itself"
        assert len(line) <= 80, "the list of verbs has one line for each"


def test_the_list_of_verbs_loads_none_of_them() -> None:
    script = (
        "import sys; from breadth.cli.main import app; app(['--help'], standalone_mode=False);"
        " print([name for name in sys.modules if name.startswith('breadth.cli.')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "doctor" in done.stdout
    assert done.stdout.splitlines()[-1] == "['breadth.cli.main']"


@pytest.mark.parametrize("verb", [("lab", "gate"), ("lab", "run"), ("lab", "run", "known-truth")])
def test_a_verb_that_needs_the_extra_says_so_without_it(verb: tuple[str, ...], tmp_path: Path) -> None:
    script = (
        f"import sys; sys.modules['torch'] = None; sys.argv[1:] = {verb!r}; from breadth.cli.main import run; run()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("breadth: ")
    assert 'pip install "breadth[train]"' in done.stderr
