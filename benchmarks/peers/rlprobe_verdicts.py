"""rlprobe's verdicts, for `benchmarks/doctor_peers.py`: rows go through its TRL callback, its doctor reads them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from peers.feeding import Row, Said, UnreadError, answer
from rlprobe.doctor import diagnose
from rlprobe.doctor.base import Detector
from rlprobe.integrations.trl import RlprobeCallback

LEVELS = {"info": "note", "warn": "warning", "critical": "critical"}


def judge(_: Path | None, rows: list[Row], folder: Path) -> tuple[list[Said], bool]:
    """Play a training run to the callback and diagnose what it recorded; below its fewest steps no check of it runs."""
    if len(rows) < Detector.min_steps:
        raise UnreadError(f"below {Detector.min_steps} steps no check runs")
    callback = RlprobeCallback(folder / "run", capture_env=False, install_handlers=False)
    arguments = SimpleNamespace(world_size=1, process_index=0, to_dict=dict)
    callback.on_train_begin(arguments, SimpleNamespace(global_step=0), None)
    for row in rows:
        logs = {name: value for name, value in row.items() if name != "step"}
        callback.on_log(arguments, SimpleNamespace(global_step=int(row["step"])), None, logs=logs)
    callback.on_train_end(arguments, SimpleNamespace(global_step=int(rows[-1]["step"])), None)
    return [(LEVELS[one.severity], one.signature_id, one.explanation) for one in diagnose(folder / "run")], False


if __name__ == "__main__":
    answer("rlprobe", judge)
