"""The runs every doctor is asked about, with rows under each peer's names, for `benchmarks/doctor_peers.py`."""

from __future__ import annotations

import csv
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from doctor_logs import MEANT
from doctor_truth import HEALTHY, Faulty, faulty, healthy_series, known_runs

from breadth.doctor.collect import collect_evidence
from breadth.runs.reader import Run

Row = dict[str, float]
TRL = {
    "zero_variance_groups": "frac_reward_zero_std",
    "truncated": "completions/clipped_ratio",
    "length": "completions/mean_length",
    "length_min": "completions/min_length",
    "length_max": "completions/max_length",
    "kl_reference": "kl",
    "clip_fraction": "clip_ratio/region_mean",
    "clip_fraction_low": "clip_ratio/low_mean",
    "clip_fraction_high": "clip_ratio/high_mean",
    "seconds_per_step": "step_time",
    "tokens_seen": "num_tokens",
}
"""Our metric name -> TRL's, where it is another."""
COMPONENT = re.compile(r"rewards?/([^/]+)")


@dataclass(frozen=True)
class Case:
    """One run."""

    group: str
    """Which set it belongs to."""
    name: str
    """What to call it."""
    truth: str
    """What is wrong with it; "no NAME" where the series that would tell was taken out."""
    meant: frozenset[str]
    """Findings of ours that say so."""
    rows: tuple[Row, ...]
    """Its training metrics by our names, each with its step."""
    own: Mapping[str, str]
    """Our metric name -> the log's."""
    also: frozenset[str] | None = None
    """What else it would be right to name; None where nobody knows."""
    file: Path | None = None
    """Where it lies, if in a trainer's own file."""


def log_cases(folder: Path) -> Iterator[Case]:
    """Yield the labelled logs."""
    for row in labelled(folder):
        with tempfile.TemporaryDirectory() as workshop:
            *_, case = collect_evidence(
                [folder / row["file"]], Path(workshop)
            ).cases  # of several runs in one log the last
        if case.run is not None:
            meant = MEANT.get(row["label"], frozenset())
            yield Case(
                "logs",
                row["file"],
                row["label"],
                meant,
                _metrics(case.run),
                case.run.header.names,
                file=folder / row["file"],
            )


def labelled(folder: Path) -> list[dict[str, str]]:
    """Return the lines of the table of labels."""
    with (folder / "labels.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def fault_cases(folder: Path) -> Iterator[Case]:
    """Yield the faulty and the untouched curves as runs of TRL."""
    for one in (*faulty(folder), *untouched(folder)):
        steps = range(len(one.series["reward"]))
        rows = tuple(
            {"step": step + 1, **{name: float(values[step]) for name, values in one.series.items()}} for step in steps
        )
        yield Case(
            "faults", one.name, one.truth, frozenset({one.truth.removeprefix("no ")}), rows, TRL, frozenset(one.also)
        )


def untouched(folder: Path) -> Iterator[Faulty]:
    """Yield the healthy curves that the faults are put into."""
    for name, series in healthy_series(folder):
        yield Faulty(f"{name}, untouched", series, HEALTHY)


def lab_cases(folder: Path, skipped: int) -> Iterator[Case]:
    """Yield the lab's runs, which TRL's trainer has logged."""
    for name, run, truth in known_runs(folder, skipped):
        label = str(truth["label"])
        yield Case(
            "lab", name, label, frozenset({label}), _metrics(run), run.header.names, frozenset(truth.get("also", ()))
        )


def _metrics(run: Run) -> tuple[Row, ...]:
    """Return a run's training rows as they were logged, restarts and all."""
    return tuple({"step": point.step, **point.values} for point in run.points if point.split == "train")


def under_own_names(case: Case) -> list[Row]:
    """Return the rows as the log spells them."""
    return [{case.own.get(name, name): value for name, value in row.items()} for row in case.rows]


def under_trl_names(case: Case) -> list[Row]:
    """Return the rows as today's TRL spells them."""
    return [{_trl_name(name): value for name, value in row.items()} for row in case.rows]


def _trl_name(name: str) -> str:
    component = COMPONENT.fullmatch(name)
    return f"rewards/{component[1]}/mean" if component else TRL.get(name, name)


def under_sb3_names(case: Case) -> list[Row]:
    """Return what Stable-Baselines3 would log; its divergence is from the sampling policy, else the reference."""
    found: list[Row] = []
    for row in case.rows:
        kl = row.get("kl_old", row.get("kl_reference"))
        theirs = {
            "train/approx_kl": kl,
            "train/entropy_loss": row.get("entropy"),
            "train/policy_gradient_loss": row.get("loss"),
        }
        found.append({"step": row["step"], **{name: value for name, value in theirs.items() if value is not None}})
    return found


FED: Mapping[str, Callable[[Case], list[Row]]] = {
    "rldoctor": under_own_names,
    "rlprobe": under_trl_names,
    "rlwatch": under_trl_names,
    "zen-rl": under_sb3_names,
}
"""Peer -> the names its rows are given under."""
