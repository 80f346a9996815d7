"""Files of questions for `tune` and `solve`: problems the reasoner was never taught, with their right answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import orjson

from breadth.base import settings
from breadth.base.atomic import whole_file
from breadth.base.errors import SettingsError
from breadth.lab.model.reasoner import TASK, check, shipped
from breadth.lab.task.problems import HELD_OUT_SEED, Level, Problem, count_problems, draw_problems
from breadth.lab.task.teacher import Teacher

MOST_HELD_OUT = 1000
"""Problems of a level that are held out of pretraining, where there are ten times as many; else a tenth of them."""


def held_out(prime: int, level: Level) -> list[Problem]:
    """List the problems of a level that are held out of pretraining; the first so many of them are the same whatever number is taken."""
    return draw_problems(min(MOST_HELD_OUT, count_problems(prime, level) // 10), prime, level, HELD_OUT_SEED)


def draw_tasks(count: int, prime: int, level: Level, seed: int = 0) -> list[Problem]:
    """Draw so many of the problems held out, in an order that depends on the seed."""
    problems = held_out(prime, level)
    if not 1 <= count <= len(problems):
        raise SettingsError(
            f"{count} {level} questions were asked for; {len(problems)} are held out of pretraining.",
            f"Ask for 1 to {len(problems)}.",
        )
    return [problems[place] for place in np.random.default_rng(seed).permutation(len(problems))[:count]]


def prime_of(folder: Path | None = None) -> int:
    """Return the prime that a reasoner reckons modulo, by default the one that ships."""
    place = shipped() if folder is None else folder
    check(place)
    return settings.load(Teacher, place / TASK).facts.prime


def write_tasks(path: Path, problems: Sequence[Problem], prime: int) -> None:
    """Write problems as JSON lines: id, question, answer, level; whole or not at all."""
    rows = (
        {
            "id": problem.text.removesuffix(" =").replace(" ", ""),
            "question": problem.text,
            "answer": str(problem.answer(prime)),
            "level": problem.level,
        }
        for problem in problems
    )
    with whole_file(path) as temporary:
        temporary.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
