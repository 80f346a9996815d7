"""Tables as text."""

from __future__ import annotations

from breadth.measure.intervals import Interval
from breadth.report.cells import Missing
from breadth.report.sections import Column, Fact, Table
from breadth.report.tabulation import fact_text, tabulate

LATE = Missing("not logged at this step")
TABLE = Table(
    "t",
    [Column("run"), Column("score", "%"), Column("entropy", "nats"), Column("kept"), Column("id", align="right")],
    [
        ["a", Interval(0.28, 0.25, 0.312, 0.95, "wilson"), 4.82, True, "x1"],
        ["b", LATE, 3.9, False, None],
        ["c", Interval(0.69, 0.652, 0.725), Missing("another reason"), None, LATE],
    ],
)


def test_units_stand_in_the_headings_and_digits_line_up() -> None:
    known = tabulate(TABLE)
    assert known.headings == ("run", "score (%)", "entropy (nats)", "kept", "id")
    # Half widths 3.1 and 3.65 percent: tenths and ones; the finer decides for both.
    assert [[entry.text for entry in row] for row in known.rows] == [
        ["a", "28.0 (25.0 to 31.2)", "4.82", "yes", "x1"],
        ["b", "n/a", "3.90", "no", "n/a"],
        ["c", "69.0 (65.2 to 72.5)", "n/a", "n/a", "n/a"],
    ]


def test_numbers_stand_right_and_words_left_unless_told() -> None:
    assert tabulate(TABLE).right == (False, True, True, False, True)
    assert tabulate(Table("t", [Column("a"), Column("b", align="left")], [[None, 1.0]])).right == (False, False)


def test_each_reason_is_one_footnote() -> None:
    known = tabulate(TABLE)
    assert known.footnotes == (("a", "not logged at this step"), ("b", "another reason"))
    assert [[entry.footnote for entry in row] for row in known.rows] == [[""] * 5, ["", "a", "", "", ""], ["", "", "b", "", "a"]]


def test_intervals_say_where_they_come_from() -> None:
    known = tabulate(TABLE)
    assert known.rows[0][1].origin == "95% interval, wilson"
    assert [entry.numeric for entry in known.rows[0]] == [False, True, True, False, False]


def test_given_decimals_are_kept() -> None:
    known = tabulate(Table("t", [Column("a", decimals=1)], [[0.123], [4]]))
    assert [row[0].text for row in known.rows] == ["0.1", "4"]


def test_no_rows() -> None:
    known = tabulate(Table("t", [Column("a"), Column("b")], []))
    assert (known.rows, known.right, known.footnotes) == ((), (False, False), ())


def test_a_missing_fact_gives_its_reason() -> None:
    assert fact_text(Fact("log-probs", Missing("not in\nthe log"))) == "n/a: not in the log"
    assert fact_text(Fact("share", 0.25, "%")) == "25%"
    assert fact_text(Fact("nothing", None)) == "n/a"
