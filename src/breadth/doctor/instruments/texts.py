"""What the completions look like at the start and now: loops, early answers, skipped work, formats, answers that change."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from breadth.doctor.windows import Window
from breadth.measure.answer_extraction import stated_answers
from breadth.measure.answers import answer_key
from breadth.measure.degeneracy import Degeneracy, reference_computation, response_degeneracy
from breadth.measure.intervals import wilson
from breadth.measure.response_style import effective_formats, surface_format
from breadth.report.cells import Cell
from breadth.report.sections import Column, Section, Table
from breadth.runs import outcomes
from breadth.runs.reader import Run

READ = 400
"""Completions read of each window: enough for shares to within five points, little enough to take a second."""


def texts(run: Run, windows: Sequence[Window]) -> Sequence[Section]:
    """Return one table, a row for each window."""
    read = [(window, outcomes.texts(run, window.first, window.last, READ, window.split)) for window in windows]
    read = [(window, found) for window, found in read if found]
    if not read:
        return []
    reference = reference_computation(read[0][1])
    rows = [_row(window, found, reference) for window, found in read]
    columns = [
        Column("rollouts of"),
        Column("read"),
        Column("degenerate", "%"),
        Column("what fires most"),
        Column("formats"),
        Column("change their answer", "%"),
    ]
    note = (
        "Degenerate = at least two detectors fire (loops, repetition, early or repeated answers, work skipped against"
        " the start). Formats = effective number of surface formats. Change their answer = state one answer, then"
        " another, in one text."
    )
    return [Table("Texts", columns, rows, note=note)]


def _row(window: Window, found: Sequence[str], reference: float) -> list[Cell]:
    checked = [response_degeneracy(text, reference=reference or None) for text in found]
    degenerate = wilson(sum(one.degenerate for one in checked), len(checked))
    formats = [surface_format(text) for text in found]
    shares = [formats.count(name) for name in dict.fromkeys(formats)]
    return [
        window.name,
        len(found),
        degenerate,
        _fires_most(checked),
        effective_formats(shares),
        fmean(map(_changes, found)),
    ]


def _fires_most(checked: Sequence[Degeneracy]) -> str:
    fired = [name for one in checked for name in one.fired]
    if not fired:
        return "nothing"
    most = max(dict.fromkeys(fired), key=fired.count)
    return f"{most} ({fired.count(most) / len(checked):.0%})"


def _changes(text: str) -> bool:
    stated = [answer_key(answer) for _, answer in stated_answers(text)]
    return len({answer for answer in stated if answer is not None}) > 1
