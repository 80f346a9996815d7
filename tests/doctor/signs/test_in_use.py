"""The policy in use is scored and charged on the samples that are there, or it is said why not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import CannotTell
from breadth.doctor.signs.in_use import InUse, in_use, vote_of
from breadth.doctor.signs.sweeps import Draws
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.stopping.never import Never
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.best_of_n import BestOfN
from breadth.inference.strategies.budget_forcing import BudgetForcing
from breadth.inference.strategies.online_confidence_vote import OnlineConfidenceVote
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy


def draws(classes: npt.ArrayLike, tokens: float = 100.0) -> Draws:
    table = np.asarray(classes, dtype=np.int64)
    right = (table == 0).astype(np.float64)
    return Draws(table, right, np.full(table.shape, tokens), right * np.nan, (1, 4, 8), True, Sampling(), "made")


SAME = draws(np.tile(np.arange(20)[:, None] % 2, (1, 8)))
MIXED = draws(np.tile([0, 0, 0, 0, 0, 1, 2, 3], (20, 1)))


def used(strategy: Strategy, drawn: Draws) -> InUse | CannotTell | None:
    return in_use(Evidence("x", policy=Policy(strategy=strategy)), drawn, "finding")


def test_no_policy_is_none() -> None:
    assert in_use(Evidence("x"), SAME, "finding") is None


def test_a_vote_costs_its_width() -> None:
    found = used(Vote(8), MIXED)
    assert isinstance(found, InUse)
    assert (found.score, found.tokens, found.spending.width) == (1.0, 800.0, 8)
    assert vote_of(MIXED, 1).score == pytest.approx(5 / 8)


def test_a_vote_that_stops_early_is_charged_what_it_draws() -> None:
    # Unanimous draws one after the other: the Beta rule at 0.95 stops at four.
    found = used(AdaptiveVote(8, width=1), SAME)
    assert isinstance(found, InUse)
    assert (found.score, found.tokens) == (0.5, 400.0)
    never = used(AdaptiveVote(8, stop=Never()), MIXED)
    assert isinstance(never, InUse)
    assert (never.score, never.tokens) == (1.0, 800.0)


def test_a_vote_by_confidence_that_stops_early_counts_as_a_plain_one() -> None:
    found = used(OnlineConfidenceVote(warm_up=2, most=8), SAME)
    assert isinstance(found, InUse)
    assert found.score == 0.5


@pytest.mark.parametrize(
    ("strategy", "missing", "switch"),
    [
        (BestOfN(8), "the policy in use (best-of-n) is neither", ""),
        (Vote(12), "draws up to 12; of every question 8 comparable samples", "--widths 1,4,8,12"),
        (
            BudgetForcing(cues=0, minimum=64, maximum=64),
            "forces 64 thinking tokens; budgets measured: none",
            "--budgets 64",
        ),
    ],
)
def test_what_was_not_measured_is_said(strategy: Strategy, missing: str, switch: str) -> None:
    found = used(strategy, SAME)
    assert isinstance(found, CannotTell)
    assert found.name == "finding"
    assert missing in found.missing
    assert found.switch_on.endswith(switch)
