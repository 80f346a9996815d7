"""The doctor's word on both arms stands in the demo, from the run folders alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from breadth.lab.demo.doctored import doctored, knobs_of
from breadth.lab.demo.plan import ANCHOR, FULL
from breadth.runs.schema import EntropyKind, Header
from breadth.runs.writer import RunWriter


def write(folder: Path, left: float) -> None:
    kind = EntropyKind("exact", 1.0, "token-mean", "response")
    writer = RunWriter(folder, Header(name="run", trainer="trl", entropies={"entropy": kind}))
    noise = np.random.default_rng(0).normal(0, 0.005, (2, 100))
    for step in range(100):
        writer.metrics(
            step + 1, {"entropy": 0.5 * left ** (step / 99) + noise[0, step], "reward": 0.4 + noise[1, step]}
        )


def test_each_arm_has_its_findings_or_none(tmp_path: Path) -> None:
    write(tmp_path / "plain" / "run", 0.05)
    write(tmp_path / "protected" / "run", 0.9)
    rows = doctored(tmp_path, FULL).rows
    collapsed = [tuple(row[:2]) for row in rows if row[2] == "entropy-collapse"]
    assert collapsed == [("plain", "critical")]
    assert any(row[0] == "protected" for row in rows)


def test_the_doctor_is_told_the_settings() -> None:
    assert knobs_of(FULL, "plain").kl == 0
    assert knobs_of(FULL, "protected").kl == ANCHOR
    assert knobs_of(FULL, "plain").on_policy
