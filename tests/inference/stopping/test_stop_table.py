"""Optimal stopping: no table does better at its price, and the stated risk is what the model expects."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import product

import numpy as np
import pytest

from breadth.inference.stopping.shape_library import CONCENTRATIONS, ShapeLibrary
from breadth.inference.stopping.stop_table import (
    PATHS_PER_CONCENTRATION,
    PATHS_PER_SHAPE,
    VoteLattice,
    expected_outcome,
    optimal_stop_table,
    optimal_stops,
    simulate_lattice,
    simulate_restaurant,
    simulate_votes,
)

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
