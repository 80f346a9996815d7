"""Sweeps and recorded runs are told from training by what their header holds, whatever trainers call their sections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from breadth.base.settings import to_table
from breadth.doctor.evidence import Evidence
from breadth.doctor.signs.inference_runs import MARGIN, is_recorded, is_sweep, of_inference
from breadth.inference.policy import Policy
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter
from breadth.tuning import choice

POLICY = to_table(Policy())


def opened(folder: Path, config: dict[str, Any], trainer: str = "", files: tuple[str, ...] = ()) -> Run:
    RunWriter(folder, Header(name="x", trainer=trainer, files=files, config=config))
    return Run.open(folder)


@pytest.mark.parametrize(
    ("config", "trainer", "files", "sweep", "recorded"),
    [
        ({"plan": {"questions": 3}}, "", (), True, False),
        ({"policy": POLICY}, "", (), False, True),
        ({"plan": {"questions": 3}, "policy": POLICY}, "", (), True, False),
        ({"policy": {"model_name": "x", "lr": 1e-6}}, "", (), False, False),
        ({"policy": "greedy"}, "", (), False, False),
        ({"policy": POLICY, "plan": {}}, "verl", (), False, False),
        ({"policy": POLICY}, "", ("log.jsonl",), False, False),
        ({}, "", (), False, False),
    ],
)
def test_the_header_tells(
    tmp_path: Path, config: Any, trainer: str, files: tuple[str, ...], sweep: bool, recorded: bool
) -> None:
    run = opened(tmp_path / "run", config, trainer, files)
    assert (is_sweep(run), is_recorded(run)) == (sweep, recorded)
    assert of_inference(Evidence("x", run)) is (sweep or recorded)


def test_a_bare_configuration_is_none() -> None:
    assert not of_inference(Evidence("x", policy=Policy()))


def test_the_margin_is_that_of_tuning() -> None:
    assert MARGIN == choice.MARGIN
