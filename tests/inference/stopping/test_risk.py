"""The stop table, and the stated risk: kept on new questions of the fitted kind and on real votes."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from breadth.base.errors import SettingsError
from breadth.inference.stopping.posterior import BetaLead
from breadth.inference.stopping.risk import (
    PATHS_PER_CONCENTRATION,
    PATHS_PER_SHAPE,
    LaxRisk,
    Risk,
    VoteLattice,
    expected_outcome,
    optimal_stop_table,
    optimal_stops,
    simulate_lattice,
    simulate_restaurant,
    simulate_votes,
)
from breadth.inference.stopping.shapes import CONCENTRATIONS, ShapeLibrary
from breadth.inference.stored_replay import replay
from breadth.inference.stored_votes import Paths, StoredVotes
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.voting import VoteState

MANY = 10**9
"""So many questions that none is unlike them."""


def at(field: VoteLattice, *standing: int) -> int:
    return int(field.index(*(np.array(part) for part in standing)))


def test_three_votes_by_hand() -> None:
    # Shares .6 and .4. The first vote is not the mode of three: .6 * .4^2 + .4 * .6^2 = .24; the second equals it: .52.
    field = simulate_lattice(ShapeLibrary(((0.6, 0.4),), (1.0,), questions=MANY), 3)
    error = 4 * np.sqrt(0.25 / PATHS_PER_SHAPE)
    assert field.visits[at(field, 1, 0, 0)] == pytest.approx(1)
    assert field.loss[at(field, 1, 0, 0)] == pytest.approx(0.24, abs=error)
    assert field.visits[at(field, 2, 0, 0)] == pytest.approx(0.52, abs=error)
    assert field.grows[at(field, 1, 0, 0)] == pytest.approx([0.52, 0.48, 0], abs=error)
    assert field.loss[at(field, 2, 0, 0)] == 0, "two of three cannot be overtaken"
    assert field.loss[at(field, 1, 1, 0)] == pytest.approx(0.5, abs=1e-9), "one of the two tied answers wins"


def test_a_leader_grows_a_runner_up_grows_or_one_of_the_rest() -> None:
    # After 1 to 0 of shares .8 and .2 the same answer comes with .8^2 + .2^2 = .68; after 1 to 1 either is the leader.
    field = simulate_lattice(ShapeLibrary(((0.8, 0.2),), (3.0,), questions=MANY), 3)
    error = 4 * np.sqrt(0.25 / PATHS_PER_SHAPE)
    assert field.visits[at(field, 1, 0, 0)] == pytest.approx(1), "weights are shares of their sum"
    assert field.grows[at(field, 1, 0, 0)] == pytest.approx([0.68, 0.32, 0], abs=error)
    assert field.grows[at(field, 1, 1, 0)] == pytest.approx([0.32, 0, 0], abs=error)
    # Twelve rare answers of 1/12 each: a third vote is new with 11/12 * 10/12, and then one of the rest.
    rare = simulate_lattice(ShapeLibrary(((1e-9,),), (1.0,), questions=MANY), 3)
    assert rare.grows[at(rare, 1, 1, 0)] == pytest.approx([11 / 12 * 2 / 12, 0, 11 / 12 * 10 / 12], abs=error)
    assert rare.visits[at(rare, 1, 1, 1)] == pytest.approx(11 / 12 * 10 / 12, abs=error)


def test_the_chances_are_those_of_counting_every_sequence() -> None:
    shape, most = (0.5, 0.3, 0.2), 6
    field = simulate_lattice(ShapeLibrary((shape,), (1.0,), questions=MANY), most)
    visits: dict[tuple[int, int, int], float] = defaultdict(float)
    losses: dict[tuple[int, int, int], float] = defaultdict(float)
    for sequence in product(range(3), repeat=most):
        chance = float(np.prod([shape[label] for label in sequence]))
        full = Counter(sequence)
        modes = {label for label, count in full.items() if count == max(full.values())}
        for votes in range(1, most + 1):
            seen = Counter(sequence[:votes])
            ranked = [*sorted(seen.values(), reverse=True), 0]
            standing = (ranked[0], ranked[1], votes - ranked[0] - ranked[1])
            leaders = [label for label, count in seen.items() if count == ranked[0]]
            visits[standing] += chance
            losses[standing] += chance * float(np.mean([label not in modes for label in leaders]))
    for standing, weight in visits.items():
        assert field.visits[at(field, *standing)] == pytest.approx(weight, abs=0.045)
        assert field.losses[at(field, *standing)] == pytest.approx(losses[standing], abs=0.045)


def test_a_library_of_one_question_leaves_half_to_questions_unlike_it() -> None:
    # Two equal votes: certain for the shape, 1 / (1 + c) for a restaurant process.
    novelty = tuple(float(place == 5) for place in range(len(CONCENTRATIONS)))
    field = simulate_lattice(ShapeLibrary(((1.0,),), (1.0,), novelty, questions=1), 4)
    chance = 1 / 2 + 1 / 2 / (1 + CONCENTRATIONS[5])
    assert field.visits[at(field, 2, 0, 0)] == pytest.approx(
        chance, abs=4 * 0.5 * np.sqrt(0.25 / PATHS_PER_CONCENTRATION)
    )


def test_the_same_library_gives_the_same_draws() -> None:
    library = ShapeLibrary(((0.7, 0.2),), (1.0,), questions=20)
    first = simulate_lattice(library, 5)
    simulate_lattice.cache_clear()
    np.testing.assert_array_equal(first.losses, simulate_lattice(library, 5).losses)


def test_every_layer_is_a_chance() -> None:
    field = simulate_lattice(ShapeLibrary.fit([[9, 1], [5, 3, 2], [10]]), 10)
    for here, onward, chance in field.layers[:-1]:
        np.testing.assert_allclose(chance.sum(axis=1), 1)
        assert np.all(field.visits[onward[chance > 0]] > 0)
        assert len(here) == len(set(here.tolist()))


LIBRARY = ShapeLibrary.fit([[40], [38, 2], [30, 8, 2], [20, 14, 4, 2], [25, 15], [39, 1], [12, 10, 9, 5, 4]] * 5)


@pytest.mark.parametrize("price", [2.0, 5.0, 20.0, 200.0])
def test_no_other_table_is_better_at_its_price(price: float) -> None:
    field = simulate_lattice(LIBRARY, 4)
    free = [int(number) for here, _, _ in field.layers[:-1] for number in here]
    best = np.inf
    for choice in product([False, True], repeat=len(free)):
        stops = np.zeros(len(field.loss), dtype=np.bool_)
        stops[free] = choice
        stops[field.layers[-1][0]] = True
        risk, votes = expected_outcome(field, stops)
        best = min(best, price * risk + votes)
    risk, votes = expected_outcome(field, optimal_stops(field, price))
    assert price * risk + votes == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("risk", [0.01, 0.02, 0.05, 0.1])
def test_the_model_expects_the_stated_risk(risk: float) -> None:
    table = optimal_stop_table(LIBRARY, 20, risk)
    assert table.risk == pytest.approx(risk, abs=1e-9)
    assert 0 <= table.share <= 1
    strict, lax = expected_outcome(table.lattice, table.strict), expected_outcome(table.lattice, table.lax)
    assert strict[0] <= risk <= lax[0]
    assert lax[1] <= table.votes <= strict[1]


def test_a_higher_risk_never_costs_more() -> None:
    votes = [optimal_stop_table(LIBRARY, 20, risk).votes for risk in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)]
    assert votes == sorted(votes, reverse=True)


def test_a_risk_above_that_of_one_vote_takes_one_vote() -> None:
    table = optimal_stop_table(ShapeLibrary(((0.999,),), (1.0,), questions=10**9), 10, 0.2)
    assert (table.votes, table.share) == (1, 0)
    assert table.risk < 0.01


def test_at_the_dearest_price_only_certain_leads_stop() -> None:
    field = simulate_lattice(LIBRARY, 10)
    stops = optimal_stops(field, 1e9)
    assert expected_outcome(field, stops)[0] == 0
    assert stops[field.index(np.array(6), np.array(0), np.array(0))], "six of ten cannot be overtaken"
    assert not stops[field.index(np.array(4), np.array(0), np.array(0))]


def test_states_never_reached_are_lost_unless_the_lead_is_certain() -> None:
    three, four = (
        VoteLattice(most, np.zeros((most + 1) ** 3), np.zeros((most + 1) ** 3), np.zeros(((most + 1) ** 3, 3)))
        for most in (3, 4)
    )
    assert four.loss[at(four, 1, 1, 1)] == 1, "with a fourth vote to come the tie is open"
    assert three.loss[at(three, 1, 1, 1)] == 0, "no vote is left, and all three are modes"
    assert three.loss[at(three, 0, 0, 0)] == three.loss[at(three, 0, 0, 3)] == 1, "nobody leads"


def test_every_part_of_the_library_has_its_weight_and_its_paths() -> None:
    library = ShapeLibrary(((0.9,), (0.5, 0.5)), (3.0, 1.0), questions=3)
    votes = list(simulate_votes(library, 5))
    assert [part.classes.shape for part, _ in votes] == [(2000, 5)] * 2 + [(5000, 5)] * 10
    # Three quarters for the shapes, the rest for ten restaurants alike.
    assert [weight for _, weight in votes] == pytest.approx([9 / 16, 3 / 16, *[1 / 40] * 10])
    first, second = votes[0][0].classes, votes[1][0].classes
    assert np.mean(first == 0) == pytest.approx(0.9, abs=4 * 0.3 / 100)
    assert np.mean(second == 0) == pytest.approx(0.5, abs=4 * 0.5 / 100)
    assert first.max() == 12, "twelve rare answers"
    assert second.max() == 1


def test_a_restaurant_by_hand() -> None:
    # With concentration 1 the second vote is new with 1/2, the third with 1/3, the fourth with 1/4; a repeat is of any
    # earlier vote alike.
    votes = simulate_restaurant(1.0, 4, np.random.default_rng(5))
    same, new = (votes == 0).all(axis=1), (votes == np.arange(4)).all(axis=1)
    error = 4 * 0.5 / np.sqrt(PATHS_PER_CONCENTRATION)
    assert same.mean() == pytest.approx(1 / 4, abs=error)
    assert new.mean() == pytest.approx(1 / 24, abs=error / 2)
    assert np.mean(votes[:, 3] == votes[:, 0]) == pytest.approx(1 / 2, abs=error), (
        "any two votes agree with 1 / (1 + c)"
    )
    for row in np.unique(votes, axis=0):
        assert set(row.tolist()) == set(range(len(set(row.tolist())))), "classes are numbered by appearance"


SIX_SHAPES = ShapeLibrary.fit([[40], [38, 2], [30, 8, 2], [20, 14, 4, 2], [25, 15], [39, 1]] * 5)


def questions(count: int, seed: int) -> NDArray[np.int32]:
    """Votes on questions of mixed difficulty: 40 each of six answers."""
    rng = np.random.default_rng(seed)
    leader = rng.beta(4, 1, count)
    others = rng.dirichlet([0.6] * 5, count) * (1 - leader)[:, None]
    shares = np.concatenate([leader[:, None], others], axis=1)
    return np.array([rng.choice(6, 40, p=row) for row in shares], dtype=np.int32)


def counts(classes: NDArray[np.int32]) -> list[list[int]]:
    return [np.bincount(row).tolist() for row in classes]


def test_new_questions_of_the_same_kind_get_the_stated_risk_for_fewer_votes_than_beta() -> None:
    library = ShapeLibrary.fit(counts(questions(600, 1)))
    new = StoredVotes.from_classes(questions(2500, 2))
    rules = {str(risk): AdaptiveVote(40, 1, Risk(risk, library)) for risk in (0.01, 0.02, 0.05)}
    beta = {f"beta {t}": AdaptiveVote(40, 1, BetaLead(t)) for t in (0.7, 0.8, 0.85, 0.88, 0.9, 0.92, 0.95, 0.97)}
    outcomes = replay(new, {**rules, **beta}, repeats=8).outcomes
    for risk in (0.01, 0.02, 0.05):
        ours = outcomes[str(risk)]
        observed = 1 - ours.agreement.value
        assert observed == pytest.approx(risk, rel=0.3)
        cheapest = min(outcomes[name].samples.value for name in beta if 1 - outcomes[name].agreement.value <= observed)
        assert ours.samples.value < cheapest


def test_two_halves_of_real_votes(fixtures: Path) -> None:
    table = pq.read_table(
        fixtures / "votes" / "consol_gpt4omini_gsm8k_vote40.parquet", columns=["question_id", "answer"]
    ).to_pydict()
    rows: dict[object, list[str]] = {}
    for question, answer in zip(table["question_id"], table["answer"], strict=True):
        rows.setdefault(question, []).append(answer)
    classes = np.array([np.unique(row, return_inverse=True)[1] for row in rows.values()], dtype=np.int32)
    half = np.random.default_rng(0).permutation(len(classes)) % 2 == 0
    library = ShapeLibrary.fit(counts(classes[half]))
    rules = {str(risk): AdaptiveVote(40, 1, Risk(risk, library)) for risk in (0.01, 0.02, 0.05)}
    outcomes = replay(StoredVotes.from_classes(classes[~half]), rules, repeats=20).outcomes
    for name, outcome in outcomes.items():
        assert 1 - float(name) in outcome.agreement


def test_the_coin_chooses_the_table_once() -> None:
    rule = Risk(0.05, SIX_SHAPES)
    share = rule.table.share
    assert 0 < share < 1
    lax = rule.randomize(share / 2)
    assert isinstance(lax, LaxRisk)
    assert lax.randomize(0.999) is lax
    assert rule.randomize(share) is rule
    np.testing.assert_array_equal(lax.stops, rule.table.lax)
    assert np.count_nonzero(lax.stops & ~rule.stops) > 0


def test_a_lead_that_cannot_be_overtaken_is_certain() -> None:
    rule = Risk(0.01, SIX_SHAPES, 10)
    assert rule.is_decided(VoteState((5,), (0,) * 5)), "five of ten can at worst be tied, and a mode agrees"
    assert rule.posterior(VoteState((5,), (0,) * 5)) == 1
    assert rule.is_decided(VoteState((4, 3, 3), (0,) * 10)), "the full vote is in"
    assert rule.posterior(VoteState((9, 8), (0,) * 17)) == 1
    assert not rule.is_decided(VoteState((1, 1), (0, 1)))


def test_the_posterior_rises_with_the_lead_and_is_named() -> None:
    rule = Risk(0.02, SIX_SHAPES)
    chances = [rule.posterior(VoteState((votes,), (0,) * votes)) or 0.0 for votes in (1, 2, 3, 4)]
    assert chances == sorted(chances)
    assert "30 questions" in rule.basis
    assert "full vote of 40" in rule.basis


def test_a_standing_the_library_never_met_goes_on_with_the_beta_posterior() -> None:
    # Only one answer, or with next to no chance a second one: three answers with nine votes each are never met.
    rule = Risk(0.02, ShapeLibrary(((1.0,),), (1.0,), (1.0,) + (0.0,) * 9, questions=10**9), 40)
    strange = VoteState((9, 9, 9), (0,) * 27)
    field = rule.table.lattice
    assert field.visits[field.index(np.array(9), np.array(9), np.array(9))] == 0
    assert not rule.is_decided(strange)
    assert rule.posterior(strange) == BetaLead().posterior(strange) == 0.5


def test_without_a_library_it_is_the_beta_rule_and_says_so() -> None:
    rule, standing = Risk(0.05), VoteState((4,), (0,) * 4)
    assert rule.is_decided(standing) == BetaLead(0.95).is_decided(standing)
    assert rule.posterior(standing) == BetaLead(0.95).posterior(standing)
    assert rule.randomize(0.0) is rule
    assert "no library" in rule.basis


@pytest.mark.parametrize(("field", "value"), [("risk", 0.0), ("risk", 0.5), ("most", 1), ("most", 129)])
def test_settings_that_make_no_sense_are_refused(field: str, value: float) -> None:
    with pytest.raises(SettingsError, match=field):
        Risk(**{field: value})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def rule() -> Risk:
    """A full vote of ten, quick to compute."""
    return Risk(0.01, SIX_SHAPES, 10)


def test_the_full_vote_decides_at_exactly_its_size(rule: Risk) -> None:
    tied = VoteState((5, 5), (0, 1) * 5)
    assert rule.is_decided(tied), "the tenth vote of ten is the last"
    assert rule.posterior(tied) == 1.0
    before = VoteState((5, 4), (0, 1) * 4 + (0,))
    assert rule.posterior(before) == 1.0, "five of ten are a mode whatever comes"
    open_vote = VoteState((4, 4, 1), (0, 1) * 4 + (2,))
    assert not rule.is_decided(open_vote), "the tenth vote breaks the tie"
    posterior = rule.posterior(open_vote)
    assert posterior is not None
    assert 0.5 < posterior < 1


def test_recorded_votes_are_decided_up_to_the_full_vote_and_beyond(rule: Risk) -> None:
    classes = np.array([[-1, 0, 1] + [0, 1] * 4 + [0], [0] * 12], dtype=np.int32)
    along = rule.is_decided_along(Paths(classes))
    # One all, two all, ... four all are open; the tenth vote, at the eleventh draw, ends it.
    assert along[0].tolist() == [*along[0, :9].tolist(), along[0, 9].item(), True, True]
    for draw in range(12):
        votes = [label for label in classes[0, : draw + 1].tolist() if label >= 0]
        state = VoteState(tuple(sorted(map(votes.count, set(votes)), reverse=True)), tuple(votes))
        assert along[0, draw] == rule.is_decided(state)
    assert not along[0, [0, 2, 4, 6, 8]].any()
    assert along[1, 4:].all()


def test_the_index_of_a_state_is_its_place_in_the_table(rule: Risk) -> None:
    # Leader, runner-up and rest as digits of a number to the base 11.
    assert rule.state_index(VoteState((4, 3, 1, 1), (0,) * 9)) == 4 * 121 + 3 * 11 + 2
    assert rule.table.lattice.index(np.array(4), np.array(3), np.array(2)) == 4 * 121 + 3 * 11 + 2
    assert rule.state_index(VoteState()) == 0
    assert rule.state_index(VoteState((5, 5), (0, 1) * 5)) == 5 * 121 + 5 * 11
    assert rule.state_index(VoteState((6, 5), (0,) * 11)) == -1, "the last cell, for every longer vote"
    assert rule.stops[-1]


def test_the_widest_settings_are_accepted_and_the_defaults_are_the_documented_ones() -> None:
    assert (Risk(0.499, most=2).most, Risk(1e-6, most=128).most) == (2, 128)
    assert (Risk().risk, Risk().most) == (0.02, 40)
    assert Risk(0.25).is_decided(VoteState((1,), (0,))), "without a library: Beta with 0.75"
    assert not Risk(0.24).is_decided(VoteState((1,), (0,)))


def test_more_votes_than_the_full_vote_are_decided(rule: Risk) -> None:
    for counts in ((6, 5), (6, 6), (10, 10), (4, 4, 4, 4), (12,), (4, *[1] * 12)):
        state = VoteState(counts, (0,) * sum(counts))
        assert rule.is_decided(state)
        assert rule.posterior(state) == 1.0
