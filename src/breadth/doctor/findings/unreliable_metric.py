"""``unreliable-metric``: the number logged as entropy changed, not the policy."""

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
    remove_jump,
    token_entropy,
)
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.evidence.scores import is_training_run
from breadth.doctor.finding import CheckResult, Confidence, Excluded, Finding, Loop, Prescription
from breadth.doctor.findings.entropy_collapse import FINDING as COLLAPSE
from breadth.doctor.findings.entropy_explosion import FINDING as EXPLOSION
from breadth.measure.change_points import find_change_points
from breadth.measure.trends import Trend, log_trend
from breadth.report.sections import Fact, Severity


@dataclass(frozen=True)
class UnreliableMetric:
    """Logged entropy moved because of how it is computed.

    Where rollouts carry the entropy of every token, those alone decide: the logged number is an artefact when its ratio
    to them has moved. Otherwise: a value that no single token can have is a sum over a sequence, and so is one that
    follows the mean length step by step. And a sudden jump exactly at a restart, that neither reward nor length shows,
    belongs to the number: no update lies between a checkpoint and the first step after it. Verdicts on entropy are
    withdrawn only where they depend on the artefact: a collapse that remains after its removal stays a collapse. Over a
    gap in the steps nothing is withdrawn, nor where a point covers several steps: the policy was trained in between. It
    misleads when sampling settings changed with the restart.

    One more defect is reported even if entropy does not move: steps occur twice in a log, at two levels far apart. Two
    runs, or two processes that count differently, write into it.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ()
    summary: ClassVar[str] = "the logged entropy moved because of how it is counted"
    first_step: ClassVar[str] = "record entropy per token; one log per run"

    agrees: float = 0.1
    """Relative change of logged over token entropy below which both agree: the relevant change of
    `breadth.measure.trends`. A constant factor, as from another temperature, is no change."""
    largest: float = 12.5
    """Nats above which an entropy is not that of one token: the logarithm of 262,144, the largest vocabulary in common
    use, is 12.48."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare the logged entropy with everything that could contradict it."""
        if evidence.run is None or not is_training_run(evidence):
            return None
        logged = evidence.trend("entropy")
        if logged is None:
            return evidence.missing_metric("unreliable-metric", "entropy")
        return self.check_entropy(evidence, logged) or Excluded(
            "unreliable-metric", f"nothing else contradicts {evidence.logged_name('entropy')}"
        )

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
        since = f", in one jump at step {jumps[0].step:,.0f}" if len(jumps) == 1 else ""
        like = ", like a sum over each sequence" if counted.is_sequence_sum else ""
        facts = (
            Fact(
                "logged over token entropy, at the start",
                start,
                "",
                f"{len(counted.steps)} steps with the entropy of every token",
            ),
            Fact("logged over token entropy, now", end),
            Fact(
                "token entropy, share of the start",
                counted.trend.ratio or "unknown",
                "%" if counted.trend.ratio else "",
            ),
        )
        head = (
            f"Logged entropy went from {start.value:.2g} to {end.value:.2g} times the entropy of the tokens in the"
            " rollouts"
        )
        return describe_artefact(evidence, f"{head}{since}{like}.", facts, logged, counted.trend, "certain")

    def check_sequence_sum(self, evidence: Evidence, logged: Trend) -> Finding | None:
        """Detect a sum over a sequence by its size, or because it scales with the length."""
        level = max(logged.start.low, logged.end.low)
        scaling = length_scaling(evidence)
        better = None if scaling is None else scaling.trend
        if level > self.largest:
            fact = Fact("largest entropy of a token", self.largest, "nats", "the logarithm of a vocabulary of 262,144")
            head = f"Entropy is logged as a sum over each sequence: {level:.3g} nats are more than one token can have."
            return describe_artefact(
                evidence, head, (fact, *length_facts(evidence, scaling)), logged, better, "certain"
            )
        if scaling is None or not scaling.is_proportional or not verdicts_invalidated_by(logged, better):
            return None
        head = (
            f"Entropy is proportional to the mean length (exponent {scaling.exponent.value:.2g}): it is a sum over"
            " each sequence."
        )
        return describe_artefact(evidence, head, length_facts(evidence, scaling), logged, better, "likely")


def check_restart_jump(evidence: Evidence, logged: Trend) -> Finding | None:
    """Return the finding for a jump at a restart that only entropy shows."""
    series, run = evidence.series("entropy"), evidence.run
    seam = None if series is None or run is None else jump_at_restart(run, series)
    if series is None or seam is None:
        return None
    others = [metric for metric in (evidence.series(name) for name in ("reward", "length")) if metric is not None]
    if any(jumps_near(metric, seam.step) for metric in others):
        return None  # the policy or its settings changed there, and so did its entropy
    # After a gap, or where a point covers several steps, updates lie in between: nothing is withdrawn.
    better = log_trend(series.steps, remove_jump(series, seam)) if seam.first_is_untrained and others else None
    where = f"after {seam.missing:,} missing steps" if seam.missing else "where the run was restarted"
    head = (
        f"Entropy jumped from {seam.before:.2g} to {seam.before * seam.factor.value:.2g} at step {seam.step:,}, {where}"
    )
    sure: Confidence = "strong" if seam.logged_twice >= MIN_POINTS and not seam.missing else "likely"
    calm = " and ".join(evidence.logged_name(metric.name) for metric in others)
    head += f"; {calm} did not" if others else "; no other metric is logged that would show whether the policy did"
    return describe_artefact(evidence, f"{head}.", _jump_facts(seam, better), logged, better, sure)


def describe_artefact(
    evidence: Evidence, headline: str, facts: tuple[Fact, ...], logged: Trend, better: Trend | None, sure: Confidence
) -> Finding:
    """Build the finding."""
    voids = verdicts_invalidated_by(logged, better)
    hidden = better is not None and COLLAPSE.shows(better) and not COLLAPSE.shows(logged)
    collapse = "Without the artefact entropy has collapsed: the logged number hides that." if hidden else ""
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
        "The entropies of the same rollouts, computed token by token, moved as the logged number did.",
        collapse or (f"Its verdict on {' and '.join(voids)} cannot be believed." if voids else ""),
        _prescriptions(evidence),
        voids,
    )


def length_facts(evidence: Evidence, scaling: LengthScaling | None) -> tuple[Fact, ...]:
    """Return the numbers that relate entropy to length."""
    if scaling is None:
        return ()
    facts = [
        Fact(
            "exponent of entropy in length, between steps",
            scaling.exponent,
            "",
            f"1 is a sum; {evidence.describe_steps('length')}",
        )
    ]
    return (
        *facts,
        *([Fact("entropy over length, share of the start", scaling.trend.ratio, "%")] if scaling.trend.ratio else []),
    )


def _jump_facts(seam: Discontinuity, better: Trend | None) -> tuple[Fact, ...]:
    facts = [Fact("factor of the jump", seam.factor, "", f"beyond its trend; p = {seam.p_value:.2g}")]
    if seam.overlap_ratio is not None:
        facts.append(
            Fact("later over earlier value at steps logged twice", seam.overlap_ratio, "", f"{seam.logged_twice} steps")
        )
    return (
        *facts,
        *([Fact("share of the start without the jump", better.ratio, "%")] if better and better.ratio else []),
    )


def _prescriptions(evidence: Evidence) -> tuple[Prescription, ...]:
    setting = evidence.how_to_log("entropy per token")
    why = "Entropy is then computed from the tokens themselves, always in the same way" + (
        f": {setting}." if setting else "."
    )
    return (Prescription("Record the entropy of every token with the rollouts, as breadth's own callbacks do", why),)


def report_interleaved_writers(evidence: Evidence, logged: Trend) -> Finding | None:
    """Report a log that two writers share, and withdraw what entropy seems to do in it."""
    found = None if evidence.run is None else find_interleaved_writers(evidence.run, "entropy")
    if found is None:
        return None
    shown = {"entropy-collapse": COLLAPSE.shows(logged), "entropy-explosion": EXPLOSION.shows(logged)}
    return Finding(
        "unreliable-metric",
        Severity.WARNING,
        "strong",
        "training",
        f"{found.steps:,} steps occur twice in this log, with entropies of about {found.low:.2g} and about"
        f" {found.high:.2g}.",
        (Fact("lower values", found.low, "nats", "median"), Fact("higher values", found.high, "nats", "median")),
        "Only one process wrote this log.",
        "Two runs, or two processes that count differently, write into it: its numbers are a mixture.",
        (
            Prescription(
                "Give every run its own log, and let one process write it", "Each run can then be diagnosed by itself."
            ),
        ),
        tuple(name for name, shows in shown.items() if shows),
    )


def verdicts_invalidated_by(logged: Trend, better: Trend | None) -> tuple[str, ...]:
    """Name the findings that the logged series shows and a better series excludes.

    To exclude is more than not to show: the better series lies on the harmless side, and its interval is clear of the
    next worse threshold. None where there is no better series.
    """
    ratio = None if better is None else better.ratio
    if ratio is None:
        return ()
    gone = COLLAPSE.shows(logged) and ratio.value > COLLAPSE.floor and ratio.low > COLLAPSE.half
    up = EXPLOSION.shows(logged) and ratio.value < EXPLOSION.risen and ratio.high < EXPLOSION.doubled
    return (*(["entropy-collapse"] if gone else []), *(["entropy-explosion"] if up else []))


FINDING = UnreliableMetric()
"""The check with its default thresholds."""
