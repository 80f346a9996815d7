"""Shapes differ where meanings differ."""

from __future__ import annotations

import re

from breadth.report.sections import Outcome, Severity
from breadth.report.shapes import (
    band_swatch,
    cross,
    dash,
    diamond,
    disc,
    marker,
    sample_marks,
    severity_sign,
    square,
    swatch,
    triangle,
)
from breadth.report.style import line_style


def test_a_disc_is_two_half_circles_around_its_centre() -> None:
    assert disc(10, 20, 5) == "M5 20a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z"


def test_a_cross_and_a_dash() -> None:
    assert cross(10, 10, 10) == "M1.5 1.5l17 17m-17 0l17 -17"
    assert dash(10, 10, 4) == "M6 10h8"


def test_shapes_are_all_different() -> None:
    assert len({shape(5, 5, 3) for shape in (disc, square, triangle, diamond, cross, dash)}) == 6


def test_markers_carry_their_number() -> None:
    drawn = marker(line_style(0), 3, 4, "step 3: 0.5").source()
    assert "<title>step 3: 0.5</title>" in drawn
    assert 'class="marker full series-1"' in drawn
    assert 'class="marker hollow series-4"' in marker(line_style(3), 3, 4).source()
    assert 'class="marker open series-6"' in marker(line_style(5), 3, 4).source()


def test_one_mark_per_sample() -> None:
    drawn = sample_marks(
        [Outcome.CORRECT, Outcome.WRONG, Outcome.CORRECT, Outcome.UNPARSABLE, Outcome.TRUNCATED]
    ).source()
    by_look = dict(re.findall(r'<path d="([^"]+)" class="([^"]+)"', drawn))
    looks = {look: path.count("M") for path, look in by_look.items()}
    assert looks == {"mark full series-1": 2, "mark open series-2": 1, "mark open series-4": 1, "mark open muted": 1}
    assert 'viewBox="0 0 65 14"' in drawn  # five steps of 13


def test_signs_of_severities_differ_in_shape() -> None:
    signs = {severity: severity_sign(severity).source() for severity in Severity}
    shapes = {re.sub(r'class="[^"]*"', "", sign) for sign in signs.values()}
    assert len(shapes) == len(Severity)
    assert "stroke-dasharray" in signs[Severity.CANNOT_TELL]


def test_samples_for_legends() -> None:
    assert 'stroke-dasharray="6 3"' in swatch(line_style(1)).source()
    assert "stroke-dasharray" not in swatch(line_style(0)).source()
    assert 'class="band' in band_swatch().source()
