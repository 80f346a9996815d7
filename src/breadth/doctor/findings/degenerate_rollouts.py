"""``degenerate-rollouts``: more and more completions loop, repeat their answer or skip the work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.rollouts import (
    MIN_CLUSTERS,
    Completions,
    Ends,
    Shift,
    completions_at_ends,
    covers_training,
    mean_shift,
    missing_rollouts,
    training_ends,
)
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop, Need, Prescription
from breadth.measure.intervals import Interval, wilson
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.measure.degeneracy import Degeneracy

_NAME = "degenerate-rollouts"


@dataclass(frozen=True)
class DegenerateRollouts:
    """More completions are degenerate now than at the start.

    A completion is degenerate when two detectors fire on it: repeated 4-grams, a loop at the end, the answer stated
    again and again, the answer given at once, the work skipped compared with the median of the start
    (`breadth.measure.degeneracy`). Read from a bounded sample of texts at both ends; the interval resamples problems.
    Overly hard problems teach such shortcuts before accuracy moves (arXiv 2605.28388).

    It misleads where the texts are no worked solutions in words and numbers; but only a rise over the start counts, so
    what always looked degenerate is ignored.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = (
        "overly-hard",
        "reward-hacking",
        "truncation",
        "train-inference-mismatch",
        "entropy-explosion",
    )
    needs: ClassVar[tuple[Need, ...]] = ("rollouts",)
    summary: ClassVar[str] = "more completions loop or break than at the start"
    first_step: ClassVar[str] = "guard against them (`DegenerateGuard`); lower the learning rate"

    few: float = 0.02
    """Rise of the share that is reported, if certain: one in seven groups of eight then holds one more."""
    touched: float = 0.1
    """Share above which it is a warning, if certain: more than half of groups of eight then hold one, as for
    ``truncation``."""
    most: float = 0.5
    """Share above which it is critical: most of the training data is then no reasoning."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Run the detectors on texts from both ends."""
        if evidence.run is None or not covers_training(evidence):
            return None
        ends, texts = training_ends(evidence), completions_at_ends(evidence)
        if ends is None or texts is None:
            return missing_rollouts(evidence, _NAME, "text")
        from breadth.measure.degeneracy import reference_computation, response_degeneracy

        reference = reference_computation(texts[0].texts) or None
        checked = [[response_degeneracy(text, reference=reference) for text in end.texts] for end in texts]
        then, now = (np.array([float(text.is_degenerate) for text in end]) for end in checked)
        found = mean_shift((texts[0].problems, then), (texts[1].problems, now))
        if found.problems < MIN_CLUSTERS:
            return CannotTell(
                _NAME, f"only {found.problems} problems have texts at one end of the run; {MIN_CLUSTERS} are needed"
            )
        if found.change.low <= self.few:
            shown = f"{found.now.value:.0%} of the completions are degenerate, {found.start.value:.0%} at the start"
            if found.change.value <= self.few:
                return Excluded(_NAME, shown)
            return CannotTell(_NAME, f"{shown}; its noise hides whether it rises", "more rollouts", undecided=True)
        return Finding(
            _NAME,
            self.severity(found),
            "strong",
            "training",
            f"{found.now.value:.0%} of the completions are degenerate, up from {found.start.value:.0%} at the start: "
            f"{common_detectors(checked[1])}.",
            _facts(ends, found, texts, checked[1], accuracy_of_degenerate(texts[1], now)),
            "Twenty of the newest completions, read by hand, reason and state their answer once, at the end.",
            _cost(found, accuracy_of_degenerate(texts[1], now)),
            _prescriptions(evidence, checked[1]),
        )

    def severity(self, found: Shift) -> Severity:
        """Return how bad the share now is."""
        if found.now.low > self.most:
            return Severity.CRITICAL
        return Severity.WARNING if found.now.low > self.touched else Severity.NOTE


def common_detectors(checked: Sequence[Degeneracy]) -> str:
    """Name the two detectors that fire together most often."""
    pairs = Counter(name for text in checked if text.is_degenerate for name in text.detections)
    return " and ".join(name for name, _ in pairs.most_common(2))


def accuracy_of_degenerate(
    texts: Completions, degenerate: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> Interval | None:
    """Return the share of degenerate completions that were correct; None where that is not known."""
    known = texts.right[(degenerate == 1) & np.isfinite(texts.right)]
    return wilson(int(known.sum()), len(known)) if len(known) else None


def _facts(
    ends: Ends,
    found: Shift,
    texts: tuple[Completions, Completions],
    checked: Sequence[Degeneracy],
    rewarded: Interval | None,
) -> tuple[Fact, ...]:
    fired = Counter(name for text in checked for name in text.detections)
    facts = [
        Fact("degenerate at the start", found.start, "%", f"{len(texts[0]):,} texts, {ends.start.name}"),
        Fact("degenerate now", found.now, "%", f"{len(texts[1]):,} texts, {ends.now.name}"),
        Fact("rise", found.change, "%", f"over {found.problems:,} problems"),
        *(Fact(f"{name} now", count / len(checked), "%") for name, count in fired.most_common(3)),
    ]
    return (*facts, *([] if rewarded is None else [Fact("correct among the degenerate ones", rewarded, "%")]))


def _cost(found: Shift, rewarded: Interval | None) -> str:
    share = f"{found.now.value:.0%} of the rollouts now hold no reasoning to learn from"
    if rewarded is None or rewarded.low <= 0:
        return f"{share}."
    return f"{share}, and {rewarded.value:.0%} of those are correct all the same: the reward pays for the shortcut."


def _prescriptions(evidence: Evidence, checked: Sequence[Degeneracy]) -> tuple[Prescription, ...]:
    fired = Counter(name for text in checked for name in text.detections)
    loops = fired["tail loop"] + fired["n-gram repetition"] >= fired["early answer"] + fired["computation skipping"]
    wanted = [
        prescriptions.drop_degenerate_successes(),
        prescriptions.mask_truncated(evidence) if loops else prescriptions.inspect_rewards(),
        prescriptions.filter_problems(easier=True),
        prescriptions.add_kl_penalty(evidence),
    ]
    return tuple(remedy for remedy in wanted if remedy is not None)


FINDING = DegenerateRollouts()
"""The check with its default thresholds."""
