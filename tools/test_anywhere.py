"""Run the tests as other machines would: other vector units, other thread counts, other texts, a busy processor.

    python tools/test_anywhere.py [--only NAME ...] [--out docs/data/test-anywhere.json] [-- PYTEST ARGUMENTS]

A test that passes on one processor only has a bound that nobody derived, or hangs on what a small model happens to
write. Each variant is the whole suite (or what the arguments choose) in a new process; failures are listed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUSY_LOOP = "while True: pass"


@dataclass(frozen=True)
class Variant:
    """Another machine, as far as this one can be made to look like it."""

    meaning: str
    """What differs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to set."""
    busy_loops: int = 0
    """Processes that do nothing but compute beside the tests."""
    niceness: int = 0
    """How far the tests step back for them. On two cores next to two busy loops, tests at 5 get a quarter of the
    processor, at 10 a tenth, and at 19 a fiftieth: a suite of ten minutes would take eight hours."""


VARIANTS = {
    "plain": Variant(
        "no vector units beyond the oldest, in torch, numpy and MKL; text of another model",
        {
            "ATEN_CPU_CAPABILITY": "default",
            "MKL_CBWR": "COMPATIBLE",
            "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL",
            "OPENBLAS_CORETYPE": "Nehalem",
            "BREADTH_TEST_ROPE_SCALE": "0.97",
            "PYTHONHASHSEED": "1",
        },
    ),
    "avx2": Variant(
        "AVX2 and two threads in every library; text of another model",
        {
            "ATEN_CPU_CAPABILITY": "avx2",
            "MKL_CBWR": "AVX2",
            "OPENBLAS_CORETYPE": "Haswell",
            "OMP_NUM_THREADS": "2",
            "MKL_NUM_THREADS": "2",
            "OPENBLAS_NUM_THREADS": "2",
            "BREADTH_TEST_ROPE_SCALE": "0.9",
            "PYTHONHASHSEED": "2",
        },
    ),
    "threads": Variant(
        "four threads on however many cores there are",
        {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4", "PYTHONHASHSEED": "3"},
    ),
    "starved": Variant("a quarter of the processor: two busy loops next to the tests", {}, busy_loops=2, niceness=5),
}


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep processors busy meanwhile."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@dataclass(frozen=True)
class Outcome:
    """What became of the tests under a variant."""

    summary: str
    """The last line of pytest: how many passed, and in what time."""
    failed: tuple[str, ...]
    """Tests that failed, by name."""


def run_variant(variant: Variant, arguments: Sequence[str]) -> Outcome:
    """Run the tests under a variant, showing them."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-rfE", *arguments]
    if variant.niceness:
        command = ["nice", "-n", str(variant.niceness), *command]
    lines = []
    with busy_loops(variant.busy_loops):
        own = os.environ | dict(variant.environment)
        with subprocess.Popen(command, cwd=ROOT, env=own, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                lines.append(line)
    status = process.returncode
    failed = [match.group(1) for line in lines if (match := re.match(r"(?:FAILED|ERROR) (\S+)", line))]
    summary = next((line.strip(" =\n") for line in reversed(lines) if re.search(r"\d+ (?:passed|failed)", line)), "")
    return Outcome(summary, tuple(failed or ([f"pytest ended with status {status}"] if status else [])))


def write_outcomes(target: Path, outcomes: Mapping[str, Outcome]) -> None:
    """Write what each variant gave; variants that were not run keep what an earlier run wrote."""
    before = json.loads(target.read_text(encoding="utf-8"))["variants"] if target.exists() else {}
    new = {
        name: {"meaning": VARIANTS[name].meaning, "summary": outcome.summary, "failed": list(outcome.failed)}
        for name, outcome in outcomes.items()
    }
    found = {"command": "make test-anywhere", "variants": before | new}
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Run the variants and list what failed where."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="variants to run")
    parser.add_argument("arguments", nargs="*", help="for pytest, behind --")
    parser.add_argument("--out", type=Path, help="also write the results as JSON")
    chosen = parser.parse_args()
    outcomes: dict[str, Outcome] = {}
    for name in chosen.only:
        print(f"\n=== {name}: {VARIANTS[name].meaning}", flush=True)
        outcomes[name] = run_variant(VARIANTS[name], chosen.arguments)
        if chosen.out:  # after each: a run that is ended keeps what it has
            write_outcomes(chosen.out, outcomes)
    for name, outcome in outcomes.items():
        print(f"{name}: {f'{len(outcome.failed)} failed' if outcome.failed else 'passed'} ({outcome.summary})")
        for test in outcome.failed:
            print(f"  {test}")
    return int(any(outcome.failed for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
