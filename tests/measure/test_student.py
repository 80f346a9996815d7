"""Student's t: the tables' numbers, scipy's digits, and the ends of the scale."""

from __future__ import annotations

import math

import pytest
from scipy import special

from breadth.measure.student import student_chance, student_reach

FREEDOMS = [1, 1.3, 2, 2.5, 4.7, 10, 33, 99, 199.9, 200, 201, 598, 2998]


@pytest.mark.parametrize(("freedom", "level", "reach"), [(1, 0.95, 12.706), (2, 0.95, 4.303), (10, 0.9, 1.812), (30, 0.99, 2.750)])
def test_the_table_of_every_textbook(freedom: float, level: float, reach: float) -> None:
    assert student_reach(freedom, level) == pytest.approx(reach, abs=5e-4)
    assert student_chance(freedom, student_reach(freedom, level)) == pytest.approx(1 - level, rel=1e-12)


def test_two_degrees_of_freedom_have_a_formula() -> None:
    # The chance is 1 - t / sqrt(2 + t^2); that of t = 1 is 1 - 1 / sqrt(3), that of t = 5 is 1 - 5 / sqrt(27).
    assert student_chance(2, 1) == pytest.approx(1 - 1 / math.sqrt(3), rel=1e-14)
    assert student_chance(2, -5) == pytest.approx(1 - 5 / math.sqrt(27), rel=1e-13)


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize("level", [0.01, 0.5, 0.9, 0.95, 0.975, 0.999, 0.999999])
def test_reaches_as_far_as_scipy(freedom: float, level: float) -> None:
    assert student_reach(freedom, level) == pytest.approx(-special.stdtrit(freedom, (1 - level) / 2), rel=1e-13)


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize("distance", [1e-3, 0.1, 1, 1.5, 2, 3, 8, 30, 1e4])
def test_gives_the_chances_of_scipy_far_out_too(freedom: float, distance: float) -> None:
    assert student_chance(freedom, distance) == pytest.approx(2 * special.stdtr(freedom, -distance), rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("freedom", [1e4, 1e5, 1e6])
def test_holds_ten_digits_up_to_a_million_degrees_of_freedom(freedom: float) -> None:
    assert student_reach(freedom, 0.95) == pytest.approx(special.stdtrit(freedom, 0.975), rel=1e-10)


def test_the_ends_of_the_scale() -> None:
    assert student_chance(5, 0.0) == 1.0
    assert student_chance(5, math.inf) == student_chance(5, 1e200) == 0.0
    assert math.isnan(student_chance(5, math.nan))
