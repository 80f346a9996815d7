"""A run at a glance: what is in it, every instrument that it can feed, and what would let the others read."""

from __future__ import annotations

from breadth.bridge.instruments.answers import answers
from breadth.bridge.instruments.coverage import coverage
from breadth.bridge.instruments.groups import groups
from breadth.bridge.instruments.law import law
from breadth.bridge.instruments.metrics import metrics
from breadth.bridge.instruments.presence import presence
from breadth.bridge.instruments.texts import texts
from breadth.bridge.windows import windows
from breadth.report.page import Page
from breadth.report.sections import Fact, Section
from breadth.runs.reader import Run


def overview(run: Run) -> Page:
    """Read a run with every instrument it can feed."""
    parts = windows(run)
    here, *rest = presence(run)
    sections: list[Section] = [here, *metrics(run), *law(run), *coverage(parts), *answers(parts), *texts(run, parts), *groups(parts), *rest]
    sources = ", ".join(file.rpartition("/")[2] for file in run.header.files[:3])
    more = f" and {len(run.header.files) - 3} more" if len(run.header.files) > 3 else ""
    made = [Fact("run folder", run.folder.name), Fact("made", run.header.created), Fact("from", f"{sources}{more}" or "a live run")]
    return Page(run.header.name or run.folder.name, sections, subtitle="What this run says about its breadth", provenance=made)
