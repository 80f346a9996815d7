"""The page of a demo: every part is there, its numbers are the results', and it fits a terminal of eighty columns."""

from __future__ import annotations

import io

from rich.console import Console

from breadth.lab.demo.page import breadth_table, coverage_table, demo_page, effects, short_page, spending, two_by_two
from breadth.lab.demo.results import DemoResults
from breadth.report.html_page import render_html
from breadth.report.jsonable import render_json
from breadth.report.sections import Curve, Table, Trace, Verdict
from breadth.report.terminal import render_terminal


def test_every_part_is_there(demo_results: DemoResults) -> None:
    page = demo_page(demo_results, "breadth demo --seed 3")
    kinds = [type(part) for part in page.sections]
    assert kinds[:2] == [Verdict, Table]
    assert (kinds.count(Verdict), kinds.count(Table), kinds.count(Curve), kinds.count(Trace)) == (5, 5, 6, 2)
    facts = {fact.name: fact.value for fact in page.provenance}
    assert facts["command"] == "breadth demo --seed 3"
    assert facts["versions"] == "breadth 1.0, torch 2.0"
    html = render_html(page)
    assert "The four corners" in html
    assert render_json(page)


def test_the_two_by_two_has_the_corners(demo_results: DemoResults) -> None:
    table = demo_results.corners
    assert [list(row[1:]) for row in two_by_two(table).rows] == [
        [table.plain_extended.accuracy, table.plain_parallel.accuracy],
        [table.protected_extended.accuracy, table.protected_parallel.accuracy],
    ]
    assert [row[1] for row in effects(table).rows] == [
        table.vote_when_plain.value,
        table.vote_when_protected.value,
        table.protection_when_parallel.value,
        table.protection_when_extended.value,
        table.interaction.value,
    ]
    assert [row[1] for row in spending(table).rows] == [66.0, 60.0, 66.0, 60.0]


def test_the_policies(demo_results: DemoResults) -> None:
    assert [[cell.value for cell in row[1:]] for row in coverage_table(demo_results).rows] == [  # type: ignore[union-attr]  # all intervals
        [0.25, 1.0, 1.0],
        [0.5, 0.5, 0.5],
        [0.5, 15 / 16, 15 / 16],
    ]
    assert [row[1] for row in breadth_table(demo_results).rows] == [
        one.planning for one in (demo_results.base, demo_results.plain, demo_results.protected)
    ]


def test_it_fits_eighty_columns_as_tables(demo_results: DemoResults) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    render_terminal(short_page(demo_results), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]  # it is the text file above
    assert max(map(len, text.splitlines())) <= 80
    assert "training       one long thought                 vote" in text
    assert "plain GRPO  0.25 (0.06 to 0.50)" in text
