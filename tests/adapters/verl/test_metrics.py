"""Tests of reading verl's metrics."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from breadth.adapters.verl.metrics import metric_rows, printed_row, read_console, read_file_log
from breadth.runs.records import MetricRow, Record, Remark

PREFIX = "\x1b[36m(TaskRunner pid=16623)\x1b[0m "


def read(folder: Path, text: str | bytes) -> list[Record]:
    path = folder / "log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(read_file_log(path) if b'{"' in path.read_bytes() else read_console(path))


def test_console_rows_stand_between_other_lines(tmp_path: Path) -> None:
    text = (
        f"{PREFIX}{{'actor': {{'step': 3}}}}\r\n"
        f"{PREFIX}Training Progress:   1%| | 1/300 [00:05]\rstep:1 - actor/entropy:0.5 - actor/ppo_kl:np.float64(-1.5e-05)"
        " - actor/grad_norm:nan\x1b[32m [repeated 2x across cluster]\x1b[0m\r\n"
        f"{PREFIX}step:2 - actor/entropy:1e400 - response/aborted:True - training/global_step:2\n"
        "global_step:3 - no metrics\nstep:4 - nothing here\n"
    )
    first, second = read(tmp_path, text)
    assert isinstance(first, MetricRow)
    assert first.step == 1
    assert math.isnan(first.values["actor/grad_norm"])
    assert (first.values["actor/entropy"], first.values["actor/ppo_kl"]) == (0.5, -1.5e-05)
    assert second == MetricRow({"actor/entropy": math.inf, "response/aborted": 1.0, "training/global_step": 2.0}, 2)


def test_validation_metrics_are_held_out(tmp_path: Path) -> None:
    text = "step:0 - val-core/openai/gsm8k/acc/mean@1:0.25\nstep:5 - actor/entropy:0.5 - val-aux/a:b/best@4/std:0.1\n"
    assert read(tmp_path, text) == [
        MetricRow({"val-core/openai/gsm8k/acc/mean@1": 0.25}, 0, split="eval"),
        MetricRow({"actor/entropy": 0.5}, 5),
        MetricRow({"val-aux/a:b/best@4/std": 0.1}, 5, split="eval"),
    ]


def test_a_row_that_breaks_off_gives_what_stands_before_the_break(tmp_path: Path) -> None:
    assert read(tmp_path, "step:3 - actor/entropy:0.5 - actor/grad_no") == [MetricRow({"actor/entropy": 0.5}, 3)]


def test_file_log(tmp_path: Path) -> None:
    text = (
        '\ufeff{"step":1,"data":{"actor/entropy":0.5,"actor/grad_norm":null,"val-core/x":1}}\r\n\n{"step":2,"data":{"note":"x","a":NaN}}\n'
    )
    first, held_out, second, remark = read(tmp_path, text)
    assert isinstance(first, MetricRow)
    assert math.isnan(first.values["actor/grad_norm"]), "orjson writes NaN as null"
    assert held_out == MetricRow({"val-core/x": 1.0}, 1, split="eval")
    assert isinstance(second, MetricRow)
    assert math.isnan(second.values["a"])
    assert remark == Remark("'note' is 'x', not a number, in 1 rows; left out there.", str(tmp_path / "log"), 3)


def test_file_log_with_odd_rows(tmp_path: Path) -> None:
    records = read(tmp_path, '{"step":"x","data":{"a":1}}\n{"step":2}\n[1]\n{"step":3,"data":{"a":2}}\n{"step":4,"da')
    assert [record for record in records if isinstance(record, MetricRow)] == [MetricRow({"a": 1.0}, None), MetricRow({"a": 2.0}, 3)]
    said = [(record.row, record.problem) for record in records if isinstance(record, Remark)]
    assert said == [
        (3, "not a JSON object, left out: '[1]'."),
        (5, 'not a JSON object, left out: \'{"step":4,"da\'.'),
        (2, "1 rows have no table 'data'; left out."),
    ]


@pytest.mark.parametrize("line", ["", "step:", "step:1", "step:1 -", "step:99999999999999999999 - a:1", "footstep:1 - a:1"])
def test_lines_without_metrics(line: str) -> None:
    assert printed_row(line) is None


def test_a_row_without_numbers_is_none() -> None:
    assert list(metric_rows(1, {})) == []


@pytest.mark.parametrize("junk", ["step:1 - " * 100_000, "step:" * 200_000, "step:1 - a" + ":" * 500_000, "step:1 - " + " - " * 300_000])
def test_hostile_lines_take_linear_time(tmp_path: Path, junk: str) -> None:
    assert MetricRow({"a": 1.0}, 7) in read(tmp_path, junk + "\nstep:7 - a:1\n")
