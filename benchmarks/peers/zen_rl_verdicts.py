"""zen-rl's verdicts, for `benchmarks/doctor_peers.py`: rows are written as TensorBoard events, which it reads."""

from __future__ import annotations

from pathlib import Path

from peers.feeding import Row, Said, UnreadError, answer
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from zen.detect.rules import detect
from zen.ingest.tensorboard import load_run
from zen.vlak import group, rank


def judge(_: Path | None, rows: list[Row], folder: Path) -> tuple[list[Said], bool]:
    """Ask as `zen FOLDER` does; it has one level, which is taken for a warning."""
    if not any(set(row) - {"step"} for row in rows):
        raise UnreadError("no metric that it knows")
    writer = EventFileWriter(str(folder))
    for row in rows:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items() if name != "step"]
        writer.add_event(Event(step=int(row["step"]), wall_time=float(row["step"]), summary=Summary(value=values)))
    writer.close()
    return [("warning", one["mode"], "") for one in group(rank(detect(load_run(str(folder)))))], False


if __name__ == "__main__":
    answer("zen-rl", judge)
