"""Curves side by side as one SVG file that stands alone, for a README or a slide: the page's own charts, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from breadth.base.atomic import whole_file
from breadth.report.chartframe import Canvas
from breadth.report.figures import line_chart
from breadth.report.markup import Element, element, shorten
from breadth.report.plaintext import one_line
from breadth.report.sections import Curve
from breadth.report.stylesheet import chart_styles

PANEL = Canvas("panel", 470, 290, 6, 5, 16)
"""Size of one chart."""
_MARGIN, _GAP, _HEADING = 14.0, 34.0, 34.0
_NAMESPACE = "http://www.w3.org/2000/svg"
_STYLE = f"""
.sheet {{ fill: var(--paper); }}
.heading {{ fill: var(--ink); font-size: 16px; font-weight: 600; }}
text {{ font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", Arial, sans-serif; }}
.chart.panel {{ width: {PANEL.width:g}px; height: {PANEL.height:g}px; }}
"""


def render_picture(curves: Sequence[Curve]) -> str:
    """Return the curves beside each other as one SVG document; every text in it is escaped."""
    width = 2 * _MARGIN + len(curves) * PANEL.width + max(0, len(curves) - 1) * _GAP
    height = 2 * _MARGIN + _HEADING + PANEL.height
    drawn = element(
        "svg",
        element("title", "; ".join(one_line(curve.title) for curve in curves)),
        element("style", chart_styles() + _STYLE),
        element("path", d=f"M0 0H{shorten(width)}V{shorten(height)}H0z", class_="sheet"),
        *(part for place, curve in enumerate(curves) for part in _panel(curve, place)),
        viewBox=f"0 0 {shorten(width)} {shorten(height)}",
        width=width,
        height=height,
        role="img",
    )
    return drawn.source().replace("<svg ", f'<svg xmlns="{_NAMESPACE}" ', 1) + "\n"


def save_picture(curves: Sequence[Curve], path: Path) -> None:
    """Write the picture to a file, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(render_picture(curves), encoding="utf-8")


def _panel(curve: Curve, place: int) -> list[Element]:
    left = _MARGIN + place * (PANEL.width + _GAP)
    chart = line_chart(curve, PANEL, f"panel-{place + 1}")
    heading = element("text", one_line(curve.title), x=left, y=_MARGIN + 14, class_="heading")
    size = {"width": shorten(PANEL.width), "height": shorten(PANEL.height)}  # some browsers heed these, others the style
    return [heading, Element(chart.tag, chart.children, {**chart.attributes, **size, "x": shorten(left), "y": shorten(_MARGIN + _HEADING)})]
