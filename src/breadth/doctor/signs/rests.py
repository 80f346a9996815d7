"""Which verdicts on entropy rest on an artefact: there by the logged number, and clearly not there without it."""

from __future__ import annotations

from breadth.doctor.findings.entropy_collapse import FINDING as COLLAPSE
from breadth.doctor.findings.entropy_explosion import FINDING as EXPLOSION
from breadth.measure.trends import Trend


def resting(logged: Trend, better: Trend | None) -> tuple[str, ...]:
    """Name the findings that the logged series shows and a better one excludes; none where there is no better one.

    To exclude takes more than not to show: the better series lies on the harmless side, and its interval clear of the
    next worse mark.
    """
    ratio = None if better is None else better.ratio
    if ratio is None:
        return ()
    gone = COLLAPSE.shows(logged) and ratio.value > COLLAPSE.floor and ratio.low > COLLAPSE.half
    up = EXPLOSION.shows(logged) and ratio.value < EXPLOSION.risen and ratio.high < EXPLOSION.doubled
    return (*(["entropy-collapse"] if gone else []), *(["entropy-explosion"] if up else []))
