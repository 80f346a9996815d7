"""Writes the replies of an evaluation into a run folder, as the rollouts of a step on problems held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from breadth.lab.measuring.evaluation import Evaluation
from breadth.lab.task.vocabulary import words_of
from breadth.runs.reader import Run
from breadth.runs.schema import HEADER
from breadth.runs.writer import RunWriter, problem_id


def write_replies(evaluation: Evaluation, run: Path, step: int) -> None:
    """Write the replies; those of a step that has some already are left as they are, for the same seed draws the same."""
    if has_replies(run, step):
        return
    words, writer = words_of(evaluation.prime), RunWriter(run)
    texts = [problem.text for problem in evaluation.problems]
    rows: list[dict[str, Any]] = []
    for place, (text, drawn) in enumerate(zip(texts, evaluation.drawn, strict=True)):
        for sample, one in enumerate(drawn):
            answer, cut = int(evaluation.answers[place, sample]), one.finish == "length"
            rows.append(
                {
                    "problem": problem_id(text),
                    "sample": sample,
                    "completion": " ".join(words[token] for token in (one.ids if cut else one.ids[:-1])),
                    "answer": None if answer < 0 else str(answer),
                    "correct": bool(evaluation.right[place, sample]),
                    "tokens": len(one.ids),
                    "truncated": cut,
                }
            )
    writer.rollouts(pa.Table.from_pylist(rows), step, split="eval")
    references = [str(problem.answer(evaluation.prime)) for problem in evaluation.problems]
    writer.problems({"problem": [problem_id(text) for text in texts], "prompt": texts, "reference": references})


def has_replies(run: Path, step: int) -> bool:
    """Say whether a run folder holds replies to problems held out at a step."""
    if not (run / HEADER).exists():
        return False
    there = Run.open(run)
    query = "SELECT count(*) AS rows FROM rollouts WHERE split = 'eval' AND step = ?"
    return bool(there.rollout_files) and int(there.query(query, step)["rows"][0].as_py()) > 0
