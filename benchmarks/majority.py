"""Exact maj@k against Monte-Carlo subsampling: 1,000 problems of 64 samples, every k, to a standard error of 1e-3.

The peer is the strongest simple subsampler we could write: one random order of a problem's samples serves every k at
once, and the leader is carried along instead of being searched again, so a draw costs the same however many answers
there are. It is timed on a few problems and scaled linearly, for the whole would take minutes. Times are processor
seconds of one thread each, so a busy machine slows neither side.

Run: python benchmarks/majority.py [--quick]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from breadth.measure.validate import FloatArray, IntArray
from breadth.measure.vote_counting import maj_at_k_by_problem

SAMPLES = 64
"""Samples a problem."""
ANSWERS = 20
"""Different answers a problem may get."""
STANDARD_ERROR = 1e-3
"""What subsampling has to reach."""
NEEDED_RATIO = 50
"""How many times faster exact counting has to be."""
_AT_ONCE = 4096
"""Draws the peer makes at once: its arrays stay in the processor's cache, which is where it is fastest."""


@dataclass(frozen=True)
class Peer:
    """What subsampling one problem cost and gave."""

    accuracy: FloatArray
    """Estimated maj@k for k = 1 .. samples."""
    variance: FloatArray
    """Variance of one draw's outcome, for each k."""
    seconds_per_draw: float
    """Processor time of one draw that serves every k."""


def make_votes(problems: int, seed: int = 0) -> tuple[IntArray, IntArray]:
    """Return problem ids and classes, one row per sample: 20 answers of unequal popularity; 0 is right, -1 unread."""
    rng = np.random.default_rng(seed)
    popularity = rng.dirichlet(np.concatenate([[1.5], np.full(ANSWERS - 1, 0.3), [0.2]]), size=problems)
    classes = np.stack([rng.choice(ANSWERS + 1, size=SAMPLES, p=row) for row in popularity])
    return np.repeat(np.arange(problems), SAMPLES), np.where(classes == ANSWERS, -1, classes).ravel()


def subsample(classes: IntArray, draws: int, rng: np.random.Generator) -> Peer:
    """Estimate maj@k for every k by drawing random orders of one problem's samples."""
    total, squares = np.zeros(SAMPLES), np.zeros(SAMPLES)
    began = time.process_time()
    for start in range(0, draws, _AT_ONCE):
        size = min(_AT_ONCE, draws - start)
        for k, outcome in enumerate(_outcomes(classes, size, rng)):
            total[k] += outcome.sum()
            squares[k] += outcome @ outcome
    seconds = time.process_time() - began
    mean = total / draws
    return Peer(mean, squares / draws - mean**2, seconds / draws)


def _outcomes(classes: IntArray, size: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Votes of growing size along each random order; the leading count and who shares it are kept up to date."""
    orders = np.ascontiguousarray(rng.permuted(np.broadcast_to(classes, (size, SAMPLES)), axis=1).T)
    # An unparsable sample votes in a column of its own that starts too low ever to lead.
    counts = np.zeros((size, ANSWERS + 1), dtype=np.int16)
    counts[:, ANSWERS] = -2 * SAMPLES
    ballots = counts.ravel()
    cells = np.arange(size) * (ANSWERS + 1) + np.where(orders < 0, ANSWERS, orders)
    top, tied, right = np.zeros(size, dtype=np.int16), np.ones(size, dtype=np.int16), np.zeros(size, dtype=bool)
    for cell, correct in zip(cells, orders == 0, strict=True):
        votes = ballots.take(cell) + np.int16(1)
        ballots[cell] = votes
        leads, joins = votes > top, votes == top
        np.maximum(top, votes, out=top)
        tied += joins
        np.putmask(tied, leads, 1)
        right |= joins & correct
        np.copyto(right, correct, where=leads)
        yield right / tied.astype(np.float64)


def exact_seconds(problems: IntArray, classes: IntArray, repeats: int) -> tuple[FloatArray, float]:
    """Return the exact curves and the best processor time of counting them, from labels to [problems, k]."""
    best = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        curves = maj_at_k_by_problem(problems, classes, classes == 0)
        best = min(best, time.process_time() - began)
    return curves, best


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; exit with 1 when the ratio is below the one promised."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer problems and draws")
    quick = parser.parse_args(arguments).quick
    problem_count, timed, draws, repeats = (100, 3, 8192, 1) if quick else (1000, 12, 65_536, 3)
    problems, classes = make_votes(problem_count)
    curves, seconds = exact_seconds(problems, classes, repeats)
    rng = np.random.default_rng(1)
    chosen = np.linspace(0, problem_count - 1, timed).astype(int)
    peers = [subsample(classes.reshape(-1, SAMPLES)[row], draws, rng) for row in chosen]
    _print_table(curves, chosen, peers, seconds, draws)
    ratio = _peer_seconds(peers, problem_count) / seconds
    print(f"ratio {ratio:,.0f}x (needed: {NEEDED_RATIO}x)")
    return 0 if ratio >= NEEDED_RATIO else 1


def _draws_needed(peers: Sequence[Peer]) -> FloatArray:
    """Draws per timed problem until its worst k has the standard error asked for; one where nothing varies."""
    return np.array([max(1.0, float(peer.variance.max()) / STANDARD_ERROR**2) for peer in peers])


def _peer_seconds(peers: Sequence[Peer], problem_count: int) -> float:
    per_draw = np.array([peer.seconds_per_draw for peer in peers])
    return float(np.mean(_draws_needed(peers) * per_draw)) * problem_count


def _print_table(curves: FloatArray, chosen: IntArray, peers: Sequence[Peer], seconds: float, draws: int) -> None:
    count, per_draw = len(curves), float(np.mean([peer.seconds_per_draw for peer in peers]))
    errors = np.array([np.abs(peer.accuracy - curves[row]) for row, peer in zip(chosen, peers, strict=True)])
    spread = np.sqrt(np.array([peer.variance for peer in peers]) / draws)
    everywhere, few_draws = _peer_seconds(peers, count), float(np.mean(_draws_needed(peers))) / count
    on_average = few_draws * per_draw * count
    print(f"maj@k for {count:,} problems x {SAMPLES} samples, {ANSWERS} answers, every k = 1..{SAMPLES}")
    print(f"  exact                                     {seconds:9.3f} s  {seconds / count * 1e3:.2f} ms a problem")
    print(
        f"  subsampling, {STANDARD_ERROR:g} for each problem and k {everywhere:9.1f}   s  {everywhere / seconds:,.0f}x"
    )
    print(
        f"      {np.mean(_draws_needed(peers)):,.0f} draws a problem at {per_draw * 1e6:.2f} us for a draw that serves"
        " every k,"
    )
    print(f"      extrapolated from {len(peers)} problems")
    print(f"  subsampling, {STANDARD_ERROR:g} for the mean curve only {on_average:8.3f} s  {on_average / seconds:.1f}x")
    print(f"      {few_draws:,.0f} draws a problem: enough for the average over problems, not for any one of them")
    print(
        f"  agreement: largest difference {np.max(errors):.4f}, {_in_errors(errors, spread):.2f} standard errors root"
        " mean square"
    )


def _in_errors(errors: FloatArray, spread: FloatArray) -> float:
    varying = spread > 0
    return float(np.sqrt(np.mean((errors[varying] / spread[varying]) ** 2)))


if __name__ == "__main__":
    raise SystemExit(main())
