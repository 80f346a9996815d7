"""A panel: every run one vote, whatever it drew; nothing it drew is forgotten."""

from __future__ import annotations

import pytest

from breadth.base.errors import SettingsError
from breadth.inference.records import Ask, Candidate, Fork, Task
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.early_exit import EarlyExit
from breadth.inference.strategies.panel import Panel
from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.testing.strategies import check_strategy, drive

TASK = Task("q")


def answers(votes: str) -> list[Candidate]:
    return [Candidate(vote, vote, vote, tokens=2) for vote in votes]


@pytest.mark.parametrize(
    "strategy", [Panel(Single(), 3), Panel(Vote(2), 2), Panel(BudgetForcing(), 2), Panel(EarlyExit(), 2)]
)
def test_the_contract_holds(strategy: Panel) -> None:
    check_strategy(strategy)


def test_single_runs_are_a_plain_vote() -> None:
    panel, vote = (
        drive(Panel(Single(), 5), TASK, answers("ABABA")).answer,
        drive(Vote(5), TASK, answers("ABABA")).answer,
    )
    assert panel.votes == vote.votes == {"A": 3.0, "B": 2.0}
    assert panel.confidence == vote.confidence


def test_each_run_counts_once() -> None:
    # Three votes of three: A wins two of them by 2 to 1, B one by 3 to 0; by single votes B would lead 5 to 4.
    driven = drive(Panel(Vote(3), 3), TASK, answers("AABAABBBB"))
    assert driven.answer.votes == {"A": 2.0, "B": 1.0}
    assert len(driven.answer.candidates) == 9
    assert driven.answer.basis.endswith("each run one vote")


def test_it_needs_what_its_runs_need() -> None:
    assert Panel(BudgetForcing()).needs == BudgetForcing().needs
    assert Panel(Single()).needs == frozenset()


def test_it_asks_once_with_a_fork() -> None:
    driven = drive(Panel(Single(), 2), TASK, answers("AA"))
    assert isinstance(driven.requests[0], Fork)
    assert all(isinstance(request, Ask) for request in driven.requests[1:])


def test_no_runs_are_refused() -> None:
    with pytest.raises(SettingsError):
        Panel(Single(), 0)
