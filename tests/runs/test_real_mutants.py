"""Mutated run folders: each opens, or is refused with an error of ours; none ends in a traceback."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from breadth.base.errors import BreadthError
from breadth.doctor.overview import overview
from breadth.report.jsonable import render_json
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import METRICS_FILE, RunWriter

NASTY_VALUES = (
    "1e400",
    "-1e400",
    "1e17",
    "9223372036854775808",
    "-9223372036854775809",
    "2147483648",
    "1" + "0" * 400,
    "1" + "0" * 5000,
    "NaN",
    "null",
    "true",
    '"\\ud800"',
    '"nan"',
    "[]",
    "{}",
    '{"\\udfff": 1}',
    '{"entropy": 1e400, "reward": "1e999", "x": {}}',
    "2.5",
    "-1",
    '""',
)
"""JSON that a field of a metric row must survive."""
MAX_BYTES_CHANGED = 4


def write_small_run(folder: Path) -> None:
    """Write a run in which every kind of file of a run folder is there."""
    writer = RunWriter(folder, Header(name="small", trainer="trl", config={"beta": 0.1, "lists": [1, 2]}))
    for step in range(12):
        writer.metrics(step, {"entropy": 1 / (step + 1), "reward": step / 12, "length": 90.0}, time=1e9 + step)
        if step % 3 == 0:
            right = [bool((step + place) % 3) for place in range(8)]
            writer.rollouts(
                {
                    "problem": [f"p{place // 4}" for place in range(8)],
                    "sample": list(range(8)),
                    "completion": [f"step {step}, so it is {place}" for place in range(8)],
                    "answer": [str(place % 3) for place in range(8)],
                    "reward": [float(value) for value in right],
                    "correct": right,
                    "tokens": [5] * 8,
                    "truncated": [False] * 8,
                    "logprobs": [[-0.5] * 5] * 8,
                    "entropy": [[0.5] * 5] * 8,
                },
                step,
            )
    writer.problems({"problem": ["p0", "p1"], "prompt": ["1 + 1?", "2 + 2?"], "reference": ["2", "4"]})
    writer.metrics(11, {"accuracy": 0.5}, split="eval")


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Change, cut, repeat or insert a few bytes."""
    mutant = bytearray(content)
    for _ in range(rng.randint(1, MAX_BYTES_CHANGED)):
        place = rng.randrange(len(mutant)) if mutant else 0
        choice = rng.randrange(5)
        if choice == 0 and mutant:
            mutant[place] = rng.randrange(256)
        elif choice == 1 and mutant:
            mutant[place] ^= 1 << rng.randrange(8)
        elif choice == 2:
            del mutant[place : place + rng.randint(1, 40)]
        elif choice == 3:
            mutant[place:place] = mutant[place : place + rng.randint(1, 40)]
        else:
            mutant[place:place] = rng.randbytes(rng.randint(1, 4))
    return bytes(mutant)


def mutate_row(content: bytes, rng: random.Random) -> bytes:
    """Give one field of one metric row, or one of its numbers, a value that is hard to take."""
    lines = content.splitlines()
    place = rng.randrange(len(lines))
    row = json.loads(lines[place])
    inside = rng.random() < 0.3
    fields = row["values"] if inside else row
    name = rng.choice(list(fields))
    fields[name] = "@"
    if rng.random() < 0.1:
        fields["\ud800"] = 1
    lines[place] = json.dumps(row).replace('"@"', rng.choice(NASTY_VALUES)).encode()
    return b"\n".join(lines) + b"\n"


def mutate_run(folder: Path, rng: random.Random) -> str:
    """Damage one file of a run folder; say which and how."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    path = rng.choice(files)
    by_row = path.name == METRICS_FILE or rng.random() < 0.25
    if by_row:
        path = folder / METRICS_FILE
    mutation = mutate_row if by_row and rng.random() < 0.7 else mutate_bytes
    path.write_bytes(mutation(path.read_bytes(), rng))
    if path.suffix != ".parquet" and rng.random() < 0.9:
        shutil.rmtree(folder / "rollouts")  # most of the time goes into queries of rollouts
    return f"{path.name} by {mutation.__name__}"


def read_everything(folder: Path) -> None:
    """Open a run, query its metrics and build its page."""
    run = Run.open(folder)
    run.query("SELECT name, avg(value) FROM metrics GROUP BY name")
    render_json(overview(run)).encode()


def check_mutant(whole: Path, mutant: Path, seed: int) -> bool:
    """Damage a copy of a run and read it; say whether it opened. Anything but an error of ours fails."""
    shutil.copytree(whole, mutant)
    damage = mutate_run(mutant, random.Random(seed))
    try:
        read_everything(mutant)
    except BreadthError:
        return False
    except Exception as error:
        raise AssertionError(f"mutant {seed}, {damage}: {error!r}") from error
    finally:
        shutil.rmtree(mutant)
    return True


def test_every_mutant_opens_or_is_refused_in_words(tmp_path: Path) -> None:
    write_small_run(tmp_path / "run")
    read_everything(tmp_path / "run")
    opened = [check_mutant(tmp_path / "run", tmp_path / "mutant", seed) for seed in range(80)]
    assert sum(opened) > 40
