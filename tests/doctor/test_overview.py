"""One page with every instrument a run can feed, what is missing last."""

from __future__ import annotations

from pathlib import Path

from breadth.doctor.overview import overview
from breadth.runs.reader import Run
from breadth.runs.writer import RunWriter


def test_a_full_run_feeds_every_instrument(run: Run) -> None:
    page = overview(run)
    titles = [getattr(section, "title", "") for section in page.sections]
    assert titles[0] == "What is here"
    assert titles[-1] == "What is missing"
    for title in (
        "Metrics",
        "Entropy",
        "Coverage",
        "pass@k and maj@k",
        "Different answers",
        "Texts",
        "Groups of step 16",
    ):
        assert title in titles
    assert page.title == "small"


def test_an_empty_run_still_has_a_page(tmp_path: Path) -> None:
    RunWriter(tmp_path)
    page = overview(Run.open(tmp_path))
    assert [getattr(section, "title", "") for section in page.sections] == ["What is here", "What is missing"]
