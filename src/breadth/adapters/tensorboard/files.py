"""Read TensorBoard event files (``events.out.tfevents.*``) as metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from breadth.adapters.printed import as_step
from breadth.adapters.scalars import StepMerger, metric_rows
from breadth.adapters.tensorboard.events import read_events, starts_like_events
from breadth.runs.records import Record, Remark
from breadth.runs.schema import EntropyKind

EVENTS = "event file"


@dataclass(frozen=True)
class TensorBoardFiles:
    """Reads the scalars of event files; pictures, histograms and texts are passed over.

    All tags of one step become one row, what stands under ``eval/`` and the like an eval row of its own. A resumed run
    writes a new file into the same folder; names sort by the time they were made, so later files come later and their
    steps count. Where TensorBoard purges what an earlier writer logged past the step at which a later one starts,
    we keep those steps as an earlier attempt until the later one has come that far; a tag that goes back inside one
    file is a restart as well.
    """

    trainer = "tensorboard"
    """Name in the catalogue: the file does not say which trainer wrote it."""
    entropy = EntropyKind()
    """Unknown: a tag called entropy does not say how it was estimated."""
    switches = MappingProxyType(
        {
            "entropy": "SummaryWriter.add_scalar('train/entropy', mean_token_entropy, step)",
            "reward": "SummaryWriter.add_scalar('train/reward', mean_reward, step)",
            "rollouts": "event files hold no rollouts: switch on the trainer's own dump, or write one JSON object per completion",
        }
    )
    """What to log; with ``torch.utils.tensorboard`` or any other writer of event files."""

    def recognises(self, path: Path, start: bytes) -> str | None:  # noqa: ARG002 - the protocol passes it
        """Look for a first record that checks and opens an event file."""
        return EVENTS if starts_like_events(start) else None

    def current(self, files: Sequence[Path]) -> Sequence[Path]:
        """Keep all: each writer of a run has a file of its own."""
        return files

    def read(self, path: Path, kind: str) -> Iterator[Record]:  # noqa: ARG002 - there is one kind
        """Yield a metric row for each step."""
        merger = StepMerger()
        for event in read_events(path):
            if isinstance(event, Remark):
                yield event
                continue
            time = event.time if math.isfinite(event.time) and event.time > 0 else None
            for row in metric_rows(event.values, as_step(event.step), time):
                yield from merger.add(row)
        yield from merger.rest()


FILES = TensorBoardFiles()
"""The importer in the catalogue."""
