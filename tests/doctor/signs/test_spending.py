"""What each policy pays for one question, and which one is in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.base.settings import to_table
from breadth.doctor.evidence import Evidence
from breadth.doctor.signs.spending import Spending, drawn_otherwise, policy_in_use, spending
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.best_of_n import BestOfN
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.inference.strategies.online_confidence_vote import OnlineConfidenceVote
from breadth.inference.strategies.parallel_thinking import ParallelThinking
from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter


@pytest.mark.parametrize(
    ("strategy", "paid", "name"),
    [
        (Single(), Spending(), "one plain draw"),
        (Vote(8), Spending(8), "a vote of 8"),
        (ConfidenceVote(16), Spending(16), "a vote of 16"),
        (AdaptiveVote(40), Spending(40, early=True), "a vote of up to 40 that stops early"),
        (AdaptiveVote(1), Spending(1), "one plain draw"),
        (OnlineConfidenceVote(most=64), Spending(64, early=True), "a vote of up to 64 that stops early"),
        (ParallelThinking(tokens=1000), Spending(5), "a vote of 5"),  # 1,000 tokens at 200 a draw
        (ParallelThinking(tokens=100), Spending(1), "one plain draw"),
        (ParallelThinking(tokens=10_000, most=7), Spending(7), "a vote of 7"),
        (BudgetForcing(cues=0, minimum=512, maximum=1024), Spending(budget=1024), "1,024 thinking tokens"),
        (BudgetForcing(cues=0, minimum=512), Spending(budget=512), "512 thinking tokens"),
    ],
)
def test_what_a_policy_pays_for(strategy: Strategy, paid: Spending, name: str) -> None:
    found = spending(Policy(strategy=strategy), 200.0)
    assert found == paid
    assert found.name == name


@pytest.mark.parametrize("strategy", [BestOfN(8), BudgetForcing(), BudgetForcing(cues=0, maximum=512)])
def test_what_is_no_vote_and_forces_nothing(strategy: Strategy) -> None:
    assert spending(Policy(strategy=strategy), 200.0) is None


def test_a_policy_that_was_given_counts_more_than_the_recorded_one(tmp_path: Path) -> None:
    recorded, given = Policy(strategy=Vote(4)), Policy(strategy=Vote(8))
    RunWriter(tmp_path / "run", Header(name="x", config={"policy": to_table(recorded)}))
    run = Run.open(tmp_path / "run")
    assert policy_in_use(Evidence("x", run)) == recorded
    assert policy_in_use(Evidence("x", run, policy=given)) == given
    assert policy_in_use(Evidence("x")) is None


@pytest.mark.parametrize("strategy", [{"kind": "no such"}, {"kind": "vote", "n": -1}, "vote", 3])
def test_a_recorded_policy_that_cannot_be_read_is_none(tmp_path: Path, strategy: object) -> None:
    RunWriter(tmp_path / "run", Header(name="x", config={"policy": {"strategy": strategy}}))
    assert policy_in_use(Evidence("x", Run.open(tmp_path / "run"))) is None


def test_what_is_drawn_otherwise_is_named() -> None:
    measured = Policy(sampling=Sampling(temperature=0.7, top_logprobs=20), model="small")
    assert drawn_otherwise(Policy(model=""), measured) == []
    other = Policy(sampling=Sampling(temperature=1.0, thinking_tokens=64), model="large", system="Be brief.")
    assert drawn_otherwise(other, measured) == [
        "temperature 1.0 in use, 0.7 measured",
        "thinking tokens 64 in use, None measured",
        "another model",
        "another system prompt",
    ]
