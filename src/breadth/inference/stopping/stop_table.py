"""Which standings to stop at so that a stated risk is met with the fewest votes: optimal stopping by backward induction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from breadth.inference.stopping.lattice import Lattice, lattice
from breadth.inference.stopping.shape_library import ShapeLibrary

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

HIGHEST_PRICE = 1e6
"""Votes that one disagreement may be worth at most; at this price only certain leads stop."""
HALVINGS = 30
"""Steps of the search for the price: it is then exact to a hundred-millionth."""


@dataclass(frozen=True, eq=False)
class StopTable:
    """Where to stop: a strict table, and a lax one that is used for a share of the questions, so that the risk is met on the spot."""

    lattice: Lattice
    """The chances it rests on."""
    strict: Bools
    """Whether to stop at each standing, with at most the stated risk."""
    lax: Bools
    """The next cheaper choice, with at least the stated risk."""
    share: float
    """Share of questions for which the lax table is used."""
    risk: float
    """Disagreement to expect, by the model."""
    votes: float
    """Votes to expect, by the model."""


@lru_cache(maxsize=64)
def stop_table(library: ShapeLibrary, most: int, risk: float) -> StopTable:
    """Return the table for a stated risk.

    For a price of one disagreement in votes the best table follows by backward induction: stop where the chance that the leader is no
    mode of the full vote, times the price, is below one vote and what follows it. The price is bisected until the disagreement to
    expect is the stated risk. Between two prices the disagreement jumps where a frequent standing (2 to 0, say) changes
    sides; the two tables around the jump are then mixed over questions, which is what optimal rules under a constraint do.
    """
    field = lattice(library, most)
    low, high = 0.0, np.log(HIGHEST_PRICE)
    lax, strict = best_stops(field, 1.0), best_stops(field, HIGHEST_PRICE)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        stops = best_stops(field, float(np.exp(middle)))
        if expected(field, stops)[0] > risk:
            low, lax = middle, stops
        else:
            high, strict = middle, stops
    (most_risk, few), (least_risk, many) = expected(field, lax), expected(field, strict)
    share = float(np.clip((risk - least_risk) / (most_risk - least_risk), 0, 1)) if most_risk > least_risk else 0.0
    met, votes = least_risk + share * (most_risk - least_risk), many + share * (few - many)
    return StopTable(field, strict, lax, share, met, votes)


def best_stops(field: Lattice, price: float) -> Bools:
    """Return where to stop when one disagreement is worth ``price`` votes. Standings that were never met go on."""
    cost = price * field.loss
    stops = field.loss == 0
    for here, onward, chance in reversed(field.layers[:-1]):
        going_on = 1 + np.sum(chance * cost[onward], axis=1)
        # A standing that was met only at the end of a path goes nowhere; it has no layer after it.
        better = going_on < cost[here]
        cost[here] = np.where(better, going_on, cost[here])
        stops[here] = ~better
    stops[field.layers[-1][0]] = True
    return np.asarray(stops)


def expected(field: Lattice, stops: Bools) -> tuple[float, float]:
    """Return the disagreement and the votes to expect of a table, by the model."""
    mass = np.zeros(len(field.loss))
    mass[field.layers[0][0]] = 1.0
    risk = votes = 0.0
    for count, (here, onward, chance) in enumerate(field.layers, start=1):
        ends = stops[here]
        risk += float(mass[here[ends]] @ field.loss[here[ends]])
        votes += count * float(mass[here[ends]].sum())
        moving = here[~ends]
        np.add.at(mass, onward[~ends].ravel(), (mass[moving][:, None] * chance[~ends]).ravel())
    return risk, votes
