"""What the verl tests share: the bigram.

And a run of it on two real gloo processes beside a run of the bare Objective.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch

from breadth.testing.mechanisms import states_agree
from breadth.training.chain import Chain
from breadth.training.mechanism import Stage
from breadth.training.objective import Objective

HERE = Path(__file__).parent
COUNT, MINI, RATE, RANKS, EPOCHS = 8, 4, 0.5, 2, 2
Ranks = Callable[[str, Sequence[Chain]], list[tuple[dict[str, Any], ...]]]


@pytest.fixture(scope="session")
def bigram() -> Any:
    """The module with the bigram and its batches."""
    spec = spec_from_file_location("bigram", HERE / "bigram.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    """Train each chain on two gloo processes; returns for each chain what the processes told."""

    def run(how: str, chains: Sequence[Chain]) -> list[tuple[dict[str, Any], ...]]:
        paths = [tmp_path / f"chain-{number}.toml" for number in range(len(chains))]
        for path, chain in zip(paths, chains, strict=True):
            path.write_text(chain.dumps(), encoding="utf-8")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        script, files = str(HERE / "two_ranks.py"), [str(path) for path in paths]
        commands = [[sys.executable, script, str(rank), str(tmp_path), how, *files] for rank in range(RANKS)]
        started = [
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for command in commands
        ]
        said = [one.communicate(timeout=300)[0] for one in started]
        assert [one.returncode for one in started] == [0] * RANKS, "\n".join(said)
        return list(
            zip(
                *(json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(RANKS)),
                strict=True,
            )
        )

    return run


@pytest.fixture
def bare(bigram: Any) -> Callable[[Chain], dict[str, Any]]:
    """Train the same with the bare Objective on whole mini-batches in this process, never stopping in between."""

    def run(chain: Chain) -> dict[str, Any]:
        objective = Objective(replace(chain, mechanisms=chain.mechanisms_of(Stage.LOSS)))
        policy = bigram.Bigram(seed=1)
        told: dict[str, Any] = {"steps": [], "gradients": []}
        for number in range(3):
            data = bigram.generation(COUNT, number)
            for _ in range(EPOCHS):
                for first in range(0, COUNT // RANKS, MINI // RANKS):
                    rows = [
                        rank * COUNT // RANKS + first + place for rank in range(RANKS) for place in range(MINI // RANKS)
                    ]
                    told["steps"].append(step(objective, policy, bigram.part(data, rows), told["gradients"]))
        return told | {"states": objective.state()["states"], "table": policy.table.flatten().tolist()}

    return run


@pytest.fixture
def trains_alike(ranks: Ranks, bare: Callable[[Chain], dict[str, Any]]) -> Ranks:
    """Hold two ranks of verl to the bare Objective:

    gradients, parameters, losses, metrics and states, over two restarts.
    """

    def check(how: str, chains: Sequence[Chain]) -> list[tuple[dict[str, Any], ...]]:
        everyone = ranks(how, chains)
        for chain, told in zip(chains, everyone, strict=True):
            alone = bare(chain)
            for one in told:
                same(one, alone)
            both = zip(told[0]["steps"], told[1]["steps"], strict=True)
            losses = [first["loss"] + second["loss"] if how == "stage" else first["loss"] for first, second in both]
            assert losses == pytest.approx([step["loss"] for step in alone["steps"]], abs=1e-6)
        return everyone

    return check


def same(one: dict[str, Any], alone: dict[str, Any]) -> None:
    """Compare what a rank told with what the bare Objective did."""
    for name in ("gradients", "table"):
        torch.testing.assert_close(torch.tensor(one[name]), torch.tensor(alone[name]), atol=1e-6, rtol=1e-6)
    assert states_agree(alone["states"], one["states"][-1])
    for step, expected in zip(one["steps"], alone["steps"], strict=True):
        shown = {name: value for name, value in step.items() if name not in ("loss", "breadth/stale")}
        assert shown == pytest.approx(
            {name: value for name, value in expected.items() if name != "loss"}, abs=1e-6, nan_ok=True
        )


def step(objective: Objective, policy: Any, mini: Any, gradients: list[list[float]]) -> dict[str, float]:
    """Take one step of plain gradient descent; a survey sees what verl's can see."""
    policy.table.grad = None
    objective.begin(policy.survey(mini))
    loss = objective.loss(policy.batch(mini))
    loss.backward()
    gradients.append(policy.table.grad.flatten().tolist())
    with torch.no_grad():
        policy.table -= RATE * policy.table.grad
    return {"loss": float(loss.detach()), **{f"breadth/{name}": value for name, value in objective.finish().items()}}


PLACE = "actor_rollout_ref.actor.policy_loss"


@pytest.fixture
def configured() -> Callable[..., Any]:
    """Compose verl's own configuration, as its command line does."""
    hydra = pytest.importorskip("hydra")

    def compose(chain: str, *overrides: str, loss_mode: str = "breadth") -> Any:
        ours = [
            f"{PLACE}._target_=breadth.adapters.verl.loss.BreadthLoss",
            f"{PLACE}.loss_mode={loss_mode}",
            "trainer.v1.trainer_mode=breadth",
        ]
        needed = [
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
            "actor_rollout_ref.rollout.n=4",
            "algorithm.adv_estimator=grpo",
        ]
        with hydra.initialize_config_module("verl.trainer.config", version_base=None):
            config = hydra.compose("ppo_trainer", overrides=[*ours, f"+{PLACE}.chain=none", *needed, *overrides])
        config.actor_rollout_ref.actor.policy_loss.chain = chain
        return config

    return compose
