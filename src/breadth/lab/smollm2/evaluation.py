"""Measures a policy of the second rung on held-out sums: many replies to each, and both ways of answering at equal tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from breadth.inference.records import Sampling
from breadth.inference.thinking import Thinking
from breadth.lab.evaluation.corners import Arm
from breadth.lab.evaluation.evaluate import AtK, Measured, has_replies, passed, voted
from breadth.lab.evaluation.extended_vs_parallel import BothWays, Question, Ways, answer_questions
from breadth.lab.evaluation.training_log import TrainingLog
from breadth.lab.smollm2.experiment import READING, RungPlan, Sum, held_out
from breadth.lab.smollm2.policy import Policy, Reply, draw_replies
from breadth.measure.diversity import answer_entropy, count_answers
from breadth.measure.intervals import Interval, mean_interval, ratio_interval
from breadth.measure.validate import IntArray
from breadth.runs.writer import RunWriter, problem_id
from breadth.runtime.samplers.transformers import TransformersSampler

UNKNOWN = Interval(float("nan"), 0.0, float("inf"), method="not told apart in plain text")
"""Entropy of forks and of mechanical tokens: which are which is known only where a grammar says so."""


@dataclass(frozen=True)
class Breadth:
    """What is kept of a policy's replies to held-out sums."""

    measured: Measured
    """pass@k, maj@k, entropies and tokens."""
    distinct: Interval
    """Different answers among all replies to a problem."""
    cut: float
    """Share of replies that did not end by themselves."""


def measure(policy: Policy, plan: RungPlan, run: Path, step: int) -> Breadth:
    """Draw many replies to each held-out problem and sum them up; they are written to a run folder too, as those of a step."""
    problems = held_out(plan.problems)
    replies = draw_replies(policy, [one.prompt for one in problems], plan.samples, plan.longest, plan.seed)
    write_replies(problems, replies, run, step)
    return breadth_of(problems, replies, plan.ks)


def breadth_of(problems: Sequence[Sum], replies: Sequence[Sequence[Reply]], ks: Sequence[int]) -> Breadth:
    """Sum replies up, as many to each problem."""
    answers = _answers(replies)
    right = np.array(
        [[one.answer == problem.answer for one in row] for problem, row in zip(problems, replies, strict=True)]
    )
    tokens = np.array([[len(one.ids) for one in row] for row in replies], np.float64)
    nats = np.array([sum(float(one.entropies.sum(dtype=np.float64)) for one in row) for row in replies])
    owners = np.repeat(np.arange(len(answers)), answers.shape[1])
    measured = Measured(
        samples=answers.shape[1],
        curve=tuple(
            AtK(k, tuple(map(float, passed(right, k))), tuple(map(float, voted(answers, right, k)))) for k in sorted(ks)
        ),
        entropy=ratio_interval(nats, tokens.sum(1)),
        planning=UNKNOWN,
        execution=UNKNOWN,
        answer_entropy=mean_interval([answer_entropy(row[row >= 0]) if (row >= 0).any() else 0.0 for row in answers]),
        tokens=mean_interval(tokens.mean(1)),
        formed=float((answers >= 0).mean()),
        routes={},
        question=problems[0].text,
        reply=(),
    )
    cut = float(np.mean([not one.ended for row in replies for one in row]))
    return Breadth(measured, mean_interval(count_answers(owners, answers.ravel()).distinct.astype(np.float64)), cut)


def answer_sums(policy: Policy, plan: RungPlan) -> BothWays:
    """Answer held-out problems by one long thought and by vote, through the driver and the sampler for models in this process.

    The model does not mark its thinking and knows no word for thinking again. What makes it go on is the question once
    more, on a line of its own, as sums stand one below the other in its prompt: it sees its earlier attempts, and the
    last one counts.
    """
    questions = [
        Question(one.prompt, one.answer, Thinking("", "", f"\n{one.text}", one.text)) for one in held_out(plan.asked)
    ]
    alone = Sampling(temperature=1.0, top_p=1.0, max_tokens=plan.longest)
    ways = Ways(plan.thinking, plan.repeats, plan.seed, alone, plan.longest, READING)
    return answer_questions(lambda: TransformersSampler(policy.model, policy.tokenizer), questions, ways)


def write_replies(problems: Sequence[Sum], replies: Sequence[Sequence[Reply]], run: Path, step: int) -> None:
    """Write replies to a run folder, as the rollouts of a step on problems held out; those of an attempt that was killed stay."""
    if has_replies(run, step):
        return
    rows: list[dict[str, Any]] = [
        {
            "problem": problem_id(problem.prompt),
            "sample": sample,
            "completion": one.text,
            "answer": one.answer,
            "correct": one.answer == problem.answer,
            "tokens": len(one.ids),
            "truncated": not one.ended,
            "entropy": one.entropies.tolist(),
        }
        for problem, row in zip(problems, replies, strict=True)
        for sample, one in enumerate(row)
    ]
    writer, prompts = RunWriter(run), [problem.prompt for problem in problems]
    writer.rollouts(pa.Table.from_pylist(rows), step, split="eval")
    ids, references = [problem_id(prompt) for prompt in prompts], [problem.answer for problem in problems]
    writer.problems({"problem": ids, "prompt": prompts, "reference": references})


def _answers(replies: Sequence[Sequence[Reply]]) -> IntArray:
    """Return a number for each answer, the same for the same, -1 where there is none: [problems, samples]."""
    numbers: dict[str, int] = {}
    return np.array(
        [
            [-1 if one.answer is None else numbers.setdefault(one.answer, len(numbers)) for one in row]
            for row in replies
        ],
        np.int64,
    )


@dataclass(frozen=True)
class RungArm:
    """One policy, trained and measured."""

    breadth: Breadth
    """Its replies to held-out problems."""
    both_ways: BothWays
    """Its answers by one long thought and by vote."""
    training: TrainingLog
    """How its training went."""

    @property
    def arm(self) -> Arm:
        """The same as an arm of the four corners."""
        return Arm(self.breadth.measured, self.both_ways)
