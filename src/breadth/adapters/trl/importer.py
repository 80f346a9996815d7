"""Read what TRL's trainers leave on disk into our records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from breadth.adapters.sniff import BOM, far_start
from breadth.adapters.trl.completions import has_completions, read_completions
from breadth.adapters.trl.console import TRAINING, read_console
from breadth.adapters.trl.history import (
    PICKLED,
    output_folder,
    read_arguments,
    read_history,
    refuse_pickle,
    without_older_copies,
)
from breadth.runs.schema import EntropyKind, Record

READERS: Mapping[str, Callable[[Path], Iterator[Record]]] = {
    "trainer state": read_history,
    "log history": read_history,
    "console log": read_console,
    "completions": read_completions,
    "arguments": read_arguments,
    "pickled arguments": refuse_pickle,
}
"""Kind of file -> what reads it."""

PRINTED_DICT = re.compile(rb"\{'[^{}]*\}")
LOG_KEYS = (b'"loss"', b'"reward"', b'"grad_norm"', b'"train_runtime"')
PRINTED_KEYS = tuple(f"'{name}': ".encode() for name in sorted(TRAINING))

SWITCHES = {
    "rollouts": "GRPOConfig(log_completions=True)",
    "kl_reference": "GRPOConfig(beta=0.001): without a reference policy there is no divergence from it",
    "mismatch": "GRPOConfig(use_vllm=True, vllm_importance_sampling_correction=True)",
    "entropy": "nothing to set: GRPOTrainer of trl>=1.16 logs it; upgrade",
    "starved_groups": "nothing to set: GRPOTrainer of trl>=1.16 logs it; upgrade",
    "truncated": "nothing to set: GRPOTrainer of trl>=1.16 logs it; upgrade",
    "answer": "in a reward function: log_extra('answer', answers), with GRPOConfig(log_completions=True)",
    "correct": (
        "in a reward function: log_extra('correct', [reward == 1 for reward in rewards]), with"
        " GRPOConfig(log_completions=True)"
    ),
    "tokens": (
        "in a reward function: log_extra('tokens', [len(ids) for ids in completion_ids]), with"
        " GRPOConfig(log_completions=True)"
    ),
    "token_ids": "in a reward function: log_extra('token_ids', completion_ids), with GRPOConfig(log_completions=True)",
}


@dataclass(frozen=True)
class TrlImporter:
    """Reads ``trainer_state.json``, log histories, console logs, ``completions/*.parquet`` and saved arguments of TRL.

    Other users of the Hugging Face Trainer leave the same logs; they are read too. ``training_args.bin`` is a pickle
    and is refused, with the safe way to save the same.
    """

    trainer = "trl"
    """Name in the catalogue."""
    entropy = EntropyKind("exact", None, "token-mean", "response")
    """Over the whole vocabulary, logits divided by the sampling temperature, mean over the completions' tokens."""
    switches = MappingProxyType(SWITCHES)
    """What to set in TRL to log more."""

    def recognises(self, path: Path, start: bytes) -> str | None:
        """Tell a file's kind by how it begins."""
        text = start.removeprefix(BOM).lstrip()
        if path.name == PICKLED and start.startswith((b"PK", b"\x80")):
            return "pickled arguments"
        if start.startswith(b"PAR1"):
            return "completions" if has_completions(path) else None
        if text.startswith((b"{", b"[")) and not text.startswith(b"{'"):
            found = _json_kind(text)
            if found or text.startswith(b"{"):
                return found
        return "console log" if _has_log_row(far_start(path, start)) else None

    def current(self, files: Sequence[Path]) -> Sequence[Path]:
        """Keep the newest trainer state of each ``output_dir`` (every checkpoint holds a longer copy of one log) and refuse one pickle."""
        last_pickle = {output_folder(path): path for path in files if path.name == PICKLED}
        return [path for path in without_older_copies(files) if path.name != PICKLED or path in last_pickle.values()]

    def read(self, path: Path, kind: str) -> Iterator[Record]:
        """Yield what the file holds, in order."""
        return READERS[kind](path)


def _json_kind(text: bytes) -> str | None:
    if text.startswith(b"{") and b'"log_history"' in text:
        return "trainer state"
    if text.startswith(b"{") and b'"num_generations"' in text and b'"output_dir"' in text:
        return "arguments"
    if re.match(rb"\[\s*\{", text) and b'"epoch"' in text and any(key in text for key in LOG_KEYS):
        return "log history"
    return None


def _has_log_row(text: bytes) -> bool:
    """Look for a printed dict that reads like a log row."""
    dicts = (found[0] for found in PRINTED_DICT.finditer(text))
    return any(b"'epoch': " in row and any(key in row for key in PRINTED_KEYS) for row in dicts)


IMPORTER = TrlImporter()
"""The importer of the catalogue."""
