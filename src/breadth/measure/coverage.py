"""pass@k: the chance that at least one of k samples is right, unbiased, for all k and all problems at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from breadth.base.errors import MeasureError
from breadth.measure.validate import FloatArray, IntArray

_CELLS = 1 << 22
"""Numbers held at once (32 MB): bounds the memory when many different (n, c) meet a large k."""


def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> FloatArray:
    """Estimate, per problem, the chance that at least one of ``k`` fresh samples is right, from ``c`` right among ``n``.

    ``1 - C(n-c, k) / C(n, k)`` (arXiv 2107.03374), unbiased for independent samples, computed as
    ``1 - exp Σ_{i<k} log(1 - c / (n-i))`` so that it neither overflows nor cancels at any n. The plug-in
    ``1 - (1 - c/n)^k`` is biased low (0.832 instead of 0.917 for n=10, c=3, k=5) and is not offered.

    ``n`` and ``c`` broadcast; the result has their shape and, unless ``k`` is a single number, one more axis for k.
    Misleads when samples were deduplicated or saw one another, and on multiple choice, where guessing soon passes. With
    k near n the estimate is almost a yes or no per problem: sample at least 2k for an honest variance.
    """
    totals, hits = _checked_counts(n, c)
    sizes = as_sample_sizes(k, totals)
    pairs, where = np.unique(_pair_codes(totals, hits), return_inverse=True)
    table = np.concatenate([_pass_table(*_from_codes(part, hits), sizes) for part in _parts(pairs, sizes)])
    curves = table[where.reshape(totals.shape)]
    return curves if np.ndim(k) else np.asarray(curves[..., 0])


def mean_pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> FloatArray:
    """Average `pass_at_k` over all problems, each with equal weight; one number per k.

    Every problem must have at least k samples: leaving the smaller ones out for large k would compare different
    problems along one curve, so that is an error.
    """
    totals, hits = _checked_counts(n, c)
    sizes = as_sample_sizes(k, totals)
    pairs, times = np.unique(_pair_codes(totals, hits), return_counts=True)
    total, done = np.zeros(sizes.size), 0
    for part in _parts(pairs, sizes):
        total += times[done : done + part.size] @ _pass_table(*_from_codes(part, hits), sizes)
        done += part.size
    mean = total / totals.size
    return mean if np.ndim(k) else np.asarray(mean[0])


def chart_ks(max_k: int) -> list[int]:
    """Return the k a chart of pass@k shows: powers of two up to the samples, and those themselves."""
    return sorted({*(2**power for power in range(max_k.bit_length()) if 2**power <= max_k), max_k})


def share_never_solved(n: ArrayLike, c: ArrayLike) -> float:
    """Return the share of problems that no sample solved: report it beside pass@k, for no k measured here can lift it."""
    _, hits = _checked_counts(n, c)
    return float(np.mean(hits == 0))


def share_always_solved(n: ArrayLike, c: ArrayLike) -> float:
    """Return the share of problems that every sample solved: together with `none_solved`, groups without a training signal."""
    totals, hits = _checked_counts(n, c)
    return float(np.mean(hits == totals))


def as_sample_sizes(k: ArrayLike, n: ArrayLike) -> IntArray:
    """Check the numbers of draws asked for against the samples there are, and return them as a flat array."""
    sizes = np.atleast_1d(as_integers(k, "k"))
    if sizes.ndim > 1 or sizes.size == 0 or sizes.min() < 1:
        raise MeasureError(
            f"k must be numbers of draws from 1 up; got {np.asarray(k).tolist()!s:.80}.", "Give k as 1, 2, 4, ..."
        )
    totals = np.atleast_1d(n)
    short = int(np.count_nonzero(totals < sizes.max()))
    if short:
        raise MeasureError(
            f"k = {sizes.max()} needs at least {sizes.max()} samples a problem, but {short} of {totals.size} problems"
            f" have fewer (the smallest has {totals.min()}).",
            f"Ask for k up to {totals.min()}, or leave out the problems with fewer than {sizes.max()} samples.",
        )
    return sizes


def as_integers(values: ArrayLike, name: str) -> IntArray:
    """Return ``values`` as integers; refuse NaN, fractions and anything that is not a number. Keeps the shape."""
    array = np.asarray(values)
    if array.dtype.kind in "iub":
        return array.astype(np.int64)
    if (
        array.dtype.kind == "f"
        and np.all(np.isfinite(array))
        and np.all(array == np.floor(array))
        and np.all(np.abs(array) < 2**53)
    ):
        return array.astype(np.int64)
    raise MeasureError(
        f"{name} must be whole numbers; got {array.dtype} such as {array.ravel()[:3].tolist()}.",
        f"Give counts for {name}.",
    )


def _checked_counts(n: ArrayLike, c: ArrayLike) -> tuple[IntArray, IntArray]:
    try:
        totals, hits = np.broadcast_arrays(as_integers(n, "n"), as_integers(c, "c"))
    except ValueError as error:
        if isinstance(error, MeasureError):
            raise
        raise MeasureError(
            f"n and c do not fit together: {error}.", "Give one n and one c for each problem."
        ) from error
    if totals.size == 0:
        raise MeasureError("There is no problem to measure: n and c are empty.", "Give at least one problem.")
    bad = int(np.count_nonzero((totals < 1) | (hits < 0) | (hits > totals)))
    if bad:
        raise MeasureError(
            f"{bad} of {totals.size} problems have not 0 <= c <= n with n >= 1.", "Check the counts of right samples."
        )
    return totals, hits


def _pair_codes(totals: IntArray, hits: IntArray) -> IntArray:
    """One number for each (n, c), so that equal problems are computed once."""
    codes: IntArray = totals * (hits.max() + 1) + hits
    return codes.ravel()


def _from_codes(codes: IntArray, hits: IntArray) -> tuple[IntArray, IntArray]:
    totals, found = np.divmod(codes, hits.max() + 1)
    return totals, found


def _parts(pairs: IntArray, sizes: IntArray) -> list[IntArray]:
    rows = max(1, _CELLS // int(sizes.max()))
    return [pairs[start : start + rows] for start in range(0, pairs.size, rows)]


def _pass_table(totals: IntArray, hits: IntArray, sizes: IntArray) -> FloatArray:
    """[pairs, k] pass@k; the running sum over draws gives every k in one pass."""
    left = totals[:, None] - np.arange(sizes.max())
    # Once fewer than c wrong-or-right samples are left the next draw is right for certain: log 0, pass 1.
    with np.errstate(divide="ignore"):
        log_miss = np.cumsum(np.log1p(-np.minimum(hits[:, None] / left, 1.0)), axis=1)
    chances: FloatArray = -np.expm1(log_miss[:, sizes - 1])
    return chances + 0.0  # no minus zero
