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
from breadth.doctor.finding import CannotTell, CheckResult, Finding, Loop, Prescription
from breadth.measure.intervals import Interval, wilson
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.measure.degeneracy import Degeneracy

NAME = "degenerate-rollouts"


@dataclass(frozen=True)
class DegenerateRollouts:
    """More completions are degenerate now than at the start.

    A completion is degenerate when two detectors fire on it: repeated 4-grams, a loop at the end, the answer stated
    again and again, the answer given at once, the work skipped against the median of the start
    (`breadth.measure.degeneracy`). Read from a bounded sample of texts of both ends; the interval resamples problems.
    Over-hard problems teach such shortcuts before accuracy moves (arXiv 2605.28388).

    Misleads where the texts are no worked solutions in words and numbers: what always looked degenerate is not counted,
    for only a rise over the start is.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = (
        "overly-hard",
        "reward-hacking",
        "truncation",
        "train-inference-mismatch",
        "entropy-explosion",
    )

    few: float = 0.02
    """Rise of the share that, for sure, is worth a word: one in seven groups of eight then holds one more."""
    touched: float = 0.1
    """Share above which, for sure, it is a warning: of groups of eight more than half then hold one, as for
    ``truncation``.
    """
    most: float = 0.5
    """Share above which it is critical: most of what is trained on is no reasoning."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Run the detectors on texts of both ends."""
        if evidence.run is None or not covers_training(evidence):
            return None
        ends, texts = training_ends(evidence), completions_at_ends(evidence)
        if ends is None or texts is None:
            return missing_rollouts(evidence, NAME, "text")
        from breadth.measure.degeneracy import reference_computation, response_degeneracy

        reference = reference_computation(texts[0].texts) or None
        checked = [[response_degeneracy(text, reference=reference) for text in end.texts] for end in texts]
        then, now = (np.array([float(one.is_degenerate) for one in end]) for end in checked)
        found = mean_shift((texts[0].problems, then), (texts[1].problems, now))
        if found.problems < MIN_CLUSTERS:
            return CannotTell(NAME, f"texts of {found.problems} problems at one of the ends; {MIN_CLUSTERS} are needed")
        if found.change.low <= self.few:
            return None
        return Finding(
            NAME,
            self.severity(found),
            "strong",
            "training",
            f"{found.now.value:.0%} of the completions are degenerate, up from {found.start.value:.0%} at the start: "
            f"{common_detectors(checked[1])}.",
            _facts(ends, found, texts, checked[1], accuracy_of_degenerate(texts[1], now)),
            "Read twenty of the newest completions: they reason, and state their answer once, at the end.",
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
    pairs = Counter(name for one in checked if one.is_degenerate for name in one.detections)
    return " and ".join(name for name, _ in pairs.most_common(2))


def accuracy_of_degenerate(
    texts: Completions, degenerate: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> Interval | None:
    """Return the share of degenerate completions that were right; None where that is not known."""
    known = texts.right[(degenerate == 1) & np.isfinite(texts.right)]
    return wilson(int(known.sum()), len(known)) if len(known) else None


def _facts(
    ends: Ends,
    found: Shift,
    texts: tuple[Completions, Completions],
    checked: Sequence[Degeneracy],
    rewarded: Interval | None,
) -> tuple[Fact, ...]:
    fired = Counter(name for one in checked for name in one.detections)
    facts = [
        Fact("degenerate at the start", found.start, "%", f"{len(texts[0]):,} texts, {ends.start.name}"),
        Fact("degenerate now", found.now, "%", f"{len(texts[1]):,} texts, {ends.now.name}"),
        Fact("rise", found.change, "%", f"over {found.problems:,} problems"),
        *(Fact(f"{name} now", count / len(checked), "%") for name, count in fired.most_common(3)),
    ]
    return (*facts, *([] if rewarded is None else [Fact("of the degenerate ones right", rewarded, "%")]))


def _cost(found: Shift, rewarded: Interval | None) -> str:
    said = f"{found.now.value:.0%} of what is drawn now is no reasoning to learn from"
    if rewarded is None or rewarded.low <= 0:
        return f"{said}."
    return f"{said}, and {rewarded.value:.0%} of that was right all the same: the shortcut is what is rewarded."


def _prescriptions(evidence: Evidence, checked: Sequence[Degeneracy]) -> tuple[Prescription, ...]:
    fired = Counter(name for one in checked for name in one.detections)
    loops = fired["tail loop"] + fired["n-gram repetition"] >= fired["early answer"] + fired["computation skipping"]
    wanted = [
        prescriptions.drop_degenerate_successes(),
        prescriptions.mask_truncated(evidence) if loops else prescriptions.inspect_rewards(),
        prescriptions.filter_problems(easier=True),
        prescriptions.add_kl_penalty(evidence),
    ]
    return tuple(one for one in wanted if one is not None)


FINDING = DegenerateRollouts()
"""As the doctor asks it."""
