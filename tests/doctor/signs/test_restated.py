"""What traces state again is followed question by question, and its growth with the budget is a slope."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.settings import to_table
from breadth.doctor.evidence import Evidence
from breadth.doctor.signs.restated import Restated, restated, rise
from breadth.inference.policy import Policy
from breadth.inference.strategies.vote import Vote
from breadth.measure.intervals import Interval
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter


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


def arm(budget: int, changed: list[float]) -> Restated:
    nothing = Interval(0.0, 0.0, 0.0)
    return Restated(f"think {budget}", budget, False, 1, 0, 0, nothing, 1.0, nothing, np.asarray(changed), 0.0)


def test_lost_less_found_is_the_first_answer_less_the_last(tmp_path: Path) -> None:
    lose, keep, find = (
        "The answer is 4. No: the answer is 5.",
        "The answer is 4. Again, the answer is 4.",
        "The answer is 3. Wait. The answer is 4.",
    )
    (found,) = restated(recorded(tmp_path / "run", [[lose, lose], [lose, keep], [find, keep], ["no answer", keep]]))
    assert (found.traces, found.lost, found.found, found.used) == (8, 3, 1, True)
    # By question 2/2, 1/2, -1/2 and 0, of which the mean is 1/4; and three lost less one found in eight traces are 2/8
    # too.
    assert found.given_up.value == pytest.approx(1 / 4)
    assert found.changed.tolist() == [1, 0.5, 0.5, 0]
    assert found.score == pytest.approx(4 / 8)
    # Flipped, 1, 1/2 and 1/2 sum to 2, 1, 1, 0, 0, -1, -1 or -2: 1 or more in 3 of 8 patterns.
    assert found.p_value == pytest.approx(3 / 8)


def test_texts_that_state_nothing_have_no_arm(tmp_path: Path) -> None:
    assert restated(recorded(tmp_path / "run", [["hm", "so"]] * 3)) == ()
    assert restated(Evidence("nothing")) == ()


def test_without_right_answers_nothing_is_lost_or_found(tmp_path: Path) -> None:
    (found,) = restated(recorded(tmp_path / "run", [["The answer is 4. No: the answer is 5."]] * 3, truth=None))
    assert (found.lost, found.found, found.p_value, found.changing.value) == (0, 0, 1.0, 1.0)


def test_the_rise_is_a_slope_for_each_doubling() -> None:
    # 0, 10 % and 20 % more at each doubling on every one of ten questions.
    slope, p_value = rise([arm(64, [0.1] * 10), arm(128, [0.2] * 10), arm(256, [0.3] * 10)])
    assert slope.value == pytest.approx(0.1)
    assert p_value == pytest.approx(2**-10)
    flat, chance = rise([arm(64, [0.1] * 10), arm(256, [0.1] * 10)])
    assert flat.value == pytest.approx(0)
    assert chance == 1.0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_two_budgets_one_doubling_apart_rise_by_their_difference(low: list[float], high: list[float]) -> None:
    slope, p_value = rise([arm(64, low), arm(128, high)])
    assert slope.value == pytest.approx(np.mean(high) - np.mean(low))
    assert 0 < p_value <= 1
