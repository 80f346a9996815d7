"""A small TRL log, and the command line run as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A trainer_state.json of forty steps in which entropy decays."""
    history = [
        {
            "step": step,
            "epoch": step / 40,
            "entropy": 0.8 * 0.93**step,
            "reward": 0.3 + 0.01 * step,
            "frac_reward_zero_std": step / 80,
        }
        for step in range(1, 41)
    ]
    path = tmp_path / "out" / "trainer_state.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"global_step": 40, "log_history": history}))
    return path


@pytest.fixture
def breadth(tmp_path: Path) -> Command:
    """Run ``breadth`` in a process of its own."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "breadth", *map(str, arguments)], capture_output=True, text=True, cwd=tmp_path
        )

    return run
