"""``saturation``: the score has stopped rising although entropy and mixed groups are left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.evidence.scores import is_training_run
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.doctor.findings.entropy_collapse import FINDING as COLLAPSE
from breadth.doctor.findings.zero_variance_groups import FINDING as ZERO_VARIANCE
from breadth.measure.intervals import Interval
from breadth.measure.series import robust_sd
from breadth.measure.trends import Trend, trend
from breadth.report.sections import Fact, Severity
from breadth.runs.reader import MetricSeries


@dataclass(frozen=True)
class Saturation:
    """The score rose, and was then flat over at least the second half of the run.

    Flat means that a rise of a fifth of the earlier gain is excluded, by an interval. It differs from a collapse in
    that entropy is left, and from zero-variance groups in that groups differ in reward: the data or the learning rate
    then limit the score. A score that never rose is a different case and not reported here. A plateau costs only
    budget, so this is never more than a note; nor is a score near the highest possible reward, which means solved. It
    misleads where problems get harder during the run, as in a curriculum: a flat score is then progress.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("overly-hard", "truncation", "train-inference-mismatch")
    summary: ClassVar[str] = "the score rose, then stopped for at least half of the run"
    first_step: ClassVar[str] = "stop here, or bring harder problems"

    clear: float = 3.0
    """Standard deviations of a single point that it must have risen by before: noise does so once in 700 times."""
    still: float = 0.2
    """Share of the earlier rise that a rise over the stretch must certainly stay below: five more such stretches would
    be needed to gain as much again."""
    stretches: tuple[float, ...] = (0.75, 0.5)
    """Shares of the run that may be flat, the longest is reported: less than half is how most runs end; with half of
    it, half of the cost bought nothing."""
    solved: float = 0.9
    """Share of the way from lowest to highest reward above which, if certain, it is solved: ScaleRL retires problems
    from a pass rate of 0.9 on, MiniMax-M1 trains on none above it."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Look for a flat stretch up to the end."""
        if evidence.run is None or not is_training_run(evidence):
            return None
        score, series = evidence.trend("reward"), evidence.series("reward")
        if score is None or series is None:
            return evidence.missing_metric("saturation", "reward")
        levels = evidence.run.header.reward_levels
        if len(levels) == 2 and score.end.low > min(levels) + self.solved * (max(levels) - min(levels)):
            return report_solved(evidence, score, max(levels))
        flat = find_plateau(series, self.stretches, clear=self.clear, still=self.still)
        if flat is None or has_flat_groups(evidence):
            return Excluded(
                "saturation", "no flat stretch after a rise is shown" if flat is None else "groups are flat"
            )
        entropy = evidence.trend("entropy")
        if entropy is None or entropy.ratio is None:
            missing = (
                f"the score has been flat since step {flat.step:,}; entropy is not logged, so whether any is left is"
                " unknown"
            )
            return CannotTell("saturation", missing, evidence.how_to_log("entropy"))
        if COLLAPSE.shows(entropy):
            return Excluded("saturation", "entropy has collapsed")
        return self.report(evidence, score, flat, entropy)

    def report(self, evidence: Evidence, score: Trend, flat: Plateau, entropy: Trend) -> Finding:
        """Build the finding for a plateau."""
        left = f"{entropy.ratio.value:.0%}" if entropy.ratio is not None else ""
        since = f"for {flat.share:.0%} of the run, since step {flat.step:,}"
        return Finding(
            "saturation",
            Severity.NOTE,
            "strong",
            "training",
            f"The score has been flat at {score.end.value:.3g} {since}, with {left} of the entropy left.",
            _facts(evidence, flat, entropy),
            "The held-out score rises over the same steps, or problems got harder during the run.",
            f"{flat.share:.0%} of the steps moved the score by {flat.change.value:+.2g}, the others by"
            f" {flat.rise:+.2g}.",
            _prescriptions(evidence, flat.step),
        )


def report_solved(evidence: Evidence, score: Trend, highest: float) -> Finding:
    """Build the finding for problems that are solved."""
    return Finding(
        "saturation",
        Severity.NOTE,
        "strong",
        "training",
        f"The score is {score.end.value:.3g} of at most {highest:g}: these problems are solved and have little left to"
        " teach.",
        (
            Fact("reward now", score.end, "", f"{evidence.describe_steps('reward')}: median of the last eighth"),
            Fact("highest reward", highest),
        ),
        "Held-out problems of the same kind are solved far less often.",
        prescriptions=(prescriptions.filter_problems(easier=False),),
    )


def has_flat_groups(evidence: Evidence) -> bool:
    """Say whether most groups have no difference in reward."""
    flat = evidence.trend("zero_variance_groups")
    return flat is not None and flat.end.low > ZERO_VARIANCE.half


def _facts(evidence: Evidence, flat: Plateau, entropy: Trend) -> tuple[Fact, ...]:
    facts = [
        Fact(
            "rise before",
            flat.rise,
            "",
            f"{evidence.describe_steps('reward')}: medians of the flat stretch and of the first steps",
        ),
        Fact("change over the flat stretch", flat.change, "", f"a rise of {flat.excluded:.2g} is excluded"),
        Fact("entropy left, share of the start", entropy.ratio, "%", evidence.describe_steps("entropy")),
    ]
    groups = evidence.trend("zero_variance_groups")
    if groups is not None:
        facts.append(
            Fact(
                "groups without a difference in reward",
                groups.end,
                "%",
                evidence.describe_steps("zero_variance_groups"),
            )
        )
    return tuple(facts)


def _prescriptions(evidence: Evidence, step: int) -> tuple[Prescription, ...]:
    wanted = [
        prescriptions.add_problems(),
        prescriptions.raise_learning_rate(evidence),
        prescriptions.stop_training(step),
    ]
    return tuple(remedy for remedy in wanted if remedy is not None)


_FIRST = 32
# The start is the first of so many parts, at least three points: what learns fast has made most of its way in the first
# eighth.


@dataclass(frozen=True)
class Plateau:
    """A flat stretch up to the end of a series, after a rise."""

    step: int
    """Its first step."""
    share: float
    """Its share of the run."""
    rise: float
    """Rise of the series before it."""
    change: Interval
    """Change over the stretch, by its slope or by its ends."""
    excluded: float
    """Change over the stretch that is excluded, up and down."""


def find_plateau(series: MetricSeries, stretches: Sequence[float], *, clear: float, still: float) -> Plateau | None:
    """Return the first flat stretch (shares of the series, up to its end) after a rise; None where there is none.

    It rose when its level lies more than ``clear`` standard deviations of a single point above the start. It is flat
    when a change of ``still`` times that rise is excluded by the interval of its slope, or of its end minus its start:
    each can be wide where the other is not, the first for autocorrelated noise and the second for strong noise.
    """
    start = float(np.median(series.values[: max(3, len(series) // _FIRST)]))
    for share in stretches:
        begin = len(series) - int(share * len(series))
        steps, values = series.steps[begin:], series.values[begin:]
        rise = float(np.median(values)) - start if len(values) >= MIN_POINTS else 0.0
        if rise <= 0 or rise <= clear * robust_sd(values):
            continue
        found, span = trend(steps, values, relevant=still * rise), float(steps[-1] - steps[0])
        slope = found.slope
        by_slope = Interval(span * slope.value, span * slope.low, span * slope.high, slope.level, slope.method)
        level = [
            interval
            for interval in (by_slope, found.change)
            if max(-interval.low, interval.high) < found.relevant_change
        ]
        if level and max(abs(by_slope.value), abs(found.change.value)) < found.relevant_change:
            return Plateau(int(steps[0]), share, rise, level[0], found.relevant_change)
    return None


FINDING = Saturation()
"""The check with its default thresholds."""
