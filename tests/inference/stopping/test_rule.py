"""Contract of every stop rule: equal decisions in arrays and singly, none before a vote; and the rules that count."""

from __future__ import annotations

import hashlib
import pickle
from collections import Counter
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import betainc, betaln

from breadth.base.errors import MeasureError, SettingsError
from breadth.base.settings import dumps, loads
from breadth.inference.catalogue import STOP_RULES
from breadth.inference.stopping.posterior import BetaLead, Dirichlet
from breadth.inference.stopping.risk import Risk, optimal_stop_table
from breadth.inference.stopping.rule import (
    Lead,
    Never,
    StopRule,
    UnanimousWindow,
    expected_window_draws,
    leading_answer,
    samples_to_decide,
    task_uniform,
)
from breadth.inference.stopping.sequential import Certificate, Sprt
from breadth.inference.stopping.shapes import ShapeLibrary, Shapes
from breadth.inference.stored_votes import Paths
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.cascade import Cascade, CascadeStage
from breadth.inference.strategies.panel import Panel
from breadth.inference.voting import VoteState

LIBRARY = ShapeLibrary.fit([[12], [9, 2, 1], [5, 4, 2, 1], [11, 1]])
RULES: list[StopRule] = [
    Never(),
    Lead(2),
    UnanimousWindow(3),
    BetaLead(0.9),
    Dirichlet(0.9),
    Sprt(0.8, 0.2, 0.2),
    Sprt(0.8, 0.2, 0.2, give_up=False),
    Certificate(0.2),
    Shapes(),
    Shapes(0.1, LIBRARY),
    Risk(),
    Risk(0.05, LIBRARY, 12),
]


def standing_of(labels: list[int]) -> VoteState:
    votes = [label for label in labels if label >= 0]
    return VoteState(tuple(sorted(Counter(votes).values(), reverse=True)), tuple(votes), len(labels) - len(votes))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{type(rule).__name__}")
@settings(max_examples=25, deadline=None)
@given(classes=arrays(np.int32, st.tuples(st.integers(1, 3), st.integers(1, 14)), elements=st.integers(-1, 4)))
def test_arrays_decide_as_one_standing_after_the_other_does(rule: StopRule, classes: np.ndarray) -> None:
    along = rule.is_decided_along(Paths(classes))
    for row, draw in np.ndindex(classes.shape):
        assert along[row, draw] == rule.is_decided(standing_of(classes[row, : draw + 1].tolist()))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{type(rule).__name__}")
def test_what_the_posterior_rests_on_is_named_where_there_is_one(rule: StopRule) -> None:
    has_posterior = rule.posterior(VoteState((1,), (0,))) is not None
    assert (rule.basis != "") == has_posterior
    assert isinstance(rule.basis, str)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{type(rule).__name__}")
def test_no_rule_stops_before_the_first_vote(rule: StopRule) -> None:
    assert not rule.is_decided(VoteState())
    assert not rule.is_decided(VoteState(unread=9))
    assert not rule.is_decided_along(Paths(np.full((2, 3), -1, dtype=np.int32))).any()
    assert rule.posterior(VoteState()) is None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{type(rule).__name__}")
def test_a_rule_survives_toml_and_pickle(rule: StopRule) -> None:
    assert loads(type(rule), dumps(rule)) == rule
    assert pickle.loads(pickle.dumps(rule)) == rule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{type(rule).__name__}")
@settings(max_examples=20, deadline=None)
@given(labels=st.lists(st.integers(-1, 3), min_size=1, max_size=14), seed=st.integers(0, 99))
def test_only_rules_that_say_so_look_at_the_order(rule: StopRule, labels: list[int], seed: int) -> None:
    mixed = np.random.default_rng(seed).permutation(labels).tolist()
    if rule.by_counts:
        assert rule.is_decided(standing_of(labels)) == rule.is_decided(standing_of(mixed))


def test_every_rule_of_the_catalogue_is_tested_here() -> None:
    assert {type(rule) for rule in RULES} == {member for _, member in STOP_RULES}


def test_the_shortfall_is_the_votes_that_decide_if_all_agree() -> None:
    # Beta .95: from nothing four; at 1 to 1 the leader needs 6 to 1, five more; at 3 to 0 one more.
    assert samples_to_decide(BetaLead(), VoteState(), 8) == 4
    assert samples_to_decide(BetaLead(), standing_of([0, 1]), 8) == 5
    assert samples_to_decide(BetaLead(), standing_of([0, 0, 0]), 8) == 1
    assert samples_to_decide(BetaLead(), standing_of([0, 1, 0, 1]), 3) == 3
    # A window of three whose first vote went to another answer: two to fill it, three for the next.
    assert samples_to_decide(UnanimousWindow(3), standing_of([0, 0, 1, 1, 0, 0, 1]), 9) == 5


def test_the_leading_answer_is_the_first_of_equal_ones() -> None:
    assert leading_answer(()) == 0
    assert leading_answer((2, 1, 1, 2, 0)) == 2


def test_a_risk_has_its_table_ready_when_told_to_prepare() -> None:
    library = ShapeLibrary.fit([[6], [5, 1], [4, 2]])
    for rule in (Lead(), Risk(0.1)):  # nothing to prepare
        rule.prepare()
    optimal_stop_table.cache_clear()
    prepared = Risk(0.1, library, 6)
    Cascade((CascadeStage(Panel(AdaptiveVote(6, 2, prepared), 2)),)).prepare()
    assert optimal_stop_table.cache_info().currsize == 1
    prepared.is_decided(standing_of([0, 0]))
    assert optimal_stop_table.cache_info().misses == 1


def test_coins_are_uniform_fixed_and_differ_by_name_and_seed() -> None:
    randomize = np.array([task_uniform(f"question {number}", 3) for number in range(4000)])
    assert randomize.min() >= 0
    assert randomize.max() < 1
    # Largest gap between the shares and the diagonal: 1.63 / sqrt(n) is exceeded once in a hundred (Kolmogorov).
    assert np.abs(np.sort(randomize) - np.arange(4000) / 4000).max() < 1.63 / np.sqrt(4000)
    assert task_uniform("a", 1) == task_uniform("a", 1)
    assert len({task_uniform("a", 1), task_uniform("a", 2), task_uniform("b", 1), task_uniform("", 1)}) == 4


def test_the_rules_that_look_at_counts_only_are_these() -> None:
    assert {type(rule) for rule in RULES if rule.by_counts} == {Never, Lead, BetaLead, Dirichlet, Sprt, Shapes, Risk}
    assert not StopRule.by_counts


def test_the_fewest_votes_to_decide_have_a_limit() -> None:
    assert samples_to_decide(Lead(3), VoteState(), 3) == 3
    assert samples_to_decide(Lead(3), VoteState(), 4) == 3
    assert samples_to_decide(Lead(3), VoteState(), 1) == 1
    assert samples_to_decide(Lead(3), standing_of([0, 1]), 9) == 3
    assert samples_to_decide(Never(), VoteState(), 5) == 5


def test_a_task_keeps_its_number_for_good() -> None:
    # The first 53 bits of the hash of "coin\0" 3 "\0a", as a share of 2^53.
    digest = hashlib.blake2b(b"coin\x003\x00a", digest_size=8).hexdigest()
    assert task_uniform("a", 3) == int(f"{int(digest, 16):064b}"[:53], 2) / 2**53
    assert task_uniform("\ud800", 3) != task_uniform("a", 3)


def test_a_rule_without_chance_stays_itself() -> None:
    for rule in (Never(), Lead(2), BetaLead(0.9), Certificate(0.2), Risk(0.05)):
        assert rule.randomize(0.0) is rule


def test_a_thousand_equal_votes_do_not_stop_it() -> None:
    assert not Never().is_decided(VoteState((1000,), (0,) * 1000))
    assert not Never().is_decided_along(Paths(np.zeros((1, 50), dtype=np.int32))).any()
    assert Never().posterior(VoteState((3,), (0, 0, 0))) is None
    assert Never().basis == ""


def test_its_decision_is_a_plain_no() -> None:
    assert Never().is_decided(VoteState((1,), (0,))) is False


def test_the_leader_must_be_so_far_ahead_of_the_second_whatever_the_rest() -> None:
    assert not Lead().is_decided(VoteState((2,), (0, 0)))
    assert Lead().is_decided(VoteState((3,), (0, 0, 0)))
    assert not Lead().is_decided(VoteState((9, 7, 7), (0,) * 23))
    assert Lead().is_decided(VoteState((9, 6, 6), (0,) * 21))


def test_the_constants_of_consol_need_a_lead_of_three_at_every_count() -> None:
    consol = Sprt(0.5001, 0.05, 1 - 0.05 - 0.000024)
    for second in range(100):
        for ahead in range(5):
            standing = VoteState(
                (second + ahead, second) if second else (ahead,) if ahead else (), (0,) * (2 * second + ahead)
            )
            assert consol.is_decided(standing) == Lead(3).is_decided(standing)
    # A = 4.80e-4 and a vote is worth 2.0e-4; its other side fires at a tie of 632 votes each.
    assert log((1 - consol.beta) / consol.alpha) == pytest.approx(4.80e-4, rel=2e-3)
    assert not consol.is_decided(VoteState((631, 631), (0,) * 1262))


def test_the_mixture_form_of_consol_needs_a_lead_of_three_as_well() -> None:
    def ratio(first: int, second: int) -> float:
        a, b = first + 1e6, second + 1e6
        tail = log(1 - betainc(a, b, 0.5)) - log(1 - betainc(1e6, 1e6, 0.5))
        return float(betaln(a, b) - betaln(1e6, 1e6) + tail + (first + second) * log(2))

    needed = log((0.05 + 0.00006) / 0.05)
    for second in (0, 1, 5, 20):
        assert ratio(second + 2, second) < needed <= ratio(second + 3, second)


def test_a_lead_of_no_votes_is_refused() -> None:
    with pytest.raises(SettingsError, match="votes"):
        Lead(0)


def test_recorded_votes_stop_at_exactly_the_lead() -> None:
    classes = np.array([[0, 0, 1, 0, 0, 1], [-1, 1, 1, 0, 2, 1]], dtype=np.int32)
    assert Lead(2).is_decided_along(Paths(classes)).tolist() == [
        [False, True, False, True, True, True],
        [False, False, True, False, False, True],
    ]
    assert Lead(1).is_decided_along(Paths(classes))[1].tolist() == [False, True, True, True, True, True]


def test_one_vote_is_a_lead_and_three_are_the_default() -> None:
    assert Lead(1).is_decided(VoteState((1,), (0,)))
    assert not Lead(1).is_decided(VoteState())
    assert not Lead(1).is_decided(VoteState((1, 1), (0, 1)))
    assert Lead().votes == 3


def is_decided(votes: str, size: int = 3) -> bool:
    labels = tuple(ord(vote) - ord("a") for vote in votes)
    return UnanimousWindow(size).is_decided(
        VoteState(tuple(sorted(map(labels.count, set(labels)), reverse=True)), labels)
    )


def test_only_whole_windows_count() -> None:
    assert is_decided("aaa")
    assert not is_decided("baaa"), "three in a row, but across two windows"
    assert is_decided("baaaaa")
    assert is_decided("aabbbb"), "the second window, whoever leads"
    assert not is_decided("aabbb")
    assert is_decided("aaabc"), "a window that agreed stays one"


def test_a_vote_that_cannot_be_read_fills_no_place() -> None:
    along = UnanimousWindow(3).is_decided_along(Paths(np.array([[0, -1, 0, -1, 0, 1]], dtype=np.int32)))
    assert along.tolist() == [[False, False, False, False, True, True]]


@pytest.mark.parametrize(
    ("shares", "draws"), [((0.9, 0.1), 8.461), ((0.7, 0.3), 22.752), ((0.5, 0.3, 0.2), 35.550), ((1.0,), 5.0)]
)
def test_the_draws_to_expect(shares: tuple[float, ...], draws: float) -> None:
    assert expected_window_draws(shares) == pytest.approx(draws, abs=5e-4)


def test_the_draws_to_expect_are_those_of_simulated_votes() -> None:
    rng = np.random.default_rng(0)
    votes = rng.choice(2, size=(20_000, 40), p=(0.8, 0.2)).astype(np.int32)
    along = UnanimousWindow(5).is_decided_along(Paths(votes))
    taken = np.where(along.any(axis=1), along.argmax(axis=1) + 1, 40)
    assert taken.mean() == pytest.approx(expected_window_draws((0.8, 0.2)), abs=4 * taken.std() / np.sqrt(len(taken)))


def test_bad_windows_are_refused() -> None:
    with pytest.raises(SettingsError, match="size"):
        UnanimousWindow(0)


@pytest.mark.parametrize(("size", "most"), [(7, 40), (0, 40), (-1, 40), (-4, -40), (5, 4), (5, 0), (5, -5)])
def test_votes_that_are_not_whole_windows_are_refused(size: int, most: int) -> None:
    with pytest.raises(MeasureError, match="whole windows"):
        expected_window_draws((1.0,), size, most)


def test_a_window_of_one_vote_is_the_first_vote() -> None:
    assert is_decided("a", 1)
    assert not UnanimousWindow(1).is_decided(VoteState())
    assert UnanimousWindow().size == 5
    assert UnanimousWindow(1).is_decided_along(Paths(np.array([[-1, 0, 1]], dtype=np.int32))).tolist() == [
        [False, True, True]
    ]


def test_recorded_windows_end_where_single_ones_do() -> None:
    classes = np.array([[0, 1, 1, 1, 1, 0], [0, 0, 1, 1, 0, 0]], dtype=np.int32)
    assert UnanimousWindow(2).is_decided_along(Paths(classes)).tolist() == [
        [False, False, False, True, True, True],  # 01 11 10
        [False, True, True, True, True, True],
    ]


def test_one_window_costs_its_size_and_two_the_chance_of_a_second() -> None:
    assert expected_window_draws((0.5, 0.5), size=2, most=2) == 2.0
    # A pair agrees with chance 1/2: 2 votes half of the time, 4 otherwise.
    assert expected_window_draws((0.5, 0.5), size=2, most=4) == 3.0
    # A window of one vote always agrees.
    assert expected_window_draws((0.5, 0.5), size=1, most=3) == 1.0
