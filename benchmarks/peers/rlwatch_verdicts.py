"""rlwatch's verdicts, for `benchmarks/doctor_peers.py`: rows go through its TRL callback, its command reads them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import rlwatch
from click.testing import CliRunner
from peers.feeding import Row, Said, UnreadError, answer
from rlwatch.cli import main


def judge(_: Path | None, rows: list[Row], folder: Path) -> tuple[list[Said], bool]:
    """Play a training run to the callback with default settings, and read the alerts."""
    monitor = rlwatch.attach(framework="manual", run_id="run", storage={"log_dir": str(folder)})
    callbacks: list[Any] = []
    monitor.attach_to_trainer(SimpleNamespace(add_callback=callbacks.append))
    for row in rows:
        logs = {name: value for name, value in row.items() if name != "step"}
        callbacks[0].on_log(None, SimpleNamespace(global_step=int(row["step"])), None, logs=logs)
    monitor.stop()
    report = json.loads(CliRunner().invoke(main, ["diagnose", "--log-dir", str(folder), "--format", "json"]).stdout)
    if not report["total_steps"]:
        raise UnreadError("no metric that it knows")
    return [(one["severity"], one["detector"], one["message"]) for one in report["alerts"]], False


if __name__ == "__main__":
    answer("rlwatch", judge)
