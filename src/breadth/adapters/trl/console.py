"""Read TRL's console output: one Python dict a logging step, between progress bars and whatever else was printed."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from breadth.adapters.parse_values import MetricReader, as_step, without_colour
from breadth.adapters.trl.history import History, is_eval, metric_row, newest_history, output_folder
from breadth.runs.jsonl import text_rows
from breadth.runs.schema import MetricRow, Record, Remark

DICT = re.compile(r"\{['\"][^{}]*\}")
PAIR = re.compile(r"""(?:'([^']*)'|"([^"]*)")\s*:\s*('[^']*'|"[^"]*"|[A-Za-z_][\w.]*\([^()]*\)|[^\s,{}'"]+)""")
OPEN = re.compile(r"\{'[\w/]+': [^{}]*$")
TRAINING = frozenset(
    {"loss", "reward", "grad_norm", "learning_rate", "train_runtime", "eval_loss", "eval_reward", "eval_runtime"}
)
"""A printed dict is a log row when it has one of these and the epoch."""
PRINTED_PRECISION = 1e-3
"""Relative difference that rounding to the four digits printed can make, with a margin of two."""
FEWEST_SHARED = 3
"""Metrics a printed row and a state's row must share before their agreement says anything."""


def read_console(path: Path) -> Iterator[Record]:
    """Yield the rows of a console log; steps come from a trainer state beside it, where it is of the same run."""
    counter = _Counter(_train_rows(newest_history(output_folder(path))))
    reader = MetricReader()
    number, text = 0, ""
    for line in text_rows(path):
        if isinstance(line, Remark):
            yield line
            continue
        number, text = line
        for row in log_rows(text):
            values = reader.numbers({name: value for name, value in row.items() if name != "step"}, number)
            yield counter.place(row, values)
    yield from reader.remarks(path)
    if OPEN.search(text):
        yield Remark(
            "the last row breaks off; left out.",
            str(path),
            number,
            "The trainer was stopped while printing, or still runs.",
        )


def log_rows(text: str) -> Iterator[dict[str, str]]:
    """Yield the log rows printed in a line, values as printed."""
    if "{" not in text:
        return
    for found in DICT.finditer(without_colour(text)):
        pairs = {single or double: value.strip("'\"") for single, double, value in PAIR.findall(found[0])}
        if "epoch" in pairs and not TRAINING.isdisjoint(pairs):
            yield pairs


@dataclass(frozen=True)
class _StateRow:
    """A training row of the trainer state, for finding a console row's step."""

    step: int
    values: Mapping[str, float]

    def agrees(self, printed: Mapping[str, float]) -> bool:
        """Say whether the printed numbers are this row's, to the digits printed."""
        shared = [name for name in printed if name in self.values and name != "epoch"]
        return len(shared) >= FEWEST_SHARED and all(_same(self.values[name], printed[name]) for name in shared)


class _Counter:
    """Places console rows: training rows in order, evaluations and the closing summary at the training row before them.

    Where the trainer state of the same run lies beside the log, a row it holds gets its step from there, and a row it
    lacks (a lost attempt, the steps after the last checkpoint) the step after the row before. Without one, an epoch
    that goes back shows a restart, or another run printed behind the first: that row is placed where its epoch was
    reached before.
    """

    def __init__(self, state: Sequence[_StateRow]) -> None:
        self.state = state
        self.next = 0
        self.rows = 0
        self.last: int | None = None
        self.epochs: list[float] = []

    def place(self, row: Mapping[str, str], values: Mapping[str, float]) -> MetricRow:
        printed = as_step(row["step"]) if "step" in row else None
        if is_eval(row) or _is_summary(row):
            return metric_row(row, values, (self.last or 0) if printed is None else printed)
        step = printed if printed is not None else self._known_step(values)
        if step is None:
            step = self._gone_back(values.get("epoch", math.nan))
        self.rows += 1
        self.last = self.rows if step is None else step
        return metric_row(row, values, step)

    def _gone_back(self, epoch: float) -> int | None:
        """Return the step of a row whose epoch lies before that of the row before, and go on from there; None for any other."""
        back = bool(self.epochs) and epoch < self.epochs[-1]
        if back:
            self.rows = bisect_left(self.epochs, epoch)
            del self.epochs[self.rows :]
        if math.isfinite(epoch):
            self.epochs.append(epoch)
        return self.rows + 1 if back else None

    def _known_step(self, values: Mapping[str, float]) -> int | None:
        for place in chain(range(self.next, len(self.state)), range(self.next)):
            if self.state[place].agrees(values):
                self.next = place + 1
                return self.state[place].step
        if self.rows == 0:
            self.state = ()  # another run's state
        return (self.last or 0) + self._pace() if self.state else None

    def _pace(self) -> int:
        """Return how many steps lie between two rows of the state."""
        steps = (0, *(row.step for row in self.state[:2]))
        return max(steps[-1] - steps[-2], 1)


def _same(exact: float, shown: float) -> bool:
    if not (math.isfinite(exact) and math.isfinite(shown)):
        return repr(exact) == repr(shown)
    return abs(exact - shown) <= PRINTED_PRECISION * max(abs(exact), abs(shown))


def _is_summary(row: Mapping[str, str]) -> bool:
    """Tell the closing summary: only run-wide figures (older TRL adds the metrics of the steps since the last row)."""
    return all(name.startswith("train_") or name in ("epoch", "total_flos", "step") for name in row)


def _train_rows(history: History | None) -> list[_StateRow]:
    rows = [] if history is None else [row for row in history.rows if not is_eval(row) and "train_runtime" not in row]
    reader = MetricReader()
    steps = [as_step(row.get("step")) for row in rows]
    return [_StateRow(step, reader.numbers(row)) for step, row in zip(steps, rows, strict=True) if step is not None]
