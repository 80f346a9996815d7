"""Sums by hand: lines, prompts, what is read in a reply, and that nothing held out is trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from breadth.base import settings
from breadth.base.errors import SettingsError
from breadth.lab.smollm2.experiment import (
    BOTH_WAYS,
    BREADTH,
    EXAMPLE,
    LARGEST,
    MOST,
    POOL,
    RungPlan,
    SecondRung,
    Sum,
    held_out,
    read_answer,
    trained_on,
)
from breadth.lab.smollm2.policy import RUN, TRAINED
from breadth.lab.trials.experiment import FOUND, Bench, done
from breadth.lab.trials.runner import Failure, finish, run_trials
from breadth.report.sections import Severity, Table, Verdict
from breadth.runs.reader import Run


def test_a_line_by_hand() -> None:
    one = Sum((3, 8, 5))
    # 3 + 8 = 11, and 11 + 5 = 16.
    assert one.text == "3 + 8 + 5 ="
    assert one.worked == "3 + 8 + 5 = 11 + 5 = 16"
    assert one.answer == "16"
    assert Sum((1, 2, 3, 4)).worked == "1 + 2 + 3 + 4 = 3 + 3 + 4 = 6 + 4 = 10"


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
    assert read_answer(reply, ended=ended) == answer


def test_nothing_held_out_is_trained_on_in_any_order() -> None:
    trained, kept = trained_on(MOST), held_out()
    # 11 choose 3 = 165 ways to take three of nine numbers, of which one is the example's.
    assert len({tuple(sorted(one.numbers)) for one in kept}) == len(kept) == POOL
    assert len(set(trained)) == len(trained) == MOST
    sides = [{tuple(sorted(one.numbers)) for one in side} for side in (trained, kept)]
    assert not sides[0] & sides[1]
    assert len(sides[0]) <= 165 - 1 - POOL
    assert tuple(sorted(EXAMPLE.numbers)) not in sides[0] | sides[1]
    assert {number for one in (*trained, *kept) for number in one.numbers} == set(range(1, LARGEST + 1))


def test_fewer_are_the_first_of_more() -> None:
    assert held_out(5) == held_out()[:5]
    assert trained_on(5) == trained_on(50)[:5]


def test_the_ks() -> None:
    assert RungPlan(votes=8, samples=32).ks == (1, 8, 32)
    assert RungPlan(votes=1, samples=1).ks == (1,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"rate": 0.0},
        {"group": 1},
        {"parts": 3},
        {"votes": 33},
        {"problems": 0},
        {"trained": 200_000},
        {"seed": -1},
    ],
)
def test_what_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        RungPlan(**wrong)


def test_to_a_table_and_back() -> None:
    assert settings.from_table(RungPlan, settings.to_table(RungPlan(steps=7))) == RungPlan(steps=7)


def test_the_longest_trials_come_first() -> None:
    rung = SecondRung()
    trials = rung.trials(Bench(2, weights="abc"))
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


def test_everything_once_and_again_from_what_is_there(plan: RungPlan, base: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the extra 'train' is not installed")
    rung, bench = SecondRung(plan=plan), Bench(1, base, "abc")
    trials = rung.trials(bench)
    assert run_trials(trials, tmp_path, base, 2) == []
    found = done(trials, tmp_path)
    assert len(found) == 3
    page = rung.page(found, bench)
    tables = {one.title: one for one in page.sections if isinstance(one, Table)}
    assert [row[0] for row in tables["The policies on held-out sums"].rows] == ["base", "plain GRPO", "protected"]
    assert "What should show" in tables
    rows = Run.open(tmp_path / "plain" / "seed-0" / RUN).query(
        "SELECT split, step, count(*) AS n FROM rollouts GROUP BY ALL ORDER BY ALL"
    )
    # Two generations of two problems x four replies, and four replies to each of three held-out problems at the end.
    assert [tuple(row.values()) for row in rows.to_pylist()] == [("eval", 2, 12), ("train", 1, 8), ("train", 2, 8)]

    place = tmp_path / "plain" / "seed-0"
    kept = {name: (place / name).stat().st_mtime_ns for name in (BREADTH, TRAINED)}
    before = json.loads((place / FOUND).read_text())["result"]
    (place / FOUND).unlink()
    (place / BOTH_WAYS).unlink()  # as if it had been killed there
    assert run_trials(trials, tmp_path, base, 1) == []
    assert json.loads((place / FOUND).read_text())["result"] == before
    assert {name: (place / name).stat().st_mtime_ns for name in kept} == kept


def test_a_page_without_any_arm() -> None:
    (verdict,) = SecondRung().page([], Bench(1, weights="abc")).sections
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.CANNOT_TELL


def test_the_command_and_what_failed(tmp_path: Path) -> None:
    rung, bench = SecondRung(), Bench(1, weights="abc")
    trials = rung.trials(bench)
    page = finish(
        rung,
        bench,
        tmp_path,
        [Failure(trials[0], "no memory", tmp_path / "log.txt")],
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
