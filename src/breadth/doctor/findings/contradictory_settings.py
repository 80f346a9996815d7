"""``contradictory-settings``: settings that contradict one another, by arithmetic or by the trainer's own rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CheckResult, Finding, Loop
from breadth.doctor.lint import (
    exclude_issues,
    find_contradictions,
    issue_facts,
    issue_headline,
    issue_prescriptions,
    issue_severity,
)
from breadth.doctor.unread import cannot_read, describe_unread


@dataclass(frozen=True)
class ContradictorySettings:
    """Settings that contradict one another.

    Checked: a key that appears twice at one level of a YAML file; a group of one where advantages are computed
    within groups; rollouts or prompts that make no whole groups or mini-batches, a mini-batch larger than a
    generation; a cap of 4,096 tokens or fewer on a model known to think longer; a run that saves no checkpoint; an
    upper clip below the lower, a cap on the ratio inside the clip; greedy rollouts; a sampler with less context
    than prompt and completion may need; truncated completions masked from the loss together with a length penalty;
    rollouts from a part of the distribution (top_p, top_k, min_p, a repetition penalty) without importance weights;
    half of Dr. GRPO; the reference paid for twice. A temperature other than 1 is no contradiction: TRL, verl,
    OpenRLHF and NeMo-RL take log-probs at the temperature of the rollouts.

    A warning where the trainer would refuse to start or does something else than the settings say, a note where it only
    does less. "Refuses to start" names the first version that does. Where a value is computed when the trainer starts,
    and a rule depends on it, the check cannot tell. It misleads where a fork of the trainer has other rules.
    """

    loop: ClassVar[Loop] = "configuration"
    causes: ClassVar[tuple[str, ...]] = ()
    summary: ClassVar[str] = "settings that exclude each other"
    first_step: ClassVar[str] = "keep one"

    def check(self, evidence: Evidence) -> CheckResult:
        """Apply the rules; a configuration that is not known contradicts nothing."""
        points = tuple(find_contradictions(evidence))
        if not points:
            unread = cannot_read("contradictory-settings", evidence, find_contradictions)
            return unread or exclude_issues("contradictory-settings", evidence)
        return Finding(
            "contradictory-settings",
            issue_severity(points),
            "certain",
            "configuration",
            issue_headline(points, "contradiction", "is in the settings", "are in the settings"),
            (*issue_facts(points), *describe_unread(evidence, find_contradictions)),
            "The trainer starts with these settings, and its first steps log values that agree with all of them.",
            "",
            issue_prescriptions(points),
        )


FINDING = ContradictorySettings()
"""The check with its default thresholds."""
