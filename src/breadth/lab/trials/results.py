"""What an experiment leaves for readers: results.json with every trial and the page, and the page itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from breadth.base.atomic import whole_file
from breadth.lab.trials.experiment import Bench, Experiment
from breadth.lab.trials.folder import done as ended
from breadth.lab.trials.runner import Failure
from breadth.report.jsonable import render_json
from breadth.report.sections import Page

RESULTS = "results.json"
"""In the folder of an experiment: all of it."""


def finish(experiment: Experiment, bench: Bench, folder: Path, failures: Sequence[Failure], command: str) -> Page:
    """Make the page of what has ended and write results.json; what each trial found in full is in its own folder."""
    trials = experiment.trials(bench)
    done = ended(trials, folder)
    page = experiment.page(done, bench)
    failed = {failure.trial.name: failure.reason for failure in failures}
    seconds = {one.trial.name: one.seconds for one in done}
    rows: list[dict[str, Any]] = [
        {
            "name": trial.name,
            "state": "done" if trial.name in seconds else "failed" if trial.name in failed else "not run",
            "seconds": seconds.get(trial.name),
            "reason": failed.get(trial.name),
            "settings": trial.settings,
        }
        for trial in trials
    ]
    whole = {
        "experiment": experiment.name,
        "statement": experiment.statement,
        "command": command,
        "base": bench.weights,
        "seeds": bench.seeds,
    }
    with whole_file(folder / RESULTS) as temporary:
        content = {**whole, "trials": rows, "page": orjson.loads(render_json(page))}
        temporary.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))
    return page
