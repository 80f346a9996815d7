"""``narrow-data-format``: nearly all of the training data has one format, which the policy will adopt."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop, Need
from breadth.doctor.findings.format_collapse import FINDING as FORMAT_COLLAPSE
from breadth.doctor.findings.format_collapse import FormatShift, format_shift
from breadth.measure.intervals import Interval, wilson
from breadth.report.sections import Fact, Severity

_NAME = "narrow-data-format"
CHOICE = "multiple choice"
_OPTION = re.compile(r"(?:^|[\s(])([A-E])[).:](?=\s)")
_OPTIONS = frozenset("ABC")


@dataclass(frozen=True)
class NarrowDataFormat:
    """The format of the data shapes how a policy explores, far more than its subject (arXiv 2505.10185).

    Worked solutions are classified by how their lines start; problems without solutions only by whether they are
    multiple choice, which teaches short traces that compare options early and rewards guessing. It is a note, as an
    upstream cause of a narrow policy, and a warning where the rollouts have certainly collapsed into the format of the
    data. It misleads where the given sample is not representative of the data.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[Need, ...]] = ("data",)
    summary: ClassVar[str] = "the training data has one format, which limits exploration"
    first_step: ClassVar[str] = "mix formats before training"

    nearly: float = 0.9
    """Share of the data that certainly has one format: where `breadth.measure.response_style` calls it a takeover."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Classify the formats of the training data."""
        count = len(evidence.data)
        if wilson(count, count).low <= self.nearly:
            return CannotTell(
                _NAME,
                f"{count} texts of the training data were given; even if all were alike, {_enough(self.nearly)} are"
                " needed",
            )
        from breadth.measure.answers import stated_answer

        solved = [text for text in evidence.data if stated_answer(text) is not None]
        worked = 2 * len(solved) > count
        kind, share = commonest_format(solved) if worked else share_of_multiple_choice(evidence.data)
        if share.low <= self.nearly:
            shown = f"{share.value:.0%} of {len(solved) if worked else count:,} texts are {kind}"
            if share.value <= self.nearly:
                return Excluded(_NAME, shown)
            return CannotTell(_NAME, shown, "give a larger sample of the data", undecided=True)
        rollouts = format_shift(evidence) if worked else None
        same = rollouts is not None and rollouts.leading == kind and FORMAT_COLLAPSE.has_collapsed(rollouts)
        what = (
            f"worked solutions in the training data are written as {kind}"
            if worked
            else f"training problems are {kind}"
        )
        return Finding(
            _NAME,
            Severity.WARNING if same else Severity.NOTE,
            "strong" if same else "likely",
            "training",
            f"{share.value:.0%} of the {what}{', and so are the rollouts now' if same else ''}.",
            _facts(evidence.data, share, kind, rollouts if same else None),
            "A run on the same problems with data in several formats narrows as fast as this one.",
            "",
            (prescriptions.mix_formats(kind),),
        )


def _enough(share: float) -> int:
    return next(count for count in range(1, 10_000) if wilson(count, count).low > share)


def commonest_format(texts: Sequence[str]) -> tuple[str, Interval]:
    """Return the most common format of worked solutions with its share."""
    from breadth.measure.response_style import surface_format

    name, count = Counter(map(surface_format, texts)).most_common(1)[0]
    return name, wilson(count, len(texts))


def share_of_multiple_choice(texts: Sequence[str]) -> tuple[str, Interval]:
    """Return the share of problems that offer options A, B, C."""
    return CHOICE, wilson(sum(set(_OPTION.findall(text)) >= _OPTIONS for text in texts), len(texts))


def _facts(data: Sequence[str], share: Interval, kind: str, rollouts: FormatShift | None) -> tuple[Fact, ...]:
    from breadth.doctor.evidence.record import MAX_TEXTS_PER_WINDOW
    from breadth.measure.response_style import exploration_profile

    profiles = [exploration_profile(text) for text in data[:MAX_TEXTS_PER_WINDOW]]
    facts = [
        Fact(f"data that is {kind}", share, "%", f"{len(data):,} texts of the training data"),
        Fact(
            "approaches named early in a text",
            fmean(profile.early_approaches for profile in profiles),
            "",
            f"mean of {len(profiles)} texts",
        ),
        Fact("checks", fmean(profile.checks_per_1k for profile in profiles), "per 1,000 tokens"),
        Fact("longest run of steps without another approach", fmean(profile.depth for profile in profiles)),
    ]
    if rollouts is not None:
        facts += [
            Fact(f"rollouts that are {kind} at the start", rollouts.share.start, "%"),
            Fact("now", rollouts.share.now, "%"),
        ]
    return tuple(facts)


FINDING = NarrowDataFormat()
"""The check with its default thresholds."""
