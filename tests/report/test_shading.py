"""Steps of shade, worked out by hand."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from breadth.report.sections import Token, Trace
from breadth.report.shading import Shading, by_kind, scale_words, shading, token_number
from breadth.report.style import SHADES


def trace(*values: float | None) -> Trace:
    return Trace("t", [Token("x", value) for value in values], unit="nats")


def test_steps_are_even() -> None:
    steps = Shading(0.0, 6.0)
    assert [steps.level(value) for value in (0.0, 0.99, 1.0, 3.5, 5.0, 6.0)] == [0, 0, 1, 3, 5, 5]
    assert steps.edges() == (1, 2, 3, 4, 5)


def test_numbers_outside_and_none() -> None:
    steps = Shading(0.0, 6.0)
    assert [steps.level(value) for value in (None, math.nan, -math.inf, math.inf, 99.0)] == [0, 0, 0, 5, 5]


def test_one_extreme_token_does_not_wash_out_the_rest() -> None:
    # 98% of 100 values is the 98th: 0.98. The outlier 50 is left out of the scale and gets the strongest mark.
    steps = shading(trace(*(index / 100 for index in range(1, 100)), 50.0))
    assert steps == Shading(0.01, 0.98)
    assert steps.level(50.0) == SHADES


def test_a_lone_different_token_is_still_marked() -> None:
    assert shading(trace(*([0.0] * 99), 1.0)) == Shading(0.0, 1.0)


def test_nothing_to_mark() -> None:
    assert shading(trace(None, math.nan, math.inf)) is None
    equal = shading(trace(0.3, 0.3))
    assert equal is not None
    assert equal.level(0.3) == 0
    assert scale_words(trace(0.3, 0.3), equal) == "Every entropy is 0.3 nats; nothing is marked."
    assert scale_words(trace(None), None) == "No token has a number (entropy)."


def test_what_a_token_says() -> None:
    assert token_number(trace(1.234), Token("x", 1.234)) == "entropy 1.23 nats"
    assert token_number(trace(), Token("x", math.nan)) == "entropy NaN"
    assert token_number(trace(), Token("x")) == ""


def test_neighbours_of_one_kind() -> None:
    tokens = [Token("a"), Token("b", kind="answer"), Token("c", kind="answer"), Token("d")]
    assert [(kind, [token.text for token in run]) for kind, run in by_kind(tokens)] == [("", ["a"]), ("answer", ["b", "c"]), ("", ["d"])]


@given(st.lists(st.floats(-1e9, 1e9), min_size=2), st.floats(-1e9, 1e9))
def test_a_larger_number_is_never_marked_less(values: list[float], more: float) -> None:
    steps = shading(trace(*values))
    assert steps is not None
    levels = [steps.level(value) for value in sorted([*values, more])]
    assert levels == sorted(levels)
    assert set(levels) <= set(range(SHADES + 1))


def test_percentages() -> None:
    shares = Trace("t", [Token("x", 0.25)], measure="confidence", unit="%")
    assert token_number(shares, shares.tokens[0]) == "confidence 25%"
    assert shading(shares) == Shading(0.25, 0.25)
