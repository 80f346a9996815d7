"""What is kept of an evaluation is what the evaluation says, and survives JSON."""

from __future__ import annotations

import pytest

from breadth.base.errors import MeasureError
from breadth.lab import records
from breadth.lab.measuring.evaluation import evaluate
from breadth.lab.measuring.measured import AtK, Measured, measured
from breadth.lab.model.reasoner import Reasoner
from breadth.lab.task.grammar import Role
from breadth.lab.task.problems import read_problem

PROBLEMS = [read_problem("( 3 + 4 ) * ( 5 + 6 ) ="), read_problem("( 1 + 1 ) * ( 1 + 2 ) =")]


def test_rates() -> None:
    at = AtK(4, (1.0, 0.5), (0.25, 0.0))
    assert (at.pass_rate.value, at.majority_rate.value) == (0.75, 0.125)


def test_it_says_what_the_evaluation_says(memorised: Reasoner) -> None:
    found = evaluate(memorised, PROBLEMS, 8)
    kept = measured(found, (4, 1, 8))
    assert [one.k for one in kept.curve] == [1, 4, 8]
    assert list(kept.at(4).passed) == pytest.approx(found.pass_by_problem(4).tolist())
    assert list(kept.at(4).majority) == pytest.approx(found.majority_by_problem(4).tolist())
    assert kept.entropy.value == pytest.approx(found.entropy())
    assert kept.planning.value == pytest.approx(found.entropy(Role.PLANNING))
    assert kept.execution.value == pytest.approx(found.entropy(Role.EXECUTION))
    assert kept.tokens.value == pytest.approx(float(found.tokens.mean()))
    assert kept.question == PROBLEMS[0].text
    assert kept.reply[0].word == "<think>"
    assert [said.role for said in kept.reply] == list(found.traces[0][0].roles)
    assert records.loads(Measured, records.dumps(kept)) == kept


def test_what_was_not_measured_is_refused(memorised: Reasoner) -> None:
    with pytest.raises(MeasureError, match="k = 3"):
        measured(evaluate(memorised, PROBLEMS, 2), (1, 2)).at(3)
