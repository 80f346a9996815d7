"""Contract of every stop rule: equal decisions in arrays and singly, none before a vote, settings that survive."""

from __future__ import annotations

import hashlib
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from breadth.base.settings import dumps, loads
from breadth.inference.catalogue import STOP_RULES
from breadth.inference.stopping.beta_lead import BetaLead
from breadth.inference.stopping.certificate import Certificate
from breadth.inference.stopping.dirichlet import Dirichlet
from breadth.inference.stopping.lead import Lead
from breadth.inference.stopping.never import Never
from breadth.inference.stopping.risk import Risk
from breadth.inference.stopping.rule import StopRule, leading_answer, samples_to_decide, task_uniform
from breadth.inference.stopping.shape_library import ShapeLibrary
from breadth.inference.stopping.shapes import Shapes
from breadth.inference.stopping.sprt import Sprt
from breadth.inference.stopping.stop_table import optimal_stop_table
from breadth.inference.stopping.window import UnanimousWindow
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
