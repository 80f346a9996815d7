"""Replies of an evaluation in a run folder, written once."""

from __future__ import annotations

from pathlib import Path

from breadth.lab.measuring.eval_rollouts import write_replies
from breadth.lab.measuring.evaluation import evaluate
from breadth.lab.model.reasoner import Reasoner
from breadth.lab.task.grammar import END, parse
from breadth.lab.task.problems import read_problem
from breadth.lab.task.tasks import held_out
from breadth.runs.reader import Run


def test_every_reply_is_there_once_and_reads_as_it_was(tmp_path: Path, memorised: Reasoner) -> None:
    evaluation = evaluate(memorised, held_out(7, "medium")[:3], 5)
    write_replies(evaluation, tmp_path / "run", 7)
    write_replies(evaluation, tmp_path / "run", 7)
    write_replies(evaluation, tmp_path / "run", 9)
    query = "SELECT * FROM rollouts JOIN problems USING (problem) WHERE split = 'eval' ORDER BY step, sample"
    rows = Run.open(tmp_path / "run").query(query).to_pylist()
    assert [row["step"] for row in rows] == [7] * 15 + [9] * 15
    assert sum(row["correct"] for row in rows[:15]) == evaluation.right.sum()
    for row in rows:
        trace = parse(read_problem(row["prompt"]), [*row["completion"].split(), *([] if row["truncated"] else [END])])
        assert row["answer"] == (None if trace.answer is None else str(trace.answer))
        assert row["correct"] == (row["answer"] == row["reference"])
        assert row["tokens"] == len(trace.roles)
