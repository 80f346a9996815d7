"""results.json of the second rung: the shape of every experiment's, and its own command."""

from __future__ import annotations

import json
from pathlib import Path

from breadth.lab.rung.experiment import SecondRung
from breadth.lab.rung.results import finish_rung
from breadth.lab.trials.experiment import Bench
from breadth.lab.trials.runner import Failure


def test_the_command_and_what_failed(tmp_path: Path) -> None:
    rung, bench = SecondRung(), Bench(1, weights="abc")
    trials = rung.trials(bench)
    page = finish_rung(rung, bench, tmp_path, [Failure(trials[0], "no memory", tmp_path / "log.txt")], "breadth lab smollm2 M --seeds 1")
    written = json.loads((tmp_path / "results.json").read_text())
    assert list(written) == ["experiment", "statement", "command", "base", "seeds", "trials", "page"]
    assert (written["experiment"], written["command"], written["base"]) == ("smollm2", "breadth lab smollm2 M --seeds 1", "abc")
    assert [(row["name"], row["state"], row["reason"]) for row in written["trials"]] == [
        ("protected/seed-0", "failed", "no memory"),
        ("plain/seed-0", "not run", None),
        ("base", "not run", None),
    ]
    assert written["page"]["title"] == page.title
