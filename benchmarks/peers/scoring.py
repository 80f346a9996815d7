"""Who named what: verdicts of several doctors on the same runs, scored by label, for `benchmarks/doctor_peers.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from breadth.measure.intervals import wilson

HEALTHY = "healthy"
UNCLEAR = "unclear"


@dataclass(frozen=True)
class Said:
    """One thing that a doctor says."""

    name: str
    """In its own words."""
    labels: frozenset[str]
    """In ours; empty where none of our findings says the same."""
    loud: bool = True
    """Whether it is at its own warning level or above."""


@dataclass(frozen=True)
class Verdict:
    """What one doctor says of one run."""

    tool: str
    """Which doctor."""
    group: str
    """Which set of runs."""
    run: str
    """Which run."""
    truth: str
    """What is wrong with it; "no NAME" where the series that would tell was taken out."""
    meant: frozenset[str]
    """Findings of ours that say so."""
    also: frozenset[str] | None
    """What else it would be right to name; None where nobody knows."""
    said: tuple[Said, ...] = ()
    """Everything."""
    unread: str = ""
    """Why it judged nothing; empty where it did."""
    as_is: bool = False
    """Whether it took a trainer's file as it was."""

    @property
    def failing(self) -> bool:
        """Whether something is known to be wrong."""
        return self.truth not in (HEALTHY, UNCLEAR) and not self.truth.startswith("no ")

    @property
    def alarms(self) -> tuple[str, ...]:
        """What it says at its warning level or above."""
        return tuple(dict.fromkeys(one.name for one in self.said if one.loud))

    def named(self, *, notes: bool = False) -> bool:
        """Say whether the trouble is among what it says."""
        return any(not self.meant.isdisjoint(one.labels) for one in self.said if one.loud or notes)

    @property
    def astray(self) -> bool:
        """Whether it alarms with a failure that is not there; a score that stopped is true of most broken runs."""
        right = self.meant | (self.also or frozenset()) | {"saturation"}
        return any(one.loud and one.labels and right.isdisjoint(one.labels) for one in self.said)


@dataclass(frozen=True)
class Count:
    """So many of so many runs."""

    hits: int
    """How many it is true of."""
    judged: int
    """Of how many."""
    unread: int = 0
    """On how many more nothing was judged."""

    def __str__(self) -> str:
        return f"{self.hits} of {self.judged}" + (f", {self.unread} unread" if self.unread else "")

    @property
    def interval(self) -> str:
        """The count with Wilson's interval."""
        if not self.judged:
            return str(self)
        found = wilson(self.hits, self.judged)
        return f"{self} ({found.low:.2f} to {found.high:.2f})"


def count(verdicts: Sequence[Verdict], hits: Iterable[bool]) -> Count:
    """Count hits among the runs that were judged."""
    told = [hit for one, hit in zip(verdicts, hits, strict=True) if not one.unread]
    return Count(sum(told), len(told), len(verdicts) - len(told))


def counts(verdicts: Sequence[Verdict], nameable: frozenset[str]) -> dict[str, Count]:
    """Count what one tool did on one set of runs, given what it has a rule for; a count of no runs is left out."""
    failing = [one for one in verdicts if one.failing]
    able = [one for one in failing if not one.meant.isdisjoint(nameable)]
    known = [one for one in failing if one.also is not None]
    healthy = [one for one in verdicts if one.truth == HEALTHY]
    silent = [one for one in verdicts if one.truth.startswith("no ")]
    found = {
        "failures named": count(failing, (one.named() for one in failing)),
        "of those it has a rule for": count(able, (one.named() for one in able)),
        "with notes": count(failing, (one.named(notes=True) for one in failing)),
        "another named": count(known, (one.astray for one in known)),
        "healthy alarmed": count(healthy, (bool(one.alarms) for one in healthy)),
        "named without its series": count(silent, (one.named() for one in silent)),
    }
    return {name: one for name, one in found.items() if one.judged or one.unread}


def by_label(verdicts: Sequence[Verdict], nameable: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Lay out a table: a row per tool, a column per label; "-" where a tool has no rule for it."""
    truths = list(dict.fromkeys(one.truth for one in verdicts if one.failing))
    tools = {
        tool: [one for one in verdicts if one.tool == tool] for tool in dict.fromkeys(one.tool for one in verdicts)
    }
    totals = {tool: counts(own, nameable[tool]) for tool, own in tools.items()}
    heads = list(dict.fromkeys(name for found in totals.values() for name in found))
    rows = [["", *truths, *heads]]
    for tool, own in tools.items():
        cells = [_cell([one for one in own if one.truth == truth], nameable[tool]) for truth in truths]
        rows.append([tool, *cells, *(totals[tool][name].interval if name in totals[tool] else "-" for name in heads)])
    return rows


def _cell(verdicts: Sequence[Verdict], nameable: frozenset[str]) -> str:
    if verdicts[0].meant.isdisjoint(nameable):
        return "-"
    return str(count(verdicts, (one.named() for one in verdicts)))
