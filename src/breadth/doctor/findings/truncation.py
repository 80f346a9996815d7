"""``truncation``: completions are cut at the length cap and scored as if they were wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CheckResult, Finding, Loop
from breadth.measure.trends import Trend
from breadth.report.sections import Fact, Severity


@dataclass(frozen=True)
class Truncation:
    """A share of the completions is cut at the length cap.

    A truncated completion has no answer, so its reward measures the cap and not the policy. A cap that every completion
    reaches is a setting; one that more and more completions reach is a policy that has learned to keep writing.
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

    def check(self, evidence: Evidence) -> CheckResult:
        """Read the share of truncated completions in the last eighth of the run."""
        cut = evidence.trend("truncated")
        if cut is None:
            return evidence.missing_metric("truncation", "truncated")
        if cut.end.low <= self.touched:
            return None
        return Finding(
            "truncation",
            Severity.CRITICAL if cut.end.low > self.most else Severity.WARNING,
            "strong",
            "training",
            f"{cut.end.value:.0%} of the completions are cut at the length cap{_since(cut)}.",
            _facts(evidence, cut),
            "Completions without the cap stop by themselves at about the same length, and are correct as often as those"
            " that were not cut.",
            _cost(evidence),
            tuple(
                remedy
                for remedy in (prescriptions.raise_length_cap(evidence), prescriptions.mask_truncated(evidence))
                if remedy is not None
            ),
        )


def _since(cut: Trend) -> str:
    return f", up from {cut.start.value:.0%} at the start" if cut.verdict == "rising" else ""


def _facts(evidence: Evidence, cut: Trend) -> tuple[Fact, ...]:
    facts = [
        Fact(
            "truncated at the start",
            cut.start,
            "%",
            f"{evidence.describe_steps('truncated')}: median of the first eighth",
        ),
        Fact("truncated now", cut.end, "%", "median of the last eighth"),
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
    length = evidence.trend("length")
    if length is not None:
        facts.append(
            Fact("mean length", f"{length.start.value:,.0f} to {length.end.value:,.0f}", "tokens", length.verdict)
        )
    return tuple(facts)


def _cost(evidence: Evidence) -> str:
    found = evidence.series("truncated")
    return "" if found is None else f"Over the whole run {found.values.mean():.0%} of the rollouts were truncated."


FINDING = Truncation()
"""The check with its default thresholds."""
