"""What a policy is worth beside its problems: none of those is trained on or held out, and as many vote as the tokens pay for."""

from __future__ import annotations

from pathlib import Path

from breadth.lab.courses.course import Course
from breadth.lab.demo.plan import FULL, protected_by
from breadth.lab.measuring.beside import judge_beside
from breadth.lab.measuring.evaluation import evaluate
from breadth.lab.model.reasoner import load


def test_the_numbers_are_those_of_the_problems_beside(memorised_folder: Path) -> None:
    reasoner, course = load(memorised_folder), Course(protected_by(0.0), problems=8, seed=3)
    prime = reasoner.teacher.facts.prime
    problems = course.beside(5, prime)
    assert not {*problems} & {*course.trained_on(prime)}
    found = evaluate(reasoner, problems, 4, seed=3)
    votes = min(4, int(FULL.thinking / found.tokens.mean()))
    assert judge_beside(reasoner, course, 5, 4) == {
        "passed": found.right.mean(),
        "voted": found.majority_at(votes).value,
        "covered": found.right.any(1).mean(),
        "tokens": found.tokens.mean(),
    }
