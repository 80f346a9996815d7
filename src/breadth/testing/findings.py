"""The contract of findings: what :func:`check_finding` requires of every check of the doctor, ours and yours."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from breadth.doctor.diagnosis import run_check
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import FINDING_SEVERITIES, CannotTell, Check, Excluded, Finding, Need, field_reasons
from breadth.doctor.trainer_config import DIALECTS
from breadth.report.jsonable import to_jsonable
from breadth.runs.names import METRIC_NAMES
from breadth.runs.reader import Run
from breadth.runs.schema import EntropyKind, Header
from breadth.runs.writer import RunWriter
from breadth.testing import expect

QUIET_STEPS = 60
"""Steps of the runs in which nothing may be found."""
NO_NUMBERS = "no metric is a number"
"""What the run is like in which nothing may be excluded either."""


def check_finding(check: Check, name: str) -> None:
    """Check what every finding promises, run as the doctor runs it; raises AssertionError with what is broken.

    Its constants carry their reasons. It finds nothing without evidence, nor in a run whose metrics are noise around a
    constant or constant while the score rises, three points long, or not numbers; and it never raises. Where there is
    no number it excludes nothing either: not to know is another result.
    """
    kind: Any = type(check)
    expect(is_dataclass(kind), f"{name} is no dataclass: its constants must be fields")
    undocumented = [field.name for field in fields(kind) if not field_reasons(kind).get(field.name)]
    expect(not undocumented, f"the constants {', '.join(undocumented)} of {name} have no reason under them")
    unknown_needs = set(getattr(check, "needs", ())) - set(get_args(Need))
    expect(
        not unknown_needs, f"{name} needs {', '.join(sorted(unknown_needs))}; it may need {', '.join(get_args(Need))}"
    )
    expect((type(check).__doc__ or "").strip(), f"{name} has no docstring: --explain would have nothing to say")
    alone = run_check(name, check, Evidence("nothing"))
    expect(not isinstance(alone, Finding), f"{name} was found where there is nothing")
    expect(not isinstance(alone, Excluded), f"{name} was excluded where there is nothing: {alone}")
    with tempfile.TemporaryDirectory() as folder:
        for what, evidence in quiet_runs(Path(folder)):
            outcome = run_check(name, check, evidence)
            expect(not isinstance(outcome, Finding), f"{name} was found in a run of which {what}: {outcome}")
            unknown = what == NO_NUMBERS and isinstance(outcome, Excluded)
            expect(not unknown, f"{name} was excluded in a run of which {what}: {outcome}")
            if outcome is not None:
                check_outcome(outcome, name)


def check_outcome(finding: Finding | Excluded | CannotTell, name: str) -> None:
    """Check the form of a result: a name of the catalogue, a reason or numbers, a patch for every dialect."""
    expect(finding.name == name, f"it calls itself {finding.name}, the catalogue {name}")
    if isinstance(finding, Excluded):
        expect(finding.because, f"{name} is excluded and does not say by what")
        return
    if isinstance(finding, CannotTell):
        expect(finding.missing, f"{name} cannot tell and does not say what is missing")
        return
    expect(finding.severity in FINDING_SEVERITIES, f"{finding.severity} is no severity of a finding")
    expect(
        any(sign.isdigit() for sign in finding.headline), f"the headline of {name} has no number: {finding.headline!r}"
    )
    expect(finding.headline.endswith("."), f"the headline of {name} is no sentence")
    expect(finding.evidence, f"{name} proves nothing")
    expect(finding.disproof, f"{name} does not say what would disprove it")
    for fact in finding.evidence:
        to_jsonable(fact)
    for prescription in finding.prescriptions:
        for _, dialect in DIALECTS:
            dialect.patch(prescription.changes, Evidence("nothing").config)


def quiet_runs(folder: Path) -> Iterator[tuple[str, Evidence]]:
    """Yield runs with no problem, or with nothing to read. Only their score moves: a run must learn to be healthy."""
    rng = np.random.default_rng(0)
    levels = {
        name: 0.05 if name in ("zero_variance_groups", "truncated", "mismatch", "kl_reference", "kl_old") else 0.5
        for name in METRIC_NAMES
    }
    levels |= {"length": 200.0, "length_min": 100.0, "length_max": 300.0, "clip_fraction": 0.01}
    levels |= {"length_cap": 4000.0, "stopped": 0.95, "all_correct_groups": 0.02, "all_wrong_groups": 0.03}
    levels |= {"sample_age": 0.05, "sample_age_max": 1.0, "advantages_mean": 0.0, "mismatch_max": 0.1}
    score = np.linspace(0.4, 0.7, QUIET_STEPS)
    noisy = {name: level * (1 + rng.normal(0, 0.02, QUIET_STEPS)) for name, level in levels.items()}
    noisy["reward"] = score * (1 + rng.normal(0, 0.02, QUIET_STEPS))
    yield "all metrics but a rising score are noise around a constant", write_run(folder / "noise", noisy)
    yield (
        "all metrics but a rising score are constant",
        write_run(
            folder / "constant",
            {name: np.full(QUIET_STEPS, level) for name, level in levels.items()} | {"reward": score},
        ),
    )
    yield "there are three points", write_run(folder / "short", {name: values[:3] for name, values in noisy.items()})
    yield NO_NUMBERS, write_run(folder / "none", {name: np.full(QUIET_STEPS, np.nan) for name in levels})


def write_run(folder: Path, series: Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]) -> Evidence:
    """Write metrics as a run; return the evidence of it."""
    kind = EntropyKind("exact", 1.0, "token-mean", "response")
    writer = RunWriter(folder, Header(name=folder.name, trainer="trl", entropies={"entropy": kind}), flush=False)
    for place in range(len(next(iter(series.values())))):
        writer.metrics(place + 1, {name: float(values[place]) for name, values in series.items()})
    return Evidence(folder.name, Run.open(folder))
