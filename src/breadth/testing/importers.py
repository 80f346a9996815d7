"""The contract of importers: what :func:`check_importer` requires of every importer, ours and yours."""

from __future__ import annotations

import ast
import inspect
import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from breadth.base.errors import BreadthError
from breadth.runs.importer import Importer
from breadth.runs.jsonl import read_head
from breadth.runs.names import METRIC_NAMES
from breadth.runs.schema import (
    PROBLEM_COLUMN_NAMES,
    REQUIRED_COLUMNS,
    ROLLOUT_COLUMN_NAMES,
    EntropyKind,
    LoggedConfig,
    LoggedEntropyKind,
    MetricRow,
    Record,
    Remark,
    RolloutBatch,
    column_type,
    problem_schema,
    to_toml_value,
)
from breadth.testing import expect

CUTS = 40
"""Positions at which each sample is truncated, in addition to its first and last bytes."""

FOREIGN_HEADS: tuple[tuple[str, str, bytes], ...] = (
    (
        "trl",
        "trainer_state.json",
        b'{\n  "global_step": 2,\n  "log_history": [\n    {"epoch": 0.1, "loss": 0.5, "step": 1}\n  ]\n}',
    ),
    ("trl", "train.log", b"{'loss': '0.5', 'grad_norm': '1.2', 'reward': '0.25', 'epoch': '0.1'}\n"),
    (
        "verl",
        "train.out",
        b"\x1b[36m(TaskRunner pid=7)\x1b[0m step:1 - actor/entropy:0.5 - critic/score/mean:np.float64(0.25)\n",
    ),
    ("verl", "experiment.jsonl", b'{"step":1,"data":{"actor/entropy":0.5,"critic/score/mean":0.25}}\n'),
    ("verl", "1.jsonl", b'{"input": "1+1?", "output": "2", "gts": "2", "score": 1.0, "step": 1}\n'),
    (
        "tinker",
        "metrics.jsonl",
        (
            b'{"progress/epoch": 0, "progress/batch": 0, "optim/lr": 1e-05, "optim/entropy": 2.3,'
            b' "env/all/reward/total": 0.2, "step": 0}\n'
        ),
    ),
    (
        "prime-rl",
        "rank_0.jsonl",
        b'{"schema_version":1,"step":1,"token_ids":[1],"loss_mask":[true],"entropy":[0.5],"env_name":"maths"}\n',
    ),
    (
        "tensorboard",
        "events.out.tfevents.1.host",
        b"\x18" + bytes(7) + b"\xa3\x7f\x4b\x22\t\x00\x00\xc0\x8a\x0a\xd8\xd9A\x1a\rbrain.Event:2",
    ),
    ("generic", "scores.csv", b"step,reward\n1,0.5\n2,0.6\n"),
    ("", "README.md", b"# A run\n\nThe step: 1 - see below.\n"),
    ("", "config.json", b'{"architectures": ["LlamaForCausalLM"], "hidden_size": 64}'),
    ("", "model.safetensors", b"\x40\x00\x00\x00\x00\x00\x00\x00" + b'{"__metadata__":{"format":"pt"}}' + bytes(64)),
    ("", "picture.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256))),
    ("", "weights.pt", b"PK\x03\x04" + bytes(64)),
    ("", "empty.log", b""),
    ("", "notes.txt", b"nothing to see here\n" * 20),
)
"""(trainer, file name, first bytes) of files that only that trainer's importer may claim; empty: none."""


def check_importer(importer: Importer, samples: Sequence[Path], *, last_resort: bool = False) -> None:
    """Check the contract of importers; raises AssertionError with what is broken.

    - it and its entropy are documented, and its switches name metrics or columns that exist;
    - it recognises each of ``samples`` (small complete files, one of each kind) and claims no foreign file;
    - what it reads conforms to the schema, holds at least one row, and is the same on every reading;
    - a sample truncated at any byte gives records or a BreadthError, never another exception.

    ``last_resort`` marks an importer that takes any rows and is asked last: it may claim other trainers' files.
    """
    check_description(importer)
    check_claims(importer, last_resort=last_resort)
    expect(len(samples) > 0, "give at least one sample")
    kept = importer.current(samples)
    expect(set(kept) <= set(samples) and len(set(kept)) == len(kept), "current() may only leave files out")
    rows = 0
    for sample in samples:
        kind = importer.recognises(sample, read_head(sample))
        expect(bool(kind), f"{sample.name} is not recognised")
        records = list(importer.read(sample, str(kind)))
        check_records(records)
        expect(
            comparable(records) == comparable(list(importer.read(sample, str(kind)))),
            f"{sample.name} reads differently the second time",
        )
        check_truncated_copies(importer, sample, str(kind))
        rows += sum(isinstance(record, MetricRow | RolloutBatch) for record in records)
    expect(rows > 0, "none of the samples gave a row")


def check_description(importer: Importer) -> None:
    """Check that an importer says who it is, which entropy its trainer logs and what to switch on for more."""
    expect(bool(importer.trainer) and importer.trainer == importer.trainer.lower(), "trainer is a lower-case name")
    expect(bool(inspect.getdoc(type(importer))), "the class has a docstring")
    expect(isinstance(importer.entropy, EntropyKind), "entropy is an EntropyKind")
    for name in ("entropy", "switches"):
        expect(has_field_docstring(type(importer), name), f"{name} has a docstring under the field")
    expect(len(importer.switches) > 0, "switches name what to set to log more")
    for name, setting in importer.switches.items():
        expect(
            name == "rollouts" or name in METRIC_NAMES or name in ROLLOUT_COLUMN_NAMES,
            f"switch {name!r} is no metric or column of ours",
        )
        expect(bool(setting.strip()), f"switch {name!r} says nothing")


def check_records(records: Iterable[Any]) -> None:
    """Check that records conform to the schema."""
    for record in records:
        if isinstance(record, MetricRow):
            check_metric_row(record)
        elif isinstance(record, RolloutBatch):
            check_rollout_table(record.table)
            expect(record.split in ("train", "eval"), f"split is {record.split!r}")
        elif isinstance(record, LoggedConfig):
            to_toml_value(record.table)
        elif isinstance(record, LoggedEntropyKind):
            expect(isinstance(record.kind, EntropyKind), f"the entropy's kind is {record.kind!r}")
        else:
            expect(isinstance(record, Remark) and bool(record.problem), f"{record!r} is no record")


def has_field_docstring(owner: type, name: str) -> bool:
    """Whether the attribute or property has a docstring, in the class or one it inherits from."""
    for cls in owner.__mro__[:-1]:
        declared = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        body = declared.body if isinstance(declared, ast.ClassDef) else []
        for before, after in pairwise([*body, ast.Pass()]):
            targets = (
                before.targets
                if isinstance(before, ast.Assign)
                else [before.target]
                if isinstance(before, ast.AnnAssign)
                else []
            )
            if name in map(ast.unparse, targets):
                return isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(vars(cls).get(name), property):
            return bool(vars(cls)[name].__doc__)
    return False


def check_metric_row(row: MetricRow) -> None:
    """Check the types and names of a metric row."""
    expect(row.split in ("train", "eval"), f"split is {row.split!r}")
    expect(row.step is None or (type(row.step) is int and row.step >= 0), f"step is {row.step!r}")
    expect(row.time is None or type(row.time) is float, f"time is {row.time!r}")
    for name, value in row.values.items():
        expect(type(name) is str and type(value) is float, f"metric {name!r} is {value!r}: need a name and a float")
        name.encode("utf-8")  # a name that UTF-8 cannot hold cannot be stored


def check_rollout_table(table: pa.Table) -> None:
    """Check the columns of a table of rollouts."""
    for name in REQUIRED_COLUMNS:
        expect(name in table.column_names, f"rollouts have no column {name!r}")
        expect(table.column(name).null_count == 0, f"column {name!r} has nulls")
    expect(len(set(table.column_names)) == len(table.column_names), f"columns repeat: {table.column_names}")
    for field in table.schema:
        wanted = column_type(field.name)
        if wanted is None and field.name in PROBLEM_COLUMN_NAMES:
            wanted = problem_schema().field(field.name).type
        expect(wanted is not None, f"the schema has no column {field.name!r}")
        expect(field.type == wanted, f"column {field.name!r} is {field.type}, not {wanted}")
    table.validate(full=True)


def check_claims(importer: Importer, *, last_resort: bool) -> None:
    """Check that an importer claims no file of another trainer."""
    for trainer, name, start in FOREIGN_HEADS:
        if trainer == importer.trainer or (trainer and last_resort):
            continue
        claimed = importer.recognises(Path("somewhere") / name, start)
        expect(not claimed, f"it claims {name} of {trainer or 'nobody'} as its {claimed}")


def check_truncated_copies(importer: Importer, sample: Path, kind: str) -> None:
    """Check that a truncated sample gives records or a BreadthError."""
    whole = sample.read_bytes()
    ends = {
        *range(min(8, len(whole))),
        *range(max(len(whole) - 8, 0), len(whole)),
        *range(0, len(whole), max(len(whole) // CUTS, 1)),
    }
    with tempfile.TemporaryDirectory() as folder:
        copy = (
            Path(folder, *sample.parts[-3:]) if not sample.parts[-3:][0].startswith("/") else Path(folder, sample.name)
        )
        copy.parent.mkdir(parents=True, exist_ok=True)
        for end in sorted(ends):
            copy.write_bytes(whole[:end])
            try:
                importer.recognises(copy, read_head(copy))
                check_records(importer.read(copy, kind))
            except BreadthError:
                continue
            except Exception as error:
                raise AssertionError(
                    f"{sample.name} cut off at byte {end} raises {error!r}, which is no BreadthError"
                ) from error


def comparable(records: Sequence[Record]) -> list[str]:
    """Return records as texts that compare: NaN equals NaN here."""
    return [repr(record.table.to_pydict()) if isinstance(record, RolloutBatch) else repr(record) for record in records]
