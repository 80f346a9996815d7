"""Console logs of any loop become rows; text that is no log does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.generic.console import CONSOLE_KIND, is_console_log, read_console
from breadth.adapters.generic.importer import IMPORTER
from breadth.runs.importing import import_files
from breadth.runs.jsonl import read_head
from breadth.runs.reader import Run
from breadth.runs.schema import MetricRow


def rows(folder: Path, text: str) -> list[MetricRow]:
    log = folder / "train.log"
    log.write_text(text)
    return [record for record in read_console(log) if isinstance(record, MetricRow)]


@pytest.mark.parametrize(
    ("line", "step", "values"),
    [
        ("step 12 | reward 0.31 | kl 0.01", 12, {"reward": 0.31, "kl": 0.01}),
        ("[iter 10] reward_mean=0.4 kl=-0.5", 10, {"reward_mean": 0.4, "kl": -0.5}),
        ('Step 10: {"loss": 0.5, "reward": 1e-3}', 10, {"loss": 0.5, "reward": 0.001}),
        ("rollout 3: {'rollout/raw_reward': 0.5, 'rollout/x': nan}", 3, {"rollout/raw_reward": 0.5}),
        ("2026-01-02 10:11:12,345 INFO trainer: step=7, loss=0.25, lr=1.0e-06", 7, {"loss": 0.25, "lr": 1e-6}),
        ("reward=0.25 step=4", 4, {"reward": 0.25}),
        ("step 5 INFO avg reward: 0.25", 5, {"avg reward": 0.25}),
        (
            "[step 3/9] correct=1/4 rewards=['0.5', '0.0', '0.5', '1.0'] loss=0.25",  # sd = sqrt(0.125)
            3,
            {"correct": 1.0, "loss": 0.25, "rewards_mean": 0.5, "rewards_std": 0.125**0.5, "correct_rate": 0.25},
        ),
        ("[step 0001] SKIP rewards=[0,0] elapsed=7s", 1, {"rewards_mean": 0.0, "rewards_std": 0.0}),
        ("\x1b[32mstep: 5/100\x1b[0m, reward: 0.5", 5, {"reward": 0.5}),
        (" 5%|x | 1/20\rstep 2 | reward 0.5", 2, {"reward": 0.5}),
        ("[run]   1/100 | loss=-0.5276 | reward=0.237", 1, {"loss": -0.5276, "reward": 0.237}),
        ("Epoch:[2/3](5/900), Reward: -1.5, KL_ref: 0.25", 905, {"Reward": -1.5, "KL_ref": 0.25}),
        ("Step 12 |    1.2s | Loss 0.0100 | Mismatch KL 0.0040", 12, {"Loss": 0.01, "Mismatch KL": 0.004}),
        ("Step 12 | loss:0.5 rewards:0.25 num_stop_tokens:1,024", 12, {"loss": 0.5, "rewards": 0.25}),
        (
            "Global step 5: {'reward': tensor(0.5, device='cuda:0'), 'kl': np.float64(0.25)}",
            5,
            {"reward": 0.5, "kl": 0.25},
        ),
    ],
)
def test_a_line_gives_its_step_and_its_numbers(line: str, step: int, values: dict[str, float], tmp_path: Path) -> None:
    found = rows(tmp_path, line + "\n")
    assert [row.step for row in found] == [step]
    assert {name: found[0].values[name] for name in values} == values


def test_rewards_of_a_group_below_the_header_of_their_step(tmp_path: Path) -> None:
    text = "".join(
        f"  Step {step}: generating 2 candidates for prompt 1/1...\n  Generated 2 candidates in 374.3s, rendering...\n"
        f"  Rewards: [-1.0, {step}] (1/2 rendered)\n  A sample says: [7, 8]\n"
        for step in (1, 2, 3)
    )
    found = rows(tmp_path, text + "GRPO step 3/500 | loss: 0.5 | KL: 0.25\n")
    assert [(row.step, row.values["Rewards_mean"]) for row in found] == [(1, 0.0), (2, 0.5), (3, 1.0)]
    assert found[2].values["KL"] == 0.25
    assert not any("says" in name for row in found for name in row.values)


def test_a_notebook_is_read_by_what_its_cells_printed(tmp_path: Path) -> None:
    printed = [f"step {step} | reward {step / 10}\n" for step in range(1, 6)]
    cell: dict[str, Any] = {"cell_type": "code", "source": "print('step 9 | reward 9')", "outputs": [3, {"data": 3}]}
    cell |= {"id": "a1b2", "execution_count": 3, "metadata": {}}
    cell["outputs"] += [{"output_type": "stream", "text": printed[:2]}, {"output_type": "stream", "text": printed[2:]}]
    path = tmp_path / "loop.ipynb"
    text = {"cell_type": "markdown", "id": "c3d4", "source": "a long text about the model that is trained below"}
    path.write_text(json.dumps({"cells": [text, cell] * 5}, indent=1))
    assert IMPORTER.recognises(path, read_head(path)) == CONSOLE_KIND
    found = [record for record in read_console(path) if isinstance(record, MetricRow)]
    assert [(row.step, row.values["reward"]) for row in found[:5]] == [(step, step / 10) for step in range(1, 6)]


def test_not_a_number_stays_not_a_number(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, "step 1 | reward nan | grad_norm inf\n")
    assert repr(row.values) == "{'reward': nan, 'grad_norm': inf}"


BLOCKS = {
    "NeMo-RL": "===== Step 3/100 =====\nsome text: here\n  • Loss: 0.5000\n  • Avg Reward: 0.25\n",
    "torchforge": "=== [main] - METRICS STEP 3 ===\n  loss: 0.5\n  avg_reward: 0.25\n=====\n",
    "SkyRL": "INFO Step 3: \n{'loss': '0.5000',\n 'avg_reward': '0.2500'}\n",
    "tinker": "      Step 3\n┃ Metric ┃ Value ┃\n│ loss │ 0.5 │\n│ avg_reward │ 0.25 │\n",
    "AReaL": "Epoch 1/2 Step 3/9 Train step 3/18 done.\n│ loss │ 5.0e-01 │ avg_reward │ 2.5e-01 │\n",
}


@pytest.mark.parametrize("trainer", BLOCKS)
def test_a_block_below_a_step_belongs_to_it(trainer: str, tmp_path: Path) -> None:
    (row,) = rows(tmp_path, BLOCKS[trainer])
    assert row.step == 3
    assert {name.casefold().replace(" ", "_"): value for name, value in row.values.items()} == {
        "loss": 0.5,
        "avg_reward": 0.25,
    }


def test_dicts_without_a_step_are_rows_in_order(tmp_path: Path) -> None:
    line = "{'shape': (8, 3), 'truncated': [False, True], 'reward_mean': tensor(0.5), 'loss': 0.1, 'kl': 0.2}\n"
    found = rows(tmp_path, line * 2)
    assert [(row.step, row.values["reward_mean"]) for row in found] == [(None, 0.5)] * 2


def test_held_out_numbers_are_apart(tmp_path: Path) -> None:
    found = rows(tmp_path, "step 4 | reward 0.5 | eval/accuracy 0.25\n")
    assert found == [MetricRow({"reward": 0.5}, 4), MetricRow({"accuracy": 0.25}, 4, split="eval")]


@pytest.mark.parametrize(
    "text",
    [
        "# A title\n\nStep 1: install it.\nStep 2: run it.\nStep 3: read the reward.\n",
        "step 1 | took 3 s\nstep 2 | took 4 s\nstep 3 | took 4 s\n",
        "loss: 0.5\nreward: 0.5\nkl: 0.1\n",
        "".join(
            f'{{"reward": 0.{n}, "loss": 1, "kl": 2, "text": "a reply that is longer than forty characters"}}\n'
            for n in range(5)
        ),
        "",
    ],
)
def test_other_texts_are_no_logs(text: str) -> None:
    assert not is_console_log(Path("no.log"), text.encode())


def test_a_program_that_quotes_a_log_is_none() -> None:
    text = b"step 1 | reward 0.5\nstep 2 | reward 0.5\nstep 3 | reward 0.5\n"
    assert is_console_log(Path("no.log"), text)
    assert not is_console_log(Path("train.py"), text)


def test_a_log_is_imported_whole(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("loading\n" + "".join(f"step {n} | mean_reward 0.{n} | grad_norm 1.5\n" for n in range(1, 6)))
    assert IMPORTER.recognises(log, log.read_bytes()) == CONSOLE_KIND
    import_files([log], tmp_path / "run")
    assert Run.open(tmp_path / "run").metric_names() == ("reward", "grad_norm")


def test_a_log_without_steps_is_read_line_by_line(tmp_path: Path) -> None:
    lines = [f"  Batch: mean_reward={place / 10}" for place in range(14)]
    found = rows(tmp_path, "\n".join(["Starting training...", "Watch for mean_reward to climb from ~-1.5", *lines]))
    assert [row.values for row in found] == [{"mean_reward": place / 10} for place in range(14)]
    assert {row.step for row in found} == {None}


@pytest.mark.parametrize(
    "line",
    [
        "Gen 1: Reward= 0.329 | M: c8b8 h8e8 b6a5 a6c5 d4d3 E: -4.28 -4 and some more words",  # a rollout
        "temperature=0.7",  # no metric of ours
        "the mean reward = 0.5 was higher than the one before, which had the other prompt",
    ],
)
def test_rollouts_and_prose_without_steps_are_no_rows(line: str) -> None:
    assert not is_console_log(Path("x.log"), "\n".join([line] * 20).encode())
    assert not is_console_log(Path("x.log"), "\n".join(["mean_reward=0.5"] * 11).encode())
    assert not is_console_log(Path("x.log"), "\n".join(["mean_reward=0.5", "kl=0.1", "entropy=0.1"] * 20).encode())


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (
            "2025-06-23 18:39:58,825 - training.grpo_trainer - INFO - GRPO update completed: loss=-0.5, reward=0.75",
            {"loss": -0.5, "reward": 0.75},
        ),
        ("time: 7.5s     rewards: tensor([-1., 1.,  1., -1.])", {"rewards_mean": 0.0, "rewards_std": 1.0}),
    ],
)
def test_lines_without_steps_among_others(line: str, values: dict[str, float], tmp_path: Path) -> None:
    other = "2025-06-23 18:39:58,825 - integration.main_trainer - INFO -   - Average Reward: 0.7027"
    found = rows(tmp_path, "\n".join([line, other, "x"] * 12 + [line]))
    assert [row.values for row in found] == [values] * 13


def test_the_prefix_of_the_logging_module_is_none_of_the_block(tmp_path: Path) -> None:
    prefix = "2025-06-23 18:39:58,825 - integration.main_trainer - INFO - "
    lines = [f"{prefix}{text}" for text in ("Iteration 1 metrics:", "  - Policy Loss: 0.5", "  - Average Reward: 0.25")]
    (row,) = rows(tmp_path, "\n".join(lines))
    assert (row.step, row.values) == (1, {"Policy Loss": 0.5, "Average Reward": 0.25})


def test_lines_without_steps_count_against_quotes_far_down(tmp_path: Path) -> None:
    # 15 scores, and three rollouts that speak of rewards at a step, each below 400 lines of text.
    text = "a line of a rollout\n" * 200
    scores = "".join(f"{text}Percentage of correct examples:  {number / 100}\n" for number in range(15))
    quotes = "".join(f"{text * 2}At step {number} the reward: 5\n" for number in (1, 2, 3))
    found = rows(tmp_path, scores + quotes)
    assert [row.values for row in found] == [{"Percentage of correct examples": number / 100} for number in range(15)]
    # Where such steps come within the first lines, they are the log.
    near = rows(tmp_path, "".join(f"step {number} reward: 5\n" for number in (1, 2, 3, 4)) + scores)
    assert [row.step for row in near] == [1, 2, 3, 4]
