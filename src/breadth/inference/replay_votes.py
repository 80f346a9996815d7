"""Replays of votes and adaptive votes in arrays: all paths of all questions at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from breadth.inference.stopping.never import Never
from breadth.inference.stopping.paths import Paths, combined
from breadth.inference.stopping.rule import StopRule, leading
from breadth.inference.stored_votes import Reels
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Played:
    """What came of one strategy, one number a path."""

    correct: Floats
    """Chance that the answer is right."""
    agreeing: Floats
    """Chance that it is a mode of all stored votes."""
    samples: Floats
    """Candidates taken in."""
    started: Floats
    """Draws started."""
    tokens: Floats
    """Tokens of the candidates taken in."""


def counted(strategy: Strategy) -> AdaptiveVote | None:
    """Return the adaptive vote that a strategy amounts to, None when it is no plain vote."""
    if type(strategy) is Vote:
        return AdaptiveVote(strategy.n, strategy.n, Never(), strategy.n)
    return strategy if type(strategy) is AdaptiveVote else None


def played_by_counts(strategy: AdaptiveVote, reels: Reels) -> Played:
    """Replay a vote in arrays; a rule that tosses a coin is replayed on each side for its own paths."""
    last, started = np.zeros((2, len(reels.sizes)), dtype=np.int64)
    for rule, own in _rules(strategy.stop, reels):
        ends = last_draws(rule, strategy.most, reels, strategy.unread)
        last[own] = ends[own]
        started[own] = started_draws(replace(strategy, stop=rule), reels, ends + 1)[own]
    rows = np.arange(len(last))
    counts = (last + 1).astype(np.float64)
    return Played(
        reels.correct[rows, last],
        reels.agreeing[rows, last],
        counts,
        started.astype(np.float64),
        reels.spent[rows, last],
    )


def _rules(stop: StopRule, reels: Reels) -> Iterator[tuple[StopRule, NDArray[np.bool_]]]:
    """Yield the rules that the paths' coins give, each with the paths it is for."""
    if type(stop).tossed is StopRule.tossed:
        yield stop, np.ones(len(reels.sizes), dtype=np.bool_)
        return
    places: dict[StopRule, list[int]] = {}
    for place, coin in enumerate(reels.coins.tolist()):
        places.setdefault(stop.tossed(coin), []).append(place)
    for rule, own in places.items():
        yield rule, np.isin(np.arange(len(reels.sizes)), own)


def last_draws(stop: StopRule, most: int, reels: Reels, unread: int) -> Ints:
    """Return the place of the draw after which each path stops: the rule's first yes, the last draw there is, or nothing to vote on."""
    decided = stop.decided_along(reels.paths)
    if unread <= decided.shape[1]:
        decided[:, unread - 1] |= reels.paths.total[:, unread - 1] == 0
    limit = np.minimum(reels.sizes, most) - 1
    first = np.where(decided.any(axis=1), decided.argmax(axis=1), limit)
    return np.asarray(np.minimum(first, limit))


def started_draws(strategy: AdaptiveVote, reels: Reels, taken: Ints) -> Ints:
    """Return the draws that were started when ``taken`` had arrived: the most that were ever worth having in flight."""
    if strategy.width == 1:
        return taken
    limit = np.minimum(reels.sizes, strategy.most)
    rows, draws = np.nonzero(np.arange(int(taken.max())) < taken[:, None])
    ahead = draws + np.minimum(
        _shortfalls(strategy.stop, reels.paths, rows, draws, strategy.width), strategy.most - draws
    )
    reached = np.zeros(len(taken), dtype=np.int64)
    np.maximum.at(reached, rows, ahead)
    return np.minimum(reached, limit)


def _shortfalls(stop: StopRule, paths: Paths, rows: Ints, draws: Ints, width: int) -> Ints:
    """Return the shortfall on each of some paths before each of some draws: `shortfall` in arrays."""
    if isinstance(stop, Never):
        return np.full(len(rows), width)
    if not stop.by_counts:
        return _shortfalls_by_order(stop, paths, rows, draws, width)
    before = np.where(draws[:, None] > 0, paths.ranked[rows, draws - 1], 0)
    standings, place = combined(*before.T, np.where(draws > 0, paths.total[rows, draws - 1], 0))
    extra = np.arange(1, width)
    ranked = np.repeat(standings[:, None, :-1], width - 1, axis=1)
    ranked[:, :, 0] += extra
    agreed = stop.decided_along(Paths.of_counts(ranked.astype(np.int32), (standings[:, -1:] + extra).astype(np.int32)))
    return _first(agreed, width)[place]


def _shortfalls_by_order(stop: StopRule, paths: Paths, rows: Ints, draws: Ints, width: int) -> Ints:
    """Do the same for a rule that looks at the order of votes: each order that occurs is worked out once."""
    known: dict[tuple[int, ...], int] = {}
    place = []
    for row, draw in zip(rows.tolist(), draws.tolist(), strict=True):
        names: dict[int, int] = {}
        arrivals = tuple(
            names.setdefault(label, len(names)) for label in paths.classes[row, :draw].tolist() if label >= 0
        )
        place.append(known.setdefault(arrivals, len(known)))
    longest = max(map(len, known))
    votes = np.full((len(known), longest + width - 1), -1, dtype=np.int32)
    for number, arrivals in enumerate(known):
        votes[number, longest - len(arrivals) : longest] = arrivals
        votes[number, longest:] = leading(arrivals)
    return _first(stop.decided_along(Paths(votes))[:, longest:], width)[place]


def _first(agreed: NDArray[np.bool_], width: int) -> Ints:
    """Return how many further votes decide at the earliest, ``width`` when fewer do not."""
    return np.asarray(np.where(agreed.any(axis=1), agreed.argmax(axis=1) + 1, width), dtype=np.int64)
