"""Agreement on wrong answers is counted exactly, compared with the start, and weighs where coverage fell."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from breadth.doctor.evidence.rollouts import training_ends
from breadth.doctor.finding import CannotTell, Finding
from breadth.doctor.findings.overconfidence import FINDING
from breadth.doctor.trainer_config import TrainerConfig
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

NAME = "overconfidence"
SPLIT = ("7", "9", "11", "13", "7", "9", "11", "42")
WRONG = ("7",) * 8
RIGHT = ("42",) * 8
SEVEN = ("7",) * 7 + ("42",)


def rows(*groups: tuple[tuple[str | None, ...], int]) -> dict[str, Any]:
    """Groups of answers, each for so many problems; 42 is right."""
    flat = [answers for answers, count in groups for _ in range(count)]
    return {
        "problem": [f"p{place}" for place, answers in enumerate(flat) for _ in answers],
        "sample": list(range(sum(map(len, flat)))),
        "answer": [answer for answers in flat for answer in answers],
        "correct": [answer == "42" for answers in flat for answer in answers],
    }


def run(make: Any, start: dict[str, Any], now: dict[str, Any], **given: Any) -> Any:
    return make(rollouts={1: start, 2: now}, **given)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, NAME)


def test_more_agreement_on_wrong_answers_is_a_note_while_coverage_holds(make: Any) -> None:
    found = FINDING.check(run(make, rows((SPLIT, 60)), rows((SEVEN, 30), (SPLIT, 30))))
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is Severity.NOTE
    # Seven of eight alike: C(7, 4) / C(8, 4) = 35 / 70 = 1/2 on half of the problems; no answer comes four times in the
    # others.
    assert found.evidence[1].value.value == pytest.approx(0.25)  # type: ignore[union-attr]
    assert found.evidence[0].value.value == 0.0  # type: ignore[union-attr]
    assert "On 25% of the problems 4 rollouts agree on one wrong answer, up from 0%" in found.headline
    assert "100% are wrong now, 0% at the start" in found.cost


def test_it_is_a_warning_where_fewer_problems_can_be_solved(make: Any) -> None:
    found = FINDING.check(run(make, rows((SPLIT, 60)), rows((WRONG, 30), (RIGHT, 30))))
    assert isinstance(found, Finding)
    assert found.severity is Severity.WARNING
    assert "pass@8 has fallen by 0.5" in found.headline
    assert found.evidence[4].value.value == pytest.approx(0.5)  # type: ignore[union-attr]
    assert "50% are wrong now" in found.cost


@pytest.mark.parametrize(
    ("start", "now"),
    [
        (rows((WRONG, 30), (SPLIT, 30)), rows((WRONG, 31), (SPLIT, 29))),
        (rows((SPLIT, 60)), rows((RIGHT, 60))),
        (rows((SPLIT, 60)), rows((WRONG, 2), (SPLIT, 58))),
        (rows((WRONG, 40), (SPLIT, 20)), rows((WRONG, 10), (SPLIT, 50))),
        (rows((SPLIT, 60)), rows(((None,) * 8, 60))),
    ],
    ids=["not surely more", "agreement on right ones", "hardly any", "less", "no answers"],
)
def test_harmless_looks_are_not_found(make: Any, start: dict[str, Any], now: dict[str, Any]) -> None:
    assert not isinstance(FINDING.check(run(make, start, now)), Finding)


def test_groups_of_other_sizes_are_compared_at_four(make: Any) -> None:
    # Sixteen rollouts of which eight agree: C(8, 4) / C(16, 4) = 70 / 1820; four of four: 1. Were sizes ignored, all
    # would count alike.
    large = (("7",) * 8 + tuple(str(place) for place in range(100, 108)), 60)
    found = FINDING.check(run(make, rows(large), rows((("7",) * 4, 60))))
    assert isinstance(found, Finding)
    assert found.evidence[0].value.value == pytest.approx(70 / 1820)  # type: ignore[union-attr]
    assert found.evidence[1].value.value == 1.0  # type: ignore[union-attr]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["7", "9", "42"]), min_size=4, max_size=9))
def test_the_chance_is_that_of_all_choices_of_four(make: Any, answers: list[str]) -> None:
    from breadth.doctor.findings.overconfidence import agreement_by_group

    ends = training_ends(run(make, rows((tuple(answers), 1)), rows((tuple(answers), 1))))
    assert ends is not None
    choices = list(combinations(answers, 4))
    wrong = sum(len(set(four)) == 1 and four[0] != "42" for four in choices) / len(choices)
    assert agreement_by_group(ends.now, 4, right=False)[1][0] == pytest.approx(wrong)


def test_held_out_problems_are_asked_where_there_are_any(make: Any) -> None:
    same = rows((SPLIT, 20))
    found = FINDING.check(make(rollouts={1: same, 2: same}, held_out={0: rows((SPLIT, 40)), 9: rows((WRONG, 40))}))
    assert isinstance(found, Finding)
    assert found.evidence[0].note.startswith("held-out rollouts of step 0 against step 9")


def test_what_is_missing_is_said(make: Any) -> None:
    bare = FINDING.check(make(reward=np.linspace(0, 1, 40)))
    assert isinstance(bare, CannotTell)
    assert bare.switch_on == "GRPOConfig(log_completions=True)"
    ungraded = rows((SPLIT, 20))
    del ungraded["correct"]
    grade = FINDING.check(run(make, ungraded, ungraded))
    assert isinstance(grade, CannotTell)
    assert "log_extra('correct'" in grade.switch_on
    silent = rows(((None,) * 8, 20))
    answer = FINDING.check(run(make, silent, silent))
    assert isinstance(answer, CannotTell)
    assert "log_extra('answer'" in answer.switch_on
    pairs = rows((("7", "9"), 30))
    small = FINDING.check(run(make, pairs, pairs))
    assert isinstance(small, CannotTell)
    assert "0 problems have 4 rollouts" in small.missing


def test_groups_that_were_drawn_anew_do_not_tell(make: Any) -> None:
    found = FINDING.check(run(make, rows((SPLIT, 60)), rows((SPLIT, 60)), config=TrainerConfig(dynamic_sampling=True)))
    assert isinstance(found, CannotTell)
    assert "resampled" in found.missing
