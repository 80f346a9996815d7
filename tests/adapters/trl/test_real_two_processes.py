"""Our trainer on two real processes: the same weights, states and run folder as on one with the same completions."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from breadth.runs.reader import Run
from breadth.testing.mechanisms import states_agree

SCRIPT = """
import json, runpy, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import torch

helpers = runpy.run_path(sys.argv[1])
from breadth.training.chain import Chain

if __name__ == "__main__":
    folder, size = Path(sys.argv[2]), int(sys.argv[3])
    tiny = helpers["Tiny"](folder)
    chain = Chain.loads((folder.parent / "chain.toml").read_text())
    trainer = tiny.trainer(
        "out", chain,
        options={
            "rollout_func": helpers["told_rollouts"](),
            "run": folder / "run",
            "eval_dataset": tiny.questions().select(range(8)),
        },
        per_device_eval_batch_size=8 // size,
        per_device_train_batch_size=12 // size,
        gradient_accumulation_steps=2, optim="sgd", learning_rate=0.5, max_steps=4,
    )
    tiny.train(trainer)
    held_out = trainer.evaluate()
    if trainer.accelerator.is_main_process:
        parameters = trainer.accelerator.unwrap_model(trainer.model).parameters()
        weights = [float(weight) for parameter in parameters for weight in parameter.detach().flatten()]
        log = [row for row in trainer.state.log_history if "reward" in row]
        told = {"weights": weights, "state": trainer.objective.state(), "log": log, "eval": held_out}
        (folder / "told.json").write_text(json.dumps(told))
"""

CHAIN = """
[[mechanisms]]
kind = "group-advantage"

[[mechanisms]]
kind = "outcome-bonus"

[[mechanisms]]
kind = "clipped-policy"

[[mechanisms]]
kind = "clip-cov"
share = 0.2
lower = -inf
upper = inf

[[mechanisms]]
kind = "fork-thermostat"
settle = 1
floor = 1.0
ceiling = 1.01
"""


def launch(folder: Path, size: int) -> dict[str, Any]:
    """Run the script on as many processes, as a launcher would.

    12 completions a step, so that groups of 4 straddle two processes.
    """
    folder.mkdir()
    (folder.parent / "chain.toml").write_text(CHAIN)
    script = folder.parent / "train.py"
    script.write_text(SCRIPT)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    together = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(size),
        "ACCELERATE_USE_CPU": "true",
    }
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    helpers = Path(__file__).with_name("conftest.py")
    running = []
    for rank in range(size):
        numbered = together | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if size > 1 else {}
        command = [sys.executable, str(script), str(helpers), str(folder), str(size)]
        running.append(
            subprocess.Popen(
                command, env=os.environ | quiet | numbered, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    for process in running:
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output[-3000:]
    told: dict[str, Any] = json.loads((folder / "told.json").read_text())
    return told


def numbers(states: dict[str, Any]) -> dict[str, Any]:
    """Leave out the thermostat's words, in which a last digit may round either way."""
    thermostat = {name: value for name, value in states["fork-thermostat"].items() if name != "trail"}
    return states | {
        "fork-thermostat": thermostat,
        "acted": [entry["step"] for entry in states["fork-thermostat"]["trail"]],
    }


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    alone, together = launch(tmp_path / "one", 1), launch(tmp_path / "two", 2)
    assert together["weights"] == pytest.approx(alone["weights"], abs=2e-6)
    assert states_agree(numbers(alone["state"]["states"]), numbers(together["state"]["states"]))
    for one, two in zip(alone["log"], together["log"], strict=True):
        shared = [name for name in one if name.startswith("breadth/")]
        assert [two[name] for name in shared] == pytest.approx([one[name] for name in shared], abs=1e-5)
    assert together["eval"]["eval_loss"] == pytest.approx(alone["eval"]["eval_loss"], abs=1e-5)
    rows = [
        Run.open(tmp_path / name / "run").query("select step, sample, advantage from rollouts order by all").to_pylist()
        for name in ("one", "two")
    ]
    assert len(rows[0]) == len(rows[1]) == 4 * 24
    assert [row["advantage"] for row in rows[0]] == pytest.approx([row["advantage"] for row in rows[1]], abs=1e-5)
