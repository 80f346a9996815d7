"""What the findings about configurations share: single points, and how several of them become one finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breadth.doctor.finding import Prescription
from breadth.report.plaintext import counted
from breadth.report.sections import Fact, Severity

NAMED = 3
"""Settings that a headline names; the others stand in the proof."""


@dataclass(frozen=True)
class Point:
    """One thing that is wrong with a configuration."""

    setting: str
    """The settings as the user's file spells them."""
    why: str
    """What is wrong, as the end of a sentence."""
    grave: bool
    """Whether it makes the finding a warning, and not a note."""
    remedy: Prescription | None = None
    """What to do about it."""


def severity(points: Sequence[Point]) -> Severity:
    """Return how bad the worst of them is."""
    return Severity.WARNING if any(one.grave for one in points) else Severity.NOTE


def headline(points: Sequence[Point], noun: str, does: str, do: str) -> str:
    """Return one sentence: how many there are, what they do, and the first by name, the gravest before others."""
    ordered = [one.setting for one in sorted(points, key=lambda one: not one.grave)]
    more = f" and {len(points) - NAMED} more" if len(points) > NAMED else ""
    return f"{counted(len(points), noun)} {does if len(points) == 1 else do}: {'; '.join(ordered[:NAMED])}{more}."


def proof(points: Sequence[Point]) -> tuple[Fact, ...]:
    """Return a fact for each."""
    return tuple(Fact(one.setting, one.why) for one in points)


def remedies_of(points: Sequence[Point]) -> tuple[Prescription, ...]:
    """Return what to do, each action once, those of grave points first."""
    found = {
        one.remedy.action: one.remedy for one in sorted(points, key=lambda one: not one.grave) if one.remedy is not None
    }
    return tuple(found.values())
