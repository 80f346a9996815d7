"""What the second rung leaves for readers: results.json in the shape of every experiment's, with the command that made it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson

from breadth.base.atomic import whole_file
from breadth.lab.trials.experiment import Bench, Experiment
from breadth.lab.trials.results import RESULTS, finish
from breadth.lab.trials.runner import Failure
from breadth.report.page import Page


def finish_rung(experiment: Experiment, bench: Bench, folder: Path, failures: Sequence[Failure], command: str) -> Page:
    """Make the page and write results.json, as for any experiment; only the command is its own."""
    page = finish(experiment, bench, folder, failures)
    content = {**orjson.loads((folder / RESULTS).read_bytes()), "command": command}
    with whole_file(folder / RESULTS) as temporary:
        temporary.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))
    return page
