"""Follow a live run: what was added since the last look, without reading the rest again."""

from __future__ import annotations

from pathlib import Path

import orjson

from breadth.runs.series import MetricPoint
from breadth.runs.writer import METRICS, ROLLOUT_FILE, ROLLOUTS


class Follower:
    """Remembers how far it has read; each :meth:`poll` returns only what is new."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """The run folder; it need not exist yet."""
        self._offset = 0
        self._seen: set[str] = set()

    def poll(self) -> tuple[list[MetricPoint], list[Path]]:
        """Return metric rows and rollout files added since the last call; a half-written last line waits for the next."""
        return self._new_points(), self._new_files()

    def _new_points(self) -> list[MetricPoint]:
        path = self.folder / METRICS
        if not path.exists() or path.stat().st_size <= self._offset:
            return []
        with path.open("rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return [point for line in whole.split(b"\n") if (point := _point(line))]

    def _new_files(self) -> list[Path]:
        folder = self.folder / ROLLOUTS
        there = sorted(path for path in folder.glob("*.parquet") if ROLLOUT_FILE.fullmatch(path.name)) if folder.exists() else []
        new = [path for path in there if path.name not in self._seen]
        self._seen.update(path.name for path in new)
        return new


def _point(line: bytes) -> MetricPoint | None:
    try:
        return MetricPoint.of(orjson.loads(line))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
