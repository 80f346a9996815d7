"""The doctor on real training logs labelled by eye: how often they agree, with Wilson intervals.

A label counts as named when a finding of its kind is there, at warning or above and at any severity; a run labelled
healthy counts as alarmed when anything is found at warning or above. Labels are one reader's view, so every
disagreement is to be looked at and not counted away; runs labelled unclear are listed and not scored. The doctor's
constants were fixed before the labels were opened.

The logs are not part of the project: set BREADTH_FIXTURES to the folder that holds training_logs/ with labels.csv
(file, repo, label). Run: BREADTH_FIXTURES=... python benchmarks/doctor_logs.py [--out FILE]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from breadth.doctor.collect import collect_evidence
from breadth.doctor.diagnosis import diagnose_run
from breadth.measure.intervals import wilson

MEANT: Mapping[str, frozenset[str]] = {
    "collapse": frozenset({"entropy-collapse"}),
    "explosion": frozenset({"entropy-explosion", "drift"}),
    "truncation": frozenset({"truncation"}),
    "starved": frozenset({"zero-variance-groups", "overly-hard"}),
    "reward hacking": frozenset({"reward-hacking"}),
}
"""Label -> findings that say the same."""
ALARMS = ("critical", "warning")


@dataclass(frozen=True)
class Judged:
    """One log."""

    file: str
    """Its name."""
    repo: str
    """Where it comes from."""
    label: str
    """What the reader saw in it."""
    findings: tuple[tuple[str, str, str], ...]
    """Severity, name and headline of what was found."""
    cannot_tell: tuple[str, ...]
    """What could not be told."""

    @property
    def agrees(self) -> bool | None:
        """Whether the doctor alarms for the reader's reason, or is silent on a healthy run; None for unclear labels."""
        if self.label == "healthy":
            return not any(severity in ALARMS for severity, _, _ in self.findings)
        return None if self.label not in MEANT else self._named(ALARMS)

    @property
    def mentions(self) -> bool | None:
        """The same with notes counted."""
        return self.agrees if self.label not in MEANT else self._named((*ALARMS, "note"))

    def _named(self, severities: Sequence[str]) -> bool:
        return any(severity in severities and name in MEANT[self.label] for severity, name, _ in self.findings)


def judge(folder: Path, row: Mapping[str, str]) -> Judged:
    """Ask the doctor about one log, alone."""
    with tempfile.TemporaryDirectory() as workshop:
        *_, case = collect_evidence(
            [folder / row["file"]], Path(workshop)
        ).cases  # the last where a log holds several runs: the label is of one
        found = diagnose_run(case)
    findings = tuple((one.severity.value, one.name, one.headline) for one in found.findings)
    return Judged(row["file"], row["repo"], row["label"], findings, tuple(one.name for one in found.cannot_tell))


def shares(judged: Sequence[Judged], *, notes: bool) -> str:
    """Write how many agree, with the interval."""
    said = [one.mentions if notes else one.agrees for one in judged]
    scored = [one for one in said if one is not None]
    if not scored:
        return "-"
    interval = wilson(sum(scored), len(scored))
    return f"{sum(scored)} of {len(scored)} ({interval.low:.2f} to {interval.high:.2f})"


def main() -> None:
    """Judge every log and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="also write everything as JSON")
    asked = parser.parse_args()
    if "BREADTH_FIXTURES" not in os.environ:
        print("doctor_logs: left out: it needs BREADTH_FIXTURES, the folder of the labelled logs")
        return
    folder = Path(os.environ["BREADTH_FIXTURES"]) / "training_logs"
    with (folder / "labels.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    began = time.perf_counter()
    judged = [judge(folder, row) for row in rows]
    print(f"{len(judged)} logs in {time.perf_counter() - began:.1f} s\n")
    for one in judged:
        mark = {None: " ", True: "=", False: "!"}[one.agrees]
        print(
            f"{mark} {one.label:14} {one.file[:52]:52}"
            f" {', '.join(f'{name} ({severity})' for severity, name, _ in one.findings) or '-'}"
        )
    groups: dict[str, list[Judged]] = defaultdict(list)
    for one in judged:
        groups[f"label {one.label}"].append(one)
        groups[one.repo].append(one)
    print(f"\n{'':52} {'at warning or above':24} with notes")
    for name, several in groups.items():
        print(f"{name:52} {shares(several, notes=False):24} {shares(several, notes=True)}")
    if asked.out is not None:
        asked.out.write_text(
            json.dumps(
                {"command": "python benchmarks/doctor_logs.py", "logs": [asdict(one) for one in judged]}, indent=1
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
