"""The peers' doctors beside ours on the same files: who names the failure, and who alarms a healthy run.

Runs: the labelled real logs (`doctor_logs.py`), faults put into curves of real healthy ones with the untouched curves
beside them, and the lab's runs with known truth (both `doctor_truth.py`). Each peer is asked at its own warning level
or above, with its own defaults, through its own code; `peers/rules.py` says what each of its rules means in our words,
and counts a doubtful one as a hit. A run of which a peer judges nothing is shown and not scored.

How they are fed: rldoctor gets the file where it reads it (.json, .jsonl), else the same rows under the log's own
names, which it maps itself. rlprobe and rlwatch record while training: the rows go through their own TRL callbacks,
where a log is not TRL's under TRL's names (a reward's component as rewards/NAME/mean). zen-rl reads TensorBoard and
knows Stable-Baselines3's names only, so it is given divergence, entropy and loss under those; its two rules on the
reward, made for CartPole (below 50 is a dead run), are not asked, as they would alarm every run here. Training rows
only: no log that is converted has more than one evaluation. Peers see metrics; our doctor also sees what else lies in a
run folder of the lab (rollouts, configuration), as it would at home.

    python -m venv peer && peer/bin/pip install rldoctor==0.2.0 rlprobe==0.1.0 rlwatch==0.5.1 zen-rl==0.1.0 transformers
    BREADTH_FIXTURES=... python benchmarks/doctor_peers.py --python peer/bin/python --lab lab/known-truth [--skip-seeds
    1]
        [--out docs/data/doctor/peers.json]

Left out: post-training-toolkit (on the package index an empty placeholder), rewardspy (not on it), training-doctor and
trainwatch (rules on loss, gradients, over-fitting and speed only), rewardguard (must be told the right share of every
reward component).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from doctor_logs import judge
from doctor_truth import Judged, injected, judged_series, lab_runs
from peers.cases import FED, Case, fault_cases, lab_cases, labelled, log_cases, untouched
from peers.rules import RULES, labels, nameable
from peers.scoring import Said, Verdict, by_label, counts

from breadth.doctor.finding import FINDINGS

HERE = Path(__file__).resolve().parent
OURS = "breadth"
GROUPS = {
    "logs": "real logs labelled by eye",
    "faults": "faults in real healthy curves",
    "lab": "the lab's runs with known truth",
}
KNOWN = {OURS: frozenset(FINDINGS.entries), **{peer: nameable(peer) for peer in RULES}}
"""Doctor -> our findings that it can name."""


def theirs(peer: str, python: Path, cases: Sequence[Case]) -> tuple[str, list[Verdict]]:
    """Ask a peer about every run, in its own Python; return its version and what it said."""
    with tempfile.TemporaryDirectory() as folder:
        asked, told = Path(folder) / "cases.json", Path(folder) / "verdicts.json"
        given = [
            {"file": None if case.file is None else str(case.file.resolve()), "rows": FED[peer](case)} for case in cases
        ]
        asked.write_text(json.dumps(given), encoding="utf-8")
        call = [str(python.absolute()), "-m", f"peers.{peer.replace('-', '_')}_verdicts", str(asked), str(told)]
        alone = os.environ | {"PYTHONPATH": str(HERE)}
        done = subprocess.run(call, cwd=folder, env=alone, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{peer} cannot be asked: {done.stderr[-2000:]}")
        found = json.loads(told.read_text(encoding="utf-8"))
    return found["version"], [_theirs(peer, case, one) for case, one in zip(cases, found["verdicts"], strict=True)]


def _theirs(peer: str, case: Case, found: Mapping[str, Any]) -> Verdict:
    said = tuple(Said(name, labels(peer, name, words), level != "note") for level, name, words in found["said"])
    return Verdict(
        peer, case.group, case.name, case.truth, case.meant, case.also, said, found["unread"], found["as_is"]
    )


def ours(cases: Sequence[Case], logs: Path, lab: Path | None, skipped: int) -> list[Verdict]:
    """Ask our doctor about the same runs, in the same order."""
    found = [
        *_of_logs(logs),
        *(_of_judged(one) for one in injected(logs)),
        *(_of_judged(judged_series(one)) for one in untouched(logs)),
    ]
    found += [] if lab is None else [_of_judged(one) for one in lab_runs(lab, skipped)]
    return [
        Verdict(OURS, case.group, case.name, case.truth, case.meant, case.also, said, as_is=case.file is not None)
        for case, said in zip(cases, found, strict=True)
    ]


def _of_logs(folder: Path) -> Iterator[tuple[Said, ...]]:
    for row in labelled(folder):
        yield tuple(
            Said(name, frozenset({name}), severity != "note") for severity, name, _ in judge(folder, row).findings
        )


def _of_judged(one: Judged) -> tuple[Said, ...]:
    loud = tuple(Said(name, frozenset({name})) for name in one.alarms)
    return loud + tuple(Said(name, frozenset({name}), loud=False) for name in one.notes)


def show(verdicts: Sequence[Verdict]) -> None:
    """Print a table for every set of runs."""
    for group, title in GROUPS.items():
        several = [one for one in verdicts if one.group == group]
        if not several:
            continue
        print(f"\n## {title}: {len({one.run for one in several})} runs")
        rows = by_label(several, KNOWN)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def table(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return the counts of every tool on every set of runs."""
    found = []
    for tool in dict.fromkeys(one.tool for one in verdicts):
        for group in dict.fromkeys(one.group for one in verdicts):
            own = [one for one in verdicts if one.tool == tool and one.group == group]
            taken = {"files taken as they are": sum(one.as_is for one in own)} if group == "logs" else {}
            found.append(
                {
                    "tool": tool,
                    "runs": group,
                    **{name: one.interval for name, one in counts(own, KNOWN[tool]).items()},
                    **taken,
                }
            )
    return found


def by_run(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return every run with what each tool said of it."""
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    for one in verdicts:
        entry = runs.setdefault((one.group, one.run), {"runs": one.group, "run": one.run, "truth": one.truth})
        notes = [said.name for said in one.said if not said.loud]
        entry[one.tool] = {"unread": one.unread} if one.unread else {"alarms": list(one.alarms), "notes": notes}
    return list(runs.values())


def main() -> None:
    """Ask everyone, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, help="a Python that has the peers")
    parser.add_argument("--lab", type=Path, help="folder of breadth lab run known-truth")
    parser.add_argument("--skip-seeds", type=int, default=0, help="seeds that were looked at before")
    parser.add_argument("--out", type=Path, help="also write everything as JSON")
    asked = parser.parse_args()
    if asked.python is None or "BREADTH_FIXTURES" not in os.environ:
        print("doctor_peers: left out: it needs --python PYTHON (one that has the peers) and BREADTH_FIXTURES")
        return
    logs = Path(os.environ["BREADTH_FIXTURES"]) / "training_logs"
    cases = [
        *log_cases(logs),
        *fault_cases(logs),
        *([] if asked.lab is None else lab_cases(asked.lab, asked.skip_seeds)),
    ]
    verdicts, versions = ours(cases, logs, asked.lab, asked.skip_seeds), dict[str, str]()
    for peer in RULES:
        versions[peer], said = theirs(peer, asked.python, cases)
        verdicts += said
    show(verdicts)
    if asked.out is not None:
        lab = (
            ""
            if asked.lab is None
            else f" --lab lab/known-truth{f' --skip-seeds {asked.skip_seeds}' if asked.skip_seeds else ''}"
        )
        found = {"command": f"python benchmarks/doctor_peers.py --python PYTHON{lab}", "versions": versions}
        asked.out.write_text(
            json.dumps(found | {"table": table(verdicts), "verdicts": by_run(verdicts)}, indent=1) + "\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
