"""The page as a record."""

from __future__ import annotations

from breadth.report.page import Page
from breadth.report.sections import Fact, Text


def test_lists_are_stored_as_tuples() -> None:
    page = Page("t", [Text("a")], provenance=[Fact("seed", 0)])
    assert page.sections == (Text("a"),)
    assert page.provenance == (Fact("seed", 0),)
