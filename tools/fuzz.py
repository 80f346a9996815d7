"""Fuzz what reads text from outside: importers, configurations, run folders and the proxy's request bodies.

    python -m tools.fuzz --inputs 20000 --seed 7 --out fuzz.json
    python -m tools.fuzz --target runs --seed 7 --replay 1234      # one input again, with its traceback

First every entry of ``tests/fuzz_corpus`` is read as it is, then inputs are made from the entries by seeded mutation.
An input passes when it is read or refused by a BreadthError (for the proxy: an error 4xx). Anything else is a crash:
another exception, more than ``MAX_SECONDS`` of processor time, more than ``MAX_MEMORY_BYTES`` of memory. Each distinct
crash is printed with its index and kept under ``--crashes``; a folder kept there becomes a regression test by moving
it into the corpus as ``<target>/found-<what>``.

A folder of the corpus is one input. ``x.parquet.jsonl`` becomes Parquet when it is used, ``x.b64`` bytes,
and ``x.py.text`` is a Python file that no linter should read.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

from breadth.base.errors import BreadthError
from tools.fuzz_mutations import generate_text, mutate_parquet, mutate_text, to_parquet
from tools.fuzz_targets import TARGETS, Target

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "tests" / "fuzz_corpus"
SHARES = {"importers": 0.26, "configs": 0.12, "runs": 0.07, "proxy": 0.55}
"""Share of the inputs for each target; a run folder costs twenty times what a request body costs."""
MAX_SECONDS = 10.0
"""Seconds of processor time that one input of at most 100 KB may take."""
MAX_MEMORY_BYTES = 1 << 30
"""Bytes by which one input may raise the peak of resident memory."""
PARQUET_ROWS, BASE64, TEXT = ".parquet.jsonl", ".b64", ".text"
MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - a folder in memory where there is one; files are made inside a private one


class TooSlow(BaseException):
    """Raised by the timer when an input takes too long; it passes every ``except Exception``."""


@dataclass(frozen=True)
class Entry:
    """One input of the corpus: its files by relative path, as stored and as used."""

    name: str
    """Its folder."""
    files: Mapping[str, bytes]
    """Path inside the folder -> content as stored."""

    @cached_property
    def used(self) -> dict[str, bytes]:
        """The files as they are read."""
        return dict(decode_file(path, data) for path, data in self.files.items())

    def mutate(self, other: Entry, rng: random.Random) -> dict[str, bytes]:
        """Return the files with one of them mutated, or now and then made from nothing."""
        chosen = rng.choice(sorted(self.files))
        if chosen.endswith(PARQUET_ROWS):
            return {**self.used, chosen.removesuffix(".jsonl"): mutate_parquet(self.files[chosen], rng)}
        name = chosen.removesuffix(BASE64).removesuffix(TEXT)
        if rng.random() < 0.03:
            return {**self.used, name: generate_text(rng)}
        return {**self.used, name: mutate_text(self.used[name], next(iter(other.used.values())), rng)}


def decode_file(path: str, data: bytes) -> tuple[str, bytes]:
    """Return the path and the content of a stored file as it is used."""
    if path.endswith(PARQUET_ROWS):
        return path.removesuffix(".jsonl"), to_parquet(data)
    if path.endswith(BASE64):
        return path.removesuffix(BASE64), base64.b64decode(data)
    return path.removesuffix(TEXT), data


def read_corpus(target: str, folder: Path = CORPUS) -> list[Entry]:
    """Return the entries of a target, in order of their names."""
    return [
        Entry(
            place.name,
            {str(file.relative_to(place)): file.read_bytes() for file in sorted(place.rglob("*")) if file.is_file()},
        )
        for place in sorted((folder / target).iterdir())
    ]


def make_input(entries: list[Entry], target: str, seed: int, index: int) -> dict[str, bytes]:
    """Return input number ``index``: a function of the corpus, the target, the seed and the index alone.

    Regressions are not mutated, so adding one changes no other input.
    """
    rng = random.Random(f"{seed} {target} {index}")  # noqa: S311 - nothing secret depends on it
    sources = [entry for entry in entries if not entry.name.startswith("found-")]
    return rng.choice(sources).mutate(rng.choice(sources), rng)


@dataclass
class Crash:
    """One distinct crash."""

    target: str
    """Where it happened."""
    first: str
    """The first input that did it: a name of the corpus, or an index."""
    what: str
    """The exception, and the innermost line of ours."""
    trace: str
    """Its traceback."""
    count: int = 1
    """Inputs that did it."""


@dataclass
class Tally:
    """What came of the inputs of one target."""

    inputs: int = 0
    """Inputs tried, the corpus included."""
    read: int = 0
    """Inputs that were read."""
    refused: int = 0
    """Inputs that were refused in words."""
    seconds: float = 0.0
    """Processor seconds."""
    crashes: dict[str, Crash] = field(default_factory=dict)
    """Crashes by what they are."""

    def to_json(self) -> dict[str, Any]:
        """Return the counts."""
        return {
            "inputs": self.inputs,
            "read": self.read,
            "refused": self.refused,
            "inputs_per_second": round(self.inputs / max(self.seconds, 1e-9), 1),
            "crashes": [
                {"first": crash.first, "what": crash.what, "inputs": crash.count} for crash in self.crashes.values()
            ],
        }


class Fuzzer:
    """Tries inputs on one target and sorts what comes of them."""

    def __init__(self, target: str, folder: Path, crashes: Path | None = None) -> None:
        self.target = target
        """Name of the target."""
        self.tally = Tally()
        """What came of the inputs so far."""
        self._folder, self._crashes = folder / target, crashes
        self._try: Target = TARGETS[target]()

    def run(self, name: str, files: Mapping[str, bytes]) -> Crash | None:
        """Try one input; returns the crash, if it is one."""
        write_files(self._folder, files)
        started, memory = time.process_time(), peak_memory()
        crash = None
        try:
            with limit_time(MAX_SECONDS):
                self._try(self._folder)
            self.tally.read += 1
        except BreadthError:
            self.tally.refused += 1
        except (Exception, TooSlow) as error:  # noqa: BLE001 - every other exception is what we look for
            crash = self._count(name, describe_error(error), "".join(traceback.format_exception(error)), files)
        used = peak_memory() - memory
        if crash is None and used > MAX_MEMORY_BYTES:
            crash = self._count(name, f"took {used / 1e9:.1f} GB", "", files)
        self.tally.inputs += 1
        self.tally.seconds += time.process_time() - started
        return crash

    def _count(self, name: str, what: str, trace: str, files: Mapping[str, bytes]) -> Crash:
        known = self.tally.crashes.get(what)
        if known is not None:
            known.count += 1
            return known
        crash = self.tally.crashes[what] = Crash(self.target, name, what, trace)
        print(f"crash {self.target} {name}: {what}", flush=True)
        if self._crashes is not None:
            place = self._crashes / self.target / f"found-{len(self.tally.crashes)}-{name}"
            write_files(place, dict(encode_file(path, data) for path, data in files.items()))
            (place.parent / f"{place.name}.txt").write_text(trace, encoding="utf-8", errors="replace")
        return crash


def encode_file(path: str, data: bytes) -> tuple[str, bytes]:
    """Return a file as the corpus stores it."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return path + BASE64, base64.encodebytes(data)
    return path + (TEXT if path.endswith((".py", ".ipynb")) else ""), data


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder with exactly these files."""
    if folder.exists():
        shutil.rmtree(folder)
    for path, data in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def describe_error(error: BaseException) -> str:
    """Return the exception and the innermost line of ours that it passed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/breadth/" in frame.filename]
    where = f"{frames[-1].filename.rpartition('/breadth/')[2]}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}"


def peak_memory() -> int:
    """Return the peak of resident memory so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class limit_time:  # noqa: N801 - read as a verb in a with statement
    """Raise TooSlow inside the block when it has used so many seconds of processor time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        """The limit."""

    def __enter__(self) -> None:
        def stop(number: int, frame: FrameType | None) -> None:
            del number, frame
            raise TooSlow(f"more than {self.seconds:g} s")

        self._before = signal.signal(signal.SIGPROF, stop)
        signal.setitimer(signal.ITIMER_PROF, self.seconds)

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, self._before)


def fuzz(
    targets: list[str],
    inputs: int,
    seed: int,
    folder: Path,
    *,
    crashes: Path | None = None,
    start: int = 0,
    on_progress: Callable[[dict[str, Tally]], None] = lambda _: None,
) -> dict[str, Tally]:
    """Try the whole corpus, then so many inputs in all, in turns of a thousand so that every target gets its share."""
    fuzzers = {target: Fuzzer(target, folder, crashes) for target in targets}
    entries = {target: read_corpus(target) for target in targets}
    for target, fuzzer in fuzzers.items():
        for entry in entries[target]:
            fuzzer.run(entry.name, entry.used)
    total = sum(SHARES[target] for target in targets)
    tallies = {target: fuzzer.tally for target, fuzzer in fuzzers.items()}
    for turn in turns_of(inputs):
        for target, fuzzer in fuzzers.items():
            share = SHARES[target] / total
            for index in range(start + int(turn.start * share), start + int(turn.stop * share)):
                fuzzer.run(str(index), make_input(entries[target], target, seed, index))
        on_progress(tallies)
    return tallies


def turns_of(inputs: int, size: int = 1000) -> Iterator[range]:
    """Cut so many inputs into turns."""
    for first in range(0, inputs, size):
        yield range(first, min(first + size, inputs))


def summarise(tallies: Mapping[str, Tally], seed: int) -> dict[str, Any]:
    """Return what is written to ``--out``."""
    return {
        "seed": seed,
        "inputs": sum(tally.inputs for tally in tallies.values()),
        "crashes": sum(len(tally.crashes) for tally in tallies.values()),
        "processor_seconds": round(sum(tally.seconds for tally in tallies.values()), 1),
        "max_seconds_per_input": MAX_SECONDS,
        "max_memory_bytes_per_input": MAX_MEMORY_BYTES,
        "targets": {target: tally.to_json() for target, tally in tallies.items()},
    }


def replay(target: str, seed: int, which: str, folder: Path) -> int:
    """Try one input again, an index or a folder as ``--crashes`` keeps it, and print its traceback."""
    if which.isdigit():
        files = make_input(read_corpus(target), target, seed, int(which))
    else:
        place = Path(which)
        files = next(
            entry for entry in read_corpus(place.parent.name, place.parent.parent) if entry.name == place.name
        ).used
    for path, data in files.items():
        print(f"{path}: {data[:300]!r}")
    crash = Fuzzer(target, folder).run(which, files)
    print("passed" if crash is None else crash.trace)
    return int(crash is not None)


def main() -> int:
    """Fuzz or replay as asked; 1 when anything crashed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--inputs", type=int, default=20_000, help="inputs in all, beyond the corpus")
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    parser.add_argument("--start", type=int, default=0, help="first index, to continue where another run ended")
    parser.add_argument("--target", choices=sorted(TARGETS), help="one target only")
    parser.add_argument("--out", type=Path, help="file for the counts, rewritten as they grow")
    parser.add_argument("--crashes", type=Path, help="folder that keeps the first input of each crash")
    parser.add_argument("--replay", help="index of an input, or a folder that --crashes kept")
    options = parser.parse_args()
    warnings.simplefilter("ignore")

    def save(tallies: Mapping[str, Tally]) -> None:
        if options.out is not None:
            options.out.write_text(json.dumps(summarise(tallies, options.seed), indent=1) + "\n", encoding="utf-8")

    memory = MEMORY_DISK if MEMORY_DISK.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="breadth-fuzz-", dir=memory) as folder:
        if options.replay is not None:
            return replay(options.target or "importers", options.seed, options.replay, Path(folder))
        targets = [options.target] if options.target else sorted(TARGETS)
        tallies = fuzz(
            targets,
            options.inputs,
            options.seed,
            Path(folder),
            crashes=options.crashes,
            start=options.start,
            on_progress=save,
        )
    save(tallies)
    for target, tally in tallies.items():
        print(
            f"{target}: {tally.inputs} inputs, {tally.read} read, {tally.refused} refused,"
            f" {len(tally.crashes)} distinct crashes, {tally.inputs / max(tally.seconds, 1e-9):.0f} a second"
        )
    return int(any(tally.crashes for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
