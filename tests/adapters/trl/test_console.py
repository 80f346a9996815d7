"""Tests of reading TRL's console output."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.trl.console import log_rows, read_console
from breadth.runs.schema import MetricRow, Record, Remark


def read(folder: Path, text: str | bytes) -> list[Record]:
    path = folder / "train.log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(read_console(path))


def rows(records: list[Record]) -> list[MetricRow]:
    return [record for record in records if isinstance(record, MetricRow)]


def test_rows_stand_between_other_lines(tmp_path: Path) -> None:
    text = (
        "INFO loading {'model': 'x'}\n  1%|▏         | 1/100 [00:05<08:15,  5.01s/it]\r\x1b[A{'loss': '1.72e-08',"
        " 'reward': '0.25', 'epoch': '0.01'}\x1b[0m\r\n[rank0]: {'loss': 0.5, 'grad_norm': nan, 'reward':"
        " np.float64(0.5), 'kl': tensor(0.1, device='cuda:0'), 'epoch': 0.02}\n{'note': 'no log row', 'epoch': 3}\n"
    )
    first, second = rows(read(tmp_path, text))
    assert first == MetricRow({"loss": 1.72e-08, "reward": 0.25, "epoch": 0.01}, None)
    assert math.isnan(second.values["grad_norm"])
    assert {name: value for name, value in second.values.items() if name != "grad_norm"} == {
        "loss": 0.5,
        "reward": 0.5,
        "kl": 0.1,
        "epoch": 0.02,
    }


def test_evaluations_and_the_summary_stand_at_the_row_before_them(tmp_path: Path) -> None:
    text = (
        "{'eval_loss': 1.0, 'eval_reward': 0.1, 'epoch': 0}\n"
        "{'loss': 0.5, 'reward': 0.2, 'epoch': 0.1}\n"
        "{'loss': 0.4, 'reward': 0.3, 'epoch': 0.2}{'eval_loss': 0.9, 'eval_reward': 0.4, 'epoch': 0.2}\n"
        "{'train_runtime': 9.5, 'train_loss': 0.45, 'epoch': 0.2}\n"
    )
    assert rows(read(tmp_path, text)) == [
        MetricRow({"loss": 1.0, "reward": 0.1, "epoch": 0.0}, 0, split="eval"),
        MetricRow({"loss": 0.5, "reward": 0.2, "epoch": 0.1}, None),
        MetricRow({"loss": 0.4, "reward": 0.3, "epoch": 0.2}, None),
        MetricRow({"loss": 0.9, "reward": 0.4, "epoch": 0.2}, 2, split="eval"),
        MetricRow({"train_runtime": 9.5, "train_loss": 0.45, "epoch": 0.2}, 2),
    ]


def test_a_summary_with_the_last_steps_metrics_is_a_row_of_its_own(tmp_path: Path) -> None:
    text = "{'loss': 0.5, 'epoch': 0.1}\n{'train_runtime': 9.5, 'train_loss': 0.45, 'reward': 0.7, 'epoch': 0.2}\n"
    assert [row.step for row in rows(read(tmp_path, text))] == [None, None]


def test_a_printed_step_counts(tmp_path: Path) -> None:
    text = "{'loss': 0.5, 'epoch': 0.1, 'step': 50}\n{'eval_loss': 0.4, 'epoch': 0.1}\n"
    assert [row.step for row in rows(read(tmp_path, text))] == [50, 50]


def test_a_last_row_that_breaks_off_is_remarked(tmp_path: Path) -> None:
    records = read(tmp_path, "{'loss': 0.5, 'epoch': 0.1}\n{'loss': 0.4, 'rew")
    assert len(rows(records)) == 1
    assert records[-1] == Remark(
        "the last row breaks off; left out.",
        str(tmp_path / "train.log"),
        2,
        "The trainer was stopped while printing, or still runs.",
    )


def test_odd_values_and_odd_bytes_are_remarked(tmp_path: Path) -> None:
    records = read(tmp_path, b"\xff\xfe\n{'loss': 0.5, 'mode': 'fast', 'epoch': 0.1}\n")
    assert rows(records) == [MetricRow({"loss": 0.5, "epoch": 0.1}, None)]
    said = [record.problem for record in records if isinstance(record, Remark)]
    assert said == [
        "1 rows are not UTF-8; the odd bytes were replaced.",
        "'mode' is 'fast', not a number, in 1 rows; left out there.",
    ]


def test_names_with_quotes_and_signs(tmp_path: Path) -> None:
    (row,) = rows(
        read(tmp_path, """{'loss': 0.5, "rewards/it's/mean": '1', 'rewards/<lambda>/std': -2e-3, 'epoch': 0.1}""")
    )
    assert row.values == {"loss": 0.5, "rewards/it's/mean": 1.0, "rewards/<lambda>/std": -0.002, "epoch": 0.1}


def test_nothing_is_evaluated() -> None:
    (row,) = log_rows("{'loss': __import__('os').getcwd(), 'epoch': 1}")
    assert row == {"loss": "__import__('os')", "epoch": "1"}


@pytest.mark.parametrize(
    "junk", ["{'" * 200_000, "'epoch': " * 200_000, "{'a': " + "1," * 300_000, "{'loss'" + " " * 500_000]
)
def test_hostile_lines_take_linear_time(tmp_path: Path, junk: str) -> None:
    assert rows(read(tmp_path, junk + "\n{'loss': 0.5, 'epoch': 0.1}\n")) == [
        MetricRow({"loss": 0.5, "epoch": 0.1}, None)
    ]


def state_beside(folder: Path, values: dict[int, tuple[float, float]]) -> None:
    history: list[dict[str, Any]] = [
        {"loss": loss, "reward": reward, "num_tokens": step * 100.0, "epoch": step / 9, "step": step}
        for step, (loss, reward) in values.items()
    ]
    (folder / "checkpoint-30").mkdir()
    (folder / "checkpoint-30" / "trainer_state.json").write_text(
        json.dumps({"global_step": 30, "log_history": history})
    )


def console_row(step: int, loss: float, reward: float) -> str:
    return f"{{'loss': '{loss:.4g}', 'reward': '{reward:.4g}', 'num_tokens': '{step * 100:.4g}', 'epoch': '0.1'}}\n"


def test_steps_come_from_the_trainer_state_beside_the_log(tmp_path: Path) -> None:
    state_beside(tmp_path, {10: (0.123456, 0.5), 20: (0.0234567, 0.6), 30: (math.nan, 0.7)})
    text = (
        console_row(10, 0.123456, 0.5)
        + console_row(20, 0.0234567, 0.6)
        + console_row(30, math.nan, 0.7)
        + console_row(40, 0.1, 0.8)
    )
    assert [row.step for row in rows(read(tmp_path, text))] == [10, 20, 30, 40]


def test_a_restart_in_the_log_is_seen_through_the_state(tmp_path: Path) -> None:
    """Steps 20 and 30 were lost and done again: the state holds the second time only."""
    state_beside(tmp_path, {10: (0.1, 0.5), 20: (0.2, 0.6), 30: (0.3, 0.7)})
    lost = console_row(20, 0.25, 0.61) + console_row(30, 0.35, 0.71)
    text = console_row(10, 0.1, 0.5) + lost + console_row(20, 0.2, 0.6) + console_row(30, 0.3, 0.7)
    assert [row.step for row in rows(read(tmp_path, text))] == [10, 20, 30, 20, 30]


def test_the_state_of_another_run_says_nothing(tmp_path: Path) -> None:
    state_beside(tmp_path, {10: (0.9, 0.1), 20: (0.8, 0.2)})
    text = console_row(10, 0.1, 0.5) + console_row(20, 0.2, 0.6)
    assert [row.step for row in rows(read(tmp_path, text))] == [None, None]


def test_an_empty_log_holds_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, b"") == []


def test_an_epoch_that_goes_back_is_a_restart_or_another_run(tmp_path: Path) -> None:
    def printed(epochs: list[float]) -> str:
        return "".join(f"{{'loss': 0.1, 'reward': 0.5, 'epoch': {epoch}}}\n" for epoch in epochs)

    restarted = rows(read(tmp_path, printed([0.1, 0.2, 0.3, 0.4, 0.3, 0.4, 0.5])))
    assert [row.step for row in restarted] == [None, None, None, None, 3, None, None]
    another = rows(read(tmp_path, printed([0.1, 0.2, 0.3, 0.1, 0.2])))
    assert [row.step for row in another] == [None, None, None, 1, None]
    again = rows(read(tmp_path, printed([0.1, 0.2, 0.3, 0.2, 0.3, 0.4, 0.4, 0.2])))
    assert [row.step for row in again] == [None, None, None, 2, None, None, None, 2]
