"""Sums by hand: lines, prompts, what is read in a reply, and that nothing held out is trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from breadth.base import settings
from breadth.base.errors import SettingsError
from breadth.lab.grpo import POLICY_FOLDER, RUN_FOLDER
from breadth.lab.smollm2.experiment import (
    EXAMPLE,
    HELD_OUT_SUMS,
    LARGEST_TERM,
    MAX_TRAINING_SUMS,
    SUMS_COMPARISON_FILE,
    SUMS_EVAL_FILE,
    SmolLM2Experiment,
    SmolLM2Plan,
    Sum,
    list_held_out_sums,
    read_sum_answer,
    training_sums,
)
from breadth.lab.trials.experiment import RESULT_FILE, ExperimentSetup, list_finished
from breadth.lab.trials.runner import TrialFailure, run_trials, write_results
from breadth.report.sections import Severity, Table, Verdict
from breadth.runs.reader import Run


def test_a_line_by_hand() -> None:
    one = Sum((3, 8, 5))
    # 3 + 8 = 11, and 11 + 5 = 16.
    assert one.text == "3 + 8 + 5 ="
    assert one.full_line == "3 + 8 + 5 = 11 + 5 = 16"
    assert one.answer == "16"
    assert Sum((1, 2, 3, 4)).full_line == "1 + 2 + 3 + 4 = 3 + 3 + 4 = 6 + 4 = 10"


def test_the_prompt_is_the_example_and_the_question() -> None:
    # 2 + 9 = 11, and 11 + 4 = 15.
    assert Sum((3, 8, 5)).prompt == "2 + 9 + 4 = 11 + 4 = 15\n3 + 8 + 5 ="


@pytest.mark.parametrize(
    ("reply", "ended", "answer"),
    [
        (" 11 + 5 = 16", True, "16"),
        (" 16", True, "16"),  # without steps
        (" 11 + 5 = 16", False, None),  # cut: it may have been 161
        (" 11 + 5 = 17 = 16", True, "16"),  # restated: the last one counts
        (" 11 + 5 = 16 or 17", True, "17"),
        (" 11 + 5 = 16.", True, "16"),
        ("16.0", True, "16"),
        ("1,016", True, "1016"),
        ("", True, None),
        (" no idea", True, None),
    ],
)
def test_what_is_read(reply: str, ended: bool, answer: str | None) -> None:
    assert read_sum_answer(reply, ended=ended) == answer


def test_nothing_held_out_is_trained_on_in_any_order() -> None:
    trained, kept = training_sums(MAX_TRAINING_SUMS), list_held_out_sums()
    # 11 choose 3 = 165 ways to take three of nine numbers, of which one is the example's.
    assert len({tuple(sorted(one.numbers)) for one in kept}) == len(kept) == HELD_OUT_SUMS
    assert len(set(trained)) == len(trained) == MAX_TRAINING_SUMS
    sides = [{tuple(sorted(one.numbers)) for one in side} for side in (trained, kept)]
    assert not sides[0] & sides[1]
    assert len(sides[0]) <= 165 - 1 - HELD_OUT_SUMS
    assert tuple(sorted(EXAMPLE.numbers)) not in sides[0] | sides[1]
    assert {number for one in (*trained, *kept) for number in one.numbers} == set(range(1, LARGEST_TERM + 1))


def test_fewer_are_the_first_of_more() -> None:
    assert list_held_out_sums(5) == list_held_out_sums()[:5]
    assert training_sums(5) == training_sums(50)[:5]


def test_the_ks() -> None:
    assert SmolLM2Plan(votes=8, samples=32).ks == (1, 8, 32)
    assert SmolLM2Plan(votes=1, samples=1).ks == (1,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"learning_rate": 0.0},
        {"group": 1},
        {"accumulation_steps": 3},
        {"votes": 33},
        {"problems": 0},
        {"train_problems": 200_000},
        {"seed": -1},
    ],
)
def test_what_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        SmolLM2Plan(**wrong)


def test_to_a_table_and_back() -> None:
    assert settings.from_table(SmolLM2Plan, settings.to_table(SmolLM2Plan(steps=7))) == SmolLM2Plan(steps=7)


def test_the_longest_trials_come_first() -> None:
    rung = SmolLM2Experiment()
    trials = rung.trials(ExperimentSetup(2, weights="abc"))
    assert [trial.name for trial in trials] == [
        "protected/seed-0",
        "plain/seed-0",
        "protected/seed-1",
        "plain/seed-1",
        "base",
    ]
    assert [trial.settings["plan"]["seed"] for trial in trials] == [0, 0, 1, 1, 0]
    assert {trial.settings["weights"] for trial in trials} == {"abc"}
    assert trials[0].settings["plan"]["steps"] == rung.plan.steps


def test_everything_once_and_again_from_what_is_there(plan: SmolLM2Plan, base: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra 'train' is not installed")
    rung, bench = SmolLM2Experiment(plan=plan), ExperimentSetup(1, base, "abc")
    trials = rung.trials(bench)
    assert run_trials(trials, tmp_path, base, 2) == []
    found = list_finished(trials, tmp_path)
    assert len(found) == 3
    page = rung.page(found, bench)
    tables = {one.title: one for one in page.sections if isinstance(one, Table)}
    assert [row[0] for row in tables["The policies on held-out sums"].rows] == ["base", "plain GRPO", "protected"]
    assert "What should show" in tables
    rows = Run.open(tmp_path / "plain" / "seed-0" / RUN_FOLDER).query(
        "SELECT split, step, count(*) AS n FROM rollouts GROUP BY ALL ORDER BY ALL"
    )
    # Two generations of two problems x four replies, and four replies to each of three held-out problems at the end.
    assert [tuple(row.values()) for row in rows.to_pylist()] == [("eval", 2, 12), ("train", 1, 8), ("train", 2, 8)]

    place = tmp_path / "plain" / "seed-0"
    kept = {name: (place / name).stat().st_mtime_ns for name in (SUMS_EVAL_FILE, POLICY_FOLDER)}
    before = json.loads((place / RESULT_FILE).read_text())["result"]
    (place / RESULT_FILE).unlink()
    (place / SUMS_COMPARISON_FILE).unlink()  # as if it had been killed there
    assert run_trials(trials, tmp_path, base, 1) == []
    assert json.loads((place / RESULT_FILE).read_text())["result"] == before
    assert {name: (place / name).stat().st_mtime_ns for name in kept} == kept


def test_a_page_without_any_arm() -> None:
    (verdict,) = SmolLM2Experiment().page([], ExperimentSetup(1, weights="abc")).sections
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.CANNOT_TELL


def test_the_command_and_what_failed(tmp_path: Path) -> None:
    rung, bench = SmolLM2Experiment(), ExperimentSetup(1, weights="abc")
    trials = rung.trials(bench)
    page = write_results(
        rung,
        bench,
        tmp_path,
        [TrialFailure(trials[0], "no memory", tmp_path / "log.txt")],
        "breadth lab smollm2 M --seeds 1",
    )
    written = json.loads((tmp_path / "results.json").read_text())
    assert list(written) == ["experiment", "statement", "command", "base", "seeds", "trials", "page"]
    assert (written["experiment"], written["command"], written["base"]) == (
        "smollm2",
        "breadth lab smollm2 M --seeds 1",
        "abc",
    )
    assert [(row["name"], row["state"], row["reason"]) for row in written["trials"]] == [
        ("protected/seed-0", "failed", "no memory"),
        ("plain/seed-0", "not run", None),
        ("base", "not run", None),
    ]
    assert written["page"]["title"] == page.title
