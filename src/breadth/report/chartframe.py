"""The frame of a chart: its size, where values stand on it, and its two axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breadth.report.markup import Element, element, shorten
from breadth.report.numerals import typeset
from breadth.report.outline import Axes, axes, axis_label, tick_texts
from breadth.report.plaintext import shortened
from breadth.report.sections import Axis, Curve

CHARACTER = 6.9
"""Room for one character of a label, in pixels at the chart's font size; a little generous, as fonts differ."""
LINE = 15.0
"""Room for one line of labels, in pixels."""
_BOLD = 1.12
"""How much wider bold letters are."""


@dataclass(frozen=True)
class Canvas:
    """The size a chart is drawn for."""

    name: str
    """``wide`` or ``narrow``; the style sheet shows one of the two."""
    width: float
    """Pixels across at natural size."""
    height: float
    """Pixels down."""
    x_ticks: int
    """At most about so many ticks on x."""
    y_ticks: int
    """At most about so many ticks on y."""
    label_room: int
    """Characters of a line's name that fit beside its end."""


WIDE = Canvas("wide", 720, 310, 9, 5, 22)
"""For desktop screens and paper."""
NARROW = Canvas("narrow", 326, 256, 4, 4, 10)
"""For phones: fewer ticks, shorter labels, the same letter size."""


@dataclass(frozen=True)
class Frame:
    """Where values stand on a canvas."""

    axes: Axes
    """Scales and ticks."""
    left: float
    """Pixel of the y axis."""
    right: float
    """Pixel of the last x."""
    top: float
    """Pixel of the highest y."""
    bottom: float
    """Pixel of the x axis."""

    def x(self, value: float) -> float:
        """Return the pixel of a position."""
        return self.left + self.axes.x.at(value) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.bottom - self.axes.y.at(value) * (self.bottom - self.top)

    def holds_labels(self, count: int) -> bool:
        """Tell whether so many names fit below one another beside the lines' ends."""
        return count * LINE <= self.bottom - self.top


def frame_for(curve: Curve, canvas: Canvas) -> Frame:
    """Leave room for the labels of both axes, the flags of events and the names of lines; the rest is for the plot."""
    both = axes(curve, canvas.x_ticks, canvas.y_ticks)
    left = 12 + CHARACTER * max(map(len, tick_texts(both.y_ticks, curve.y)), default=0)
    top = 30 + (LINE if curve.events else 0)
    whole = Frame(both, left, canvas.width - 10, top, canvas.height - 46)
    if not whole.holds_labels(len(curve.series)):
        return whole
    longest = max((len(shortened(one.name, canvas.label_room)) for one in curve.series), default=0)
    room = 8 + _BOLD * CHARACTER * longest if longest else 0
    return Frame(both, left, whole.right - room, top, whole.bottom)


def axis_y(frame: Frame, axis: Axis) -> list[Element]:
    """Draw the grid with its numbers, and the axis' name above it: level text is easier to read than upright."""
    texts = tick_texts(frame.axes.y_ticks, axis)
    places = [frame.y(tick) for tick in frame.axes.y_ticks]
    grid = "".join(f"M{shorten(frame.left)} {shorten(y)}H{shorten(frame.right)}" for y in places)
    labels = [
        element("text", typeset(text), x=frame.left - 8, y=y + 4, text_anchor="end", class_="tick")
        for text, y in zip(texts, places, strict=True)
    ]
    name = element("text", axis_label(axis), x=0, y=13, class_="axis")
    return [element("path", d=grid or None, class_="grid"), name, *labels]


def axis_x(frame: Frame, axis: Axis, canvas: Canvas) -> list[Element]:
    """Draw the base line with its ticks, and the axis' name below it."""
    texts = tick_texts(frame.axes.x_ticks, axis)
    places = [frame.x(tick) for tick in frame.axes.x_ticks]
    ticks = "".join(f"M{shorten(x)} {shorten(frame.bottom)}v5" for x in places)
    line = element("path", d=f"M{shorten(frame.left)} {shorten(frame.bottom)}H{shorten(frame.right)}{ticks}", class_="base")
    labels = [
        element("text", typeset(text), x=x, y=frame.bottom + 20, text_anchor="middle", class_="tick")
        for x, text in _apart(places, texts, canvas)
    ]
    middle = (frame.left + frame.right) / 2
    return [line, *labels, element("text", axis_label(axis), x=middle, y=canvas.height - 6, text_anchor="middle", class_="axis")]


def _apart(places: Sequence[float], texts: Sequence[str], canvas: Canvas) -> list[tuple[float, str]]:
    """Leave out labels that would run into their left neighbour or off the canvas."""
    kept: list[tuple[float, str]] = []
    edge = 0.0
    for place, text in zip(places, texts, strict=True):
        half = CHARACTER * len(text) / 2
        if place - half >= edge and place + half <= canvas.width:
            kept.append((place, text))
            edge = place + half + CHARACTER
    return kept
