"""The doctor on real runs of other people, labelled by somebody who did not know its rules; rldoctor next to it.

FOLDER holds the logs, LABELS is a table with the columns file, primary (the failure that is there; healthy, saturation
or unclear), also (others that are right to name, separated by semicolons) and sure. A failure is named when the primary
label or one of the others is found at warning or above. A run labelled healthy or saturation is alarmed when anything
else than its own `also` is. Unclear runs are not counted. A run that cannot be read counts as not named.

Run: python benchmarks/doctor_runs.py FOLDER LABELS [--python PEER/bin/python] [--out FILE]
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from doctor_peers import theirs
from peers.cases import Case

from breadth.base.errors import BreadthError
from breadth.doctor.collect import collect_evidence
from breadth.doctor.diagnosis import diagnose_run
from breadth.measure.intervals import wilson

ALARMS = frozenset({"critical", "warning"})
QUIET = frozenset({"healthy", "saturation"})
OURS, PEER = "breadth", "rldoctor"
PEER_MEANS = {
    "plateau": frozenset({"no-learning", "saturation", "score-collapse"}),
    "reward_collapse": frozenset({"score-collapse"}),
    "gradient_pathology": frozenset({"numerical-failure", "no-learning"}),
    "grad_norm": frozenset({"numerical-failure"}),
    "kl": frozenset({"drift"}),
}
"""The peer's rules -> our findings that they are taken for, generously, on top of `peers/rules.py`."""


@dataclass(frozen=True)
class Judged:
    """What one doctor says of one run."""

    tool: str
    """Which doctor."""
    label: str
    """The failure that is there."""
    right: tuple[str, ...]
    """Findings that are right."""
    sure: bool
    """Whether the label is sure."""
    alarms: tuple[str, ...]
    """What it finds at warning or above."""
    good: bool = False
    """Whether it says that all is well."""
    unread: bool = False
    """Whether it could not read the run."""

    @property
    def is_named(self) -> bool:
        """Whether the failure was named."""
        return bool(set(self.alarms) & set(self.right))

    @property
    def is_alarmed(self) -> bool:
        """Whether something was found that is not there."""
        return bool(set(self.alarms) - set(self.right))


def read_labels(labels: Path) -> Iterator[tuple[str, str, tuple[str, ...], bool]]:
    """Yield file, label, right findings and whether the label is sure."""
    with labels.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            also = tuple(name for name in row["also"].split(";") if name)
            yield row["file"], row["primary"], (row["primary"], *also), row["sure"] == "sure"


def judge(folder: Path, labels: Path) -> Iterator[Judged]:
    """Ask our doctor about every run."""
    for name, label, right, sure in read_labels(labels):
        with tempfile.TemporaryDirectory() as work:
            try:
                cases = collect_evidence([folder / name], Path(work)).cases
            except BreadthError:
                yield Judged(OURS, label, right, sure, (), unread=True)
                continue
            found = [diagnose_run(case) for case in cases]
        alarms = {
            finding.name for diagnosis in found for finding in diagnosis.findings if finding.severity.value in ALARMS
        }
        good = all(diagnosis.is_good for diagnosis in found)
        yield Judged(OURS, label, right, sure, tuple(sorted(alarms)), good)


def judge_by_peer(folder: Path, labels: Path, python: Path) -> Iterator[Judged]:
    """Ask the peer about the same runs, as our importers read them: it reads fewer formats."""
    rows = list(read_labels(labels))
    cases, kept = [], []
    for name, label, right, sure in rows:
        with tempfile.TemporaryDirectory() as work:
            try:
                (case, *_) = collect_evidence([folder / name], Path(work)).cases
            except BreadthError:
                continue
            points = [] if case.run is None else [point for point in case.run.points if point.split == "train"]
            names = {} if case.run is None else dict(case.run.header.names)
            logged = tuple({"step": float(point.step), **point.values} for point in points)
        cases.append(Case("runs", name, label, frozenset(right), logged, names))
        kept.append((label, right, sure))
    _, verdicts = theirs(PEER, python, cases)
    for (label, right, sure), verdict in zip(kept, verdicts, strict=True):
        alarms = [
            name
            for said in verdict.said
            if said.loud
            for name in (said.labels | PEER_MEANS.get(said.name, frozenset()) or {said.name})
        ]
        yield Judged(PEER, label, right, sure, tuple(sorted(set(alarms))), unread=bool(verdict.unread))


def share(count: int, of: int) -> str:
    """Write a count of how many, with Wilson's interval."""
    if not of:
        return "0 of 0"
    found = wilson(count, of)
    return f"{count} of {of} ({found.low:.3f} to {found.high:.3f})"


def summarize(judged: Sequence[Judged]) -> dict[str, str]:
    """Return the counts of one doctor."""
    failures = [run for run in judged if run.label not in QUIET and run.label != "unclear"]
    sure = [run for run in failures if run.sure]
    quiet = [run for run in judged if run.label in QUIET]
    return {
        "failures named": share(sum(run.is_named for run in failures), len(failures)),
        "of the sure labels": share(sum(run.is_named for run in sure), len(sure)),
        "healthy alarmed": share(sum(run.is_alarmed for run in quiet), len(quiet)),
        "GOOD on a failure": share(sum(run.good for run in failures), len(failures)),
        "not read": str(sum(run.unread for run in judged)),
    }


def main() -> None:
    """Judge a folder of labelled runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="where the logs are")
    parser.add_argument("labels", type=Path, nargs="?", help="the table of labels")
    parser.add_argument("--python", type=Path, help="a Python that has rldoctor")
    parser.add_argument("--out", type=Path, help="also write the counts as JSON")
    asked = parser.parse_args()
    if asked.folder is None or asked.labels is None:
        print("left out: it needs a folder of logs and a table of labels")
        return
    tables = {OURS: summarize(list(judge(asked.folder, asked.labels)))}
    if asked.python is not None:
        tables[PEER] = summarize(list(judge_by_peer(asked.folder, asked.labels, asked.python)))
    for tool, table in tables.items():
        print(tool, *(f"  {what:20} {count}" for what, count in table.items()), sep="\n")
    if asked.out is not None:
        asked.out.write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
