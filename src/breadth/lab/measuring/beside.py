"""What a policy is worth on problems that are neither trained on nor held out: the only ones a choice between courses may be made on."""

from __future__ import annotations

from breadth.lab.courses.course import Course
from breadth.lab.demo.plan import FULL
from breadth.lab.measuring.beside_table import COVERED, PASSED, TOKENS, VOTED
from breadth.lab.measuring.evaluation import evaluate
from breadth.lab.model.reasoner import Reasoner


def judge_beside(reasoner: Reasoner, course: Course, problems: int, replies: int) -> dict[str, float]:
    """Return score, vote and coverage; as many replies vote as fit into the tokens of the corners, by their mean length."""
    found = evaluate(reasoner, course.beside(problems, reasoner.teacher.facts.prime), replies, seed=course.seed)
    tokens = float(found.tokens.mean())
    votes = min(replies, max(1, int(FULL.thinking / tokens)))
    passed, covered = (found.pass_at(k).value for k in (1, replies))
    return {PASSED: passed, VOTED: found.majority_at(votes).value, COVERED: covered, TOKENS: tokens}
