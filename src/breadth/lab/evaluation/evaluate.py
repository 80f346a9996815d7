"""Evaluates a reasoner: samples many replies per problem, parses them, and sums the numbers up.

The replies can be written to a run folder, as the rollouts of a step on held-out problems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from breadth.base.errors import MeasureError
from breadth.inference.records import Sampling
from breadth.lab.reasoner import Reasoner
from breadth.lab.sampling.batch import Completion, CompletionJob, sample_all
from breadth.lab.task.grammar import CLOSE, END, ReplyTrace, TokenRole, parse
from breadth.lab.task.problems import NUMBER, Problem
from breadth.lab.task.vocabulary import vocabulary_words
from breadth.measure.diversity import answer_entropy
from breadth.measure.intervals import Interval, mean_interval, ratio_interval
from breadth.measure.pass_at_k import pass_at_k
from breadth.measure.validate import BoolArray, FloatArray, IntArray
from breadth.measure.vote_counting import maj_at_k_by_problem
from breadth.runs.reader import Run
from breadth.runs.schema import HEADER_FILE
from breadth.runs.writer import RunWriter, problem_id

MAX_REPLY_TOKENS = 128
"""Tokens of a reply at most, beyond thinking that is forced: three of the teacher's longest attempts."""
PLAIN_SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=MAX_REPLY_TOKENS)
"""As the policy is: what training sees and what pass@k is about."""


@dataclass(frozen=True)
class Evaluation:
    """Replies of one reasoner to several problems, as many to each."""

    problems: tuple[Problem, ...]
    """The problems."""
    prime: int
    """Modulus of the task."""
    completions: tuple[tuple[Completion, ...], ...]
    """The replies to each."""
    traces: tuple[tuple[ReplyTrace, ...], ...]
    """The same, parsed."""

    @property
    def samples(self) -> int:
        """Replies to each problem."""
        return len(self.traces[0])

    @cached_property
    def right(self) -> BoolArray:
        """Whether each reply gives the right answer: [problems, samples]."""
        return np.array(
            [
                [trace.answer == problem.answer(self.prime) for trace in traces]
                for problem, traces in zip(self.problems, self.traces, strict=True)
            ]
        )

    @cached_property
    def answers(self) -> IntArray:
        """The answer of each reply, -1 where there is none: [problems, samples]."""
        return np.array([[-1 if trace.answer is None else trace.answer for trace in traces] for traces in self.traces])

    def stated_answers(self) -> IntArray:
        """Return the number after the thinking of each reply, however malformed; -1 if there is none or it was cut.

        This is how a client reads a reply without knowing the grammar.
        """
        words = vocabulary_words(self.prime)
        return np.array(
            [
                [stated_number([words[number] for number in completion.ids[-3:].tolist()]) for completion in drawn]
                for drawn in self.completions
            ]
        )

    @cached_property
    def tokens(self) -> IntArray:
        """Tokens of each reply: [problems, samples]."""
        return np.array([[len(completion.ids) for completion in drawn] for drawn in self.completions])

    def pass_at(self, k: int) -> Interval:
        """Return the chance that one of k replies is right, with an interval over problems."""
        return mean_interval(self.pass_by_problem(k), bounds=(0.0, 1.0))

    def pass_by_problem(self, k: int) -> FloatArray:
        """Return pass@k of each problem."""
        return pass_at_k_by_problem(self.right, k)

    def majority_at(self, k: int) -> Interval:
        """Return the accuracy of a vote over k replies, with an interval over problems."""
        return mean_interval(self.majority_by_problem(k), bounds=(0.0, 1.0))

    def majority_by_problem(self, k: int) -> FloatArray:
        """Return maj@k of each problem, exactly."""
        return majority_at_k_by_problem(self.answers, self.right, k)

    def entropy(self, role: TokenRole | None = None) -> float:
        """Return the mean entropy of the tokens of a role, or of all, in nats; NaN where there are none."""
        totals, counts = self._entropy_sums(role)
        return float(totals.sum() / counts.sum()) if counts.sum() else float("nan")

    def entropy_interval(self, role: TokenRole | None = None) -> Interval:
        """Return the same with an interval over problems."""
        totals, counts = self._entropy_sums(role)
        if not counts.sum():
            return Interval(float("nan"), 0.0, float("inf"), method="no such tokens")
        return ratio_interval(totals, counts)

    def answer_entropy(self) -> Interval:
        """Return the entropy of a problem's answers in nats (Miller-Madow), with an interval over problems."""
        return mean_interval(self.answer_entropies())

    def answer_entropies(self) -> FloatArray:
        """Return the same of each problem; 0 where no reply has an answer."""
        return np.array([answer_entropy(row[row >= 0]) if (row >= 0).any() else 0.0 for row in self.answers])

    def shares(self, of: Callable[[ReplyTrace], str | None]) -> dict[str, float]:
        """Return how often each value of something occurs among the replies that have it, the commonest first."""
        found = Counter(value for traces in self.traces for trace in traces if (value := of(trace)) is not None)
        return {value: count / found.total() for value, count in found.most_common()}

    def routes(self) -> dict[str, float]:
        """Return how often each route is taken first."""
        return self.shares(lambda trace: trace.attempts[0].route if trace.attempts else None)

    def styles(self) -> dict[str, float]:
        """Return how often each surface format is used."""
        return self.shares(lambda trace: (trace.attempts[0].style or None) if trace.attempts else None)

    def well_formed_share(self) -> float:
        """Return the share of replies that are complete and keep to the grammar."""
        return float(np.mean([trace.well_formed for traces in self.traces for trace in traces]))

    def _entropy_sums(self, role: TokenRole | None) -> tuple[FloatArray, FloatArray]:
        """Return the sum of entropies and the number of tokens of each problem."""
        totals, counts = np.zeros(len(self.problems)), np.zeros(len(self.problems))
        for place, (drawn, traces) in enumerate(zip(self.completions, self.traces, strict=True)):
            for reply, trace in zip(drawn, traces, strict=True):
                kept = (
                    np.ones(len(reply.ids), np.bool_)
                    if role is None
                    else np.array([own is role for own in trace.roles])
                )
                totals[place] += reply.entropies[kept].sum(dtype=np.float64)
                counts[place] += kept.sum()
        return totals, counts


def stated_number(tail: Sequence[str]) -> int:
    """Return the number between the end of thinking and that of the reply."""
    stated = len(tail) == 3 and (tail[0], tail[2]) == (CLOSE, END) and NUMBER.fullmatch(tail[1])
    return int(tail[1]) if stated else -1


def pass_at_k_by_problem(right: BoolArray, k: int) -> FloatArray:
    """Return pass@k of each problem, from whether each reply to it is right: [problems, samples]."""
    hits = right.sum(1)
    return np.asarray(pass_at_k(np.full_like(hits, right.shape[1]), hits, k), np.float64)


def majority_at_k_by_problem(answers: IntArray, right: BoolArray, k: int) -> FloatArray:
    """Return maj@k of each problem, exactly, from its answers and whether they are right: [problems, samples]."""
    owners = np.repeat(np.arange(len(answers)), answers.shape[1])
    return maj_at_k_by_problem(owners, answers.ravel(), right.ravel(), k)


def evaluate(
    reasoner: Reasoner,
    problems: Sequence[Problem],
    samples: int,
    *,
    seed: int = 0,
    sampling: Sampling = PLAIN_SAMPLING,
    min_thinking: int = 0,
) -> Evaluation:
    """Sample so many replies per problem and parse them; ``min_thinking`` forces longer thinking."""
    if not problems or samples < 1:
        raise MeasureError(
            f"{samples} replies to {len(problems)} problems are asked for.",
            "Ask for one or more replies to one or more.",
        )
    vocabulary = reasoner.tokenizer.get_vocab()
    words = {number: word for word, number in vocabulary.items()}
    begin = reasoner.tokenizer.bos_token_id
    posed = [(begin, *(vocabulary[word] for word in problem.words)) for problem in problems]
    jobs = [
        CompletionJob(ids, sampling, seed=(seed * len(problems) + place) * samples + sample, min_thinking=min_thinking)
        for place, ids in enumerate(posed)
        for sample in range(samples)
    ]
    drawn = sample_all(reasoner, jobs)
    rows = [tuple(drawn[place * samples : (place + 1) * samples]) for place in range(len(problems))]
    traces = tuple(
        tuple(parse(problem, [words[int(token)] for token in reply.ids]) for reply in row)
        for problem, row in zip(problems, rows, strict=True)
    )
    return Evaluation(tuple(problems), reasoner.teacher.facts.prime, tuple(rows), traces)


@dataclass(frozen=True)
class ScoresAtK:
    """pass@k and maj@k, problem by problem."""

    k: int
    """How many."""
    pass_at_k: tuple[float, ...]
    """Chance that one of them is right."""
    majority_at_k: tuple[float, ...]
    """Chance that a vote over them is right, exactly."""

    @property
    def pass_rate(self) -> Interval:
        """Its mean, with an interval over problems."""
        return mean_interval(self.pass_at_k, bounds=(0.0, 1.0))

    @property
    def majority_rate(self) -> Interval:
        """Its mean, with an interval over problems."""
        return mean_interval(self.majority_at_k, bounds=(0.0, 1.0))


@dataclass(frozen=True)
class SampleReplyToken:
    """A token of a reply."""

    word: str
    """The token."""
    entropy: float
    """Of the distribution it was drawn from, in nats."""
    role: TokenRole
    """What it is."""


@dataclass(frozen=True)
class PolicyEval:
    """One reasoner on held-out problems."""

    samples: int
    """Replies to each problem."""
    curve: tuple[ScoresAtK, ...]
    """pass@k and maj@k, by rising k."""
    entropy: Interval
    """Mean entropy of all tokens, in nats."""
    planning: Interval
    """The same of planning tokens: the forks."""
    execution: Interval
    """The same of execution tokens: the mechanical ones."""
    answer_entropy: Interval
    """Entropy of a problem's answers, in nats."""
    tokens: Interval
    """Tokens of a reply."""
    well_formed: float
    """Share of replies that keep to the grammar."""
    routes: Mapping[str, float]
    """How often each route is taken first."""
    question: str
    """The first problem."""
    reply: tuple[SampleReplyToken, ...]
    """The first reply to it: the first, not a chosen one."""

    def scores_at(self, k: int) -> ScoresAtK:
        """Return what k replies are worth."""
        found = next((scores for scores in self.curve if scores.k == k), None)
        if found is None:
            raise MeasureError(
                f"Nothing was measured at k = {k}.",
                f"Ask for one of {', '.join(str(scores.k) for scores in self.curve)}.",
            )
        return found


def summarize_evaluation(evaluation: Evaluation, ks: tuple[int, ...]) -> PolicyEval:
    """Sum an evaluation up; the number of replies bounds k."""
    drawn, trace = evaluation.completions[0][0], evaluation.traces[0][0]
    words = vocabulary_words(evaluation.prime)
    reply = zip(drawn.ids.tolist(), drawn.entropies.tolist(), trace.roles, strict=True)
    return PolicyEval(
        samples=evaluation.samples,
        curve=tuple(
            ScoresAtK(
                k,
                tuple(map(float, evaluation.pass_by_problem(k))),
                tuple(map(float, evaluation.majority_by_problem(k))),
            )
            for k in sorted(ks)
        ),
        entropy=evaluation.entropy_interval(),
        planning=evaluation.entropy_interval(TokenRole.PLANNING),
        execution=evaluation.entropy_interval(TokenRole.EXECUTION),
        answer_entropy=evaluation.answer_entropy(),
        tokens=mean_interval(np.asarray(evaluation.tokens.mean(1), np.float64)),
        well_formed=evaluation.well_formed_share(),
        routes=evaluation.routes(),
        question=evaluation.problems[0].text,
        reply=tuple(SampleReplyToken(words[number], round(entropy, 4), role) for number, entropy, role in reply),
    )


def write_evaluation(evaluation: Evaluation, run: Path, step: int) -> None:
    """Write the replies, unless the step has some already: the same seed samples the same."""
    if has_evaluation(run, step):
        return
    words, writer = vocabulary_words(evaluation.prime), RunWriter(run)
    texts = [problem.text for problem in evaluation.problems]
    rows: list[dict[str, Any]] = []
    for place, (text, drawn) in enumerate(zip(texts, evaluation.completions, strict=True)):
        for sample, completion in enumerate(drawn):
            answer, cut = int(evaluation.answers[place, sample]), completion.finish == "length"
            rows.append(
                {
                    "problem": problem_id(text),
                    "sample": sample,
                    "completion": " ".join(words[token] for token in (completion.ids if cut else completion.ids[:-1])),
                    "answer": None if answer < 0 else str(answer),
                    "correct": bool(evaluation.right[place, sample]),
                    "tokens": len(completion.ids),
                    "truncated": cut,
                }
            )
    writer.rollouts(pa.Table.from_pylist(rows), step, split="eval")
    references = [str(problem.answer(evaluation.prime)) for problem in evaluation.problems]
    writer.problems({"problem": [problem_id(text) for text in texts], "prompt": texts, "reference": references})


def has_evaluation(run: Path, step: int) -> bool:
    """Say whether a run folder holds replies to problems held out at a step."""
    if not (run / HEADER_FILE).exists():
        return False
    there = Run.open(run)
    query = "SELECT count(*) AS rows FROM rollouts WHERE split = 'eval' AND step = ?"
    return bool(there.rollout_files) and int(there.query(query, step)["rows"][0].as_py()) > 0
