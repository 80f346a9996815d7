"""``truncation``: completions are cut at the length cap and scored as if they were wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.run_course import length_cap
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop
from breadth.measure.course import Course
from breadth.report.sections import Fact, Severity


@dataclass(frozen=True)
class Truncation:
    """A share of the completions is cut at the length cap.

    A truncated completion has no answer, so its reward measures the cap and not the policy. A cap that every completion
    reaches is a setting; one that more and more completions reach is a policy that has learned to keep writing. Where
    the share is not logged, a mean length at the cap shows it: a mean within a tenth of the longest possible completion
    leaves at most one in five that is half as long. A peak that has passed is a note.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("entropy-explosion", "degenerate-rollouts")
    summary: ClassVar[str] = "many completions are cut at the length limit"
    first_step: ClassVar[str] = "raise the limit, or mask the cut completions"

    touched: float = 0.1
    """Share of truncated completions above which, if certain, it is a warning: more than half of groups of eight then
    hold one."""
    most: float = 0.3
    """Share above which it is critical: 94 % of groups of eight hold one, and the mean of a group mixes two different
    things."""

    pinned: float = 0.95
    """Share of the cap that the mean length exceeds where no share of truncated completions is logged: at most one
    completion in ten is then half as long."""
    near: float = 0.9
    """The same for a warning: at most one in five."""

    far: float = 0.5
    """Share of the cap that the mean length must not exceed for truncation to be excluded by it: by Markov's inequality
    no larger share of the completions can be at the cap."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Read the share of truncated completions in the last eighth of the run, else the mean length."""
        cut = evidence.course("truncated")
        if cut is None:
            return self.compare_with_cap(evidence)
        if self.is_cut(cut):
            severity = Severity.CRITICAL if cut.end.level.low > self.most else Severity.WARNING
            since = f", up from {cut.start.level.value:.0%} at the start" if rises(cut) else ""
            return describe(
                evidence,
                severity,
                f"{cut.end.level.value:.0%} of the completions are cut at the length cap{since}.",
                cut,
            )
        if cut.highest.level.low > self.most:
            steps = f"steps {cut.highest.first:,.0f} to {cut.highest.last:,.0f}"
            headline = (
                f"{cut.highest.level.value:.0%} of the completions were cut at the length cap at {steps}, not now."
            )
            return describe(evidence, Severity.NOTE, headline, cut)
        shown = f"{cut.end.level.value:.1%} of the completions are cut (up to {cut.end.level.high:.1%})"
        if cut.end.level.value < self.touched:
            return Excluded("truncation", shown)
        return CannotTell("truncation", shown, "sample more rollouts per step", undecided=True)

    def is_cut(self, cut: Course) -> bool:
        """Say whether the share is surely too large now, by the last eighth or by the second half of the run."""
        surest = max(cut.end.level.low, cut.late.level.low)
        return surest > self.touched and cut.end.level.value > self.touched

    def compare_with_cap(self, evidence: Evidence) -> CheckResult:
        """Decide by the mean length, where the longest possible completion is known."""
        length, cap = evidence.course("length"), length_cap(evidence)
        if length is None or cap is None:
            return evidence.missing_metric("truncation", "truncated")
        if length.end.level.value <= self.near * cap:
            shown = f"the mean length is {length.end.level.value:,.0f} tokens, of {cap:,.0f} at most"
            if length.end.level.value <= self.far * cap:
                return Excluded("truncation", shown)
            most = f"up to {length.end.level.value / cap:.0%} of the completions may be cut"
            return CannotTell("truncation", f"{shown}, so {most}", evidence.how_to_log("truncated"))
        is_pinned = length.end.level.value > self.pinned * cap
        headline = (
            f"The mean length is {length.end.level.value:,.0f} tokens, {length.end.level.value / cap:.0%} of the"
            f" longest completion possible: {'nearly all' if is_pinned else 'most'} are cut at the cap."
        )
        return describe(evidence, Severity.CRITICAL if is_pinned else Severity.WARNING, headline, None)


def rises(cut: Course) -> bool:
    """Say whether more completions are cut than at the start."""
    return cut.change(cut.start, cut.end).low > 0


def describe(evidence: Evidence, severity: Severity, headline: str, cut: Course | None) -> Finding:
    """Build the finding."""
    return Finding(
        "truncation",
        severity,
        "strong",
        "training",
        headline,
        _facts(evidence, cut),
        "Completions without the cap stop by themselves at about the same length, and are correct as often as those"
        " that were not cut.",
        _cost(evidence),
        tuple(
            remedy
            for remedy in (
                prescriptions.raise_length_cap(evidence),
                None if cut is None else prescriptions.mask_truncated(evidence),  # without a share, nearly all are cut
            )
            if remedy is not None
        ),
    )


def _facts(evidence: Evidence, cut: Course | None) -> tuple[Fact, ...]:
    facts = []
    if cut is not None:
        name = evidence.logged_name("truncated")
        facts = [
            Fact(label, stretch.level, "%", f"{name}, steps {stretch.first:,.0f} to {stretch.last:,.0f}")
            for label, stretch in (
                ("truncated at the start", cut.start),
                ("highest stretch", cut.highest),
                ("truncated now", cut.end),
            )
        ]
    if evidence.config.max_completion_length is not None:
        facts.append(
            Fact(
                "length cap",
                evidence.config.max_completion_length,
                "tokens",
                evidence.config.describe("max_completion_length"),
            )
        )
    length = evidence.course("length")
    if length is not None:
        levels = f"{length.start.level.value:,.0f} to {length.end.level.value:,.0f}"
        facts.append(Fact("mean length", levels, "tokens", evidence.describe_steps("length")))
    return tuple(facts)


def _cost(evidence: Evidence) -> str:
    found = evidence.series("truncated")
    return "" if found is None else f"Over the whole run {found.values.mean():.0%} of the rollouts were truncated."


FINDING = Truncation()
"""The check with its default thresholds."""
