"""``truncation``: completions are cut at the length cap and scored as if they had been wrong."""

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
    """A share of the completions is cut at the cap.

    What is cut has no answer, so its reward measures the cap and not the policy. A cap that every completion reaches is
    a setting; one that more and more reach is a policy that has learned to go on.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("entropy-explosion", "degenerate-rollouts")

    touched: float = 0.1
    """Share of cut completions above which, for sure, it is a warning: of groups of eight more than half then hold one.
    """
    most: float = 0.3
    """Share from which on it is critical: of groups of eight 94 % hold one, and the mean of a group is the mean of two
    different things.
    """

    def check(self, evidence: Evidence) -> CheckResult:
        """Look at the share of completions cut in the last eighth of the run."""
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
            "Completions allowed to go on stop by themselves at about the same length, and are as often right as those"
            " that were not cut.",
            _cost(evidence),
            tuple(
                one
                for one in (prescriptions.raise_length_cap(evidence), prescriptions.mask_truncated(evidence))
                if one is not None
            ),
        )


def _since(cut: Trend) -> str:
    return f", up from {cut.start.value:.0%} at the start" if cut.verdict == "rising" else ""


def _facts(evidence: Evidence, cut: Trend) -> tuple[Fact, ...]:
    facts = [
        Fact("cut at the start", cut.start, "%", f"{evidence.describe_steps('truncated')}: median of the first eighth"),
        Fact("cut now", cut.end, "%", "median of the last eighth"),
    ]
    if evidence.config.max_completion_length is not None:
        facts.append(
            Fact(
                "longest completion allowed",
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
    return "" if found is None else f"Over the whole run {found.values.mean():.0%} of the rollouts were cut."


FINDING = Truncation()
"""As the doctor asks it."""
