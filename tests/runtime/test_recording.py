"""A run folder of the inference loop: candidates as rollouts that every instrument reads, replies for a resume."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson

from breadth.doctor.overview import overview
from breadth.inference.policy import Policy
from breadth.inference.records import Task
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.report.jsonable import render_json
from breadth.runs.reader import Run
from breadth.runtime.driver import Driver, SolveResult
from breadth.runtime.journal import JOURNAL_FILE
from breadth.runtime.recording import Recording, prompt_text
from breadth.runtime.samplers.scripted import ScriptedSampler

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
