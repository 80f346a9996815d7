"""How much of their entropy the forking tokens have kept, and how much the others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from breadth.doctor.evidence.rollouts import MIN_CLUSTERS, UNIT_INTERVAL, Ends, TokenSums, entropy_edge, token_sums
from breadth.measure.intervals import Columns, Interval, Resamples, resample
from breadth.measure.validate import FloatArray
from breadth.runs.reader import Run


@dataclass(frozen=True)
class Forks:
    """Entropy of forks and of other tokens, now against then."""

    left: Interval
    """What forks have left of theirs."""
    rest: Interval
    """What the other tokens have left."""
    against_rest: Interval
    """The first over the second: below 1, forks have lost more."""
    open_then: Interval
    """Share of tokens above the edge of forks at the start, then."""
    open: Interval
    """The same now, by the same edge."""
    lost: float
    """Share of the lost entropy that forks lost."""
    tokens: int
    """Tokens read."""


def measured_forks(run: Run, ends: Ends, forks: float) -> Forks | str:
    """Compare the share ``forks`` of the tokens that have the most entropy with those at the start, or say why that cannot be done.

    Each window has its own edge. Where texts have grown, the share shrinks so that as many forks a text are compared as
    then.
    """
    then, now = (entropy_edge(run, window, forks) for window in (ends.start, ends.now))
    if math.isnan(then.nats) or math.isnan(now.nats):
        return "the rollouts at one of the ends have no entropies"
    shares = (forks, forks * min(1.0, then.length / now.length))
    if shares[1] < forks:
        now = entropy_edge(run, ends.now, shares[1])
    is_open = f"CAST(entropy > {then.nats!r} AS DOUBLE)"
    sums = [
        token_sums(run, window, {"nats": "entropy", "open": is_open, "above": f"greatest(entropy - {edge.nats!r}, 0)"})
        for window, edge in ((ends.start, then), (ends.now, now))
    ]
    found = _resampled(sums)
    if min(int(np.count_nonzero(found.sums[f"tokens {end}"])) for end in (0, 1)) < MIN_CLUSTERS:
        return f"entropies of fewer than {MIN_CLUSTERS} problems are recorded at one of the ends"
    if not found.sums["nats 0"].sum() > 0:
        return "no token has any entropy at the start: it cannot be compared with it"
    return _compared(found, shares, (then.nats, now.nats), int(sum(one.tokens.sum() for one in sums)))


def _resampled(sums: list[TokenSums]) -> Resamples:
    """Put both windows side by side, a column each, so that one resample of the problems holds both."""
    columns: dict[str, FloatArray] = {}
    for end, one in enumerate(sums):
        before, after = (sum(len(other) for other in part) for part in (sums[:end], sums[end + 1 :]))
        columns |= {
            f"{name} {end}": np.pad(column, (before, after))
            for name, column in {**one.sums, "tokens": one.tokens}.items()
        }
    return resample(columns, np.concatenate([one.problems for one in sums]))


def _compared(found: Resamples, shares: tuple[float, float], edges: tuple[float, float], tokens: int) -> Forks:
    """Compare mean entropies of forks and of the rest.

    The mean of the largest share s is ``e + mean(max(H - e, 0)) / s`` for the edge e above which s of the tokens lie.
    It is flat in e there, so the edge's own error does not count, and tokens with equal entropies need no drawing of
    lots. Tokens that had no entropy have kept what they had.
    """

    def top(means: Columns, end: int) -> FloatArray:
        above: FloatArray = means[f"above {end}"] / means[f"tokens {end}"]
        return edges[end] + above / shares[end]

    def rest(means: Columns, end: int) -> FloatArray:
        every: FloatArray = means[f"nats {end}"] / means[f"tokens {end}"]
        return np.maximum(every - shares[end] * top(means, end), 0.0) / (1 - shares[end])

    def ratio(part: Callable[[Columns, int], FloatArray]) -> Callable[[Columns], FloatArray]:
        def kept(means: Columns) -> FloatArray:
            before = part(means, 0)
            some = before > 1e-6 * top(means, 0)
            return np.where(some, part(means, 1) / np.where(some, before, 1.0), 1.0)

        return kept

    sums = {name: column.mean(keepdims=True) for name, column in found.sums.items()}
    forks_lost = shares[0] * top(sums, 0) - shares[1] * top(sums, 1)
    lost = forks_lost + (1 - shares[0]) * rest(sums, 0) - (1 - shares[1]) * rest(sums, 1)
    anything = (0.0, math.inf)
    return Forks(
        found.interval(ratio(top), "tokens 1", anything),
        found.interval(ratio(rest), "tokens 1", anything),
        found.interval(lambda means: ratio(top)(means) / np.maximum(ratio(rest)(means), 1e-12), "tokens 1", anything),
        found.ratio("open 0", "tokens 0", UNIT_INTERVAL),
        found.ratio("open 1", "tokens 1", UNIT_INTERVAL),
        min(1.0, float(forks_lost[0] / lost[0])) if lost[0] > 0 else 1.0,
        tokens,
    )
