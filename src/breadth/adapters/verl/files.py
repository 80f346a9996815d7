"""What verl's trainers leave on disk, read into our records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from breadth.adapters.heads import BOM, first_objects
from breadth.adapters.printed import far_start
from breadth.adapters.verl.metrics import read_console, read_file_log
from breadth.adapters.verl.rollouts import read_rollouts, split_of
from breadth.runs.records import Record
from breadth.runs.schema import EntropyKind

READERS: Mapping[str, Callable[[Path], Iterator[Record]]] = {
    "console log": read_console,
    "file log": read_file_log,
    "rollouts": read_rollouts,
    "validation rollouts": read_rollouts,
}
"""Kind of file -> what reads it."""

PRINTED_ROW = re.compile(rb"(?m:^|[\s\])}m])step:\d{1,15} - [^\s:]+:")
LOG_START = re.compile(rb'\{\s*"step"\s*:\s*\d+\s*,\s*"data"\s*:\s*\{')
DUMP_START = re.compile(rb'\{\s*"input"\s*:\s*["\[]')
DUMP_KEYS = frozenset({"input", "output", "score"})
DUMP_NAME = re.compile(r"\d+\.jsonl")

SWITCHES = {
    "rollouts": "trainer.rollout_data_dir=DIR, and for held-out problems trainer.validation_data_dir=DIR/validation",
    "entropy": "actor_rollout_ref.actor.calculate_entropy=true",
    "kl_reference": "actor_rollout_ref.actor.use_kl_loss=true",
    "mismatch": "actor_rollout_ref.rollout.calculate_log_probs=true",
    "correct": (
        "return {'score': reward, 'acc': right} from reward.custom_reward_function; "
        "kept in trainer.validation_data_dir (the legacy trainer keeps it in trainer.rollout_data_dir too)"
    ),
    "answer": (
        "return {'score': reward, 'pred': answer} from reward.custom_reward_function; "
        "kept in trainer.validation_data_dir (the legacy trainer keeps it in trainer.rollout_data_dir too)"
    ),
}


@dataclass(frozen=True)
class VerlFiles:
    """Reads verl's console logs, the JSONL of its ``file`` logger, and its rollout and validation dumps."""

    trainer = "verl"
    """Name in the catalogue."""
    entropy = EntropyKind("exact", None, "loss-mode", "response")
    """Over the whole vocabulary, made one number by the loss's own mode: nats per sequence under a summing loss."""
    switches = MappingProxyType(SWITCHES)
    """What to set in verl to log more."""

    def recognises(self, path: Path, start: bytes) -> str | None:
        """Tell a file's kind by how it begins."""
        text = start.removeprefix(BOM).lstrip()
        if text.startswith(b"{"):
            return _json_kind(path, text)
        return "console log" if PRINTED_ROW.search(far_start(path, start)) else None

    def current(self, files: Sequence[Path]) -> Sequence[Path]:
        """Keep all: no file of verl's repeats another."""
        return files

    def read(self, path: Path, kind: str) -> Iterator[Record]:
        """Yield what the file holds, in order."""
        return READERS[kind](path)


def _json_kind(path: Path, text: bytes) -> str | None:
    if LOG_START.match(text):
        return "file log"
    if _is_dump(path, text):
        return "validation rollouts" if split_of(path) == "eval" else "rollouts"
    return None


def _is_dump(path: Path, text: bytes) -> bool:
    """Look for the keys of a dump in the first row; trust its first key and the file's name where the row is longer than what is seen."""
    rows = first_objects(text, most=4)
    if rows:
        return rows[0].keys() >= DUMP_KEYS and not rows[0].keys().isdisjoint(("step", "gts"))
    return bool(DUMP_START.match(text) and DUMP_NAME.fullmatch(path.name))


FILES = VerlFiles()
"""The importer of the catalogue."""
