"""Read what TRL's trainers leave on disk: which reader takes which file, and the reader of console output."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from breadth.adapters.notebooks import OUTPUT_SUFFIXES, STEP_HEADER, TableRow, read_output
from breadth.adapters.parse_values import MetricReader, as_step, storable_name, strip_colour
from breadth.adapters.trl.completions import has_completions, read_completions
from breadth.adapters.trl.history import (
    OBJECTIVE_FILE,
    PICKLED_ARGUMENTS,
    History,
    drop_older_copies,
    is_eval,
    metric_row,
    newest_history,
    output_folder,
    read_arguments,
    read_history,
    refuse_pickle,
)
from breadth.base.errors import UnknownFormatError
from breadth.runs.importer import BOM, read_long_head
from breadth.runs.jsonl import read_text_rows
from breadth.runs.names import match_name
from breadth.runs.schema import EntropyKind, MetricRow, Record, Remark

PRINTED_DICT = re.compile(r"\{['\"][^{}]*\}")
PRINTED_PAIR = re.compile(r"""(?:'([^']*)'|"([^"]*)")\s*:\s*('[^']*'|"[^"]*"|[A-Za-z_][\w.]*\([^()]*\)|[^\s,{}'"]+)""")
UNFINISHED_DICT = re.compile(r"\{'[\w/]+': [^{}]*$")
LOG_ROW_METRICS = frozenset(
    {"loss", "reward", "grad_norm", "learning_rate", "train_runtime", "eval_loss", "eval_reward", "eval_runtime"}
)
"""A printed dict is a log row if it has one of these and the epoch."""
MAX_ROW_LENGTH = 16_384
"""Characters of a printed row, over all lines that a terminal has made of it."""
PRINTED_PRECISION = 1e-3
"""Relative difference allowed by rounding to the four digits printed, with a margin of two."""
MIN_SHARED_METRICS = 3
"""Metrics that a printed row and a state's row must share to be compared."""


def read_trl_console(path: Path) -> Iterator[Record]:
    """Yield the rows of a console log: one Python dict per logging step, between progress bars and other output.

    Steps come from a trainer state next to it, if that is of the same run.
    """
    counter = _StepCounter(train_rows(newest_history(output_folder(path))))
    reader = MetricReader()
    number, text, wrapped = 0, "", ""
    for line in read_text_rows(path):
        if isinstance(line, Remark):
            yield line
            continue
        number, text = line
        text = unwrap_row(wrapped, text)
        unfinished = UNFINISHED_DICT.search(text) if "{" in text else None
        wrapped = unfinished[0] if unfinished else ""
        for row in log_rows(text):
            values = reader.numbers({name: value for name, value in row.items() if name != "step"}, number)
            yield counter.place(row, values)
    yield from reader.remarks(path)
    if UNFINISHED_DICT.search(text):
        yield Remark(
            "the last row breaks off; left out.",
            str(path),
            number,
            "The trainer was stopped while printing, or still runs.",
        )


def read_trl_notebook(path: Path) -> Iterator[Record]:
    """Yield the rows that a notebook's cells have printed: dicts as on a console, or a table with a reward."""
    counter, reader = _StepCounter(train_rows(newest_history(output_folder(path)))), MetricReader()
    for number, printed in enumerate(read_output(path), 1):
        rows = log_rows(printed) if isinstance(printed, str) else [printed] if has_reward(printed) else []
        for row in rows:
            row["step"] = row.pop(STEP_HEADER, row.get("step", ""))
            values = reader.numbers({name: value for name, value in row.items() if name != "step"}, number)
            yield counter.place({name: value for name, value in row.items() if value}, values)
    yield from reader.remarks(path)


def has_reward(row: TableRow) -> bool:
    """Say whether a row of a progress table is of reinforcement learning: fine-tuning shows its loss alone."""
    return any((match_name(storable_name(name)) or ("",))[0] == "reward" for name in row)


def unwrap_row(begun: str, line: str) -> str:
    """Return a line with the beginning of its dict, where a terminal has wrapped the dict over several lines."""
    return begun + line if begun and len(begun) < MAX_ROW_LENGTH and "{" not in line else line


def log_rows(text: str) -> Iterator[dict[str, str]]:
    """Yield the log rows printed in a line, values as printed."""
    if "{" not in text:
        return
    for found in PRINTED_DICT.finditer(strip_colour(text)):
        pairs = {single or double: value.strip("'\"") for single, double, value in PRINTED_PAIR.findall(found[0])}
        if "epoch" in pairs and not LOG_ROW_METRICS.isdisjoint(pairs):
            yield pairs


@dataclass(frozen=True)
class _StateRow:
    """A training row of the trainer state, for finding a console row's step."""

    step: int
    values: Mapping[str, float]

    def matches(self, printed: Mapping[str, float]) -> bool:
        """Whether the printed numbers are this row's, to the digits printed."""
        shared = [name for name in printed if name in self.values and name != "epoch"]
        return len(shared) >= MIN_SHARED_METRICS and all(
            matches_printed(self.values[name], printed[name]) for name in shared
        )


class _StepCounter:
    """Assigns steps to console rows; evaluations and the closing summary get the step of the training row before.

    With a trainer state of the same run, a row gets its step from there; a row it lacks (a lost attempt, steps after
    the last checkpoint) gets the step after the row before. Without a state, an epoch that goes back means a restart,
    or another run in the same log: that row gets the step at which its epoch was reached before.
    """

    def __init__(self, state: Sequence[_StateRow]) -> None:
        self.state = state
        self.next = 0
        self.rows = 0
        self.last: int | None = None
        self.epochs: list[float] = []

    def place(self, row: Mapping[str, str], values: Mapping[str, float]) -> MetricRow:
        printed = as_step(row["step"]) if "step" in row else None
        if is_eval(row) or is_summary(row):
            return metric_row(row, values, (self.last or 0) if printed is None else printed)
        step = printed if printed is not None else self._step_from_state(values)
        if step is None:
            step = self._rewind(values.get("epoch", math.nan))
        self.rows += 1
        self.last = self.rows if step is None else step
        return metric_row(row, values, step)

    def _rewind(self, epoch: float) -> int | None:
        """Return the step of a row whose epoch goes back, and continue from there; None for any other."""
        back = bool(self.epochs) and epoch < self.epochs[-1]
        if back:
            self.rows = bisect_left(self.epochs, epoch)
            del self.epochs[self.rows :]
        if math.isfinite(epoch):
            self.epochs.append(epoch)
        return self.rows + 1 if back else None

    def _step_from_state(self, values: Mapping[str, float]) -> int | None:
        for place in chain(range(self.next, len(self.state)), range(self.next)):
            if self.state[place].matches(values):
                self.next = place + 1
                return self.state[place].step
        if self.rows == 0:
            self.state = ()  # another run's state
        return (self.last or 0) + self._pace() if self.state else None

    def _pace(self) -> int:
        """Return the number of steps between two rows of the state."""
        steps = (0, *(row.step for row in self.state[:2]))
        return max(steps[-1] - steps[-2], 1)


def matches_printed(exact: float, shown: float) -> bool:
    """Whether a printed number is the exact one, rounded."""
    if not (math.isfinite(exact) and math.isfinite(shown)):
        return repr(exact) == repr(shown)
    return abs(exact - shown) <= PRINTED_PRECISION * max(abs(exact), abs(shown))


def is_summary(row: Mapping[str, str]) -> bool:
    """Whether a row is the closing summary: only run-wide numbers (older TRL adds metrics since the last row)."""
    return all(name.startswith("train_") or name in ("epoch", "total_flos", "step") for name in row)


def train_rows(history: History | None) -> list[_StateRow]:
    """Return the training rows of a log history with their steps."""
    rows = [] if history is None else [row for row in history.rows if not is_eval(row) and "train_runtime" not in row]
    reader = MetricReader()
    steps = [as_step(row.get("step")) for row in rows]
    return [_StateRow(step, reader.numbers(row)) for step, row in zip(steps, rows, strict=True) if step is not None]


TRL_READERS: Mapping[str, Callable[[Path], Iterator[Record]]] = {
    "trainer state": read_history,
    "log history": read_history,
    "console log": read_trl_console,
    "notebook": read_trl_notebook,
    "completions": read_completions,
    "arguments": read_arguments,
    "pickled arguments": refuse_pickle,
}
"""Kind of file -> what reads it."""

PRINTED_DICT_BYTES = re.compile(rb"\{'[^{}]*\}")
LOG_KEYS = (b'"loss"', b'"reward"', b'"grad_norm"', b'"train_runtime"')
PRINTED_KEYS = tuple(f"'{name}': ".encode() for name in sorted(LOG_ROW_METRICS))

IN_REWARD = "from TRL 1.0 on, in a reward function: log_extra"
"""Where TRL lets users log a column of their own."""
TRL_SWITCHES = {
    "rollouts": "GRPOConfig(log_completions=True)",
    "kl_reference": (
        "nothing to set: TRL logs it where the loss has a KL penalty (beta above 0); do not add one for that, but"
        " compare with the base model afterwards"
    ),
    "mismatch": "nothing to set: where vLLM samples (use_vllm=True), TRL logs it from 0.23 on by itself; upgrade",
    "entropy": "nothing to set: TRL logs it from 0.20 (July 2025) on by itself; upgrade",
    "zero_variance_groups": "nothing to set: TRL logs it from 0.18 (May 2025) on by itself; upgrade",
    "truncated": "nothing to set: TRL logs it from 0.17 (April 2025) on by itself; upgrade",
    "answer": f"{IN_REWARD}('answer', answers), with GRPOConfig(log_completions=True)",
    "correct": (
        f"{IN_REWARD}('correct', [reward == 1 for reward in rewards]), with GRPOConfig(log_completions=True); or"
        " BreadthGRPOTrainer(..., correct='REWARD'), a reward function that returns 0 or 1"
    ),
    "tokens": f"{IN_REWARD}('tokens', [len(ids) for ids in completion_ids]), with GRPOConfig(log_completions=True)",
    "token_ids": f"{IN_REWARD}('token_ids', completion_ids), with GRPOConfig(log_completions=True)",
}


@dataclass(frozen=True)
class TrlImporter:
    """Reads ``trainer_state.json``, log histories, console logs, notebooks, ``completions/*.parquet`` and arguments.

    Other users of the Hugging Face Trainer leave the same logs; they are read too. ``training_args.bin`` is a pickle
    and is refused, with a safe alternative.
    """

    trainer = "trl"
    """Name in the catalogue."""
    entropy = EntropyKind("exact", None, "token-mean", "response")
    """Over the whole vocabulary, logits divided by the sampling temperature, mean over the completions' tokens."""
    switches = MappingProxyType(TRL_SWITCHES)
    """What to set in TRL to log more."""

    def recognises(self, path: Path, start: bytes) -> str | None:
        """Return a file's kind by its first bytes."""
        text = start.removeprefix(BOM).lstrip()
        if path.name == OBJECTIVE_FILE:
            raise UnknownFormatError(
                path, "is the state of a chain in a checkpoint.", "The log is trainer_state.json next to it."
            )
        if path.name == PICKLED_ARGUMENTS and start.startswith((b"PK", b"\x80")):
            return "pickled arguments"
        if start.startswith(b"PAR1"):
            return "completions" if has_completions(path) else None
        if path.suffix.casefold() in OUTPUT_SUFFIXES:
            return "notebook" if any(map(is_log_row, read_output(path))) else None
        if text.startswith((b"{", b"[")) and not text.startswith(b"{'"):
            found = _json_kind(text)
            if found or text.startswith(b"{"):
                return found
        return "console log" if has_log_row(read_long_head(path, start)) else None

    def current(self, files: Sequence[Path]) -> Sequence[Path]:
        """Keep the newest trainer state of each ``output_dir`` (checkpoints repeat the log) and one pickle."""
        last_pickle = {output_folder(path): path for path in files if path.name == PICKLED_ARGUMENTS}
        return [
            path for path in drop_older_copies(files) if path.name != PICKLED_ARGUMENTS or path in last_pickle.values()
        ]

    def read(self, path: Path, kind: str) -> Iterator[Record]:
        """Yield what the file holds, in order."""
        return TRL_READERS[kind](path)


def _json_kind(text: bytes) -> str | None:
    if text.startswith(b"{") and b'"log_history"' in text:
        return "trainer state"
    if text.startswith(b"{") and b'"num_generations"' in text and b'"output_dir"' in text:
        return "arguments"
    if re.match(rb"\[\s*\{", text) and b'"epoch"' in text and any(key in text for key in LOG_KEYS):
        return "log history"
    return None


def is_log_row(printed: str | TableRow) -> bool:
    """Whether something that a notebook's cell printed is a row of a log."""
    return has_reward(printed) if isinstance(printed, dict) else any(True for _ in log_rows(printed))


def has_log_row(text: bytes) -> bool:
    """Whether the text contains a printed log row."""
    dicts = (found[0] for found in PRINTED_DICT_BYTES.finditer(text))
    return any(b"'epoch': " in row and any(key in row for key in PRINTED_KEYS) for row in dicts)


IMPORTER = TrlImporter()
"""The importer of the catalogue."""
