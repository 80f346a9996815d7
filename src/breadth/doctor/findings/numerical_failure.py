"""``numerical-failure``: gradients, the loss or a divergence are no numbers that training can produce."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.log_defects import NanRun, nan_runs
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.evidence.scores import is_training_run
from breadth.doctor.finding import FINDING_SEVERITIES, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.report.cells import format_factor, format_number
from breadth.report.sections import Fact, Severity
from breadth.runs.reader import MetricSeries

WATCHED = ("grad_norm", "loss", "kl_reference", "entropy", "reward")
"""Metrics that every step has."""
MIN_TOGETHER = 2
"""Metrics that are no numbers at the last point, from which on that ended the run."""
NEVER_NEGATIVE = ("kl", "train/kl")
"""Names under which TRL and its forks log the estimator of Schulman (k3), which no sample can make negative."""


@dataclass(frozen=True)
class NumericalFailure:
    """A metric is NaN, infinite or beyond any size that training produces.

    Gradients, loss, divergence, entropy and reward are watched. Those that are no numbers to the end, for eight points
    or more, broke the run; others are overflows that passed, and a note. A loss of 100,000, a
    gradient norm a thousand times its start that stays there, and a mean KL below zero from an estimator that cannot be
    negative, have the same cause more often than not: a log-probability of a token that one side finds impossible. It
    misleads where a loss is a sum over all tokens by design.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("train-inference-mismatch", "wrong-units")
    summary: ClassVar[str] = "gradients, loss or KL are NaN, infinite or impossible"
    first_step: ClassVar[str] = "go back to the last good checkpoint; clip gradients, check precision"

    huge: float = 1e5
    """Size of a loss that no batch of rollouts gives: advantages are about one, and the largest importance ratio that
    float32 log-probabilities allow is e^88."""
    far: float = 1e4
    """Size of a divergence per token that no policy reaches: the estimate is then the exponential of a few tokens."""
    spikes: int = 3
    """Points of such a size from which on it is a warning: one is an unlucky batch, unless loss and divergence are of
    that size at the same step: then the update was too."""
    grown: float = 1000.0
    """Factor over its start that the gradient norm surely exceeds in its highest stretch: clipping keeps updates small,
    but a gradient that large points nowhere."""
    share: float = 0.5
    """Share of the points that are NaN from which on it is a warning: loss scaling skips an overflow now and then by
    design, but not every other update."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Look at the numbers as they were logged."""
        if evidence.run is None or not is_training_run(evidence):
            return None
        logged = [name for name in WATCHED if name in evidence.run.metric_names()]
        usable = [name for name in logged if evidence.series(name) is not None]
        if not usable:
            return evidence.missing_metric("numerical-failure", logged[0] if logged else "grad_norm")
        found = sorted(self.look_everywhere(evidence, logged), key=lambda item: FINDING_SEVERITIES.index(item.severity))
        if found:
            return found[0]
        return Excluded(
            "numerical-failure", f"every value of {', '.join(map(evidence.logged_name, usable))} is a possible number"
        )

    def look_everywhere(self, evidence: Evidence, logged: list[str]) -> Iterator[Finding]:
        """Yield what is wrong with each metric."""
        broken = {nan_run.name: nan_run for nan_run in nan_runs(evidence)}
        for name in logged:
            if name in broken and broken[name].to_the_end:
                yield report_nan_run(evidence, broken[name])
            elif (last := self.count_last_nans(evidence, name, logged)) is not None:
                yield report_nan_run(evidence, last)
            else:
                yield from self.count_nans(evidence, name)
        yield from self.find_huge(evidence, [name for name in logged if name in ("loss", "kl_reference")])
        yield from self.find_exploded_gradient(evidence)
        yield from find_negative_kl(evidence)

    def count_last_nans(self, evidence: Evidence, name: str, logged: list[str]) -> NanRun | None:
        """Return the points at the end that are no numbers: several, or of several metrics at once."""
        if evidence.run is None:
            return None
        several = {other: trailing_nans(evidence.run.series(other)) for other in logged}
        points = several[name]
        together = sum(count > 0 for count in several.values())
        series = evidence.run.series(name)
        if not points or points == len(series) or (points < self.spikes and together < MIN_TOGETHER):
            return None
        return NanRun(name, int(series.steps[-points]), int(series.steps[-1]), points, to_the_end=True)

    def count_nans(self, evidence: Evidence, name: str) -> Iterator[Finding]:
        """Yield points that are no numbers, where numbers follow them."""
        series = None if evidence.run is None else evidence.run.series(name)
        odd = 0 if series is None else int((~np.isfinite(series.values)).sum())
        if series is None or not odd or odd == len(series):
            return
        often = odd >= MIN_POINTS and odd > self.share * len(series)
        first = int(series.steps[~np.isfinite(series.values)][0])
        yield describe(
            evidence,
            Severity.WARNING if often else Severity.NOTE,
            f"{evidence.logged_name(name)} is no number at {odd} of {len(series)} steps, first at step {first:,}.",
            (Fact("steps without a number", odd, "", evidence.logged_name(name)),),
            first,
        )

    def find_huge(self, evidence: Evidence, names: list[str]) -> Iterator[Finding]:
        """Yield a loss or a divergence of impossible size."""
        together = self.count_huge_steps(evidence, names)
        for name in names:
            series = evidence.series(name)
            if series is None:
                continue
            most = self.far if name == "kl_reference" else self.huge
            large = np.flatnonzero(np.abs(series.values) >= most)
            if len(large):
                peak = float(np.abs(series.values).max())
                step = int(series.steps[large[0]])
                yield describe(
                    evidence,
                    Severity.WARNING if len(large) >= self.spikes or together else Severity.NOTE,
                    f"{evidence.logged_name(name)} reached {format_number(peak)}, first above {most:,.0f} at step"
                    f" {step:,}.",
                    (
                        Fact("largest value", peak, "", evidence.describe_steps(name)),
                        Fact("steps above it", len(large)),
                    ),
                    step,
                )

    def count_huge_steps(self, evidence: Evidence, names: list[str]) -> int:
        """Count the steps at which both the loss and the divergence are of impossible size."""
        found = [(evidence.series(name), self.far if name == "kl_reference" else self.huge) for name in names]
        steps = [
            frozenset(series.steps[np.abs(series.values) >= most].tolist())
            for series, most in found
            if series is not None
        ]
        return len(frozenset.intersection(*steps)) if len(steps) > 1 else 0

    def find_exploded_gradient(self, evidence: Evidence) -> Iterator[Finding]:
        """Yield a gradient norm far beyond its start."""
        course = evidence.course("grad_norm")
        if course is None:
            return
        grown = course.change(course.start, course.highest)
        if grown.low > self.grown and course.highest.level.low > 1.0:
            step = int(course.highest.first)
            yield describe(
                evidence,
                Severity.WARNING,
                f"The gradient norm rose to {format_factor(grown.value)} times its start at steps {step:,} to"
                f" {course.highest.last:,.0f}.",
                (Fact("times its start", grown), Fact("gradient norm then", course.highest.level)),
                step,
            )


def trailing_nans(series: MetricSeries) -> int:
    """Count the points at the end that are no numbers."""
    finite = np.flatnonzero(np.isfinite(series.values))
    return len(series) - (int(finite[-1]) + 1 if len(finite) else 0)


def describe(
    evidence: Evidence, severity: Severity, headline: str, facts: tuple[Fact, ...], step: int | None
) -> Finding:
    """Build the finding."""
    return Finding(
        "numerical-failure",
        severity,
        "certain",
        "training",
        headline,
        facts,
        "The same batch, computed again in float32 from the same weights, gives an ordinary number.",
        prescriptions=_prescriptions(evidence, severity, step),
    )


def report_nan_run(evidence: Evidence, nan_run: NanRun) -> Finding:
    """Build the finding for a metric that is no number to the end."""
    name = evidence.logged_name(nan_run.name)
    return describe(
        evidence,
        Severity.CRITICAL,
        f"{name} is NaN or infinite from step {nan_run.first:,} to the end, {nan_run.points} points.",
        (Fact("points without a number", nan_run.points, "", f"{name}, steps {nan_run.first:,} to {nan_run.last:,}"),),
        nan_run.first,
    )


def find_negative_kl(evidence: Evidence) -> Iterator[Finding]:
    """Yield a mean KL below zero where the trainer's estimator cannot be negative."""
    series, name = evidence.series("kl_reference"), evidence.logged_name("kl_reference")
    trainer = "" if evidence.run is None else evidence.run.header.trainer
    if series is None or trainer != "trl" or name not in NEVER_NEGATIVE:
        return
    below = series.values < -1e-4
    if below.sum() >= 3:
        step = int(series.steps[np.argmax(below)])
        yield describe(
            evidence,
            Severity.WARNING,
            f"{name} is below zero at {int(below.sum())} of {len(series)} steps, which its estimator (k3) cannot be.",
            (Fact("lowest", float(series.values.min()), "nats", evidence.describe_steps("kl_reference")),),
            step,
        )


def _prescriptions(evidence: Evidence, severity: Severity, step: int | None) -> tuple[Prescription, ...]:
    if severity is Severity.NOTE:
        return (prescriptions.lower_learning_rate(evidence),)
    wanted = [
        prescriptions.go_back_to(step - 1) if step is not None and step > 1 else None,
        prescriptions.lower_learning_rate(evidence),
        prescriptions.correct_mismatch(evidence) if evidence.config.engine in ("vllm", "sglang") else None,
        prescriptions.match_precision() if evidence.config.engine in ("vllm", "sglang") else None,
    ]
    return tuple(remedy for remedy in wanted if remedy is not None)


FINDING = NumericalFailure()
"""The check with its default thresholds."""
