"""rldoctor's verdicts, for `benchmarks/doctor_peers.py`: on the file if it reads it, else on a trainer_state.json."""

from __future__ import annotations

import json
from pathlib import Path

from peers.feeding import Row, Said, UnreadError, answer
from rl_doctor import Severity, diagnose, load_run

LEVELS = {Severity.INFO: "note", Severity.WARNING: "warning", Severity.CRITICAL: "critical"}


def judge(file: Path | None, rows: list[Row], folder: Path) -> tuple[list[Said], bool]:
    """Load and diagnose as `rl-doctor diagnose FILE` does."""
    state = folder / "trainer_state.json"
    state.write_text(json.dumps({"log_history": rows}), encoding="utf-8")
    try:
        run, as_is = load_run(str(file or state)), file is not None
    except ValueError:  # what it raises for a kind of file that it does not know
        run, as_is = load_run(str(state)), False
    found = diagnose(run).findings
    if all(one.severity is Severity.SKIPPED for one in found):
        raise UnreadError("every check is skipped")
    return [(LEVELS[one.severity], one.detector, one.summary) for one in found if one.severity in LEVELS], as_is


if __name__ == "__main__":
    answer("rldoctor", judge)
