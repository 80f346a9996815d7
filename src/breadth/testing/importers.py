"""The contract of importers: what :func:`check_importer` holds every importer to, ours and yours."""

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
    PROBLEM_SCHEMA,
    REQUIRED_COLUMNS,
    ROLLOUT_TYPES,
    EntropyKind,
    LoggedConfig,
    LoggedEntropyKind,
    MetricRow,
    Record,
    Remark,
    RolloutBatch,
    column_type,
    to_toml_value,
)

CUTS = 40
"""Places at which each sample is cut off, besides its first and last bytes."""

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
"""(trainer, file name, first bytes) of files that only that trainer's importer may claim; nobody's where it is empty.
"""


def check_importer(importer: Importer, samples: Sequence[Path], *, last_resort: bool = False) -> None:
    """Hold an importer to the contract of its family; raises AssertionError with what it breaks.

    - it and its entropy are documented, and its switches name metrics or columns that exist;
    - it recognises each of ``samples`` (small whole files it must be able to read, one for each kind) and claims no
      foreign file;
    - what it reads conforms to the schema, holds at least one row somewhere, and is the same on every reading;
    - a sample cut off at any byte gives records or a BreadthError, never another exception.

    ``last_resort`` is for an importer that takes any rows and is asked last: it may claim other trainers' files.
    """
    check_description(importer)
    _check_claims(importer, last_resort=last_resort)
    _require(len(samples) > 0, "give at least one sample")
    kept = importer.current(samples)
    _require(set(kept) <= set(samples) and len(set(kept)) == len(kept), "current() may only leave files out")
    rows = 0
    for sample in samples:
        kind = importer.recognises(sample, read_head(sample))
        _require(bool(kind), f"{sample.name} is not recognised")
        records = _read(importer, sample, str(kind))
        check_records(records)
        _require(
            _told(records) == _told(_read(importer, sample, str(kind))),
            f"{sample.name} reads differently the second time",
        )
        _check_cuts(importer, sample, str(kind))
        rows += sum(isinstance(record, MetricRow | RolloutBatch) for record in records)
    _require(rows > 0, "none of the samples gave a row")


def check_description(importer: Importer) -> None:
    """Check that an importer says who it is, which entropy its trainer logs and what to switch on for more."""
    _require(bool(importer.trainer) and importer.trainer == importer.trainer.lower(), "trainer is a lower-case name")
    _require(bool(inspect.getdoc(type(importer))), "the class has a docstring")
    _require(isinstance(importer.entropy, EntropyKind), "entropy is an EntropyKind")
    for name in ("entropy", "switches"):
        _require(_has_docstring(type(importer), name), f"{name} has a docstring under the field")
    _require(len(importer.switches) > 0, "switches say what to set to log more")
    for name, setting in importer.switches.items():
        _require(
            name == "rollouts" or name in METRIC_NAMES or name in ROLLOUT_TYPES,
            f"switch {name!r} is no metric or column of ours",
        )
        _require(bool(setting.strip()), f"switch {name!r} says nothing")


def check_records(records: Iterable[Any]) -> None:
    """Check that records conform to the schema."""
    for record in records:
        if isinstance(record, MetricRow):
            _check_metrics(record)
        elif isinstance(record, RolloutBatch):
            _check_table(record.table)
            _require(record.split in ("train", "eval"), f"split is {record.split!r}")
        elif isinstance(record, LoggedConfig):
            to_toml_value(record.table)
        elif isinstance(record, LoggedEntropyKind):
            _require(isinstance(record.kind, EntropyKind), f"the entropy's kind is {record.kind!r}")
        else:
            _require(isinstance(record, Remark) and bool(record.problem), f"{record!r} is no record")


def _has_docstring(owner: type, name: str) -> bool:
    """Look for a string under the attribute, or in the property, in the class or one it inherits from."""
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


def _check_metrics(row: MetricRow) -> None:
    _require(row.split in ("train", "eval"), f"split is {row.split!r}")
    _require(row.step is None or (type(row.step) is int and row.step >= 0), f"step is {row.step!r}")
    _require(row.time is None or type(row.time) is float, f"time is {row.time!r}")
    for name, value in row.values.items():
        _require(type(name) is str and type(value) is float, f"metric {name!r} is {value!r}: need a name and a float")
        name.encode("utf-8")  # a name that UTF-8 cannot hold cannot be stored


def _check_table(table: pa.Table) -> None:
    for name in REQUIRED_COLUMNS:
        _require(name in table.column_names, f"rollouts have no column {name!r}")
        _require(table.column(name).null_count == 0, f"column {name!r} has nulls")
    _require(len(set(table.column_names)) == len(table.column_names), f"columns repeat: {table.column_names}")
    for field in table.schema:
        wanted = column_type(field.name)
        if wanted is None and field.name in PROBLEM_SCHEMA.names:
            wanted = PROBLEM_SCHEMA.field(field.name).type
        _require(wanted is not None, f"the schema has no column {field.name!r}")
        _require(field.type == wanted, f"column {field.name!r} is {field.type}, not {wanted}")
    table.validate(full=True)


def _check_claims(importer: Importer, *, last_resort: bool) -> None:
    for trainer, name, start in FOREIGN_HEADS:
        if trainer == importer.trainer or (trainer and last_resort):
            continue
        claimed = importer.recognises(Path("somewhere") / name, start)
        _require(not claimed, f"it claims {name} of {trainer or 'nobody'} as its {claimed}")


def _check_cuts(importer: Importer, sample: Path, kind: str) -> None:
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
                check_records(_read(importer, copy, kind))
            except BreadthError:
                continue
            except Exception as error:
                raise AssertionError(
                    f"{sample.name} cut off at byte {end} raises {error!r}, which is no BreadthError"
                ) from error


def _read(importer: Importer, path: Path, kind: str) -> list[Record]:
    return list(importer.read(path, kind))


def _told(records: Sequence[Record]) -> list[str]:
    """Write records out, for comparing them: NaN equals NaN here."""
    return [repr(record.table.to_pydict()) if isinstance(record, RolloutBatch) else repr(record) for record in records]


def _require(held: bool, otherwise: str) -> None:
    if not held:
        raise AssertionError(otherwise)
