"""How often the doctor alarms on nothing but noise: made TRL logs whose true levels are healthy and never move.

A log has TRL's GRPO metrics, each with a noise of its own drawn from the log's kind: white; autocorrelated (AR(1) of
0.5, 0.8 and 0.95); a slow walk, whose level has moved by 10 % (one standard deviation) when the log ends, under white
noise; heavy tails (Student's t of two degrees of freedom, in units of its scale); rare spikes (white, and 1 % of the
steps ten times as high); white with stretches of NaN, a fifth of the steps in all, none at the end; constant. Noise is
5, 20 or 50 % of the level and multiplies it (lognormal), so nothing falls below zero. Shares are counted: of 64
rollouts, or of their 8 groups, with a chance that the noise moves. An alarm is a finding at warning or above. The bar:
at most 5 % of all logs are alarmed.

Run: python benchmarks/doctor_noise.py [--python PEER/bin/python] [--seeds 20] [--out docs/data/doctor/noise.json]

The peer is rldoctor 0.2.0 (`python -m venv peer && peer/bin/pip install rldoctor==0.2.0`), given the same rows of the
first seeds, at its own warning level or above. That a score never moves, its "plateau" and our no-learning, is true of
these logs: the bar and the tables leave it out, and the counts with it are kept next to them. That gradients were NaN,
where they were, is true too, and counts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from doctor_peers import theirs
from peers.cases import Case

from breadth.doctor.collect import collect_evidence
from breadth.doctor.diagnosis import diagnose_run
from breadth.measure.intervals import wilson
from breadth.measure.validate import FloatArray

Rng = np.random.Generator
ALARMS = ("critical", "warning")
BAR = 0.05
"""Share of the logs that may be alarmed: what an interval of 95 % promises."""
LENGTHS = (8, 30, 100, 300, 1_000)
LEVELS = (0.05, 0.2, 0.5)
ROLLOUTS, GROUPS = 64, 8
WALK = 0.1
"""How far a slow walk gets, as one standard deviation of the level at the log's last step."""
MOST_ENTROPY = 11.9
"""Nats of the even distribution over 150,000 tokens: no entropy is higher."""
OURS, PEER = "breadth", "rldoctor"
PEER_SEEDS = 2
"""Logs of each kind that the peer is asked about: enough to compare, and it takes longer than we do."""
TRUE_OF_NOISE = frozenset({"plateau", "no-learning"})
"""What is right about these logs, the peer's word for it and ours: their score never moves."""


def white(rng: Rng, steps: int) -> FloatArray:
    """Draw independent numbers of variance one."""
    return rng.normal(size=steps)


def autocorrelated(rng: Rng, steps: int, weight: float) -> FloatArray:
    """Draw numbers of variance one, each so much like the one before; the first is drawn from where they all lie."""
    found = rng.normal(size=steps)
    for place in range(1, steps):
        found[place] = weight * found[place - 1] + np.sqrt(1 - weight**2) * found[place]
    return found


def heavy(rng: Rng, steps: int) -> FloatArray:
    """Draw numbers whose variance is infinite."""
    return rng.standard_t(2, size=steps)


NOISES: Mapping[str, Callable[[Rng, int], FloatArray]] = {
    "white": white,
    "AR 0.5": lambda rng, steps: autocorrelated(rng, steps, 0.5),
    "AR 0.8": lambda rng, steps: autocorrelated(rng, steps, 0.8),
    "AR 0.95": lambda rng, steps: autocorrelated(rng, steps, 0.95),
    "slow walk": white,
    "heavy tails": heavy,
    "spikes": white,
    "stretches of NaN": white,
    "constant": lambda _, steps: np.zeros(steps),
}
"""Kind of noise -> what draws it, in units of the level's noise."""
SHARES = {
    "rewards/accuracy_reward/mean": (0.4, ROLLOUTS),
    "rewards/format_reward/mean": (0.9, ROLLOUTS),
    "frac_reward_zero_std": (0.25, GROUPS),
    "completions/clipped_ratio": (0.02, ROLLOUTS),
}
"""Metric that is a share -> its level, and of how many it is counted."""
SIZES = {
    "grad_norm": 0.3,
    "entropy": 0.6,
    "kl": 0.02,
    "reward_std": 0.45,
    "completions/mean_length": 300.0,
    "completions/max_length": 700.0,
    "completions/min_length": 80.0,
    "clip_ratio/region_mean": 0.002,
    "step_time": 20.0,
}
"""Metric that is a size -> its level."""


@dataclass(frozen=True)
class Kind:
    """What some logs have in common."""

    noise: str
    """Which of NOISES."""
    steps: int
    """How many steps are logged."""
    level: float
    """Noise as a share of the level."""


@dataclass(frozen=True)
class Heard:
    """What a doctor says of one log."""

    tool: str
    """Which doctor."""
    kind: Kind
    """Which logs it is one of."""
    seed: int
    """Which of these."""
    alarms: tuple[str, ...]
    """What it finds at warning or above."""
    unread: bool = False
    """Whether it judged nothing."""


def rows_of(kind: Kind, seed: int) -> list[dict[str, float]]:
    """Draw a log."""
    rng = np.random.default_rng([list(NOISES).index(kind.noise), kind.steps, round(100 * kind.level), seed])
    columns = {name: _size(rng, kind, level) for name, level in SIZES.items()}
    columns["entropy"] = np.minimum(columns["entropy"], MOST_ENTROPY)
    columns |= {name: _share(rng, kind, level, of) for name, (level, of) in SHARES.items()}
    columns["loss"] = 0.01 * kind.level * NOISES[kind.noise](rng, kind.steps)
    columns["reward"] = columns["rewards/accuracy_reward/mean"] + columns["rewards/format_reward/mean"]
    if kind.noise == "stretches of NaN":
        _put_gaps(rng, columns)
    places = range(kind.steps)
    same = {"learning_rate": 1e-6}
    return [
        {
            "step": place + 1,
            "epoch": place / 500,
            **same,
            **{name: float(values[place]) for name, values in columns.items()},
        }
        for place in places
    ]


def _size(rng: Rng, kind: Kind, level: float) -> FloatArray:
    return np.asarray(level * _factors(rng, kind))


def _share(rng: Rng, kind: Kind, level: float, of: int) -> FloatArray:
    if kind.noise == "constant":
        return np.full(kind.steps, round(level * of) / of)
    return np.asarray(rng.binomial(of, np.clip(level * _factors(rng, kind), 0, 1)) / of)


def _factors(rng: Rng, kind: Kind) -> FloatArray:
    """Return what a level is multiplied by at every step; its median is one."""
    exponent = kind.level * NOISES[kind.noise](rng, kind.steps)
    if kind.noise == "slow walk":
        exponent = exponent + np.cumsum(rng.normal(0, WALK / np.sqrt(kind.steps), kind.steps))
    factors = np.exp(np.minimum(exponent, 50.0))
    return np.where(rng.random(kind.steps) < 0.01, 10 * factors, factors) if kind.noise == "spikes" else factors


def _put_gaps(rng: Rng, columns: Mapping[str, FloatArray]) -> None:
    """Put two runs of NaN into every metric, a tenth of the steps each; the last step stays a number."""
    for values in columns.values():
        long = max(1, len(values) // 10)
        for start in rng.integers(0, len(values) - long, 2):
            values[start : start + long] = np.nan


def heard(kind: Kind, seed: int, rows: Sequence[Mapping[str, float]]) -> Heard:
    """Write a log as TRL does and ask our doctor, as `breadth doctor` does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trainer_state.json"
        path.write_text(json.dumps({"global_step": kind.steps, "log_history": rows}), encoding="utf-8")
        (case,) = collect_evidence([path], Path(folder) / "workshop").cases
        found = diagnose_run(case).findings
    return Heard(OURS, kind, seed, tuple(one.name for one in found if one.severity.value in ALARMS))


def heard_of_peer(python: Path, kind: Kind, logs: Sequence[list[dict[str, float]]]) -> Iterator[Heard]:
    """Ask the peer about several logs of one kind."""
    cases = [Case("noise", str(seed), "healthy", frozenset(), tuple(rows), {}) for seed, rows in enumerate(logs)]
    _, verdicts = theirs(PEER, python, cases)
    for seed, one in enumerate(verdicts):
        yield Heard(PEER, kind, seed, one.alarms, bool(one.unread))


def kinds() -> Iterator[Kind]:
    """Yield every mix of noise, length and level; a constant has no level of noise."""
    for noise in NOISES:
        for steps in LENGTHS:
            yield from (Kind(noise, steps, level) for level in (LEVELS if noise != "constant" else (0.0,)))


def judge_all(seeds: int, python: Path | None) -> Iterator[Heard]:
    """Ask the doctors about every log; a constant is the same with every seed."""
    for kind in kinds():
        logs = [rows_of(kind, seed) for seed in range(1 if kind.noise == "constant" else seeds)]
        yield from (heard(kind, seed, rows) for seed, rows in enumerate(logs))
        if python is not None:
            yield from heard_of_peer(python, kind, logs[:PEER_SEEDS])


def counted(several: Sequence[Heard]) -> str:
    """Word how many are alarmed, with Wilson's interval."""
    judged = [one for one in several if not one.unread]
    hits = sum(bool(one.alarms) for one in judged)
    if not judged:
        return "none judged"
    found = wilson(hits, len(judged))
    left = len(several) - len(judged)
    return f"{hits} of {len(judged)} ({found.low:.3f} to {found.high:.3f})" + (f", {left} unread" if left else "")


def names(several: Sequence[Heard]) -> dict[str, int]:
    """Count which findings alarm."""
    return dict(Counter(name for one in several for name in one.alarms).most_common())


def table(several: Sequence[Heard]) -> list[dict[str, Any]]:
    """Return a row for every noise and length."""
    found = []
    for noise in NOISES:
        for steps in LENGTHS:
            own = [one for one in several if one.kind.noise == noise and one.kind.steps == steps]
            found.append({"noise": noise, "steps": steps, "alarmed": counted(own), "findings": names(own)})
    return found


def show(tool: str, several: Sequence[Heard]) -> None:
    """Print the table of one doctor, and the same by the noise's level."""
    print(f"\n## {tool}: alarmed logs")
    for row in table(several):
        print(f"{row['noise']:18}{row['steps']:>6,} steps  {row['alarmed']:28}  {row['findings'] or ''}")
    for level in LEVELS:
        print(f"noise of {level:.0%}: {counted([one for one in several if one.kind.level == level])}")
    print(f"in all: {counted(several)}; findings: {names(several)}")


def without_true(several: Sequence[Heard]) -> list[Heard]:
    """Return the same without what is right about them."""
    return [replace(one, alarms=tuple(name for name in one.alarms if name not in TRUE_OF_NOISE)) for one in several]


def document(everything: Sequence[Heard], seeds: int) -> dict[str, Any]:
    """Return what is kept: the tables, and every alarmed log of ours."""
    tools = list(dict.fromkeys(one.tool for one in everything))
    given = f" --python PYTHON --seeds {seeds}" if PEER in tools else f" --seeds {seeds}"
    found: dict[str, Any] = {"command": f"python benchmarks/doctor_noise.py{given}", "bar": BAR}
    for tool in tools:
        whole = [one for one in everything if one.tool == tool]
        own = without_true(whole)
        levels = {f"{level:g}": counted([one for one in own if one.kind.level == level]) for level in LEVELS}
        found[tool] = {"in all": counted(own), "findings": names(own), "by level of noise": levels, "table": table(own)}
        found[tool]["with a score that never moves"] = counted(whole)
    found["alarmed"] = [
        {
            "noise": one.kind.noise,
            "steps": one.kind.steps,
            "level": one.kind.level,
            "seed": one.seed,
            "alarms": one.alarms,
        }
        for one in without_true(everything)
        if one.tool == OURS and one.alarms
    ]
    return found


def main() -> int:
    """Judge, print, and say whether the bar is held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, help="a Python that has rldoctor")
    parser.add_argument("--seeds", type=int, default=20, help="logs of each noise, length and level")
    parser.add_argument("--out", type=Path, help="also write the tables and every alarmed log as JSON")
    asked = parser.parse_args()
    start = time.perf_counter()
    everything = list(judge_all(asked.seeds, asked.python))
    for tool in dict.fromkeys(one.tool for one in everything):
        whole = [one for one in everything if one.tool == tool]
        show(tool, without_true(whole))
        print(f"with a score that never moves: {counted(whole)}")
    if asked.python is None:
        print(f"{PEER}: left out: it needs --python PYTHON, one that has it")
    own = without_true([one for one in everything if one.tool == OURS])
    share = sum(bool(one.alarms) for one in own) / len(own)
    held = share <= BAR
    took = time.perf_counter() - start
    print(
        f"\n{share:.1%} of {len(own):,} logs alarmed, at most {BAR:.0%} wanted: {'held' if held else 'MISSED'}"
        f" ({took:.0f} s)"
    )
    if asked.out is not None:
        asked.out.write_text(json.dumps(document(everything, asked.seeds), indent=1) + "\n", encoding="utf-8")
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
