"""Known metrics are compared with the run's own start; bookkeeping and foreign names stay out of the table."""

from __future__ import annotations

from pathlib import Path

from breadth.doctor.instruments.metrics import metrics
from breadth.report.sections import Curve, Table
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter


def test_start_and_now_are_medians_of_the_ends(run: Run) -> None:
    table, *curves = metrics(run)
    assert isinstance(table, Table)
    rows = {str(row[0]): row for row in table.rows}
    assert set(rows) == {"entropy (nats)", "reward"}
    # 16 points: windows of three. Start: median of 1, 1/2, 1/3; now: median of 1/14, 1/15, 1/16.
    assert rows["entropy (nats)"][1].value == 0.5  # type: ignore[union-attr]  # an interval by construction
    assert rows["entropy (nats)"][2].value == 1 / 15  # type: ignore[union-attr]  # likewise
    assert rows["entropy (nats)"][3] == "falling"
    assert [curve.title for curve in curves if isinstance(curve, Curve)] == ["Entropy", "Reward"]


def test_the_trainers_own_name_is_given_where_it_differs(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, Header(names={"entropy": "actor/entropy"}))
    for step in (1, 2, 3):
        writer.metrics(step, {"entropy": 1.0 / step, "learning_rate": 0.1})
    table, curve = metrics(Run.open(tmp_path))
    assert isinstance(table, Table)
    assert isinstance(curve, Curve)
    assert curve.note == "Logged as actor/entropy."
    assert table.rows[0][3] == "cannot tell"


def test_nothing_known_nothing_shown(tmp_path: Path) -> None:
    RunWriter(tmp_path).metrics(1, {"odd": 1.0})
    assert metrics(Run.open(tmp_path)) == []


def test_a_series_of_nothing_but_nan_is_no_curve(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    for step in (1, 2, 3):
        writer.metrics(step, {"entropy": float("nan")})
    (table,) = metrics(Run.open(tmp_path))
    assert isinstance(table, Table)
    assert table.rows[0][3] == "cannot tell"


def test_an_interval_stays_where_the_quantity_can_be(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    for step in range(24):
        writer.metrics(step, {"starved_groups": float(step % 3 == 0) * 0.9, "grad_norm": 1.0})
    table, *curves = metrics(Run.open(tmp_path))
    assert isinstance(table, Table)
    for row in table.rows:
        assert row[1].low >= 0  # type: ignore[union-attr]  # an interval by construction
    assert [curve.title for curve in curves if isinstance(curve, Curve)] == ["Starved groups"]


def test_a_jump_is_marked_and_a_blip_is_not(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    for step in range(80):
        wobble = 0.01 * ((step * 7) % 5)
        writer.metrics(
            step, {"entropy": (1.0 if step < 40 else 0.3) + wobble, "truncated": 0.02 if step in (13, 15) else 0.0}
        )
    curves = {curve.title: curve for curve in metrics(Run.open(tmp_path)) if isinstance(curve, Curve)}
    assert [round(event.x) for event in curves["Entropy"].events] == [40]
    assert curves["Truncated"].events == ()
