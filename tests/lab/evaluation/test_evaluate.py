"""Numbers of an evaluation worked out by hand, and real draws from a tiny reasoner."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from breadth.base.errors import MeasureError
from breadth.lab import records
from breadth.lab.evaluation.evaluate import (
    PLAIN_SAMPLING,
    Evaluation,
    PolicyEval,
    ScoresAtK,
    evaluate,
    summarize_evaluation,
    write_evaluation,
)
from breadth.lab.reasoner import Reasoner
from breadth.lab.sampling.batch import Completion
from breadth.lab.task.grammar import END, TokenRole, parse
from breadth.lab.task.problems import draw_held_out, read_problem
from breadth.lab.task.vocabulary import vocabulary_words
from breadth.runs.reader import Run

pytest.importorskip("torch", reason="the extra 'train' is not installed")

FIRST = read_problem("( 3 + 4 ) * ( 5 + 6 ) =")  # 77, 0 modulo 7
SECOND = read_problem("( 1 + 1 ) * ( 1 + 2 ) =")  # 6
NUMBERS = {word: number for number, word in enumerate(vocabulary_words(7))}
ENTROPIES = {TokenRole.PLANNING: 0.5, TokenRole.EXECUTION: 2.0, TokenRole.FORM: 0.0, TokenRole.STRAY: 1.0}


def evaluation(*replies: tuple[str, ...]) -> Evaluation:
    """Replies to the two problems; entropies are 0.5 at forks, 2 at values, 0 at marks, 1 at strays."""
    traces = [
        [parse(problem, text.split()) for text in row] for problem, row in zip((FIRST, SECOND), replies, strict=False)
    ]
    drawn = []
    for row, parsed in zip(replies, traces, strict=True):
        drawn.append(
            tuple(
                Completion(
                    np.array([NUMBERS[word] for word in text.split()]),
                    np.zeros(len(text.split()), np.float32),
                    np.array([ENTROPIES[role] for role in trace.roles], np.float32),
                    np.zeros(len(text.split()), np.bool_),
                    "stop" if text.endswith("<eos>") else "length",
                )
                for text, trace in zip(row, parsed, strict=True)
            )
        )
    return Evaluation((FIRST, SECOND)[: len(replies)], 7, tuple(drawn), tuple(map(tuple, traces)))


def said(answer: int) -> str:
    return f"<think> </think> {answer} <eos>"


FOUND = evaluation((said(0), said(0), said(4), said(1)), (said(6), "<think> add", said(3), said(3)))


def test_right_and_answers() -> None:
    assert FOUND.samples == 4
    assert FOUND.right.tolist() == [[True, True, False, False], [True, False, False, False]]
    assert FOUND.answers.tolist() == [[0, 0, 4, 1], [6, -1, 3, 3]]


def test_pass_at_k() -> None:
    # pass@1: 2/4 and 1/4. pass@2: 1 - C(2,2)/C(4,2) = 5/6 and 1 - C(3,2)/C(4,2) = 1/2.
    assert FOUND.pass_by_problem(1) == pytest.approx([0.5, 0.25])
    assert FOUND.pass_by_problem(2) == pytest.approx([5 / 6, 0.5])
    assert FOUND.pass_at(1).value == pytest.approx(0.375)
    assert FOUND.pass_at(4).value == 1.0
    with pytest.raises(MeasureError):
        FOUND.pass_at(5)


def test_majority() -> None:
    # Of all four: 0 has two votes of four and wins the first; 3 has two of three and wins the second, wrongly.
    assert FOUND.majority_by_problem(4).tolist() == [1.0, 0.0]
    # One reply is its own majority.
    assert FOUND.majority_by_problem(1).tolist() == [0.5, 0.25]
    assert FOUND.majority_at(4).value == 0.5


def test_entropies_by_role() -> None:
    # said(): open (form, 0), close (planning, 0.5), answer (execution, 2), end (form, 0): 2.5 over 4 tokens, seven
    # times;
    # "<think> add": open (form, 0), route (planning, 0.5). All: (7 * 2.5 + 0.5) / (7 * 4 + 2) = 18 / 30.
    assert FOUND.entropy() == pytest.approx(0.6)
    assert FOUND.entropy(TokenRole.PLANNING) == pytest.approx(0.5)
    assert FOUND.entropy(TokenRole.EXECUTION) == pytest.approx(2.0)
    assert math.isnan(FOUND.entropy(TokenRole.STRAY))
    assert FOUND.entropy_interval().value == pytest.approx(0.6)
    assert math.isnan(FOUND.entropy_interval(TokenRole.STRAY).value)


def test_answer_entropy() -> None:
    # Plug-in: (1/2, 1/4, 1/4) has 1.5 ln 2; (1/3, 2/3) has ln 3 - 2/3 ln 2. Miller-Madow adds (answers - 1) / (2
    # replies).
    expected = [1.5 * math.log(2) + 2 / 8, math.log(3) - 2 / 3 * math.log(2) + 1 / 6]
    assert FOUND.answer_entropies() == pytest.approx(expected)
    assert FOUND.answer_entropy().value == pytest.approx(np.mean(expected))
    assert evaluation(("<think>", "<think>")).answer_entropies().tolist() == [0.0]


def test_shares() -> None:
    found = evaluation(
        ("<think> add 3 + 4 =0 </think> 0 <eos>", "<think> left + 5 6 =4 </think> 0 <eos>", "<think> add", said(0))
    )
    assert found.routes() == pytest.approx({"add": 2 / 3, "left": 1 / 3})  # of the three that take one
    assert found.styles() == {"infix": 0.5, "prefix": 0.5}
    assert found.well_formed_share() == 0.75


def test_stated_answers_do_not_ask_for_the_grammar() -> None:
    stray = "<think> + + + </think> 3 <eos>"
    found = evaluation((stray, said(0), "<think> </think> 3", "<think> </think> =3 <eos>", "0 <eos>"))
    assert found.answers.tolist() == [[-1, 0, -1, -1, -1]]
    assert found.stated_answers().tolist() == [[3, 0, -1, -1, -1]]


def test_real_draws_depend_on_the_seed_alone(memorised: Reasoner) -> None:
    first, again, other = (evaluate(memorised, [FIRST, SECOND], 8, seed=seed) for seed in (0, 0, 1))
    assert first.tokens.shape == (2, 8)
    assert first.answers.tolist() == again.answers.tolist()
    assert [one.ids.tolist() for row in first.completions for one in row] != [
        one.ids.tolist() for row in other.completions for one in row
    ]
    assert first.right[0].sum() >= 2  # half of what it knows by heart of the first problem is right


def test_forced_thinking_is_exactly_so_long(memorised: Reasoner) -> None:
    sampling = replace(PLAIN_SAMPLING, thinking_tokens=30, max_tokens=40)
    found = evaluate(memorised, [FIRST], 4, sampling=sampling, min_thinking=30)
    close = NUMBERS["</think>"]
    assert {int(np.flatnonzero(one.ids == close)[0]) for one in found.completions[0]} == {
        31
    }  # the opening mark, thirty thoughts, the end


@pytest.mark.parametrize(("problems", "samples"), [([], 4), ([FIRST], 0)])
def test_nothing_to_draw_is_refused(memorised: Reasoner, problems: list[object], samples: int) -> None:
    with pytest.raises(MeasureError):
        evaluate(memorised, problems, samples)  # type: ignore[arg-type]  # an empty list is one of problems, too


PROBLEMS = [read_problem("( 3 + 4 ) * ( 5 + 6 ) ="), read_problem("( 1 + 1 ) * ( 1 + 2 ) =")]


def test_rates() -> None:
    at = ScoresAtK(4, (1.0, 0.5), (0.25, 0.0))
    assert (at.pass_rate.value, at.majority_rate.value) == (0.75, 0.125)


def test_it_says_what_the_evaluation_says(memorised: Reasoner) -> None:
    found = evaluate(memorised, PROBLEMS, 8)
    kept = summarize_evaluation(found, (4, 1, 8))
    assert [one.k for one in kept.curve] == [1, 4, 8]
    assert list(kept.scores_at(4).pass_at_k) == pytest.approx(found.pass_by_problem(4).tolist())
    assert list(kept.scores_at(4).majority_at_k) == pytest.approx(found.majority_by_problem(4).tolist())
    assert kept.entropy.value == pytest.approx(found.entropy())
    assert kept.planning.value == pytest.approx(found.entropy(TokenRole.PLANNING))
    assert kept.execution.value == pytest.approx(found.entropy(TokenRole.EXECUTION))
    assert kept.tokens.value == pytest.approx(float(found.tokens.mean()))
    assert kept.question == PROBLEMS[0].text
    assert kept.reply[0].word == "<think>"
    assert [said.role for said in kept.reply] == list(found.traces[0][0].roles)
    assert records.record_from_json(PolicyEval, records.record_to_json(kept)) == kept


def test_what_was_not_measured_is_refused(memorised: Reasoner) -> None:
    with pytest.raises(MeasureError, match="k = 3"):
        summarize_evaluation(evaluate(memorised, PROBLEMS, 2), (1, 2)).scores_at(3)


def test_every_reply_is_there_once_and_reads_as_it_was(tmp_path: Path, memorised: Reasoner) -> None:
    evaluation = evaluate(memorised, draw_held_out(7, "medium")[:3], 5)
    write_evaluation(evaluation, tmp_path / "run", 7)
    write_evaluation(evaluation, tmp_path / "run", 7)
    write_evaluation(evaluation, tmp_path / "run", 9)
    query = "SELECT * FROM rollouts JOIN problems USING (problem) WHERE split = 'eval' ORDER BY step, sample"
    rows = Run.open(tmp_path / "run").query(query).to_pylist()
    assert [row["step"] for row in rows] == [7] * 15 + [9] * 15
    assert sum(row["correct"] for row in rows[:15]) == evaluation.right.sum()
    for row in rows:
        trace = parse(read_problem(row["prompt"]), [*row["completion"].split(), *([] if row["truncated"] else [END])])
        assert row["answer"] == (None if trace.answer is None else str(trace.answer))
        assert row["correct"] == (row["answer"] == row["reference"])
        assert row["tokens"] == len(trace.roles)
