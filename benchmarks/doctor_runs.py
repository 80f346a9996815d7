"""The doctor on real runs of other people, labelled by engineers who did not know its rules; rldoctor next to it.

FOLDER holds the logs, each LABELS is one engineer's table with the columns file, primary (the failure that is there;
healthy, saturation or unclear), also (others that are right to name, separated by semicolons) and sure. A run counts as
a failure, or as healthy, where all engineers say so; else it is not counted, as where one finds it unclear. A failure
is named when any of its labels is found at warning or above. A healthy run is alarmed when anything else than an `also`
is. A run that cannot be read counts as not named.

Run: python benchmarks/doctor_runs.py FOLDER LABELS [LABELS ...] [--python PEER/bin/python] [--out FILE] [--runs FILE]
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
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
UNCLEAR = frozenset({"unclear", "not-rl"})
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
class LabelledRun:
    """A run and what each engineer says of it."""

    file: str
    """Its log."""
    labels: tuple[str, ...]
    """What each says first."""
    right: frozenset[str]
    """Findings that are right by any of them."""
    sure: bool
    """Whether all are sure."""

    @property
    def is_failure(self) -> bool:
        """Whether all say that something is wrong."""
        return not any(label in QUIET | UNCLEAR for label in self.labels)

    @property
    def is_healthy(self) -> bool:
        """Whether all say that nothing is."""
        return all(label in QUIET for label in self.labels)


@dataclass(frozen=True)
class Judged:
    """What one doctor says of one run."""

    tool: str
    """Which doctor."""
    run: LabelledRun
    """The run and what the engineers say of it."""
    alarms: tuple[str, ...]
    """What it finds at warning or above."""
    good: bool = False
    """Whether it says that all is well."""
    unread: bool = False
    """Whether it could not read the run."""

    @property
    def is_named(self) -> bool:
        """Whether the failure was named."""
        return bool(set(self.alarms) & self.run.right)

    @property
    def is_alarmed(self) -> bool:
        """Whether something was found that is not there."""
        return bool(set(self.alarms) - self.run.right)


def read_labels(tables: Sequence[Path]) -> list[LabelledRun]:
    """Return the runs that every table labels."""
    rows = []
    for table in tables:
        with table.open(encoding="utf-8") as file:
            rows.append({row["file"]: row for row in csv.DictReader(file)})
    runs = []
    for name in rows[0]:
        found = [table[name] for table in rows if name in table]
        if len(found) == len(rows):
            labels = tuple(row["primary"] for row in found)
            also = (other for row in found for other in row["also"].split(";") if other)
            right = frozenset({*labels, *also}) - QUIET - UNCLEAR
            runs.append(LabelledRun(name, labels, right, all(row["sure"] == "sure" for row in found)))
    return runs


def judge(folder: Path, runs: Sequence[LabelledRun]) -> Iterator[Judged]:
    """Ask our doctor about every run."""
    for run in runs:
        with tempfile.TemporaryDirectory() as work:
            try:
                cases = collect_evidence([folder / run.file], Path(work)).cases
            except BreadthError:
                yield Judged(OURS, run, (), unread=True)
                continue
            found = [diagnose_run(case) for case in cases]
        alarms = {
            finding.name for diagnosis in found for finding in diagnosis.findings if finding.severity.value in ALARMS
        }
        yield Judged(OURS, run, tuple(sorted(alarms)), all(diagnosis.is_good for diagnosis in found))


def judge_by_peer(folder: Path, runs: Sequence[LabelledRun], python: Path) -> Iterator[Judged]:
    """Ask the peer about the same runs, as our importers read them: it reads fewer formats."""
    cases, kept = [], []
    for run in runs:
        with tempfile.TemporaryDirectory() as work:
            try:
                (case, *_) = collect_evidence([folder / run.file], Path(work)).cases
            except BreadthError:
                yield Judged(PEER, run, (), unread=True)
                continue
            points = [] if case.run is None else [point for point in case.run.points if point.split == "train"]
            names = {} if case.run is None else dict(case.run.header.names)
            logged = tuple({"step": float(point.step), **point.values} for point in points)
        cases.append(Case("runs", run.file, run.labels[0], run.right, logged, names))
        kept.append(run)
    _, verdicts = theirs(PEER, python, cases)
    for run, verdict in zip(kept, verdicts, strict=True):
        alarms = [
            name
            for said in verdict.said
            if said.loud
            for name in (said.labels | PEER_MEANS.get(said.name, frozenset()) or {said.name})
        ]
        yield Judged(PEER, run, tuple(sorted(set(alarms))), unread=bool(verdict.unread))


def share(count: int, of: int) -> str:
    """Write a count of how many, with Wilson's interval."""
    if not of:
        return "0 of 0"
    found = wilson(count, of)
    return f"{count} of {of} ({found.low:.3f} to {found.high:.3f})"


def summarize(judged: Sequence[Judged]) -> dict[str, str]:
    """Return the counts of one doctor."""
    failures = [verdict for verdict in judged if verdict.run.is_failure]
    sure = [verdict for verdict in failures if verdict.run.sure]
    quiet = [verdict for verdict in judged if verdict.run.is_healthy]
    return {
        "failures named": share(sum(verdict.is_named for verdict in failures), len(failures)),
        "of the sure labels": share(sum(verdict.is_named for verdict in sure), len(sure)),
        "healthy alarmed": share(sum(verdict.is_alarmed for verdict in quiet), len(quiet)),
        "GOOD on a failure": share(sum(verdict.good for verdict in failures), len(failures)),
        "not read": str(sum(verdict.unread for verdict in judged)),
    }


def write_runs(target: Path, judged: Mapping[str, Sequence[Judged]]) -> None:
    """Write a row for each run: its labels, and what each doctor finds at warning or above."""
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["file", "labels", "right", "sure", *judged])
        by_file = [{verdict.run.file: verdict for verdict in verdicts} for verdicts in judged.values()]
        for name, verdict in by_file[0].items():
            run = verdict.run
            several = (verdicts[name] for verdicts in by_file)  # a doctor's verdicts may come in an order of their own
            cells = ("not read" if verdict.unread else ";".join(verdict.alarms) for verdict in several)
            writer.writerow([run.file, ";".join(run.labels), ";".join(sorted(run.right)), run.sure, *cells])


def main() -> None:
    """Judge a folder of labelled runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="where the logs are")
    parser.add_argument("labels", type=Path, nargs="*", help="the tables of labels, one for each engineer")
    parser.add_argument("--python", type=Path, help="a Python that has rldoctor")
    parser.add_argument("--out", type=Path, help="also write the counts as JSON")
    parser.add_argument("--runs", type=Path, help="also write what is found in each run as CSV")
    asked = parser.parse_args()
    if asked.folder is None or not asked.labels:
        print("left out: it needs a folder of logs and a table of labels")
        return
    runs = read_labels(asked.labels)
    judged = {OURS: list(judge(asked.folder, runs))}
    if asked.python is not None:
        judged[PEER] = list(judge_by_peer(asked.folder, runs, asked.python))
    tables = {tool: summarize(found) for tool, found in judged.items()}
    for tool, table in tables.items():
        print(tool, *(f"  {what:20} {count}" for what, count in table.items()), sep="\n")
    if asked.runs is not None:
        write_runs(asked.runs, judged)
    if asked.out is not None:
        asked.out.write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
