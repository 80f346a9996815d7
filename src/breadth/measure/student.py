"""Student's t in plain Python: loading scipy.special takes longer than reading a log and judging it."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_MOST_TERMS = 10_000
# Of the continued fraction; a million degrees of freedom need a few hundred.
_SMALLEST_TERM = 1e-16
# As a share of the sum: less than a float can show.
_SMALLEST_STEP = 1e-9
# As a share of the quantile: each of Newton's steps doubles the digits that are right, so the one after it would change nothing.


@lru_cache(maxsize=1024)
def student_reach(freedom: float, level: float) -> float:
    """How many standard errors a two-sided interval of this level reaches to each side, at 1 degree of freedom or more.

    Newton's method from the first two terms of the quantile's expansion in 1/freedom (Abramowitz and Stegun 26.7.5). Right to 13 digits
    up to some thousand degrees of freedom, to 10 up to a million.
    """
    normal, step = NormalDist().inv_cdf((1 + level) / 2), math.inf
    reach = normal + (normal**3 + normal) / (4 * freedom)
    while abs(step) > _SMALLEST_STEP * reach:
        step = (student_chance(freedom, reach) - (1 - level)) / (2 * _density(freedom, reach))
        reach += step
    return reach


def student_chance(freedom: float, distance: float) -> float:
    """How often Student's t lies at least so far from zero, on either side: the incomplete beta function at (freedom / 2, 1/2)."""
    square = distance * distance
    if math.isinf(square):
        return 0.0
    outside, front = freedom / (freedom + square), 2 * abs(distance) * _density(freedom, distance)
    if outside < (freedom + 2) / (freedom + 5):  # where the fraction converges fast; elsewhere that of the other side does
        return front / freedom * _fraction(freedom / 2, 0.5, outside)
    return 1 - front * _fraction(0.5, freedom / 2, square / (freedom + square))


def _density(freedom: float, distance: float) -> float:
    falls = math.exp(-(freedom + 1) / 2 * math.log1p(distance * distance / freedom))
    return _gamma_ratio(freedom / 2) / math.sqrt(math.pi * freedom) * falls


def _gamma_ratio(x: float) -> float:
    """Return Gamma(x + 1/2) / Gamma(x); where these are too large for a float, by the expansion in 1/x."""
    if x < 100:
        return math.gamma(x + 0.5) / math.gamma(x)
    u = 1 / (8 * x)
    return math.sqrt(x) * (1 + u * (-1 + u * (0.5 + u * (2.5 + u * (-2.625 - 49.875 * u)))))


def _fraction(a: float, b: float, x: float) -> float:
    """Sum the continued fraction of the incomplete beta function (DLMF 8.17.22) from its front, by Lentz's method."""
    upper = 1.0
    value = lower = 1 / (1 - (a + b) * x / (a + 1))
    for m in range(1, _MOST_TERMS):
        before, place = value, a + 2 * m
        for term in (m * (b - m) * x / ((place - 1) * place), -(a + m) * (a + b + m) * x / (place * (place + 1))):
            lower, upper = 1 / (1 + term * lower), 1 + term / upper
            value *= lower * upper
        if abs(value - before) <= _SMALLEST_TERM * abs(value):
            break
    return value
