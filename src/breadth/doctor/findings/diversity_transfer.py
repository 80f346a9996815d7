"""``diversity-transfer``: answers lose diversity on unsolved problems, which never got any reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence, Window
from breadth.doctor.evidence.rollouts import (
    MIN_CLUSTERS,
    Ends,
    coverage_shift,
    covers_training,
    evaluation_ends,
    missing_answers,
    missing_rollouts,
)
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop, Need
from breadth.measure.intervals import Interval
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.measure.diversity import ArmSamples, Transfer

_NAME = "diversity-transfer"


@dataclass(frozen=True)
class DiversityTransfer:
    """Narrowing on solved problems has narrowed the policy on unsolved ones.

    Measured as distinct answers at equal sample counts, on the problems that neither the start nor the end of the run
    solves: start minus now, with an interval over problems (`breadth.measure.transfer`, after arXiv 2509.06941). A gap
    that vanishes at equal counts of readable answers is one of formatting, and is not reported. Held-out problems are
    compared where there are any; else training problems that occur at both ends.

    Almost every run loses some. It is a warning when certainly more than half of what could be lost is gone and pass@k
    has not certainly risen. It misleads where the temperature changed during the run.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("entropy-collapse", "fork-collapse", "format-collapse", "drift")
    needs: ClassVar[tuple[Need, ...]] = ("rollouts",)
    summary: ClassVar[str] = "narrowing on solved problems spread to unsolved ones"
    first_step: ClassVar[str] = "keep training on unsolved problems; add an outcome bonus or a KL penalty"

    relevant: float = 0.1
    """Share of what could be lost that must certainly be gone: what a reader of a plot would call a change
    (`breadth.measure.trends`)."""
    half: float = 0.5
    """Share above which it is a warning: more is gone than left."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare distinct answers on unsolved problems with the start."""
        if not covers_training(evidence):
            return None
        ends = evaluation_ends(evidence)
        if ends is None:
            return missing_rollouts(evidence, _NAME)
        lacking = missing_answers(evidence, _NAME, ends)
        if lacking is not None:
            return lacking
        unsolved = count_unsolved(ends)
        if unsolved < MIN_CLUSTERS:
            missing = f"{unsolved} problems occur at both ends and are solved at neither; {MIN_CLUSTERS} are needed"
            return CannotTell(
                _NAME, missing, "evaluate the same held-out problems, including hard ones, at several steps"
            )
        from breadth.measure.diversity import transfer_gap

        found = transfer_gap(_arm(ends.now), _arm(ends.start))
        lost = share_lost(found)
        if lost is None:
            return Excluded(_NAME, "problems that stay unsolved had one answer each at the start")
        if lost.low <= self.relevant or found.every.shared_parsed.low <= 0:
            shown = f"{lost.value:.0%} of the further answers are lost ({lost.low:.0%} to {lost.high:.0%})"
            parsed = found.every.shared_parsed.value
            shown += f", {max(parsed, 0.0):.2g} of them where as many can be read"
            if lost.value <= self.relevant or parsed <= 0:
                return Excluded(_NAME, shown)
            return CannotTell(_NAME, shown, "evaluate on more problems", undecided=True)
        return self.report(evidence, ends, found, lost)

    def report(self, evidence: Evidence, ends: Ends, found: Transfer, lost: Interval) -> Finding:
        """Build the finding."""
        covered = coverage_shift(ends)
        paid = covered is not None and covered[1].change.low > 0
        wanted = (
            prescriptions.add_answer_bonus(),
            prescriptions.train_for_pass_at_k(),
            prescriptions.add_kl_penalty(evidence),
        )
        return Finding(
            _NAME,
            Severity.WARNING if lost.low > self.half and not paid else Severity.NOTE,
            "strong",
            "training",
            f"On problems it never solved, the policy gives {found.every.shared.value:.2g} fewer different answers"
            f" in {found.sample_size} samples than at the start.",
            _facts(ends, found, lost),
            "Sampled at the same temperature, the checkpoint of the start gives as few different answers to the same"
            " problems.",
            ""
            if covered is None
            else f"Over the same steps pass@{covered[0]} changed by {covered[1].change.value:+.2g}.",
            prescriptions.sort_by_lab_effect(wanted),
        )


def problem_names(window: Window) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """Return the problem of each rollout."""
    return np.array(window.samples.names, dtype=object)[window.samples.problems]


def _arm(window: Window) -> ArmSamples:
    from breadth.measure.diversity import ArmSamples

    return ArmSamples(problem_names(window), window.classes, window.samples.correct == 1)


def count_unsolved(ends: Ends) -> int:
    """Count the problems that occur at both ends and are solved at neither."""
    asked = set(ends.start.samples.names) & set(ends.now.samples.names)
    solved = (set(problem_names(window)[window.samples.correct == 1].tolist()) for window in (ends.start, ends.now))
    return len(asked.difference(*solved))


def share_lost(found: Transfer) -> Interval | None:
    """Return the lost share of the answers beyond the first; None where the start gave only one answer."""
    there = found.every.base.distinct_unsolved.value - 1
    if not there > 0:
        return None
    gap = found.every.shared
    return Interval(gap.value / there, gap.low / there, gap.high / there, gap.level, gap.method)


def _facts(ends: Ends, found: Transfer, lost: Interval) -> tuple[Fact, ...]:
    gap = found.every
    where = f"{ends.where}, {gap.problems:,} problems at {found.sample_size} samples"
    return (
        Fact("different answers lost where neither end solves the problem", gap.shared, "", where),
        Fact("the same at equal counts of readable answers", gap.shared_parsed),
        Fact("share of the answers beyond the first", lost, "%"),
        Fact("different answers on unsolved problems, at the start", gap.base.distinct_unsolved),
        Fact("now", gap.trained.distinct_unsolved),
    )


FINDING = DiversityTransfer()
"""The check with its default thresholds."""
