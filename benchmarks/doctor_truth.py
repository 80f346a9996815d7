"""The doctor on runs whose trouble is known: the lab's real runs, and faults put into curves of real healthy ones.

Lab: every run folder under FOLDER whose header has a truth (`breadth lab run known-truth`); the doctor is given the
folder without it. A failure is named when a finding of its label is there at warning or above; a healthy run is alarmed
when any is. What else is found at warning or above counts against the doctor unless the case lists it as right to name
beside it, or the doctor names the truth too and says that the truth explains it. A run that by its own signs
(`result.json` beside it) does not show what it was made for is named, not judged.

Faults: curves of runs labelled healthy (BREADTH_FIXTURES/training_logs) with one fault put in from a known step on, in
several strengths; and the same curves with the needed series taken out, where no verdict may come.

Run: python benchmarks/doctor_truth.py --lab lab/known-truth [--skip-seeds 1] [--out docs/data/doctor/truth.json]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from breadth.doctor.collect import collect_evidence
from breadth.doctor.diagnosis import diagnose_run
from breadth.doctor.evidence.record import Evidence
from breadth.measure.intervals import wilson
from breadth.measure.validate import FloatArray
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter

ALARMS = ("critical", "warning")
HEALTHY = "healthy"


@dataclass(frozen=True)
class Judged:
    """One run."""

    run: str
    """Which."""
    truth: str
    """What is wrong with it."""
    also: tuple[str, ...]
    """What else it would be right to name: what the case lists, and what the doctor calls an effect of the truth that
    it names.
    """
    alarms: tuple[str, ...]
    """What was found at warning or above."""
    notes: tuple[str, ...]
    """What was found below."""

    @property
    def named(self) -> bool:
        """Whether the trouble was named, or rightly none."""
        quiet = self.truth == HEALTHY or self.truth.startswith("no ")
        return not self.alarms if quiet else self.truth in self.alarms

    @property
    def wrong(self) -> tuple[str, ...]:
        """Alarms that nothing in the run explains."""
        return tuple(name for name in self.alarms if name != self.truth and name not in self.also)


def judged(case: Evidence, truth: str, also: Sequence[str]) -> Judged:
    """Ask the doctor."""
    found = diagnose_run(case).findings
    alarms = tuple(one.name for one in found if one.severity.value in ALARMS)
    effects = (one.name for one in found if truth in one.explained_by and truth in alarms)
    beside = tuple(dict.fromkeys((*also, *effects)))
    return Judged(case.name, truth, beside, alarms, tuple(one.name for one in found if one.name not in alarms))


def lab_runs(folder: Path, skipped: int) -> Iterator[Judged]:
    """Judge the lab's runs; the truth is taken out of the header first."""
    for name, run, truth in known_runs(folder, skipped):
        config = {key: value for key, value in run.header.config.items() if key != "truth"}
        (case,) = collect_evidence([run.folder], run.folder).cases
        blind = replace(case, run=replace(run, header=replace(run.header, config=config)), name=name)
        yield judged(blind, str(truth["label"]), tuple(truth.get("also", ())))


def known_runs(folder: Path, skipped: int) -> Iterator[tuple[str, Run, Mapping[str, Any]]]:
    """Yield the lab's runs, each with what to call it and what is true of it."""
    for path in sorted(folder.rglob("run.toml")):
        run = Run.open(path.parent)
        truth = run.header.config.get("truth")
        seed = next((int(part.removeprefix("seed-")) for part in path.parts if part.startswith("seed-")), 0)
        if not isinstance(truth, Mapping) or seed < skipped:
            continue
        if missing := _missing(path.parent.parent / "result.json"):
            print(f"not judged: {truth['label']}, seed {seed}: {missing}")
            continue
        yield f"{truth['label']}, seed {seed}", run, truth


def _missing(result: Path) -> str:
    """Return which signs of its failure a run of the lab lacks."""
    return "; ".join(json.loads(result.read_text(encoding="utf-8"))["result"]["missing"]) if result.is_file() else ""


def _collapse(series: dict[str, FloatArray], late: FloatArray, strength: float) -> None:
    series["entropy"] = _around_start(series["entropy"]) * strength**late
    series["reward"] = _stopped(series["reward"], late)


def _explosion(series: dict[str, FloatArray], late: FloatArray, strength: float) -> None:
    series["entropy"] = _around_start(series["entropy"]) * (1 / strength) ** late
    series["reward"] = series["reward"] * (1 - 0.5 * late)


def _around_start(entropy: FloatArray) -> FloatArray:
    """Remove a run's own trend and keep its noise, so that only the fault moves: healthy entropies move too."""
    width = max(5, len(entropy) // 10)
    padded = np.pad(entropy, width, mode="edge")
    middle = np.array([np.median(padded[place : place + 2 * width + 1]) for place in range(len(entropy))])
    return np.asarray(float(np.median(entropy[:width])) * entropy / np.maximum(middle, 1e-9))


def _truncation(series: dict[str, FloatArray], late: FloatArray, strength: float) -> None:
    noise = np.random.default_rng(1).normal(0, 0.02, len(late))
    series["truncated"] = np.clip(
        series.get("truncated", np.zeros_like(late)) + (1 - strength) * np.minimum(2 * late, 1) + noise, 0, 1
    )


def _starved(series: dict[str, FloatArray], late: FloatArray, strength: float) -> None:
    noise = np.random.default_rng(2).normal(0, 0.04, len(late))
    series["zero_variance_groups"] = np.clip(0.2 + (0.8 - 0.8 * strength) * np.minimum(2 * late, 1) + noise, 0, 1)


def _stopped(reward: FloatArray, late: FloatArray) -> FloatArray:
    """Let a score stay where it was when the fault began, with the noise it has."""
    begun = int(np.argmax(late > 0))
    level = float(np.median(reward[max(0, begun - 10) : begun + 1]))
    return np.where(late > 0, level + (reward - np.median(reward[begun:])) * 0.2, reward)


FAULTS: Mapping[str, tuple[Callable[[dict[str, FloatArray], FloatArray, float], None], str]] = {
    "entropy-collapse": (_collapse, "entropy"),
    "entropy-explosion": (_explosion, "entropy"),
    "truncation": (_truncation, "truncated"),
    "zero-variance-groups": (_starved, "zero_variance_groups"),
}
"""Finding -> what puts it into a run, and the series it is told by."""
STRENGTHS = (0.05, 0.15, 0.3)
"""What is left of the start at the end, or of the share that is not touched."""


def healthy_series(folder: Path) -> Iterator[tuple[str, dict[str, FloatArray]]]:
    """Yield the metrics of every run labelled healthy that logs entropy and reward at forty steps or more."""
    with (folder / "labels.csv").open(encoding="utf-8") as file:
        names = [row["file"] for row in csv.DictReader(file) if row["label"] == HEALTHY]
    for name in names:
        with tempfile.TemporaryDirectory() as workshop:
            (case,) = collect_evidence([folder / name], Path(workshop)).cases
            found = {
                one: case.series(one) for one in ("entropy", "reward", "length", "truncated", "zero_variance_groups")
            }
        series = {one: values.values for one, values in found.items() if values is not None and len(values) >= 40}
        if "entropy" in series and "reward" in series:
            shortest = min(map(len, series.values()))
            yield name, {one: values[:shortest].copy() for one, values in series.items()}


@dataclass(frozen=True)
class Faulty:
    """A healthy curve with a fault put in, or with the series that would tell of it taken out."""

    name: str
    """Which curve, and what was done to it."""
    series: Mapping[str, FloatArray]
    """Our metric name -> its values, one a step."""
    truth: str
    """The finding that is right; "no NAME" where the series that tells was taken out."""

    @property
    def also(self) -> tuple[str, ...]:
        """What else it would be right to name: a healthy curve moves too."""
        return (
            "drift",
            "saturation",
            "length-collapse",
            *(("zero-variance-groups",) if self.truth == "entropy-collapse" else ()),
        )


def faulty(folder: Path) -> Iterator[Faulty]:
    """Yield every healthy curve with every fault in every strength, then with the series it is told by taken out."""
    for name, healthy in healthy_series(folder):
        for fault, (put, telling) in FAULTS.items():
            for strength in STRENGTHS:
                series = {one: values.copy() for one, values in healthy.items()}
                steps = len(series["reward"])
                late = np.clip((np.arange(steps) - steps // 3) / (steps - steps // 3), 0, 1)
                put(series, late, strength)
                yield Faulty(f"{name}, {fault} {strength:g}", series, fault)
            without = {one: values for one, values in series.items() if one != telling}
            yield Faulty(f"{name}, {fault} without {telling}", without, f"no {fault}")


def injected(folder: Path) -> Iterator[Judged]:
    """Judge the faulty curves; where the telling series is gone, only the fault itself counts as an alarm."""
    for one in faulty(folder):
        found = judged_series(one)
        silent = one.truth.startswith("no ")
        yield (
            replace(found, alarms=tuple(name for name in found.alarms if one.truth == f"no {name}"))
            if silent
            else found
        )


def judged_series(one: Faulty) -> Judged:
    """Write a curve as a run folder and ask the doctor about it."""
    with tempfile.TemporaryDirectory() as folder:
        writer = RunWriter(Path(folder) / "run", Header(name=one.name, trainer="trl"), flush=False)
        for place in range(len(one.series["reward"])):
            writer.metrics(place + 1, {name: float(values[place]) for name, values in one.series.items()})
        return judged(Evidence(one.name, Run.open(Path(folder) / "run")), one.truth, one.also)


def report(title: str, several: Sequence[Judged]) -> None:
    """Print the confusion matrix and the two rates."""
    print(f"\n## {title}: {len(several)} runs")
    for truth in sorted({one.truth for one in several}):
        runs = [one for one in several if one.truth == truth]
        alarms = Counter(name for one in runs for name in one.alarms)
        print(f"{truth:28} {sum(one.named for one in runs)} of {len(runs)} as they should be; alarms: {dict(alarms)}")
    failing = [one for one in several if one.truth != HEALTHY and not one.truth.startswith("no ")]
    silent = [one for one in several if one.truth.startswith("no ")]
    if failing:
        share = wilson(sum(one.named for one in failing), len(failing))
        print(f"failures named: {share.value:.3f} ({share.low:.3f} to {share.high:.3f})")
        print(f"with an alarm that nothing explains: {sum(bool(one.wrong) for one in failing)} of {len(failing)}")
    if silent:
        print(f"verdicts without the needed series: {sum(bool(one.alarms) for one in silent)} of {len(silent)}")


def main() -> None:
    """Judge what there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", type=Path, help="folder of breadth lab run known-truth")
    parser.add_argument("--skip-seeds", type=int, default=0, help="seeds that were looked at before")
    parser.add_argument("--out", type=Path, help="also write everything as JSON")
    asked = parser.parse_args()
    found: dict[str, list[Judged]] = {}
    if asked.lab is not None:
        found["lab"] = list(lab_runs(asked.lab, asked.skip_seeds))
        report("the lab's runs", found["lab"])
    if "BREADTH_FIXTURES" in os.environ:
        found["injected"] = list(injected(Path(os.environ["BREADTH_FIXTURES"]) / "training_logs"))
        report("faults in real healthy curves", found["injected"])
    if asked.out is not None:
        asked.out.write_text(
            json.dumps({name: [asdict(one) for one in several] for name, several in found.items()}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
