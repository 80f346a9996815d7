"""Optimal stopping: no table does better at its price, and the stated risk is what the model expects."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from breadth.inference.stopping.lattice import lattice
from breadth.inference.stopping.shape_library import ShapeLibrary
from breadth.inference.stopping.stop_table import best_stops, expected, stop_table

LIBRARY = ShapeLibrary.fit([[40], [38, 2], [30, 8, 2], [20, 14, 4, 2], [25, 15], [39, 1], [12, 10, 9, 5, 4]] * 5)


@pytest.mark.parametrize("price", [2.0, 5.0, 20.0, 200.0])
def test_no_other_table_is_better_at_its_price(price: float) -> None:
    field = lattice(LIBRARY, 4)
    free = [int(number) for here, _, _ in field.layers[:-1] for number in here]
    best = np.inf
    for choice in product([False, True], repeat=len(free)):
        stops = np.zeros(len(field.loss), dtype=np.bool_)
        stops[free] = choice
        stops[field.layers[-1][0]] = True
        risk, votes = expected(field, stops)
        best = min(best, price * risk + votes)
    risk, votes = expected(field, best_stops(field, price))
    assert price * risk + votes == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("risk", [0.01, 0.02, 0.05, 0.1])
def test_the_model_expects_the_stated_risk(risk: float) -> None:
    table = stop_table(LIBRARY, 20, risk)
    assert table.risk == pytest.approx(risk, abs=1e-9)
    assert 0 <= table.share <= 1
    strict, lax = expected(table.lattice, table.strict), expected(table.lattice, table.lax)
    assert strict[0] <= risk <= lax[0]
    assert lax[1] <= table.votes <= strict[1]


def test_a_higher_risk_never_costs_more() -> None:
    votes = [stop_table(LIBRARY, 20, risk).votes for risk in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)]
    assert votes == sorted(votes, reverse=True)


def test_a_risk_above_that_of_one_vote_takes_one_vote() -> None:
    table = stop_table(ShapeLibrary(((0.999,),), (1.0,), questions=10**9), 10, 0.2)
    assert (table.votes, table.share) == (1, 0)
    assert table.risk < 0.01


def test_at_the_dearest_price_only_certain_leads_stop() -> None:
    field = lattice(LIBRARY, 10)
    stops = best_stops(field, 1e9)
    assert expected(field, stops)[0] == 0
    assert stops[field.number(np.array(6), np.array(0), np.array(0))], "six of ten cannot be overtaken"
    assert not stops[field.number(np.array(4), np.array(0), np.array(0))]
