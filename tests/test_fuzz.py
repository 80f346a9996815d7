"""Fuzzing: the corpus and two thousand inputs are read or refused in words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.fuzz", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_corpus_and_two_thousand_inputs_crash_nothing(tmp_path: Path) -> None:
    done = fuzz("--inputs", "2000", "--seed", "2000", "--out", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads((tmp_path / "out.json").read_text())
    assert counts["inputs"] >= 2000
    for target in counts["targets"].values():
        assert target["read"] > target["inputs"] / 20  # an input that is refused at once tests a first line only
        assert target["refused"] > 0


def test_an_input_is_made_again_from_its_index() -> None:
    first, again, other = (
        fuzz("--target", "proxy", "--seed", "5", "--replay", index).stdout for index in ("7", "7", "8")
    )
    assert first == again != other
    assert first.endswith("passed\n")
