"""``contradictory-settings``: settings that cannot all be meant, by arithmetic or by the trainer's own rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CheckResult, Finding, Loop
from breadth.doctor.lint import find_contradictions, issue_facts, issue_headline, issue_prescriptions, issue_severity


@dataclass(frozen=True)
class ContradictorySettings:
    """Settings that contradict one another.

    Looked for: a group of one where advantages are made within groups; rollouts or prompts that make no whole groups or
    mini-batches, a mini-batch larger than a generation; an upper clip below the lower, a cap on the ratio inside the
    clip; greedy rollouts; a sampler with less room than prompt and completion may take; cut completions left out of the
    loss beside a penalty for length; rollouts from a part of the distribution (top_p, top_k, min_p, a penalty for
    repetition) that nothing weighs back; half of Dr. GRPO; the reference paid for twice. A temperature other than 1 is
    none: TRL, verl, OpenRLHF and NeMo-RL take log-probs at the temperature of the rollouts.

    It is a warning where the trainer would refuse to start or does something else than the settings say, a note where
    it only does less. It misleads where a fork of the trainer has other rules.
    """

    loop: ClassVar[Loop] = "configuration"
    causes: ClassVar[tuple[str, ...]] = ()

    def check(self, evidence: Evidence) -> CheckResult:
        """Go through the rules; a configuration that is not known contradicts nothing."""
        points = tuple(find_contradictions(evidence))
        if not points:
            return None
        return Finding(
            "contradictory-settings",
            issue_severity(points),
            "certain",
            "configuration",
            issue_headline(points, "contradiction", "stands in the settings", "stand in the settings"),
            issue_facts(points),
            "The trainer starts with them, and its first steps log what all of them say.",
            "",
            issue_prescriptions(points),
        )


FINDING = ContradictorySettings()
"""As the doctor asks it."""
