"""``no-op-settings``: settings that cannot act as this run is configured, so that what they were set for is not done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, CheckResult, Confidence, Finding, Loop, Prescription
from breadth.doctor.lint import (
    Issue,
    find_no_op_settings,
    issue_facts,
    issue_headline,
    issue_prescriptions,
    issue_severity,
)
from breadth.report.sections import Fact

NAME = "no-op-settings"


@dataclass(frozen=True)
class NoOpSettings:
    """Settings that do nothing as this run is configured.

    Looked for: clip-higher, a dual clip, KL-Cov, GPPO or another loss of the ratio where every update is strictly
    on-policy; covariance with one response in a micro-batch, or with a share of less than one token; an entropy target
    that the run's entropy has never crossed; a coefficient whose switch is off, a setting that the chosen loss or
    reward manager does not read; dynamic sampling on a shaped reward; a share of tokens that is all of them; a cap on
    thinking under speculative decoding; more alternatives than the server sends.

    It is a warning where the user plainly relies on the setting, a note where it looks like a left-over: a coefficient
    beside its own switch turned off. It misleads where a fork of the trainer reads what the original does not; only the
    original is known here.
    """

    loop: ClassVar[Loop] = "configuration"
    causes: ClassVar[tuple[str, ...]] = ()
    of_server: ClassVar[bool] = True

    def check(self, evidence: Evidence) -> CheckResult:
        """Go through the rules."""
        points = tuple(find_no_op_settings(evidence))
        if points:
            return describe_points(evidence, points)
        return missing_settings(evidence)


def describe_points(evidence: Evidence, points: tuple[Issue, ...]) -> Finding:
    """Build the finding."""
    knobs, remedies = evidence.config, issue_prescriptions(points)
    drifting = any(change.setting == "updates" for one in remedies for change in one.changes)
    updates = (
        [Fact("updates a generation", knobs.updates, "", f"{knobs.describe('updates')}; all else at its default")]
        if drifting and knobs.updates is not None
        else []
    )
    return Finding(
        NAME,
        issue_severity(points),
        _confidence(evidence),
        "configuration",
        issue_headline(points, "setting", "does nothing here", "do nothing here"),
        (*issue_facts(points), *updates),
        "The loss of one and the same batch, or the reply to one and the same request, changes when one of them is"
        " changed.",
        _cost(evidence),
        (*remedies, *_leftovers(points)),
    )


def _confidence(evidence: Evidence) -> Confidence:
    """Arithmetic on settings is certain; what was seen of entropies and servers is what was seen so far."""
    seen = evidence.config.entropy_adaptive or evidence.policy is not None
    return "strong" if seen else "certain"


def _cost(evidence: Evidence) -> str:
    longest = None if evidence.run is None else evidence.series("reward") or evidence.series("entropy")
    return "" if longest is None else f"Nothing of it was done in the {longest.steps[-1]:,} steps so far."


def _leftovers(points: tuple[Issue, ...]) -> tuple[Prescription, ...]:
    left = [one.setting for one in points if one.prescription is None]
    if not left:
        return ()
    return (
        Prescription(
            "Take out what does nothing, or switch on what it is meant for",
            f"As it stands it only misleads: {'; '.join(left)}.",
        ),
    )


def missing_settings(evidence: Evidence) -> CannotTell | None:
    """Say what is missing: a run's settings, or how many updates a generation gets where a clip depends on it."""
    knobs = evidence.config
    if (
        knobs.updates is None
        and "clip_high" in knobs.user_settings
        and (knobs.clip_high or 0) > (knobs.clip_low or 0.2)
        and knobs.clips
    ):
        missing = f"how many updates a generation gets: {knobs.describe('clip_high')} acts from two on"
        return CannotTell(
            NAME, missing, f"now {knobs.user_settings['updates']}" if "updates" in knobs.user_settings else ""
        )
    trained = (
        evidence.run is not None
        and "plan" not in evidence.run.header.config
        and bool(evidence.run.metric_names("train"))
    )
    if trained and not knobs.user_settings:
        return CannotTell(
            NAME, "the run's settings are not known", "the trainer's configuration file, named beside the log"
        )
    return None


FINDING = NoOpSettings()
"""As the doctor asks it."""
