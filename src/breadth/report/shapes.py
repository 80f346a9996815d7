"""Small shapes as SVG paths, so no font decides how they look: markers, sample marks, signs of severities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from breadth.report.markup import Element, element, format_coordinate
from breadth.report.sections import Outcome, Severity
from breadth.report.style import OUTCOMES, SEVERITIES, LineStyle

_HOLLOW, _OPEN = {"ring"}, {"cross"}


def svg_path(*steps: tuple[str | float, ...]) -> str:
    """Return path data from commands with their numbers."""
    return "".join(
        str(name) + " ".join(format_coordinate(float(number)) for number in numbers) for name, *numbers in steps
    )


def disc(x: float, y: float, r: float) -> str:
    """Return a circle around a point."""
    return svg_path(("M", x - r, y), ("a", r, r, 0, 1, 0, 2 * r, 0), ("a", r, r, 0, 1, 0, -2 * r, 0), ("z",))


def square(x: float, y: float, r: float) -> str:
    """Return an upright square of about the disc's weight."""
    half = 0.88 * r
    return svg_path(("M", x - half, y - half), ("h", 2 * half), ("v", 2 * half), ("h", -2 * half), ("z",))


def triangle(x: float, y: float, r: float) -> str:
    """Return a triangle that points up."""
    return svg_path(("M", x, y - 1.2 * r), ("l", 1.15 * r, 2 * r), ("h", -2.3 * r), ("z",))


def diamond(x: float, y: float, r: float) -> str:
    """Return a square on its corner."""
    return svg_path(
        ("M", x, y - 1.3 * r), ("l", 1.3 * r, 1.3 * r), ("l", -1.3 * r, 1.3 * r), ("l", -1.3 * r, -1.3 * r), ("z",)
    )


def cross(x: float, y: float, r: float) -> str:
    """Return two strokes that cross."""
    side = 0.85 * r
    return svg_path(
        ("M", x - side, y - side), ("l", 2 * side, 2 * side), ("m", -2 * side, 0), ("l", 2 * side, -2 * side)
    )


def dash(x: float, y: float, r: float) -> str:
    """Return one level stroke."""
    return svg_path(("M", x - r, y), ("h", 2 * r))


_MARKERS: Mapping[str, Callable[[float, float, float], str]] = {
    "disc": disc,
    "ring": disc,
    "square": square,
    "triangle": triangle,
    "diamond": diamond,
    "cross": cross,
}


def marker(style: LineStyle, x: float, y: float, title: str | None = None) -> Element:
    """Draw the marker of a line at a point; the title shows on hover."""
    look = "hollow" if style.marker in _HOLLOW else "open" if style.marker in _OPEN else "full"
    inside = element("title", title) if title else None
    return element("path", inside, d=_MARKERS[style.marker](x, y, 3.4), class_=f"marker {look} {style.color}")


def swatch(style: LineStyle) -> Element:
    """Draw the sample of a line for a legend."""
    line = element("path", d="M1 7h32", class_=f"line {style.color}", stroke_dasharray=style.dash or None)
    return element("svg", line, marker(style, 17, 7), viewBox="0 0 34 14", width=34, height=14, aria_hidden="true")


def band_swatch() -> Element:
    """Draw the sample of a band for a legend."""
    fill = element("path", d="M1 2h32v10h-32z", class_="band series-6")
    edges = element("path", d="M1 2h32M1 12h32", class_="edge series-6")
    return element("svg", fill, edges, viewBox="0 0 34 14", width=34, height=14, aria_hidden="true")


_OUTCOMES: Mapping[Outcome, Callable[[float, float, float], str]] = {
    Outcome.CORRECT: disc,
    Outcome.WRONG: disc,
    Outcome.UNPARSABLE: cross,
    Outcome.TRUNCATED: dash,
}
_STEP = 13


def sample_marks(outcomes: Sequence[Outcome]) -> Element:
    """Draw a row of samples: disc for correct, ring for wrong, cross for unparsable, dash for truncated."""
    paths = [
        element(
            "path",
            d="".join(
                _OUTCOMES[kind](_STEP * (place + 0.5), 7, 4.2)
                for place, outcome in enumerate(outcomes)
                if outcome is kind
            ),
            class_=f"mark {'full' if kind is Outcome.CORRECT else 'open'} {OUTCOMES[kind].color}",
        )
        for kind in Outcome
        if kind in outcomes
    ]
    width = _STEP * len(outcomes)
    return element("svg", *paths, viewBox=f"0 0 {width} 14", width=width, height=14, aria_hidden="true")


_SIGNS: Mapping[Severity, tuple[str, str]] = {
    Severity.CRITICAL: ("M7 1h8l6 6v8l-6 6h-8l-6-6v-8z", "M7.5 7.5l7 7m0-7l-7 7"),
    Severity.WARNING: ("M11 1.5l10.2 18.5h-20.4z", "M11 8v5.5m0 2.6v1"),
    Severity.NOTE: (disc(11, 11, 10), "M11 10v6.2m0-10.4v1"),
    Severity.GOOD: (disc(11, 11, 10), "M6.3 11.4l3.2 3.3 6.2-7"),
    Severity.CANNOT_TELL: (disc(11, 11, 9.4), "M8 8.6c0-4 6-4 6-.4 0 2.4-3 2.3-3 4.8m0 2.2v1"),
}


def severity_sign(severity: Severity) -> Element:
    """Draw the sign of a severity: octagon, triangle, circles; a broken outline for cannot tell."""
    outline, inner = _SIGNS[severity]
    look = "broken" if severity is Severity.CANNOT_TELL else "solid"
    return element(
        "svg",
        element("path", d=outline, class_="outline", stroke_dasharray="3.4 2.5" if look == "broken" else None),
        element("path", d=inner, class_="inner"),
        viewBox="0 0 22 22",
        width=22,
        height=22,
        class_=f"sign {look} {SEVERITIES[severity].color}",
        aria_hidden="true",
    )
