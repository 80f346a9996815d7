"""Run the tests as other machines would: other vector units, other thread counts, other texts, a busy processor.

    python tools/test_anywhere.py [--only NAME ...] [-- PYTEST ARGUMENTS]

A test that passes on one processor only has a bound that nobody derived, or hangs on what a small model happens to
write. Each variant is the whole suite (or what the arguments choose) in a new process; failures are listed at the end.
"""

from __future__ import annotations

import argparse
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
    "starved": Variant("a quarter of the processor: two busy loops beside the tests", {}, busy_loops=2, niceness=5),
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


def run_variant(variant: Variant, arguments: Sequence[str]) -> list[str]:
    """Run the tests under a variant, showing them; return the names of those that failed."""
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
    return failed or ([f"pytest ended with status {status}"] if status else [])


def main() -> int:
    """Run the variants and list what failed where."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="variants to run")
    parser.add_argument("arguments", nargs="*", help="for pytest, behind --")
    chosen = parser.parse_args()
    failures = {}
    for name in chosen.only:
        print(f"\n=== {name}: {VARIANTS[name].meaning}", flush=True)
        failures[name] = run_variant(VARIANTS[name], chosen.arguments)
    for name, failed in failures.items():
        print(f"{name}: {'passed' if not failed else f'{len(failed)} failed'}")
        for test in failed:
            print(f"  {test}")
    return int(any(failures.values()))


if __name__ == "__main__":
    sys.exit(main())
