"""End to end with the real verl: its own loggers and its own dump functions write the files that are imported."""

from __future__ import annotations

import ast
import json
import math
import os
import re
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from breadth.adapters.verl.importer import IMPORTER, VERL_SWITCHES
from breadth.runs.importing import import_files
from breadth.runs.reader import Run

pytestmark = [
    pytest.mark.skipif(find_spec("verl") is None, reason="verl is not installed"),
    pytest.mark.filterwarnings(
        "ignore::Warning:(verl|ray|torch|transformers|tensordict|pydantic|hydra|google|pkg_resources|vllm)"
    ),
]

LOGGED = [
    {
        "actor/entropy": 0.1 + step / 7,
        "actor/pg_clipfrac": np.float64(step / 1000),
        "actor/ppo_kl": np.float64(-1.5e-05),
        "actor/kl_loss": np.float32(0.25),
        "actor/grad_norm": math.nan if step == 2 else np.float64(0.013598723337054253),
        "critic/score/mean": step / 3,
        "response_length/mean": 18.5,
        "response_length/clip_ratio": 0.0,
        "training/global_step": step,
        **({"val-core/openai/gsm8k/reward/mean@4": 0.625} if step == 3 else {}),
    }
    for step in (1, 2, 3)
]
WRITER = "_write_generations"
RENAMED = {
    "entropy": "actor/entropy",
    "clip_fraction": "actor/pg_clipfrac",
    "kl_old": "actor/ppo_kl",
    "kl_reference": "actor/kl_loss",
    "grad_norm": "actor/grad_norm",
    "reward": "critic/score/mean",
    "length": "response_length/mean",
    "truncated": "response_length/clip_ratio",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Let verl's own Tracking log three steps to its file and its console backend."""
    from contextlib import redirect_stdout

    from verl.utils.tracking import Tracking

    folder = tmp_path_factory.mktemp("verl")
    with pytest.MonkeyPatch.context() as patch, (folder / "console.log").open("w") as console, redirect_stdout(console):
        patch.setenv("VERL_FILE_LOGGER_PATH", str(folder / "metrics.jsonl"))
        tracking = Tracking("project", "experiment", default_backend=["file", "console"], config={})
        for step, row in enumerate(LOGGED, 1):
            tracking.log(row, step=step)
        tracking.logger["file"].finish()
    return folder


@pytest.mark.parametrize("name", ["console.log", "metrics.jsonl"])
def test_every_number_logged_comes_back_to_the_last_digit(written: Path, tmp_path: Path, name: str) -> None:
    import_files([written / name], tmp_path / "run", importers=[IMPORTER])
    run = Run.open(tmp_path / "run")
    for ours, theirs in RENAMED.items():
        series = run.series(ours)
        assert series.steps.tolist() == [1, 2, 3]
        for found, row in zip(series.values.tolist(), LOGGED, strict=True):
            wanted = float(str(row[theirs]))
            assert found == wanted or (math.isnan(found) and math.isnan(wanted)), theirs
    held_out = run.series("val-core/openai/gsm8k/reward/mean@4", "eval")
    assert (held_out.steps.tolist(), held_out.values.tolist()) == ([3], [0.625])
    assert run.header.trainer == "verl"
    assert run.header.entropies["entropy"].aggregation == "loss-mode"


def dump_functions(module: str, owner: str) -> dict[str, Any]:
    """Take the dump functions of one of verl's trainers out of its source.

    The trainer's module cannot be imported without what only a GPU machine has; these functions need the standard
    library alone.
    """
    package = find_spec("verl")
    assert package is not None
    assert package.origin is not None
    tree = ast.parse(Path(package.origin).parent.joinpath(*module.split("/")).read_text())
    trainer = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner)
    wanted = [
        node
        for node in trainer.body
        if isinstance(node, ast.FunctionDef) and ("dump" in node.name or node.name == WRITER)
    ]
    names: dict[str, Any] = {"os": os, "json": json, "np": np, "ThreadPoolExecutor": ThreadPoolExecutor}
    for node in wanted:
        node.decorator_list = []
        exec(compile(ast.Module([node], []), module, "exec"), names)  # noqa: S102 - verl's own functions, as installed
    return names


def dump(functions: dict[str, Any], folder: Path, step: int, extras: dict[str, list[Any]]) -> None:
    """Call them as the trainer does, without the trainer."""
    stand_in = SimpleNamespace(global_steps=step, _write_generations=functions[WRITER])
    functions["_init_dump_executor"](stand_in)
    functions["_dump_generations"](
        stand_in,
        inputs=[f"user: problem {place // 2}?\nassistant:" for place in range(4)],
        outputs=["so \\boxed{1}", 'hm, "2" ünd \n\\boxed{2}', "<answer>3</answer>", "nothing"],
        gts=["1", "1", "3", None],
        scores=[1.0, 0.0, 1.0, float("nan")],
        reward_extra_infos_dict=extras,
        dump_path=str(folder),
    )
    functions["_shutdown_dump_executor"](stand_in)


def test_dumps_of_the_current_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = dump_functions("trainer/ppo/v1/trainer_base.py", "PPOTrainer")
    uids = ["a_b_0_0", "a_b_1_0", "c_0_0", "c_1_0"]
    dump(trainer, tmp_path / "out" / "rollouts", 7, {"uid": uids})
    extras: dict[str, list[Any]] = {
        "reward": [1.0, 0.0, 1.0, float("nan")],
        "acc": [np.bool_(1), np.bool_(0), True, None],
        "pred": ["1", "2", "3", "[INVALID]"],
    }
    dump(trainer, tmp_path / "out" / "validation", 7, {**extras, "uid": uids})
    got = import_files([tmp_path / "out"], tmp_path / "run", importers=[IMPORTER])
    assert got.rollouts == 8
    run = Run.open(tmp_path / "run")
    rows = run.query(
        "SELECT * FROM rollouts JOIN problems USING (problem) WHERE split = 'train' ORDER BY \"group\", sample"
    ).to_pylist()
    assert [(row["group"], row["sample"], row["step"]) for row in rows] == [
        ("a_b", 0, 7),
        ("a_b", 1, 7),
        ("c", 0, 7),
        ("c", 1, 7),
    ]
    assert [row["answer"] for row in rows] == ["1", "2", "3", None]
    assert [row["reward"] for row in rows[:3]] == [1.0, 0.0, 1.0]
    assert math.isnan(rows[3]["reward"])
    assert [row["prompt"] for row in rows] == [f"user: problem {place // 2}?\nassistant:" for place in range(4)]
    assert [row["reference"] for row in rows] == ["1", "1", "3", "3"], (
        "a problem keeps the first reference it came with"
    )
    held_out = run.query(
        "SELECT answer, correct FROM rollouts WHERE split = 'eval' ORDER BY \"group\", sample"
    ).to_pylist()
    assert held_out == [
        {"answer": "1", "correct": True},
        {"answer": "2", "correct": False},
        {"answer": "3", "correct": True},
        {"answer": None, "correct": None},
    ]


def test_dumps_of_the_legacy_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = dump_functions("trainer/ppo/ray_trainer.py", "RayPPOTrainer")
    extras: dict[str, list[Any]] = {
        "acc": [1.0, 0.0, 1.0, 0.0],
        "format_reward": [0.5, 0.5, 0.0, 0.0],
        "request_id": ["r1", "r2", "r3", "r4"],
    }
    dump(trainer, tmp_path / "rollouts", 12, extras)
    import_files([tmp_path / "rollouts"], tmp_path / "run", importers=[IMPORTER])
    rows = Run.open(tmp_path / "run").query("SELECT * FROM rollouts ORDER BY sample").to_pylist()
    assert [row["correct"] for row in rows] == [True, False, True, False]
    assert [row["reward/format_reward"] for row in rows] == [0.5, 0.5, 0.0, 0.0]
    assert [json.loads(row["extra"]) for row in rows] == [{"request_id": f"r{place}"} for place in (1, 2, 3, 4)]
    assert [row["step"] for row in rows] == [12] * 4


def test_the_switches_name_settings_that_exist() -> None:
    package = find_spec("verl")
    assert package is not None
    assert package.origin is not None
    config = import_module("yaml").safe_load(
        (Path(package.origin).parent / "trainer" / "config" / "_generated_ppo_trainer.yaml").read_text()
    )
    named = {
        word.split("=")[0].strip(",;()")
        for setting in VERL_SWITCHES.values()
        for word in setting.split()
        if re.match(r"[a-z_]+\.[a-z_]", word)
    }
    assert len(named) >= 6
    for dotted in named:
        place = config
        for part in dotted.split("."):
            assert part in place, dotted
            place = place[part]
