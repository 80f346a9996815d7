"""results.json: every trial with its state, and the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from breadth.lab.trials.experiment import Bench, Done, Trial
from breadth.lab.trials.folder import prepare, write_found
from breadth.lab.trials.results import RESULTS, finish
from breadth.lab.trials.runner import Failure
from breadth.report.sections import Fact, Facts, Page


@dataclass(frozen=True)
class Small:
    name: str = "small"
    statement: str = "Three trials."
    seeds: int = 1

    def trials(self, bench: Bench) -> tuple[Trial, ...]:
        return tuple(Trial(f"t{number}", "m:w", {"number": number}) for number in range(3))

    def page(self, done: Sequence[Done], bench: Bench) -> Page:
        return Page("Small", [Facts("Found", [Fact(one.trial.name, one.result["value"]) for one in done])])


def test_what_ended_failed_and_was_not_run(tmp_path: Path) -> None:
    small, bench = Small(), Bench(1, weights="abc")
    trials = small.trials(bench)
    prepare(trials, tmp_path)
    write_found(tmp_path / "t0", {"value": 5}, 3.0)
    page = finish(
        small, bench, tmp_path, [Failure(trials[1], "no luck", tmp_path / "log.txt")], "breadth lab run small"
    )
    written = json.loads((tmp_path / RESULTS).read_text())
    assert {key: written[key] for key in ("experiment", "statement", "base", "seeds")} == {
        "experiment": "small",
        "statement": "Three trials.",
        "base": "abc",
        "seeds": 1,
    }
    states = [(row["name"], row["state"], row["seconds"], row["reason"], row["settings"]) for row in written["trials"]]
    assert states == [
        ("t0", "done", 3.0, None, {"number": 0}),
        ("t1", "failed", None, "no luck", {"number": 1}),
        ("t2", "not run", None, None, {"number": 2}),
    ]
    assert written["page"]["title"] == page.title == "Small"
    assert '"value":5' in json.dumps(written["page"], separators=(",", ":"))
