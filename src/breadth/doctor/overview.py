"""A run at a glance: what is in it, every instrument that it can feed, and what would let the others read."""

from __future__ import annotations

from breadth.doctor.instruments.answers import answers
from breadth.doctor.instruments.coverage import coverage
from breadth.doctor.instruments.groups import groups
from breadth.doctor.instruments.law import law
from breadth.doctor.instruments.metrics import metrics
from breadth.doctor.instruments.presence import presence
from breadth.doctor.instruments.texts import texts
from breadth.doctor.windows import windows
from breadth.report.sections import Fact, Page, Section
from breadth.runs.reader import Run


def overview(run: Run) -> Page:
    """Read a run with every instrument it can feed."""
    parts = windows(run)
    here, *rest = presence(run)
    sections: list[Section] = [
        here,
        *metrics(run),
        *law(run),
        *coverage(parts),
        *answers(parts),
        *texts(run, parts),
        *groups(parts),
        *rest,
    ]
    sources = ", ".join(file.rpartition("/")[2] for file in run.header.files[:3])
    more = f" and {len(run.header.files) - 3} more" if len(run.header.files) > 3 else ""
    made = [
        Fact("run folder", run.folder.name),
        Fact("made", run.header.created),
        Fact("from", f"{sources}{more}" or "a live run"),
    ]
    return Page(
        run.header.name or run.folder.name, sections, subtitle="What this run says about its breadth", provenance=made
    )
