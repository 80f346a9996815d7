"""Import a million rollouts from verl JSONL next to pandas; read pass@k back next to DuckDB's bare scan."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import orjson

STEPS = 100
GROUP = 8
WORDS = [
    "therefore",
    "the",
    "sum",
    "of",
    "both",
    "sides",
    "is",
    "2x",
    "+",
    "7",
    "=",
    "and",
    "so",
    "we",
    "multiply",
    "by",
    "\\frac{1}{2}",
    "mod",
    "11",
]


def write_dump(folder: Path, rollouts: int, seed: int = 0) -> int:
    """Write a verl rollout dump, one file per step, about 1 KB of text per rollout; return its size in bytes."""
    rng = np.random.default_rng(seed)
    phrases = [" ".join(rng.choice(WORDS, 12)) for _ in range(4000)]
    folder.mkdir(parents=True)
    per_step = rollouts // STEPS
    for step in range(1, STEPS + 1):
        picks = rng.integers(0, len(phrases), (per_step, 18))
        answers = rng.integers(0, 12, per_step)
        with (folder / f"{step}.jsonl").open("wb") as file:
            for row in range(per_step):
                problem = (step * per_step + row) // GROUP
                text = " ".join([phrases[pick] for pick in picks[row]])[:960]
                record = {
                    "input": (
                        f"user\nProblem {problem}: what is {problem % 97} times {problem % 89}, modulo 11?\nassistant\n"
                    ),
                    "output": f"{text} so the answer is \\boxed{{{answers[row]}}}",
                    "gts": str(problem % 12),
                    "score": float(answers[row] == problem % 12),
                    "step": step,
                }
                file.write(orjson.dumps(record) + b"\n")
    return sum(path.stat().st_size for path in folder.iterdir())


PANDAS = """
import sys; from pathlib import Path; import pandas
for path in sorted(Path(sys.argv[1]).iterdir()):
    pandas.read_json(path, lines=True).to_parquet(Path(sys.argv[2]) / f"{path.stem}.parquet")
"""
OURS = """
import sys; sys.argv[:] = ["breadth", "import", sys.argv[1], "--to", sys.argv[2] + "/run"]
from breadth.cli.main import run
run()
"""


def measured(code: str, *arguments: Path) -> tuple[float, float]:
    """Run code in a fresh Python; return wall seconds and its largest memory in MB."""
    report = (
        "import atexit, json, resource; atexit.register(lambda:"
        " print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)))"
    )
    wrapped = f"{report}\n{code}"
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", wrapped, *map(str, arguments)], check=True, capture_output=True, text=True
    )
    return time.perf_counter() - start, json.loads(done.stdout.splitlines()[-1]) / 1024


def compare_imports(work: Path, rollouts: int, repeats: int) -> Path:
    """Time both imports on the same dump, alternating, as verl leaves it and as one file; return the run folder."""
    dump, whole, quarter = work / "dump", work / "whole", work / "quarter"
    size = write_dump(dump, rollouts)
    write_dump(quarter, rollouts // 4)
    whole.mkdir()
    with (whole / "1.jsonl").open("wb") as file:
        for path in sorted(dump.iterdir()):
            file.write(path.read_bytes())
    print(f"{rollouts:,} rollouts, {size / 1e9:.2f} GB of verl JSONL, median of {repeats}")
    memory = race(work, dump, f"{STEPS} files, one a step, as verl writes them", rollouts, repeats)
    race(work, whole, "one file", rollouts, repeats)
    _, small = measured(OURS, quarter, work / "small")
    print(
        f"  memory: {memory:,.0f} MB for all, {small:,.0f} MB for a quarter (under 2,000 MB and flat wanted; each of"
        " two processes)"
    )
    return work / "dump-ours0" / "run"


def race(work: Path, dump: Path, what: str, rollouts: int, repeats: int) -> float:
    """Time pandas and breadth on one dump; return our largest memory in MB."""
    ours, theirs = [], []
    for repeat in range(repeats):
        (work / f"{dump.name}-pandas{repeat}").mkdir()
        theirs.append(measured(PANDAS, dump, work / f"{dump.name}-pandas{repeat}"))
        ours.append(measured(OURS, dump, work / f"{dump.name}-ours{repeat}"))
    mine, peer = (statistics.median(seconds for seconds, _ in runs) for runs in (ours, theirs))
    print(f"{what}:")
    print(f"  pandas read_json(lines) + to_parquet  {peer:6.1f} s  {rollouts / peer:10,.0f} rollouts/s")
    print(
        f"  breadth import                        {mine:6.1f} s  {rollouts / mine:10,.0f} rollouts/s (answers and"
        " problem ids included)"
    )
    print(f"  ratio: {peer / mine:.1f}x the rate of pandas (at least 3x wanted)")
    return ours[0][1]


def compare_pass_at_k(folder: Path, repeats: int) -> None:
    """Time pass@k for all k from disk beside DuckDB reading the same columns into memory and nothing more."""
    from breadth.measure.pass_at_k import mean_pass_at_k
    from breadth.runs.outcomes import count_outcomes
    from breadth.runs.reader import Run

    run = Run.open(folder)
    run.query("SELECT count(*) FROM rollouts")
    scans, answers = [], []
    groups = 0
    for _ in range(repeats):
        start = time.perf_counter()
        run.query("SELECT step, problem, reward FROM rollouts")
        scans.append(time.perf_counter() - start)
        start = time.perf_counter()
        found = count_outcomes(run)
        if found is None:
            raise SystemExit("the run cannot tell right from wrong")
        groups = len(found)
        curve = mean_pass_at_k(found.graded, found.correct, np.arange(1, GROUP + 1))
        answers.append(time.perf_counter() - start)
    scan, answer = statistics.median(scans), statistics.median(answers)
    print(f"pass@k for k = 1..{GROUP} over {groups:,} groups from disk: {answer * 1000:.0f} ms")
    print(f"  pass@1 {curve[0]:.3f}, pass@{GROUP} {curve[-1]:.3f}")
    print(
        f"  DuckDB's own scan of step, problem, reward: {scan * 1000:.0f} ms; ratio: {answer / scan:.2f}x (within 3x"
        " wanted)"
    )


def main() -> None:
    """Run both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare_pass_at_k(compare_imports(Path(folder), chosen.rollouts, chosen.repeats), 7)
    print(f"(this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB)")


if __name__ == "__main__":
    main()
