"""How strongly each token of a trace is marked: its number in a few even steps from the smallest to nearly the largest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from breadth.report.numerals import number
from breadth.report.plaintext import one_line
from breadth.report.scales import drawable
from breadth.report.sections import Token, Trace
from breadth.report.style import SHADES


@dataclass(frozen=True)
class Shading:
    """Even steps between two numbers; step 0 is not marked at all."""

    low: float
    """Smallest number of the trace."""
    high: float
    """Number above which the mark no longer grows."""

    def level(self, value: float | None) -> int:
        """Return the step of a number, 0 to ``SHADES``; 0 also for no number, or when all numbers are equal."""
        if value is None or math.isnan(value) or self.high <= self.low:
            return 0
        place = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return min(SHADES, int(place * (SHADES + 1)))

    def edges(self) -> tuple[float, ...]:
        """Return the smallest number of every step above 0."""
        step = (self.high - self.low) / (SHADES + 1)
        return tuple(self.low + step * index for index in range(1, SHADES + 1))


def shading(trace: Trace) -> Shading | None:
    """Return the steps for a trace, or None when no token has a number.

    They end at the 98th percentile, so that one extreme token does not wash out all others.
    """
    values = sorted(token.value for token in trace.tokens if token.value is not None and drawable(token.value))
    if not values:
        return None
    high = values[math.ceil(0.98 * len(values)) - 1]
    return Shading(values[0], high if high > values[0] else values[-1])


def token_number(trace: Trace, token: Token) -> str:
    """Say a token's number, e.g. ``entropy 1.23 nats``; empty when it has none."""
    return "" if token.value is None else f"{one_line(trace.measure)} {number(token.value, trace.unit)}"


def scale_words(trace: Trace, steps: Shading | None) -> str:
    """Say what the marks mean, or why there are none."""
    measure = one_line(trace.measure)
    if steps is None:
        return f"No token has a number ({measure})."
    if steps.high <= steps.low:
        return f"Every {measure} is {number(steps.low, trace.unit)}; nothing is marked."
    return f"The stronger the mark, the higher the {measure}."


def by_kind(tokens: Sequence[Token]) -> list[tuple[str, list[Token]]]:
    """Split tokens into neighbours of one kind, each with the kind's name."""
    return [(one_line(kind), list(run)) for kind, run in groupby(tokens, key=lambda token: token.kind)]
