"""A live run is looked at again as it grows; a change of the verdict is said once."""

from __future__ import annotations

from pathlib import Path

from breadth.cli.doctor_follow import announcements
from breadth.runs.schema import EntropyKind, Header
from breadth.runs.writer import RunWriter


def test_a_verdict_is_announced_when_it_comes_and_not_again(tmp_path: Path) -> None:
    kind = EntropyKind("exact", 1.0, "token-mean", "response")
    writer = RunWriter(tmp_path / "run", Header(name="live", trainer="trl", entropies={"entropy": kind}))
    said = announcements([tmp_path / "run"], None, 0.0)
    for step in range(1, 41):
        writer.metrics(step, {"entropy": 0.6 + 0.01 * (step % 2), "reward": 0.3})
    assert next(said).endswith("nothing found so far")
    for step in range(41, 81):
        writer.metrics(step, {"entropy": 0.02 + 0.001 * (step % 2), "reward": 0.3})
    assert "live, entropy-collapse: critical. Entropy has fallen to" in next(said)
    for step in range(81, 400):
        writer.metrics(step, {"entropy": 0.6 + 0.01 * (step % 2), "reward": 0.3})
    assert next(said).endswith("live, entropy-collapse: gone.")  # nothing was said twice in between


def test_what_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    said = announcements([tmp_path / "later"], None, 0.0)
    writer_made = False

    def first() -> str:
        nonlocal writer_made
        if not writer_made:
            writer = RunWriter(tmp_path / "later", Header(name="later", trainer="trl"))
            for step in range(1, 20):
                writer.metrics(step, {"entropy": 0.5, "reward": 0.3})
            writer_made = True
        return next(said)

    assert "nothing found so far" in first()
