"""Evaluates a SmolLM2 policy on held-out sums: many replies to each, and long thought against vote at equal tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from breadth.inference.records import Sampling
from breadth.inference.thinking import Thinking
from breadth.lab.evaluation.corners import EvaluatedArm
from breadth.lab.evaluation.evaluate import (
    PolicyEval,
    ScoresAtK,
    has_evaluation,
    majority_at_k_by_problem,
    pass_at_k_by_problem,
)
from breadth.lab.evaluation.extended_vs_parallel import AnswerPlan, ExtendedVsParallel, GradedPrompt, answer_prompts
from breadth.lab.evaluation.training_log import TrainingLog
from breadth.lab.smollm2.experiment import SUM_READING, SmolLM2Plan, Sum, list_held_out_sums
from breadth.lab.smollm2.policy import SmolLM2Policy, SumReply, sample_replies
from breadth.measure.diversity import answer_entropy, count_answers
from breadth.measure.intervals import Interval, mean_interval, ratio_interval
from breadth.measure.validate import IntArray
from breadth.runs.writer import RunWriter, problem_id
from breadth.runtime.samplers.transformers import TransformersSampler

UNKNOWN_ENTROPY = Interval(float("nan"), 0.0, float("inf"), method="not distinguished in plain text")
"""Entropy of forks and of mechanical tokens: which are which is known only where a grammar says so."""


@dataclass(frozen=True)
class SumsEval:
    """Summary of a policy's replies to held-out sums."""

    policy: PolicyEval
    """pass@k, maj@k, entropies and tokens."""
    distinct: Interval
    """Different answers among all replies to a problem."""
    truncated: float
    """Share of replies that did not end by themselves."""


def evaluate_sums(policy: SmolLM2Policy, plan: SmolLM2Plan, run: Path, step: int) -> SumsEval:
    """Sample many replies per held-out problem and summarize them; they go to the run folder too."""
    problems = list_held_out_sums(plan.problems)
    replies = sample_replies(
        policy, [problem.prompt for problem in problems], plan.samples, plan.max_completion_length, plan.seed
    )
    write_sum_replies(problems, replies, run, step)
    return summarize_sum_replies(problems, replies, plan.ks)


def summarize_sum_replies(
    problems: Sequence[Sum], replies: Sequence[Sequence[SumReply]], ks: Sequence[int]
) -> SumsEval:
    """Sum replies up, as many to each problem."""
    answers = answer_numbers(replies)
    right = np.array(
        [[reply.answer == problem.answer for reply in row] for problem, row in zip(problems, replies, strict=True)]
    )
    tokens = np.array([[len(reply.ids) for reply in row] for row in replies], np.float64)
    nats = np.array([sum(float(reply.entropies.sum(dtype=np.float64)) for reply in row) for row in replies])
    owners = np.repeat(np.arange(len(answers)), answers.shape[1])
    measured = PolicyEval(
        samples=answers.shape[1],
        curve=tuple(
            ScoresAtK(
                k,
                tuple(map(float, pass_at_k_by_problem(right, k))),
                tuple(map(float, majority_at_k_by_problem(answers, right, k))),
            )
            for k in sorted(ks)
        ),
        entropy=ratio_interval(nats, tokens.sum(1)),
        planning=UNKNOWN_ENTROPY,
        execution=UNKNOWN_ENTROPY,
        answer_entropy=mean_interval([answer_entropy(row[row >= 0]) if (row >= 0).any() else 0.0 for row in answers]),
        tokens=mean_interval(tokens.mean(1)),
        well_formed=float((answers >= 0).mean()),
        routes={},
        question=problems[0].text,
        reply=(),
    )
    cut = float(np.mean([not reply.ended for row in replies for reply in row]))
    return SumsEval(measured, mean_interval(count_answers(owners, answers.ravel()).distinct.astype(np.float64)), cut)


def answer_sums(policy: SmolLM2Policy, plan: SmolLM2Plan) -> ExtendedVsParallel:
    """Answer held-out problems by one long thought and by vote, through the driver and the in-process sampler.

    The model does not mark its thinking and knows no word for thinking again. The question once more, on a line of
    its own, makes it continue, as its prompt has one sum per line: it sees its earlier attempts, and the
    last one counts.
    """
    questions = [
        GradedPrompt(problem.prompt, problem.answer, Thinking("", "", f"\n{problem.text}", problem.text))
        for problem in list_held_out_sums(plan.compared_problems)
    ]
    alone = Sampling(temperature=1.0, top_p=1.0, max_tokens=plan.max_completion_length)
    ways = AnswerPlan(plan.thinking, plan.repeats, plan.seed, alone, plan.max_completion_length, SUM_READING)
    return answer_prompts(lambda: TransformersSampler(policy.model, policy.tokenizer), questions, ways)


def write_sum_replies(problems: Sequence[Sum], replies: Sequence[Sequence[SumReply]], run: Path, step: int) -> None:
    """Write replies to a run folder as rollouts of a step on held-out problems, unless the step has some already."""
    if has_evaluation(run, step):
        return
    rows: list[dict[str, Any]] = [
        {
            "problem": problem_id(problem.prompt),
            "sample": sample,
            "completion": reply.text,
            "answer": reply.answer,
            "correct": reply.answer == problem.answer,
            "tokens": len(reply.ids),
            "truncated": not reply.ended,
            "entropy": reply.entropies.tolist(),
        }
        for problem, row in zip(problems, replies, strict=True)
        for sample, reply in enumerate(row)
    ]
    writer, prompts = RunWriter(run), [problem.prompt for problem in problems]
    writer.rollouts(pa.Table.from_pylist(rows), step, split="eval")
    ids, references = [problem_id(prompt) for prompt in prompts], [problem.answer for problem in problems]
    writer.problems({"problem": ids, "prompt": prompts, "reference": references})


def answer_numbers(replies: Sequence[Sequence[SumReply]]) -> IntArray:
    """Return a number for each answer, the same for the same, -1 where there is none: [problems, samples]."""
    numbers: dict[str, int] = {}
    return np.array(
        [
            [-1 if reply.answer is None else numbers.setdefault(reply.answer, len(numbers)) for reply in row]
            for row in replies
        ],
        np.int64,
    )


@dataclass(frozen=True)
class SmolLM2Arm:
    """One policy, trained and measured."""

    sums: SumsEval
    """Its replies to held-out problems."""
    answers: ExtendedVsParallel
    """Its answers by one long thought and by vote."""
    training: TrainingLog
    """How its training went."""

    @property
    def arm(self) -> EvaluatedArm:
        """The same as an arm of the four corners."""
        return EvaluatedArm(self.sums.policy, self.answers)
