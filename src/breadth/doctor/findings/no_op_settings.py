"""``no-op-settings``: settings that have no effect as this run is configured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, CheckResult, Confidence, Finding, Loop, Prescription
from breadth.doctor.lint import (
    Issue,
    exclude_issues,
    find_no_op_settings,
    issue_facts,
    issue_headline,
    issue_prescriptions,
    issue_severity,
)
from breadth.doctor.unread import cannot_read, describe_unread
from breadth.report.sections import Fact

_NAME = "no-op-settings"


@dataclass(frozen=True)
class NoOpSettings:
    """Settings that have no effect as this run is configured.

    Checked: clip-higher, a dual clip, KL-Cov, GPPO or another loss of the ratio where every update is strictly
    on-policy; covariance with one response per micro-batch, or with a share of less than one token; an entropy target
    that the run's entropy has never crossed; a coefficient whose switch is off, a setting that the chosen loss or
    reward manager does not read; held-out problems that are never evaluated on; dynamic sampling on a shaped
    reward; a share of tokens that is all of them; a cap on thinking under speculative decoding; more top log-probs
    than the server sends.

    A warning where the user plainly relies on the setting, a note where it looks like a left-over: a coefficient whose
    own switch is off. It misleads where a fork of the trainer reads settings that the original ignores; only the
    original is known here.
    """

    loop: ClassVar[Loop] = "configuration"
    causes: ClassVar[tuple[str, ...]] = ()
    summary: ClassVar[str] = "settings that do nothing in this configuration"
    first_step: ClassVar[str] = "remove them, or switch on what they need"
    reads_server: ClassVar[bool] = True

    def check(self, evidence: Evidence) -> CheckResult:
        """Apply the rules."""
        points = tuple(find_no_op_settings(evidence))
        if points:
            return describe_points(evidence, points)
        unread = missing_settings(evidence) or cannot_read(_NAME, evidence, find_no_op_settings)
        return unread or exclude_issues(_NAME, evidence)


def describe_points(evidence: Evidence, points: tuple[Issue, ...]) -> Finding:
    """Build the finding."""
    config, remedies = evidence.config, issue_prescriptions(points)
    drifting = any(change.setting == "updates" for remedy in remedies for change in remedy.changes)
    updates = (
        [
            Fact(
                "updates per generation",
                config.updates,
                "",
                f"{config.describe('updates')}; everything else at its default",
            )
        ]
        if drifting and config.updates is not None
        else []
    )
    return Finding(
        _NAME,
        issue_severity(points),
        _confidence(evidence),
        "configuration",
        issue_headline(points, "setting", "has no effect here", "have no effect here"),
        (*issue_facts(points), *updates, *describe_unread(evidence, find_no_op_settings)),
        "The loss on the same batch, or the reply to the same request, changes when one of them is changed.",
        _cost(evidence),
        (*remedies, *_leftovers(points)),
    )


def _confidence(evidence: Evidence) -> Confidence:
    """Return ``certain`` for arithmetic on settings, ``strong`` for what was observed of entropies and servers."""
    seen = evidence.config.entropy_adaptive or evidence.policy is not None
    return "strong" if seen else "certain"


def _cost(evidence: Evidence) -> str:
    longest = None if evidence.run is None else evidence.series("reward") or evidence.series("entropy")
    return "" if longest is None else f"None of them had any effect in the {longest.steps[-1]:,} steps so far."


def _leftovers(points: tuple[Issue, ...]) -> tuple[Prescription, ...]:
    left = [point.setting for point in points if point.prescription is None]
    if not left:
        return ()
    return (
        Prescription(
            "Remove settings without effect, or turn on what they need",
            f"They only mislead: {'; '.join(left)}.",
        ),
    )


def missing_settings(evidence: Evidence) -> CannotTell | None:
    """Say which setting is missing: the configuration, or the number of updates per generation."""
    config = evidence.config
    if (
        config.updates is None
        and "clip_high" in config.user_settings
        and (config.clip_high or 0) > (config.clip_low or 0.2)
        and config.clips
    ):
        missing = (
            f"the number of updates per generation is not known: {config.describe('clip_high')} has an effect from two"
            " on"
        )
        return CannotTell(
            _NAME, missing, f"now {config.user_settings['updates']}" if "updates" in config.user_settings else ""
        )
    trained = (
        evidence.run is not None
        and "plan" not in evidence.run.header.config
        and bool(evidence.run.metric_names("train"))
    )
    if trained and not config.user_settings:
        return CannotTell(
            _NAME, "the run's settings are not known", "the trainer's configuration file, named next to the log"
        )
    return None


FINDING = NoOpSettings()
"""The check with its default thresholds."""
