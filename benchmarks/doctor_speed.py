"""How long `breadth doctor` takes: a log of 1,000 steps from a cold start, and a run folder of a million rollouts.

python benchmarks/doctor_speed.py [--peer PATH/TO/rldoctor] [--folder KEEP/RUN]

Every diagnosis is a new process; one before the first that counts leaves compiled bytecode behind, as an installation
does. Seconds of the processor stand beside those of the clock: on a machine that does other things too, only the former
can be compared. With ``--folder`` the rollouts are kept there, and the next time only read: making them takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from breadth.runs.schema import HEADER_FILE, EntropyKind, Header
from breadth.runs.writer import RunWriter

LOG_STEPS = 1_000
LOG_BAR = 1.5
FOLDER_BAR, MEMORY_BAR = 60.0, 2_000.0
GROUP = 16
GROUPS = 250
PROBLEMS = 5_000
TOKENS = 64
EVALUATIONS = 10
WORDS = [
    "so",
    "we",
    "add",
    "both",
    "sides",
    "then",
    "divide",
    "by",
    "two",
    "which",
    "gives",
    "therefore",
    "wait",
    "check",
    "again",
    "mod",
]
SCAN = """
import sys, duckdb
rows = f"read_parquet('{sys.argv[1]}/rollouts/*.parquet', union_by_name=true)"
print(duckdb.sql(f"SELECT max(hash(all_of_it)) FROM {rows} AS all_of_it"))
"""


@dataclass(frozen=True)
class Cost:
    """What a process took."""

    wall: float
    """Seconds on the clock."""
    cpu: float
    """Seconds of the processor, its own and the system's for it."""
    memory: float
    """Most memory it held, in MB."""


def cost(command: Sequence[str | Path]) -> Cost:
    """Run a command to its end."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=own)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with status {process.returncode}")
    return Cost(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def median_cost(command: Sequence[str | Path], repeats: int) -> Cost:
    """Run a command once for its bytecode and then some times; return medians."""
    cost(command)
    found = [cost(command) for _ in range(repeats)]
    return Cost(*(statistics.median(getattr(one, name) for one in found) for name in ("wall", "cpu", "memory")))


def curves(steps: int) -> dict[str, Any]:
    """Return the log of a middling run: entropy falls to a third, reward saturates, lengths grow, with noise."""
    rng, done = np.random.default_rng(0), np.linspace(0, 1, steps)
    shapes = {
        "entropy": 0.2 + 0.5 * np.exp(-3 * done),
        "reward": 0.6 - 0.4 * np.exp(-4 * done),
        "length": 300 + 200 * done,
    }
    shapes |= {"kl": 0.05 * done + 0.001, "std": 0.3 - 0.1 * done, "flat": 0.2 + 0.2 * done, "cut": 0.02 + 0.02 * done}
    shapes |= {name: np.full(steps, 0.3) for name in ("norm", "clip", "loss", "seconds")}
    return {name: shape * (1 + rng.normal(0, 0.08, steps)) for name, shape in shapes.items()}


def trl_log(path: Path) -> Path:
    """Write the trainer_state.json of a GRPO run, with what TRL 1.x logs by default and two reward functions."""
    logged, rows = curves(LOG_STEPS), []
    names = {
        "entropy": "entropy",
        "kl": "kl",
        "loss": "loss",
        "grad_norm": "norm",
        "reward": "reward",
        "reward_std": "std",
    }
    names |= {"frac_reward_zero_std": "flat", "step_time": "seconds", "completions/clipped_ratio": "cut"}
    names |= {
        f"completions/{side}{ended}_length": "length"
        for side in ("mean", "min", "max")
        for ended in ("", "_terminated")
    }
    names |= {f"clip_ratio/{side}": "clip" for side in ("low_mean", "low_min", "high_mean", "high_max", "region_mean")}
    names |= {
        f"rewards/{part}_reward/{kind}": shape
        for part in ("accuracy", "format")
        for kind, shape in (("mean", "reward"), ("std", "std"))
    }
    for place in range(LOG_STEPS):
        row = {name: float(logged[shape][place]) for name, shape in names.items()}
        rows.append(
            row | {"step": place + 1, "epoch": place / 500, "learning_rate": 1e-6, "num_tokens": 50_000.0 * (place + 1)}
        )
    path.write_text(json.dumps({"global_step": LOG_STEPS, "max_steps": LOG_STEPS, "log_history": rows}))
    return path


def verl_log(path: Path) -> Path:
    """Write the JSON lines of verl's file logger."""
    logged = curves(LOG_STEPS)
    names = {
        "actor/entropy": "entropy",
        "actor/kl_loss": "kl",
        "actor/ppo_kl": "kl",
        "actor/pg_loss": "loss",
        "actor/grad_norm": "norm",
    }
    names |= {
        "actor/pg_clipfrac": "clip",
        "actor/pg_clipfrac_lower": "clip",
        "response_length/clip_ratio": "cut",
        "timing_s/step": "seconds",
    }
    names |= {
        f"critic/{what}/{side}": "reward"
        for what in ("score", "rewards", "returns", "advantages")
        for side in ("mean", "min", "max")
    }
    names |= {f"{what}_length/{side}": "length" for what in ("response", "prompt") for side in ("mean", "min", "max")}
    names |= {f"timing_s/{what}": "seconds" for what in ("gen", "old_log_prob", "ref", "adv", "update_actor")}
    with path.open("w") as file:
        for place in range(LOG_STEPS):
            data = {name: float(logged[shape][place]) for name, shape in names.items()} | {
                "training/global_step": place + 1,
                "actor/lr": 1e-6,
            }
            file.write(json.dumps({"step": place + 1, "data": data}) + "\n")
    return path


def compare_logs(work: Path, peer: str | None, repeats: int) -> None:
    """Time the diagnosis of both logs beside the peer, bare Python and numpy."""
    trl, verl = trl_log(work / "trainer_state.json"), verl_log(work / "verl.jsonl")
    bare = median_cost([sys.executable, "-c", "pass"], repeats)
    numpy = median_cost([sys.executable, "-c", "import numpy"], repeats)
    theirs = None if peer is None else median_cost([peer, "diagnose", trl], repeats)
    print(
        f"a log of {LOG_STEPS:,} steps, medians of {repeats} new processes, load {os.getloadavg()[0]:.1f} on"
        f" {os.cpu_count()} cores"
    )
    print(
        f"  bare Python {said(bare)};  import numpy {said(numpy)}"
        + (f";  {Path(peer).name} {said(theirs)}" if peer and theirs else "")
    )
    for name, path, form in (("TRL", trl, ""), ("TRL", trl, "--json"), ("verl", verl, "")):
        ours = median_cost([sys.executable, "-m", "breadth", "doctor", path, *form.split()], repeats)
        against = {"bare Python": bare, "numpy": numpy} | ({"the peer": theirs} if theirs and name == "TRL" else {})
        ratios = ", ".join(f"{ours.cpu / one.cpu:.1f}x {what}" for what, one in against.items())
        print(
            f"  breadth doctor, {name} {form:7}{said(ours)};  processor: {ratios};  under {LOG_BAR} s wanted:"
            f" {met(ours.wall, LOG_BAR)}"
        )


def said(one: Cost) -> str:
    """Word the seconds of a process."""
    return f"{one.wall:.2f} s ({one.cpu:.2f} s of the processor)"


def met(value: float, bar: float) -> str:
    """Say whether a bar is held."""
    return "held" if value < bar else "MISSED"


def write_run(folder: Path, rollouts: int) -> None:
    """Write a run of so many rollouts through our own writer, one file a step, and an evaluation now and then."""
    kind = EntropyKind("exact", 1.0, "token-mean", "response")
    header = Header(name=folder.name, trainer="trl", entropies={"entropy": kind})
    writer, rng = RunWriter(folder, header, flush=False), np.random.default_rng(0)
    steps = max(2, rollouts // (GROUP * GROUPS))
    phrases = np.array([" ".join(rng.choice(WORDS, 12)) for _ in range(4_000)], dtype=object)
    for step in range(1, steps + 1):
        table = batch(rng, phrases, step, step / steps, np.arange(step * GROUPS, (step + 1) * GROUPS) % PROBLEMS)
        writer.rollouts(table, step)
        numbers = {
            "entropy": float(np.mean(table["entropy"].combine_chunks().flatten())),
            "reward": float(np.mean(table["reward"])),
        }
        writer.metrics(
            step, numbers | {"completions/mean_length": float(TOKENS), "grad_norm": 0.3, "learning_rate": 1e-6}
        )
        if step % max(1, steps // EVALUATIONS) == 0:
            writer.rollouts(batch(rng, phrases, step, step / steps, PROBLEMS + np.arange(100)), step, split="eval")
    writer.problems(
        {
            "problem": [f"p{number}" for number in range(PROBLEMS + 100)],
            "prompt": [f"What is {n}?" for n in range(PROBLEMS + 100)],
        }
    )


def batch(rng: np.random.Generator, phrases: Any, step: int, done: float, problems: Any) -> pa.Table:
    """Draw the rollouts of one step: problems of every difficulty, answers that narrow, entropies that fall by half."""
    size, asked = len(problems) * GROUP, np.repeat(problems, GROUP)
    right = rng.random(size) < np.clip((asked % 97) / 97 * (0.5 + 0.6 * done), 0, 1)
    answers = np.where(right, asked % 12, 12 + rng.integers(0, max(2, round(8 * (1 - done))), size))
    picks = phrases[rng.integers(0, len(phrases), (size, 4))]
    entropy = rng.gamma(0.5, 0.6 * (1 - 0.5 * done), (size, TOKENS)).astype(np.float32)
    sure = -rng.exponential(np.maximum(entropy, 1e-6)).astype(np.float32)
    return pa.table(
        {
            "step": np.full(size, step),
            "problem": pa.array([f"p{number}" for number in asked]),
            "group": pa.array([f"{step}-{number}" for number in asked]),
            "sample": np.tile(np.arange(GROUP, dtype=np.int32), len(problems)),
            "completion": pa.array(
                [
                    f"{' '.join(row)} so the answer is \\boxed{{{answer}}}"
                    for row, answer in zip(picks, answers, strict=True)
                ]
            ),
            "answer": pa.array(answers.astype(str)),
            "reward": right.astype(np.float64),
            "correct": right,
            "advantage": rng.normal(size=size),
            "tokens": np.full(size, TOKENS, np.int32),
            "truncated": rng.random(size) < 0.02,
            "token_ids": lists(rng.integers(0, 50_000, (size, TOKENS), np.int32)),
            "logprobs": lists(sure),
            "old_logprobs": lists(sure + rng.normal(0, 0.01, sure.shape).astype(np.float32)),
            "entropy": lists(entropy),
        }
    )


def lists(table: Any) -> pa.Array:
    """Make a column of lists of one length."""
    return pa.ListArray.from_arrays(
        np.arange(0, table.size + 1, table.shape[1], dtype=np.int32), pa.array(table.ravel())
    )


def compare_folder(folder: Path, rollouts: int) -> None:
    """Time the diagnosis of a run folder beside DuckDB reading every column of it once."""
    if not (folder / HEADER_FILE).exists():
        write_run(folder, rollouts)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    scan = cost([sys.executable, "-c", SCAN, folder])
    ours = cost([sys.executable, "-m", "breadth", "doctor", folder])
    print(f"a run folder of {rollouts:,} rollouts, {size / 1e9:.2f} GB")
    print(f"  DuckDB reads all of it once  {said(scan)}, {scan.memory:,.0f} MB")
    print(
        f"  breadth doctor               {said(ours)}, {ours.memory:,.0f} MB;  {ours.cpu / scan.cpu:.1f}x the scan's"
        " processor"
    )
    bars = (
        f"under {FOLDER_BAR:.0f} s {met(ours.wall, FOLDER_BAR)}, under {MEMORY_BAR:,.0f} MB"
        f" {met(ours.memory, MEMORY_BAR)}"
    )
    print(f"  wanted: {bars}")


def main() -> None:
    """Run both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="rldoctor's command, to be timed on the same TRL log")
    parser.add_argument("--folder", type=Path, help="where the run of rollouts is kept; made there if it is not")
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        compare_logs(Path(work), chosen.peer, chosen.repeats)
        compare_folder(chosen.folder or Path(work) / "run", chosen.rollouts)


if __name__ == "__main__":
    main()
