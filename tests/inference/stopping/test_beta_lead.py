"""The Beta rule against its closed-form table and numeric integration."""

from __future__ import annotations

import time
from math import comb

import numpy as np
import pytest
from scipy.special import betainc

from breadth.base.errors import SettingsError
from breadth.inference.stopping.beta_lead import BetaLead, beta_lead, binomial_sum
from breadth.inference.stored_votes import Paths
from breadth.inference.voting import VoteState


@pytest.mark.parametrize(
    ("first", "second", "chance"),
    [
        (1, 0, 0.75),
        (2, 0, 0.875),
        (3, 0, 0.9375),
        (4, 0, 0.96875),
        (5, 1, 0.9375),
        (6, 1, 0.9648),
        (7, 2, 0.9453),
        (8, 2, 0.9673),
    ],
)
def test_the_closed_form(first: int, second: int, chance: float) -> None:
    assert beta_lead(first, second) == pytest.approx(chance, abs=5e-5)


def test_numeric_integration_agrees() -> None:
    share = np.linspace(0, 1, 200_001)
    for first, second in [(4, 0), (9, 3), (20, 18), (0, 0)]:
        density = share**first * (1 - share) ** second
        assert beta_lead(first, second) == pytest.approx(
            np.trapezoid(density[100_000:]) / np.trapezoid(density), abs=1e-8
        )


def test_the_lead_it_takes_to_stop() -> None:
    needed = {0: 4, 1: 5, 2: 6, 3: 6, 5: 7, 8: 9, 10: 9, 15: 11}
    for runner_up, lead in needed.items():
        stops = [BetaLead().is_decided(VoteState((runner_up + ahead, runner_up), (0,))) for ahead in range(lead + 1)]
        assert stops == [False] * lead + [True]


def test_the_posterior_is_its_confidence() -> None:
    assert BetaLead().posterior(VoteState((2,), (0, 0))) == 0.875
    assert BetaLead().basis


@pytest.mark.parametrize("threshold", [0.49, 1.0, float("nan")])
def test_thresholds_that_make_no_sense_are_refused(threshold: float) -> None:
    with pytest.raises(SettingsError, match="threshold"):
        BetaLead(threshold)


def test_thousands_of_votes_are_no_burden() -> None:
    began = time.process_time()
    for first, second in [(5000, 4900), (10_000, 9_950), (10_000, 0), (4900, 5000)]:
        assert beta_lead(first, second) == pytest.approx(betainc(second + 1, first + 1, 0.5), abs=1e-9)
    assert time.process_time() - began < 3


def test_the_ways_to_toss_few_heads() -> None:
    for tosses in range(12):
        for most in range(-1, tosses + 1):
            assert binomial_sum(most, tosses) == sum(comb(tosses, heads) for heads in range(most + 1))


def test_the_threshold_itself_stops_and_an_even_chance_is_one() -> None:
    # 1 to 0 is a chance of exactly 3/4; 1 to 1 and no vote at all are 1/2.
    assert BetaLead(0.75).is_decided(VoteState((1,), (0,)))
    assert BetaLead(0.5).is_decided(VoteState((1, 1), (0, 1)))
    assert not BetaLead(0.5).is_decided(VoteState())
    assert BetaLead(0.5).posterior(VoteState()) is None
    assert BetaLead().threshold == 0.95


def test_recorded_votes_stop_at_the_threshold_itself() -> None:
    classes = np.array([[-1, 0, 1, 0, 0], [0, 0, 0, 0, 0]], dtype=np.int32)
    # 3/4 after one vote, 1/2 at one all, 11/16 at 2 to 1, 13/16 at 3 to 1.
    assert BetaLead(0.75).is_decided_along(Paths(classes)).tolist() == [
        [False, True, False, False, True],
        [True] * 5,
    ]
    assert BetaLead(0.5).is_decided_along(Paths(classes))[0].tolist() == [False, True, True, True, True]
