"""A tiny reasoner that has memorised four traces of one problem, and made-up results of a demo."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from breadth.lab.demo.plan import DemoPlan
from breadth.lab.demo.results import DemoResults, ForcedThinking
from breadth.lab.evaluation.corners import EvaluatedArm, compare_corners
from breadth.lab.evaluation.evaluate import PolicyEval, SampleReplyToken, ScoresAtK
from breadth.lab.evaluation.extended_vs_parallel import ExtendedVsParallel, FinalAnswers
from breadth.lab.evaluation.training_log import TrainingLog
from breadth.lab.reasoner import Reasoner, ReasonerShape, build_reasoner, save_reasoner
from breadth.lab.task.grammar import TokenRole
from breadth.lab.task.teacher import ArithmeticFacts, Teacher
from breadth.measure.intervals import Interval

QUESTION = "( 3 + 4 ) * ( 5 + 6 ) ="
STRANGE = "<unk> <unk> <unk> * <unk> <unk> <unk> <unk> <unk> ="
"""How the reasoner reads a question of many words: it is to think there, too."""
USUAL = "<think> add 3 + 4 =0 5 + 6 =4 0 * 4 =0 </think> 0 <eos>"
LESSONS = (
    (QUESTION, USUAL),
    (QUESTION, USUAL),
    (QUESTION, "<think> left 5 + 6 =4 3 * 4 =5 4 * 4 =2 5 + 2 =0 </think> 0 <eos>"),
    (QUESTION, "<think> add 5 + 6 =4 3 + 4 =1 1 * 4 =4 </think> 4 <eos>"),
    (
        QUESTION,
        "<think> add 3 + 4 =0 5 + 6 =4 0 * 4 =0 again left 5 + 6 =4 3 * 4 =5 4 * 4 =2 5 + 2 =0 </think> 0 <eos>",
    ),
    (STRANGE, USUAL),
)


@pytest.fixture(scope="session")
def memorised() -> Reasoner:
    """Eighty steps on the same few rows; numbers modulo 7, a context of 256 tokens."""
    reasoner = build_reasoner(
        Teacher(ArithmeticFacts(prime=7)), ReasonerShape(hidden=32, layers=2, heads=2, inner=64, context=256)
    )
    written = [reasoner.tokenizer(f"{question} {trace}")["input_ids"] for question, trace in LESSONS]
    width = max(map(len, written))
    rows = torch.tensor([row + [0] * (width - len(row)) for row in written])
    labels = rows.masked_fill(rows == 0, -100)
    for row, (question, _) in enumerate(LESSONS):
        labels[row, : len(question.split()) + 1] = -100
    optimizer = torch.optim.AdamW(reasoner.model.parameters(), lr=1e-2)
    for _ in range(80):
        loss = reasoner.model(input_ids=rows, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return reasoner


@pytest.fixture(scope="session")
def memorised_folder(memorised: Reasoner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in a folder."""
    folder = tmp_path_factory.mktemp("lab") / "memorised"
    save_reasoner(memorised, folder)
    return folder


@pytest.fixture(scope="session")
def demo_results() -> DemoResults:
    """A demo in which everything shows: a vote is right on twelve of sixteen problems, a long thought on four."""
    plan = DemoPlan(
        steps=3, problems=16, samples=8, votes=4, budgets=(8, 16, 64), budget_samples=2, thinking=64, repeats=2
    )
    base, plain, protected = _measured(0.25, 1.0, 1.0), _measured(0.5, 0.5, 0.4), _measured(0.5, 0.9, 0.8)
    forced = tuple(
        ForcedThinking(tokens, _rates(rate), _rates(0.5)) for tokens, rate in ((8, 0.25), (16, 0.75), (64, 0.0))
    )
    log = TrainingLog(
        (1, 2, 3), (0.1, 0.2, 0.3), (0.9, 0.8, 0.7), planning=(0.5, 0.4, 0.3), execution=(1.5, 1.4, math.nan)
    )
    return DemoResults(
        version="1.0",
        plan=plan,
        base=base,
        plain=plain,
        protected=protected,
        corners=compare_corners([_arm(plain, 0.25, 0.5)], [_arm(protected, 0.25, 0.75)], k=8, votes=4),
        forced=forced,
        plain_training=log,
        protected_training=log,
        versions={"breadth": "1.0", "torch": "2.0"},
        base_digest="0123456789abcdef0123456789abcdef",
        seconds=90.0,
    )


def _rates(share: float) -> tuple[float, ...]:
    """Sixteen problems, of which a share is solved always and the others never."""
    return tuple(float(place < 16 * share) for place in range(16))


def _measured(passed: float, covered: float, entropy: float) -> PolicyEval:
    known = Interval(entropy, entropy - 0.1, entropy + 0.1)
    curve = tuple(ScoresAtK(k, _rates(rate), _rates(rate)) for k, rate in ((1, passed), (4, covered), (8, covered)))
    reply = (
        SampleReplyToken("<think>", 0.0, TokenRole.FORM),
        SampleReplyToken("add", 0.7, TokenRole.PLANNING),
        SampleReplyToken("=3", 1.2, TokenRole.EXECUTION),
    )
    return PolicyEval(
        8, curve, known, known, known, known, Interval(20.0, 19.0, 21.0), 1.0, {"add": 1.0}, "( 1 + 2 ) * 1 =", reply
    )


def _arm(measured: PolicyEval, extended: float, parallel: float) -> EvaluatedArm:
    def replies(share: float, tokens: int) -> FinalAnswers:
        right = tuple((bool(one), bool(one)) for one in _rates(share))
        return FinalAnswers(
            tuple(("1", "1") if one[0] else ("2", "3") for one in right),
            right,
            ((tokens, tokens),) * 16,
            ((66, 66),) * 16,
        )

    return EvaluatedArm(measured, ExtendedVsParallel(64, replies(extended, 66), replies(parallel, 60)))
