"""``unreliable-metric``: the number called entropy changed, and not the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from breadth.doctor.evidence.log_defects import (
    Discontinuity,
    LengthScaling,
    TokenEntropy,
    find_interleaved_writers,
    jump_at_restart,
    jumps_near,
    length_scaling,
    nan_runs,
    remove_jump,
    token_entropy,
)
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.evidence.scores import is_training_run
from breadth.doctor.finding import CheckResult, Confidence, Finding, Loop, Prescription
from breadth.doctor.findings.entropy_collapse import FINDING as COLLAPSE
from breadth.doctor.findings.entropy_explosion import FINDING as EXPLOSION
from breadth.doctor.prescriptions import lower_learning_rate, resume_from_checkpoint
from breadth.measure.change_points import find_change_points
from breadth.measure.trends import Trend, log_trend
from breadth.report.sections import Fact, Severity


@dataclass(frozen=True)
class UnreliableMetric:
    """Logged entropy moved for a reason that lies in how it is counted.

    Where rollouts carry the entropy of every token, those decide alone: the logged number is an artefact when its ratio
    to them has moved. Where they do not: a value that no single token can have is a sum over a sequence, and so is one
    that goes with the mean length step by step; and a jump exactly where the run was started anew, made at once, that
    neither the reward nor the length shows, is one of the number, because no update lies between a checkpoint and the
    first step after it. Verdicts on entropy are taken back only where they rest on the artefact: with it taken out of
    the series, a collapse that is still there stays one. Over a gap in the steps nothing is taken back, nor where a
    point stands for several steps: the policy was trained in between. It misleads when settings of the sampling were
    changed with the restart.

    Two more are told without entropy moving: a metric that every step has is NaN or infinite at eight points in a row
    or more (a warning where that goes on to the end: the run is broken from there on); and steps that stand twice in a
    log, at two levels far apart: two runs, or two processes that count differently, write into it.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ()

    agrees: float = 0.1
    """Change of logged over counted entropy, as a share, below which both tell the same: the change that matters in
    `breadth.measure.trends`. A constant factor, as another temperature makes, is none."""
    largest: float = 12.5
    """Nats above which an entropy is not that of a token: the logarithm of 262,144, the largest vocabulary in common
    use, is 12.48.
    """

    def check(self, evidence: Evidence) -> CheckResult:
        """Set the logged entropy beside everything that could contradict it."""
        if evidence.run is None or not is_training_run(evidence):
            return None
        broken, logged = find_nan_metrics(evidence), evidence.trend("entropy")
        if logged is None or (broken is not None and broken.severity is Severity.WARNING):
            return broken
        return self.check_entropy(evidence, logged) or broken

    def check_entropy(self, evidence: Evidence, logged: Trend) -> Finding | None:
        """Compare the logged entropy with the tokens, else with what the log itself shows."""
        counted = token_entropy(evidence)
        if counted is not None:
            return self.compare_with_tokens(evidence, logged, counted)
        return (
            report_interleaved_writers(evidence, logged)
            or self.check_sequence_sum(evidence, logged)
            or check_restart_jump(evidence, logged)
        )

    def compare_with_tokens(self, evidence: Evidence, logged: Trend, counted: TokenEntropy) -> Finding | None:
        """Compare the logged entropy with that of the tokens in the rollouts."""
        apart, slack = counted.logged_ratio.ratio, 1 + self.agrees
        if apart is None or (apart.low <= slack and apart.high >= 1 / slack):
            return None
        start, end = counted.logged_ratio.start, counted.logged_ratio.end
        jumps = find_change_points(counted.steps, np.log(counted.logged / counted.per_token)).jumps
        since = f", at once by step {jumps[0].step:,.0f}" if len(jumps) == 1 else ""
        like = ", as a sum over each sequence would be" if counted.is_sequence_sum else ""
        facts = (
            Fact(
                "logged over counted, at the start",
                start,
                "",
                f"{len(counted.steps)} steps with the entropy of every token",
            ),
            Fact("logged over counted, now", end),
            Fact(
                "counted entropy left of the start",
                counted.trend.ratio or "not told",
                "%" if counted.trend.ratio else "",
            ),
        )
        head = (
            f"Logged entropy went from {start.value:.2g} to {end.value:.2g} times what the tokens in the rollouts have"
        )
        return describe_artefact(evidence, f"{head}{since}{like}.", facts, logged, counted.trend, "certain")

    def check_sequence_sum(self, evidence: Evidence, logged: Trend) -> Finding | None:
        """Tell a sum over a sequence by its size, or by going with the length."""
        level = max(logged.start.low, logged.end.low)
        beside = length_scaling(evidence)
        better = None if beside is None else beside.trend
        if level > self.largest:
            fact = Fact("largest entropy of a token", self.largest, "nats", "the logarithm of a vocabulary of 262,144")
            head = f"Entropy is logged as a sum over each sequence: {level:.3g} nats are more than one token can have."
            return describe_artefact(evidence, head, (fact, *length_facts(evidence, beside)), logged, better, "certain")
        if beside is None or not beside.is_proportional or not verdicts_invalidated_by(logged, better):
            return None
        head = (
            f"Entropy goes with the mean length (exponent {beside.exponent.value:.2g}): it is a sum over each sequence."
        )
        return describe_artefact(evidence, head, length_facts(evidence, beside), logged, better, "likely")


def check_restart_jump(evidence: Evidence, logged: Trend) -> Finding | None:
    """Return the finding for a jump at a restart that only entropy shows."""
    series, run = evidence.series("entropy"), evidence.run
    seam = None if series is None or run is None else jump_at_restart(run, series)
    if series is None or seam is None:
        return None
    others = [one for one in (evidence.series(name) for name in ("reward", "length")) if one is not None]
    if any(jumps_near(one, seam.step) for one in others):
        return None  # the policy or its settings are another from there on, and so is its entropy
    # Behind a hole, or where a point stands for several steps, updates lie in between: nothing is taken back.
    better = log_trend(series.steps, remove_jump(series, seam)) if seam.first_is_untrained and others else None
    where = f"behind {seam.missing:,} steps that are missing" if seam.missing else "where the run was started anew"
    head = (
        f"Entropy jumped from {seam.before:.2g} to {seam.before * seam.factor.value:.2g} at step {seam.step:,}, {where}"
    )
    sure: Confidence = "strong" if seam.logged_twice >= MIN_POINTS and not seam.missing else "likely"
    calm = " and ".join(evidence.logged_name(one.name) for one in others)
    head += f"; {calm} did not" if others else "; nothing is logged beside it that would show whether the policy did"
    return describe_artefact(evidence, f"{head}.", _of_seam(seam, better), logged, better, sure)


def describe_artefact(
    evidence: Evidence, headline: str, facts: tuple[Fact, ...], logged: Trend, better: Trend | None, sure: Confidence
) -> Finding:
    """Build the finding."""
    voids = verdicts_invalidated_by(logged, better)
    hidden = better is not None and COLLAPSE.shows(better) and not COLLAPSE.shows(logged)
    said = "Without it entropy has collapsed: the logged number hides that." if hidden else ""
    return Finding(
        "unreliable-metric",
        Severity.WARNING if voids or hidden else Severity.NOTE,
        sure,
        "training",
        headline,
        (
            Fact(
                "logged entropy",
                f"{logged.start.value:.3g} to {logged.end.value:.3g}",
                "nats",
                evidence.describe_steps("entropy"),
            ),
            *facts,
        ),
        "The entropies of the same rollouts, counted token by token, have moved as the logged number did.",
        said or (f"What it says about {' and '.join(voids)} cannot be believed." if voids else ""),
        _prescriptions(evidence),
        voids,
    )


def length_facts(evidence: Evidence, beside: LengthScaling | None) -> tuple[Fact, ...]:
    """Return the numbers that relate entropy to length."""
    if beside is None:
        return ()
    facts = [
        Fact(
            "exponent of entropy in length, step by step",
            beside.exponent,
            "",
            f"1 is a sum; {evidence.describe_steps('length')}",
        )
    ]
    return (
        *facts,
        *([Fact("entropy over length, left of the start", beside.trend.ratio, "%")] if beside.trend.ratio else []),
    )


def _of_seam(seam: Discontinuity, better: Trend | None) -> tuple[Fact, ...]:
    facts = [Fact("what it is multiplied by there", seam.factor, "", f"beyond its trend; p = {seam.p_value:.2g}")]
    if seam.overlap_ratio is not None:
        facts.append(
            Fact("later over earlier value at steps logged twice", seam.overlap_ratio, "", f"{seam.logged_twice} steps")
        )
    return (
        *facts,
        *([Fact("left of the start with the jump taken out", better.ratio, "%")] if better and better.ratio else []),
    )


def _prescriptions(evidence: Evidence) -> tuple[Prescription, ...]:
    setting = evidence.logging_hint("entropy per token")
    why = "Then entropy is counted from the tokens themselves, the same way all the time" + (
        f": {setting}." if setting else "."
    )
    return (Prescription("Record the entropy of every token beside the rollouts, as breadth's own callbacks do", why),)


FINDING = UnreliableMetric()
"""As the doctor asks it."""


def find_nan_metrics(evidence: Evidence) -> Finding | None:
    """Tell of metrics that are NaN or infinite: a warning where that goes on to the end, a note where it passes.

    A gradient's norm alone is a note at most: an update that overflowed is left out, and the policy goes on.
    """
    found = nan_runs(evidence)
    if not found:
        return None
    last = [one for one in found if one.to_the_end and one.name != "grad_norm"]
    begin = min(one.first for one in last or found)
    names = ", ".join(evidence.logged_name(one.name) for one in last or found)
    where = f"from step {begin:,} to the end" if last else f"for a while from step {begin:,} on"
    return Finding(
        "unreliable-metric",
        Severity.WARNING if last else Severity.NOTE,
        "certain",
        "training",
        f"NaN or infinity in the place of {names}, {where}.",
        tuple(
            Fact(
                evidence.logged_name(one.name),
                f"no number at {one.points:,} points",
                "",
                f"steps {one.first:,} to {one.last:,}",
            )
            for one in found
        ),
        "The same steps, run again from the checkpoint before them, give numbers.",
        (
            "The weights may hold NaN from there on: nothing that was trained since is of use."
            if last
            else "Nothing is known of these steps."
        ),
        (lower_learning_rate(evidence), *([resume_from_checkpoint(begin)] if last else [])),
    )


def report_interleaved_writers(evidence: Evidence, logged: Trend) -> Finding | None:
    """Tell of a log that two writers share; what entropy seems to do in it is taken back."""
    found = None if evidence.run is None else find_interleaved_writers(evidence.run, "entropy")
    if found is None:
        return None
    shown = {"entropy-collapse": COLLAPSE.shows(logged), "entropy-explosion": EXPLOSION.shows(logged)}
    return Finding(
        "unreliable-metric",
        Severity.WARNING,
        "strong",
        "training",
        f"{found.steps:,} steps stand twice in this log, with entropies of about {found.low:.2g} and about"
        f" {found.high:.2g}.",
        (Fact("lower values", found.low, "nats", "median"), Fact("higher values", found.high, "nats", "median")),
        "Only one process wrote this log.",
        "Two runs, or two processes that count differently, write into it: what is read from it is a mixture.",
        (
            Prescription(
                "Give every run a log of its own, and let one process write it", "Then each can be judged by itself."
            ),
        ),
        tuple(name for name, shows in shown.items() if shows),
    )


def verdicts_invalidated_by(logged: Trend, better: Trend | None) -> tuple[str, ...]:
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
