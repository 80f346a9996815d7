"""The Importer protocol, the catalogue of importers, choosing the importer of a file, and looks at a file's start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from breadth.base.catalogue import Catalogue, CatalogueParts
from breadth.base.errors import UnknownFormatError, UnsafeFileError
from breadth.runs.jsonl import HEAD_BYTES, read_head, try_parse_json
from breadth.runs.schema import EntropyKind, Record


class Importer(Protocol):
    """Reads what one trainer leaves on disk. It writes nothing, executes nothing and unpickles nothing.

    Instances are stateless; the same object reads many files.
    """

    @property
    def trainer(self) -> str:
        """Name of the trainer, as in the catalogue."""
        ...

    @property
    def entropy(self) -> EntropyKind:
        """Which entropy this trainer logs."""
        ...

    @property
    def switches(self) -> Mapping[str, str]:
        """How to log more: our metric or column name (or ``rollouts``) -> the exact setting of this trainer."""
        ...

    def recognises(self, path: Path, start: bytes) -> str | None:
        """Name the kind of file (``console log``, ``completions``, ...); None when it is not this trainer's."""
        ...

    def current(self, files: Sequence[Path]) -> Sequence[Path]:
        """Drop files that others of the list already contain (older checkpoints' copies of one log)."""
        ...

    def read(self, path: Path, kind: str) -> Iterator[Record]:
        """Yield what the file holds, in order; a bad row is a Remark."""
        ...


IMPORTERS = Catalogue(
    "importers",
    {
        "trl": "breadth.adapters.trl.importer:IMPORTER",
        "verl": "breadth.adapters.verl.importer:IMPORTER",
        "prime-rl": "breadth.adapters.prime_rl.importer:IMPORTER",
        "tinker": "breadth.adapters.tinker:IMPORTER",
        "tensorboard": "breadth.adapters.tensorboard:IMPORTER",
        "generic": "breadth.adapters.generic.importer:IMPORTER",
    },
)
"""Asked in this order; the first that recognises a file reads it."""


@dataclass(frozen=True)
class RecognisedFile:
    """A file together with the importer that reads it."""

    path: Path
    """The file."""
    importer: Importer
    """The importer that reads it."""
    kind: str
    """The kind of file, as the importer names it."""


PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")
PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
PACKED = {
    b"\x1f\x8b": "gunzip",
    b"PK\x03\x04": "unzip",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"\xfd7zXZ\x00": "unxz",
    b"BZh": "bunzip2",
}
"""How a packed file starts -> what unpacks it."""


def recognise(path: Path, importers: Sequence[Importer]) -> RecognisedFile:
    """Choose the importer for one file; refuse pickles, and list what can be read when no importer knows the file."""
    start = read_head(path)
    if path.suffix in PICKLES or start.startswith(PICKLE_STARTS):
        raise UnsafeFileError(
            path,
            "is a pickle: opening it would run whatever code it holds.",
            "Write the same rows as JSONL or Parquet where they are made, e.g. json.dumps(row) per line, and import"
            " that.",
        )
    for importer in importers:
        kind = importer.recognises(path, start)
        if kind:
            return RecognisedFile(path, importer, kind)
    remedy = (
        f"We read files of {', '.join(IMPORTERS.names())}. For any other JSONL or CSV of rows, say which column is"
        " what: --map step=iteration --map reward=score for a log; for completions --map problem=id --map"
        " completion=text too (breadth import --help)."
    )
    tool = next((tool for packed, tool in PACKED.items() if start.startswith(packed)), None)
    if tool is not None:
        raise UnknownFormatError(
            path, "is packed, whatever its name says.", f"Unpack it ({tool}), and name what was in it."
        )
    if not start.strip():
        remedy = "Wait until something is written to it, or name another file."
    raise UnknownFormatError(path, describe_unknown(start), remedy)


def all_importers() -> Sequence[Importer]:
    """Return every importer of the catalogue, in order; each is loaded when it is asked."""
    return CatalogueParts(IMPORTERS)


def describe_unknown(start: bytes) -> str:
    """Describe a file of no known format by how it starts."""
    if not start.strip():
        return "is empty."
    if not start.strip(b"\0"):
        return "starts with nothing but zeros: it was never written, or was lost when a machine went down."
    shown = start[:60].decode("utf-8", errors="replace")
    return f"is of no kind we know; it starts with {shown!r}."


BOM = b"\xef\xbb\xbf"
MAX_SNIFFED_BYTES = 4 << 20
"""Bytes of a console log searched for its first metrics: start-up output fills megabytes."""
TEXT_BYTES = 4096
"""First bytes that hold no zero in a text: a log that was truncated while written has holes of zeros later."""
TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)("\s*(:)?)?|[{}\[\]]', re.DOTALL)
"""A string (the last one may be cut off), whether a colon follows it, or a bracket."""


def first_objects(start: bytes, limit: int = 8) -> list[dict[str, Any]]:
    """Return the first JSON objects of a file, one per line; other lines are skipped."""
    lines = start.removeprefix(BOM).split(b"\n", limit)[:limit]
    return [row for line in lines if isinstance(row := try_parse_json(line), dict)]


def leading_keys(start: bytes) -> frozenset[str]:
    """Return the top-level keys of a file's first JSON object, even if it is longer than ``start``.

    A rollout of a reasoning model is often longer than the 64 KB that an importer gets.
    """
    text = start.removeprefix(BOM).lstrip().decode("utf-8", errors="replace")
    keys: set[str] = set()
    depth = 0
    for token in TOKEN.finditer(text) if text.startswith("{") else ():
        if token[0] in ("{", "["):
            depth += 1
        elif token[0] in ("}", "]"):
            depth -= 1
        elif token[3] and depth == 1:
            keys.add(token[1])
        if depth == 0:
            break
    return frozenset(keys)


def read_long_head(path: Path, start: bytes) -> bytes:
    """Return more of a console log than its first 64 KB: trainers print their set-up before the first metrics.

    Any other file, or a shorter one, gives ``start`` unchanged.
    """
    if len(start) < HEAD_BYTES or b"\0" in start[:TEXT_BYTES]:
        return start
    try:
        with path.open("rb") as file:
            return file.read(MAX_SNIFFED_BYTES)
    except OSError:
        return start
