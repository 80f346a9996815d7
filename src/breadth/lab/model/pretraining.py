"""Pretrains a new reasoner on the teacher's traces by cross-entropy; on one machine a seed fixes the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from breadth.base.errors import require
from breadth.lab.model.reasoner import Reasoner, ReasonerShape, build_reasoner
from breadth.lab.task.problems import LEVELS, Problem, draw_problem
from breadth.lab.task.teacher import Teacher, TeacherTrace
from breadth.measure.validate import IntArray

LEVEL_SHARES = (0.15, 0.7, 0.15)
"""Shares of easy, medium and hard problems."""
BATCHES_PER_SHELF = 64
"""Batches that are drawn and sorted by length together, to keep padding short."""
IGNORED_LABEL = -100
OnLoss = Callable[[int, float], None]
"""Called with the step and its loss."""


@dataclass(frozen=True)
class PretrainingPlan:
    """Sizes of pretraining."""

    steps: int = 8000
    """Optimizer steps."""
    batch: int = 32
    """Traces per step."""
    learning_rate: float = 2.5e-3
    """Highest learning rate; it rises over the first hundred steps and falls along a cosine to nothing."""
    seed: int = 0
    """Seed of weights, problems and traces."""

    def __post_init__(self) -> None:
        require(self, "steps", self.steps >= 1, "1 or more")
        require(self, "batch", self.batch >= 1, "1 or more")
        require(self, "learning_rate", 0 < self.learning_rate < 1, "a number above 0, below 1")
        require(self, "seed", self.seed >= 0, "0 or more")


def pretrain(
    teacher: Teacher,
    plan: PretrainingPlan = PretrainingPlan(),  # noqa: B008 - frozen
    shape: ReasonerShape = ReasonerShape(),  # noqa: B008 - frozen
    held_out: frozenset[Problem] = frozenset(),
    on_loss: OnLoss | None = None,
) -> Reasoner:
    """Build and pretrain a reasoner; held-out problems are never shown, nor any commuted form of them."""
    reasoner = build_reasoner(teacher, shape, plan.seed)  # first of all: it says what to install where torch is missing
    import torch

    model = reasoner.model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    batches = training_batches(teacher, plan, held_out, reasoner.tokenizer.get_vocab())
    for step in range(plan.steps):
        inputs, labels = next(batches)
        for group in optimizer.param_groups:
            group["lr"] = (
                plan.learning_rate * min(1.0, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * step / plan.steps))
            )
        logits = model(input_ids=torch.from_numpy(inputs)).logits  # padded on the right: no token sees the padding
        following = torch.from_numpy(labels)[:, 1:].flatten()
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), following, ignore_index=IGNORED_LABEL)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if on_loss is not None:
            on_loss(step + 1, loss.item())
    model.eval()
    return reasoner


def training_batches(
    teacher: Teacher, plan: PretrainingPlan, held_out: frozenset[Problem], vocabulary: dict[str, int]
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield batches of token ids and labels without end, each of traces of similar length."""
    rng = np.random.default_rng((plan.seed, 13))  # a stream of its own: the same seed draws other things elsewhere
    never = frozenset(problem.canonical for problem in held_out)
    while True:
        shelf = sorted(
            (_trace_with_labels(teacher, never, vocabulary, rng) for _ in range(BATCHES_PER_SHELF * plan.batch)),
            key=lambda pair: len(pair[0]),
        )
        for place in rng.permutation(BATCHES_PER_SHELF):
            yield _pad_lessons(shelf[place * plan.batch : (place + 1) * plan.batch], vocabulary["<pad>"])


def _trace_with_labels(
    teacher: Teacher, never: frozenset[Problem], vocabulary: dict[str, int], rng: np.random.Generator
) -> tuple[list[int], list[int]]:
    """Return the tokens of one problem with its trace, and their labels."""
    while True:
        problem = draw_problem(rng, teacher.facts.prime, LEVELS[rng.choice(len(LEVELS), p=LEVEL_SHARES)])
        if problem.canonical not in never:
            break
    written: TeacherTrace = teacher.write(problem, rng)
    question = [vocabulary["<bos>"], *(vocabulary[word] for word in problem.words)]
    reply = [vocabulary[word] for word in written.words]
    learnt = [IGNORED_LABEL if place == written.imposed else token for place, token in enumerate(reply)]
    return question + reply, [IGNORED_LABEL] * len(question) + learnt


def _pad_lessons(plan: list[tuple[list[int], list[int]]], padding: int) -> tuple[IntArray, IntArray]:
    width = max(len(tokens) for tokens, _ in plan)
    inputs = np.full((len(plan), width), padding, np.int64)
    labels = np.full((len(plan), width), IGNORED_LABEL, np.int64)
    for row, (tokens, learnt) in enumerate(plan):
        inputs[row, : len(tokens)] = tokens
        labels[row, : len(learnt)] = learnt
    return inputs, labels
