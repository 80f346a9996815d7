"""Oscillation: correct answers given up more often than gained, or more changes as traces grow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.settings import to_table
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Change, Excluded, Finding
from breadth.doctor.findings.oscillation import FINDING, ArmRevisions, answer_revisions, revision_slope
from breadth.inference.policy import Policy
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.vote import Vote
from breadth.measure.intervals import Interval
from breadth.report.sections import Severity
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter
from breadth.testing.findings import check_finding, check_outcome

VOTE = Policy(strategy=Vote(2))


def traces(first: Any, last: Any) -> list[str]:
    """Texts that state one answer and then another."""
    return [
        f"So the answer is {one}. Wait, once more. The answer is {other}."
        for one, other in zip(np.ravel(first).tolist(), np.ravel(last).tolist(), strict=True)
    ]


def last_wrong(wrong: int, questions: int = 40) -> Any:
    """Answers, two samples a question, wrong in the first so many questions."""
    return np.repeat((np.arange(questions) < wrong).astype(np.int64)[:, None], 2, axis=1)


RIGHT = last_wrong(0)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "oscillation")


def test_right_answers_given_up_are_found(swept: Any) -> None:
    table = last_wrong(10)
    found = FINDING.check(swept(table, texts={0: traces(RIGHT, table)}))
    assert isinstance(found, Finding)
    check_outcome(found, "oscillation")
    assert found.severity is Severity.WARNING
    # Ten questions of forty, two traces each, begin right and end wrong: 20 lost, 20 / 80 = 25 points.
    assert found.headline == "Correct answers are given up 20 times and gained 0 times inside traces (as it comes)."
    assert found.evidence[0].value.value == pytest.approx(0.25)  # type: ignore[union-attr]
    assert found.cost == "The first stated answer scores 25.0 points more than the last."


@pytest.mark.parametrize(("wrong", "said"), [(8, True), (7, False)])
def test_how_sure_it_is_decides(swept: Any, wrong: int, said: bool) -> None:
    # One-sided p = 2^-k for k questions that all lose: 0.0039 for 8, 0.0078 for 7.
    table = last_wrong(wrong)
    assert isinstance(FINDING.check(swept(table, texts={0: traces(RIGHT, table)})), Finding) is said


def test_as_many_found_as_lost_is_no_failure(swept: Any) -> None:
    first, last = (
        np.arange(40)[:, None] % 2 * np.ones((1, 2), int),
        1 - np.arange(40)[:, None] % 2 * np.ones((1, 2), int),
    )
    assert isinstance(FINDING.check(swept(last, texts={0: traces(first, last)})), Excluded)


def test_answers_that_are_mended_or_only_checked_are_no_failure(swept: Any) -> None:
    assert isinstance(FINDING.check(swept(RIGHT, texts={0: traces(last_wrong(20), RIGHT)})), Excluded)
    assert isinstance(FINDING.check(swept(last_wrong(20), texts={0: traces(last_wrong(20), last_wrong(20))})), Excluded)


def test_a_budget_that_is_not_in_use_is_a_note_and_one_in_use_a_warning(swept: Any) -> None:
    lost = last_wrong(20)
    forced, texts = {64: last_wrong(5), 256: lost}, {256: traces(RIGHT, lost)}
    idle = FINDING.check(swept(RIGHT, forced, texts=texts))
    assert isinstance(idle, Finding)
    assert idle.severity is Severity.NOTE
    assert "think 256" in idle.headline
    used = FINDING.check(
        swept(RIGHT, forced, texts=texts, policy=Policy(strategy=BudgetForcing(cues=0, minimum=256, maximum=256)))
    )
    assert isinstance(used, Finding)
    assert used.severity is Severity.WARNING
    # At 64 tokens 35 of 40 end right, at 256 20 of 40.
    assert used.prescriptions[0].changes == (Change("thinking_budget", 64),)


def test_changes_that_grow_with_the_budget_are_a_note(swept: Any) -> None:
    # Between wrong answers nothing is lost; of 40 questions 0, 10 and 20 change theirs at 64, 128 and 256: a slope of
    # 25 points a doubling.
    wrong = last_wrong(40)
    forced = dict.fromkeys((64, 128, 256), wrong)
    texts = {budget: traces(wrong + last_wrong(changed), wrong) for budget, changed in ((64, 0), (128, 10), (256, 20))}
    found = FINDING.check(swept(wrong, forced, texts=texts))
    assert isinstance(found, Finding)
    check_outcome(found, "oscillation")
    assert found.severity is Severity.NOTE
    assert (
        found.headline
        == "Traces that change their stated answer grow from 0% of the traces at 64 thinking tokens to 50% at 256."
    )
    assert found.evidence[0].value.value == pytest.approx(0.25)  # type: ignore[union-attr]
    same = {budget: traces(wrong + last_wrong(10), wrong) for budget in forced}
    assert isinstance(FINDING.check(swept(wrong, forced, texts=same)), Excluded)


def test_a_recorded_run_is_followed_too(recorded: Any) -> None:
    table = last_wrong(12)
    found = FINDING.check(recorded(table, VOTE, texts=traces(RIGHT, table)))
    assert isinstance(found, Finding)
    assert "recorded samples" in found.headline


def test_without_right_answers_nothing_is_lost(swept: Any) -> None:
    table = last_wrong(20)
    found = FINDING.check(swept(table, texts={0: traces(RIGHT, table)}, labelled=False))
    assert isinstance(found, CannotTell)
    assert found.missing == "correct answers are not known"


def test_texts_that_state_nothing_cannot_tell(swept: Any) -> None:
    found = FINDING.check(swept(RIGHT, texts={0: ["so it goes"] * 80}))
    assert isinstance(found, CannotTell)
    check_outcome(found, "oscillation")
    assert "no text states an answer" in found.missing


def recorded(folder: Path, texts: list[list[str]], truth: str | None = "4") -> Evidence:
    writer = RunWriter(folder, Header(name="x", config={"policy": to_table(Policy(strategy=Vote(len(texts[0]))))}))
    names = [f"q{number:02d}" for number in range(len(texts))]
    rows = [
        (name, place, text) for name, several in zip(names, texts, strict=True) for place, text in enumerate(several)
    ]
    columns = {
        "problem": [row[0] for row in rows],
        "sample": [row[1] for row in rows],
        "completion": [row[2] for row in rows],
    }
    writer.rollouts({**columns, "tokens": [9] * len(rows)}, 0, split="eval")
    writer.problems({"problem": names, "prompt": names, "reference": [truth] * len(names)})
    return Evidence("x", Run.open(folder))


def arm(budget: int, changed: list[float]) -> ArmRevisions:
    nothing = Interval(0.0, 0.0, 0.0)
    return ArmRevisions(f"think {budget}", budget, False, 1, 0, 0, nothing, 1.0, nothing, np.asarray(changed), 0.0)


def test_lost_less_found_is_the_first_answer_less_the_last(tmp_path: Path) -> None:
    lose, keep, find = (
        "The answer is 4. No: the answer is 5.",
        "The answer is 4. Again, the answer is 4.",
        "The answer is 3. Wait. The answer is 4.",
    )
    (found,) = answer_revisions(
        recorded(tmp_path / "run", [[lose, lose], [lose, keep], [find, keep], ["no answer", keep]])
    )
    assert (found.traces, found.lost, found.gained, found.used) == (8, 3, 1, True)
    # By question 2/2, 1/2, -1/2 and 0, of which the mean is 1/4; and three lost less one found in eight traces are 2/8
    # too.
    assert found.given_up.value == pytest.approx(1 / 4)
    assert found.changed_by_question.tolist() == [1, 0.5, 0.5, 0]
    assert found.score == pytest.approx(4 / 8)
    # Flipped, 1, 1/2 and 1/2 sum to 2, 1, 1, 0, 0, -1, -1 or -2: 1 or more in 3 of 8 patterns.
    assert found.p_value == pytest.approx(3 / 8)


def test_texts_that_state_nothing_have_no_arm(tmp_path: Path) -> None:
    assert answer_revisions(recorded(tmp_path / "run", [["hm", "so"]] * 3)) == ()
    assert answer_revisions(Evidence("nothing")) == ()


def test_without_right_answers_nothing_is_lost_or_found(tmp_path: Path) -> None:
    (found,) = answer_revisions(recorded(tmp_path / "run", [["The answer is 4. No: the answer is 5."]] * 3, truth=None))
    assert (found.lost, found.gained, found.p_value, found.changing.value) == (0, 0, 1.0, 1.0)


def test_the_rise_is_a_slope_for_each_doubling() -> None:
    # 0, 10 % and 20 % more at each doubling on every one of ten questions.
    slope, p_value = revision_slope([arm(64, [0.1] * 10), arm(128, [0.2] * 10), arm(256, [0.3] * 10)])
    assert slope.value == pytest.approx(0.1)
    assert p_value == pytest.approx(2**-10)
    flat, chance = revision_slope([arm(64, [0.1] * 10), arm(256, [0.1] * 10)])
    assert flat.value == pytest.approx(0)
    assert chance == 1.0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_two_budgets_one_doubling_apart_rise_by_their_difference(low: list[float], high: list[float]) -> None:
    slope, p_value = revision_slope([arm(64, low), arm(128, high)])
    assert slope.value == pytest.approx(np.mean(high) - np.mean(low))
    assert 0 < p_value <= 1
