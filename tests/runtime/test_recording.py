"""What solve and a sweep leave in their run folders."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from breadth.base.errors import BrokenFileError
from breadth.doctor.overview import overview
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling, Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.single import Single
from breadth.inference.sweep_plan import SweepPlan, plain_arm
from breadth.report.jsonable import render_json
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter
from breadth.runtime.driver import Driver, SolveResult
from breadth.runtime.journal import JOURNAL_FILE
from breadth.runtime.questions import Question
from breadth.runtime.recording import Recording, SweepFolder, SweepOptions, prompt_text, reset_failed_tasks, sample_row
from breadth.runtime.samplers.scripted import ScriptedSampler
from breadth.testing.strategies import HumpModel

POLICY = Policy(AdaptiveVote(most=6, width=2))


def recorded(folder: Path, sampler: ScriptedSampler) -> list[SolveResult]:
    async def main() -> list[SolveResult]:
        done = []
        with Recording(folder, POLICY) as recording:
            driver = Driver(sampler, journal=recording.journal)
            for number in range(3):
                done.append(await driver.solve(POLICY.strategy, POLICY.task(f"question {number}", name=f"q{number}")))
                recording.add(done[-1], truth="#### 1")
        return done

    return asyncio.run(main())


def replies() -> ScriptedSampler:
    return ScriptedSampler(lambda draw, number: f"The answer is {1 + number % 3 // 2}.")


def test_candidates_become_rollouts_with_grades(tmp_path: Path) -> None:
    done = recorded(tmp_path, replies())
    run = Run.open(tmp_path)
    rows = run.query(
        "SELECT problem, sample, completion, answer, correct, tokens, truncated, extra FROM rollouts ORDER BY problem,"
        " sample"
    )
    arrived = [candidate for solved in done for candidate in solved.arrived]
    assert rows.num_rows == len(arrived)
    assert rows.column("completion").to_pylist() == [candidate.full_text for candidate in arrived]
    assert rows.column("correct").to_pylist() == [candidate.key == "1" for candidate in arrived]
    extra = orjson.loads(rows.column("extra")[0].as_py())
    assert extra["place"] == arrived[0].draw_id
    assert extra["finish"] == "stop"
    assert run.query("SELECT problem, prompt, reference FROM problems ORDER BY problem").to_pylist()[0] == {
        "problem": "q0",
        "prompt": "user: question 0",
        "reference": "#### 1",
    }
    assert run.series("inference/drawn", "eval").values.tolist() == [solved.started for solved in done]
    assert run.header.config["policy"]["strategy"]["most"] == 6


def test_the_instruments_read_it(tmp_path: Path) -> None:
    recorded(tmp_path, replies())
    assert "pass@" in render_json(overview(Run.open(tmp_path)))


def test_taken_up_again_it_draws_nothing_and_holds_the_same(tmp_path: Path) -> None:
    recorded(tmp_path, replies())
    first = Run.open(tmp_path).query("SELECT problem, sample, completion FROM rollouts ORDER BY ALL").to_pylist()
    idle = ScriptedSampler([])
    recorded(tmp_path, idle)
    assert idle.requests == []
    assert (
        Run.open(tmp_path).query("SELECT problem, sample, completion FROM rollouts ORDER BY ALL").to_pylist() == first
    )


def test_replies_are_on_disk_before_the_recording_is_closed(tmp_path: Path) -> None:
    async def main() -> int:
        recording = Recording(tmp_path, POLICY)
        await Driver(replies(), journal=recording.journal).solve(POLICY.strategy, POLICY.task("q"))
        return (tmp_path / JOURNAL_FILE).read_bytes().count(b'"arrived"')

    assert asyncio.run(main()) >= 4


def test_one_question_under_two_settings_stays_one_problem(tmp_path: Path) -> None:
    async def main() -> None:
        with Recording(tmp_path) as recording:
            driver = Driver(replies(), journal=recording.journal)
            for step, most in enumerate((2, 3)):
                task = POLICY.task("question", name=f"q at most {most}")
                recording.add(
                    await driver.solve(AdaptiveVote(most), task), problem="q", step=step, label=f"most {most}"
                )

    asyncio.run(main())
    rows = (
        Run.open(tmp_path)
        .query('SELECT step, problem, "group", count(*) AS n FROM rollouts GROUP BY ALL ORDER BY step')
        .to_pylist()
    )
    assert rows == [
        {"step": 0, "problem": "q", "group": "q most 2", "n": 2},
        {"step": 1, "problem": "q", "group": "q most 3", "n": 3},
    ]


def test_a_prompt_is_shown_as_text() -> None:
    chat = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "6 x 7?"}]},
    )
    assert prompt_text(Task(chat)) == "system: Be brief.\n\nuser: 6 x 7?"
    assert prompt_text(Task("6 x 7 =")) == "6 x 7 ="


PLAN = SweepPlan(Policy(), (plain_arm((1,)),), (1,), 4)


def test_a_plan_is_found_again(tmp_path: Path) -> None:
    assert SweepFolder(tmp_path / "run", SweepOptions(), "hash").plan is None
    SweepFolder(tmp_path / "run", SweepOptions(), "hash").save_plan(PLAN)
    assert SweepFolder(tmp_path / "run", SweepOptions(), "hash").plan == PLAN


def test_other_wishes_are_refused_by_name(tmp_path: Path) -> None:
    SweepFolder(tmp_path / "run", SweepOptions(), "hash")
    with pytest.raises(BrokenFileError, match=r"other settings \(widths, seed\)"):
        SweepFolder(tmp_path / "run", SweepOptions(widths=(1, 2), seed=1), "hash")
    with pytest.raises(BrokenFileError, match="other questions"):
        SweepFolder(tmp_path / "run", SweepOptions(), "other")


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run", Header(name="training"))
    with pytest.raises(BrokenFileError, match="no sweep"):
        SweepFolder(tmp_path / "run", SweepOptions(), "hash")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary.txt").write_text("dear")
    with pytest.raises(BrokenFileError, match="other files"):
        SweepFolder(tmp_path / "notes", SweepOptions(), "hash")
    (tmp_path / "empty").mkdir()
    SweepFolder(tmp_path / "empty", SweepOptions(), "hash")


def test_tasks_that_failed_last_are_drawn_anew_and_stay_charged(tmp_path: Path) -> None:
    lost = [
        {"task": "a", "fingerprint": "x"},
        {
            "task": "a",
            "path": "",
            "place": "0.0",
            "kind": "arrived",
            "candidate": {"text": "1"},
            "spend": {"output_tokens": 3},
        },
        {"task": "a", "path": "", "place": "1.0", "kind": "failed", "reason": "down", "spend": {"calls": 2}},
    ]
    kept = [
        {"task": "b", "path": "", "place": "0.0", "kind": "failed", "reason": "down"},
        {"task": "b", "path": "", "place": "0.0'", "kind": "arrived", "candidate": {"text": "1"}},
    ]
    path = tmp_path / JOURNAL_FILE
    path.write_bytes(b"\n".join(orjson.dumps(row) for row in lost + kept) + b'\n{"task": "c", "pa')
    reset_failed_tasks(tmp_path)
    *whole, cut = path.read_bytes().split(b"\n")
    assert [orjson.loads(line) for line in whole] == [
        lost[0],
        {"task": "a", "path": "", "place": "0.0", "kind": "discarded", "spend": {"output_tokens": 3}},
        {"task": "a", "path": "", "place": "1.0", "kind": "discarded", "spend": {"calls": 2}},
        *kept,
    ]
    assert cut == b'{"task": "c", "pa'


def test_a_sample_keeps_its_cost_its_grade_and_how_sure_it_was() -> None:
    question = Question("q", "1 + 1?", "#### 2")
    policy = Policy(sampling=Sampling(max_tokens=64, top_logprobs=20), model="m")
    driver = Driver(HumpModel(lambda _: 1.0, {"1 + 1?": "2"}, natural_length=3))
    solved = asyncio.run(driver.solve(Single(), policy.task(question.prompt)))
    row = sample_row(question, 2, "as it comes", solved)
    extra = orjson.loads(row.pop("extra"))
    assert row == {
        "problem": "q",
        "sample": 2,
        "completion": "hmm hmm hmm The answer is 2.",
        "answer": "2",
        "correct": True,
        "tokens": 7,
        "truncated": False,
    }
    assert extra["confidence"] == pytest.approx(float(solved.arrived[0].confidences[0]))  # type: ignore[index] # asked for
    assert (extra["calls"], extra["input_tokens"], extra["label"], extra["model"]) == (1, 10, "as it comes", "m")
    assert sample_row(Question("q", "1 + 1?"), 0, "x", solved)["correct"] is None
