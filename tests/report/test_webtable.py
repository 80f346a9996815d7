"""Tables on the page."""

from __future__ import annotations

from typing import Any

from breadth.measure.intervals import Interval
from breadth.report.cells import Cell, Missing
from breadth.report.sections import Column, Table
from breadth.report.style import SHOWN_ROWS
from breadth.report.webtable import table


def long_table(count: int) -> Table:
    return Table("Long", [Column("n")], [[index] for index in range(count)])


def test_cells_headings_and_footnotes() -> None:
    rows: list[list[Cell]] = [["a", Interval(0.28, 0.25, 0.312)], ["b", Missing("not logged")], ["c", -0.5]]
    source = table(Table("T", [Column("run"), Column("score", "%")], rows, note="n = 128"), "s1").source()
    assert '<th scope="col">run</th><th scope="col" class="right">score (%)</th>' in source
    assert '<td class="right">28.0 <span class="range" title="95% interval">(25.0 to 31.2)</span></td>' in source
    assert '<td class="right absent">n/a<sup>a</sup></td>' in source
    assert '<td class="right">−50.0</td>' in source
    assert '<ul class="footnotes"><li><sup>a</sup> not logged</li></ul><p class="caption">n = 128</p>' in source


def test_a_table_scrolls_in_a_box_the_keyboard_reaches() -> None:
    assert '<div class="scroll" tabindex="0" role="region" aria-label="Long">' in table(long_table(1), "s1").source()


def test_a_table_of_one_screen_does_not_fold(read: Any) -> None:
    page = read(table(long_table(SHOWN_ROWS), "s1").source())
    assert not page.with_class("rest")
    assert not page.with_class("switch")


def test_a_huge_table_folds_and_loses_nothing(read: Any) -> None:
    page = read(table(long_table(1000), "s7").source())
    assert [tag for tag, _ in page.elements].count("tr") == 1001
    assert len(page.with_class("rest")) == 1
    assert [text for text in page.texts if text.isdigit() or "," in text][-1] == "999"
    assert page.with_class("switch") == [("input", {"type": "checkbox", "id": "s7-rows", "class": "switch"})]
    assert ("label", {"for": "s7-rows"}) in page.elements
    assert "Show all 1,000 rows" in page.text
    before_rest = table(long_table(1000), "s7").source().partition('class="rest"')[0]
    assert before_rest.count("<tr>") == SHOWN_ROWS + 1


def test_no_rows() -> None:
    assert '<p class="caption">No rows.</p>' in table(long_table(0), "s1").source()
