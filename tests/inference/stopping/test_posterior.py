"""The Beta rule against its closed form and numeric integration, and the Dirichlet rule against its integral."""

from __future__ import annotations

import time
from math import comb, lgamma

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc

from breadth.base.errors import SettingsError
from breadth.inference.stopping.posterior import (
    BetaLead,
    Dirichlet,
    beta_lead,
    binomial_sum,
    gamma_quadrature,
    largest_share,
)
from breadth.inference.stopping.rule import samples_to_decide
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


@pytest.mark.parametrize(
    "counts", [(3, 2, 1), (5, 1, 1), (10, 8, 2, 2), (2, 1, 1, 1, 1), (25, 9, 4, 1, 1), (60, 50, 40)]
)
def test_draws_from_the_posterior_agree(counts: tuple[int, ...]) -> None:
    shares = np.random.default_rng(0).dirichlet(np.array(counts) + 1, 200_000)
    assert largest_share(*counts) == pytest.approx(np.mean(shares.argmax(axis=1) == 0), abs=5e-3)


def test_three_equal_answers_share_the_chance() -> None:
    assert largest_share(4, 4, 4) == pytest.approx(1 / 3, abs=1e-12)
    assert largest_share(7, 7, 7, 7, 7) == pytest.approx(1 / 5, abs=1e-12)


def test_the_chances_of_all_answers_add_up_to_one() -> None:
    chances = largest_share(9, 5, 2) + largest_share(5, 9, 2) + largest_share(2, 9, 5)
    assert chances == pytest.approx(1, abs=1e-12)


def test_with_fewer_than_three_answers_it_is_the_beta_rule() -> None:
    assert largest_share() == largest_share(0, 0) == 0.5
    assert largest_share(4) == beta_lead(4, 0)
    assert largest_share(6, 1, 0, 0, 0) == beta_lead(6, 1)


def test_by_hand_for_two_one_one() -> None:
    # Gamma(3) over two Gamma(2): integral of x^2/2 e^-x (1 - e^-x (1 + x))^2. Expanding with n!/k^(n+1):
    # 1 - 2 (1/8 + 3/16) + (1/27 + 6/81 + 12/243) = 0.375 + 0.160494
    assert largest_share(2, 1, 1) == pytest.approx(1 - 2 * (1 / 8 + 3 / 16) + (1 / 27 + 6 / 81 + 12 / 243), abs=1e-12)


def test_only_the_five_leading_answers_are_looked_at() -> None:
    assert Dirichlet().posterior(VoteState((9, 2, 1, 1, 1, 1, 1), (0,) * 16)) == largest_share(9, 2, 1, 1, 1)
    assert Dirichlet().basis


def test_a_threshold_of_one_is_refused() -> None:
    with pytest.raises(SettingsError, match="threshold"):
        Dirichlet(1.0)


@settings(max_examples=200, deadline=None)
@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=5), threshold=st.sampled_from([0.5, 0.8, 0.9, 0.95]))
def test_bounds_decide_as_the_chance_does(counts: list[int], threshold: float) -> None:
    falling = tuple(sorted(counts, reverse=True))
    assert Dirichlet(threshold).is_decided(VoteState(falling, (0,) * sum(counts))) == (
        largest_share(*falling) >= threshold
    )


def test_a_long_vote_needs_few_integrals() -> None:
    largest_share.cache_clear()
    votes = np.random.default_rng(0).choice(5, 256, p=[0.3, 0.28, 0.2, 0.12, 0.1])
    for seen in range(1, 257):
        counts = tuple(sorted((count for count in np.bincount(votes[:seen]).tolist() if count), reverse=True))
        samples_to_decide(Dirichlet(), VoteState(counts, tuple(votes[:seen].tolist())), 8)
    assert largest_share.cache_info().misses < 100  # of some 1,800 standings


def test_thousands_of_votes_are_no_overflow() -> None:
    # A third answer far behind tells nothing.
    assert largest_share(5000, 4900, 100) == pytest.approx(beta_lead(5000, 4900), abs=1e-9)
    assert largest_share(3000, 3000, 3000) == pytest.approx(1 / 3, abs=1e-9)


def test_the_threshold_itself_stops() -> None:
    assert Dirichlet(0.75).is_decided(VoteState((1,), (0,))), "1 to 0 is a chance of exactly 3/4"
    assert Dirichlet(0.5).is_decided(VoteState((1, 1), (0, 1)))
    assert not Dirichlet(0.5).is_decided(VoteState())
    assert Dirichlet().posterior(VoteState()) is None
    assert Dirichlet().threshold == 0.95
    unread = Paths(np.array([[-1, -1, 0]], dtype=np.int32))
    assert Dirichlet(0.5).is_decided_along(unread).tolist() == [[False, False, True]]
    assert Dirichlet(largest_share(2, 1, 1)).is_decided(VoteState((2, 1, 1), (0, 0, 1, 2)))


def test_recorded_votes_are_looked_at_answer_by_answer() -> None:
    # 2 to 1 to 1 is 0.535494 (worked out above); 2 to 1 is 11/16, 3 to 1 to 1 more than that.
    classes = np.array([[0, 1, 2, 0, -1, 0], [-1, 0, 0, 1, 2, 0]], dtype=np.int32)
    assert Dirichlet(0.53).is_decided_along(Paths(classes)).tolist() == [
        [True, False, False, True, True, True],
        [False, True, True, True, True, True],
    ]
    assert Dirichlet(0.54).is_decided_along(Paths(classes)).tolist() == [
        [True, False, False, False, False, True],
        [False, True, True, True, False, True],
    ]


def test_the_range_of_the_integral_holds_all_of_the_distribution() -> None:
    for shape in (1, 2, 30, 4000):
        points, weights = gamma_quadrature(shape)
        density = np.exp((shape - 1) * np.log(points) - points - lgamma(shape))
        assert np.sum(weights * density) == pytest.approx(1, abs=1e-9)
        assert np.sum(weights * density * points) == pytest.approx(shape, rel=1e-9)


def test_a_clear_lead_needs_no_integral() -> None:
    # 20 to 1 to 1: each rival is ahead with a chance of about 1e-5, so both together with twice that at most.
    largest_share.cache_clear()
    assert Dirichlet().is_decided(VoteState((20, 1, 1), (0,) * 22))
    assert Dirichlet().is_decided(VoteState((20, 1), (0,) * 21))
    assert not Dirichlet().is_decided(VoteState((2, 2, 1), (0,) * 5))
    # 3 to 1 is 26/32, so ahead of two such rivals with at least 1 - 2 * 6/32.
    assert Dirichlet(0.625).is_decided(VoteState((3, 1, 1), (0,) * 5))
    assert Dirichlet().is_decided_along(Paths(np.zeros((1, 4), dtype=np.int32))).tolist() == [[False] * 3 + [True]]
    assert largest_share.cache_info().misses == 0


def test_a_chance_is_never_above_one() -> None:
    assert all(0.999 < largest_share(first, 1, 1) <= 1 for first in range(30, 300, 7))
