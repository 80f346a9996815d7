"""``format-collapse``: the policy wrote in several surface formats at the start and writes in one now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.rollouts import (
    MIN_CLUSTERS,
    Completions,
    Ends,
    Shift,
    completions_at_ends,
    coverage_shift,
    covers_training,
    evaluation_ends,
    mean_shift,
    missing_rollouts,
    training_ends,
)
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop, Need
from breadth.measure.intervals import Columns, Interval, resample
from breadth.measure.validate import FloatArray
from breadth.report.sections import Fact, Severity

_NAME = "format-collapse"


@dataclass(frozen=True)
class FormatShift:
    """The formats of a policy at the start, and how the one that leads now grew."""

    leading: str
    """The format of most completions now: one of `breadth.measure.response_style.FORMATS`."""
    share: Shift
    """Its share at the start and now."""
    effective: Interval
    """Effective number of formats at the start."""
    texts: tuple[int, int]
    """Texts read from each end."""


@lru_cache(maxsize=1)
def format_shift(evidence: Evidence) -> FormatShift | None:
    """Classify the formats of texts at both ends; None without texts."""
    texts = completions_at_ends(evidence)
    if texts is None:
        return None
    from breadth.measure.response_style import surface_format

    named = [[surface_format(text) for text in end.texts] for end in texts]
    leading = Counter(named[1]).most_common(1)[0][0]
    then, now = ((end.problems, indicator(leading, names)) for end, names in zip(texts, named, strict=True))
    return FormatShift(
        leading, mean_shift(then, now), effective_formats(texts[0], named[0]), (len(texts[0]), len(texts[1]))
    )


def indicator(name: str, names: Sequence[str]) -> FloatArray:
    """Return 1 where a text has the format, else 0."""
    return np.array([float(format_name == name) for format_name in names])


def effective_formats(texts: Completions, names: Sequence[str]) -> Interval:
    """Return ``exp(-sum s log s)`` over the shares of formats, resampling problems."""
    from breadth.measure.response_style import FORMATS

    present = [name for name in FORMATS if name in names]

    def statistic(means: Columns) -> FloatArray:
        shares = np.stack([means[name] for name in present]) / means["texts"]
        entropy: FloatArray = -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=0)
        return np.exp(entropy)

    columns = {name: indicator(name, names) for name in present} | {"texts": np.ones(len(names))}
    return resample(columns, texts.problems).interval(statistic, "texts", (1.0, float(len(FORMATS))))


@dataclass(frozen=True)
class FormatCollapse:
    """One surface format has taken over: prose, numbered steps, code and so on.

    Formats are recognised by how lines start (`breadth.measure.response_style`). Training tends to keep one of the
    formats that a model has learned, within the first epoch and at the time of its largest gain, and usually but not
    always the best of them (arXiv 2504.07912). By itself that is a note: it is a warning when pass@k or the reward has
    certainly fallen with it. It misleads where the reward or the prompt asks for a format: then it is intended.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("narrow-data-format", "entropy-collapse", "reward-hacking", "drift")
    needs: ClassVar[tuple[Need, ...]] = ("rollouts",)
    summary: ClassVar[str] = "one surface format has taken over"
    first_step: ClassVar[str] = "mix formats in the data; keep a KL penalty"

    several: float = 1.5
    """Effective formats that the start certainly exceeded: nearer to two than to one."""
    one: float = 0.9
    """Share that one format certainly has now: where `breadth.measure.response_style` calls it a takeover."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare the formats of texts at both ends."""
        if not covers_training(evidence):
            return None
        found, ends = format_shift(evidence), training_ends(evidence)
        if found is None or ends is None:
            return missing_rollouts(evidence, _NAME, "text")
        if found.share.problems < MIN_CLUSTERS:
            return CannotTell(
                _NAME,
                f"only {found.share.problems} problems have texts at one end of the run; {MIN_CLUSTERS} are needed",
            )
        if not self.has_collapsed(found):
            return self.exclude(found)
        fell = describe_fall(evidence)
        return Finding(
            _NAME,
            Severity.WARNING if fell else Severity.NOTE,
            "strong",
            "training",
            f"{found.share.now.value:.0%} of the completions are written as {found.leading} now, "
            f"out of {found.effective.value:.1f} formats at the start{f', and {fell}' if fell else ''}.",
            _facts(evidence, ends, found),
            "On the same problems at the same temperature, the policy still writes in the formats of the start.",
            "",
            prescriptions.sort_by_lab_effect(
                (prescriptions.add_kl_penalty(evidence), prescriptions.mix_formats(found.leading))
            ),
        )

    def exclude(self, found: FormatShift) -> Excluded | CannotTell:
        """Return which number keeps it from being a collapse, or that noise leaves all three open."""
        shown = (
            f"{found.share.now.value:.0%} of the completions are written as {found.leading},"
            f" {found.share.start.value:.0%} at the start, out of {found.effective.value:.1f} formats"
        )
        few = found.effective.value <= self.several or found.share.now.value <= self.one
        if few or found.share.change.value <= 0:
            return Excluded(_NAME, shown)
        return CannotTell(_NAME, f"{shown}; its noise leaves a collapse open", "more rollouts", undecided=True)

    def has_collapsed(self, found: FormatShift) -> bool:
        """Say whether one format has certainly taken over from several."""
        return found.effective.low > self.several and found.share.now.low > self.one and found.share.change.low > 0


def describe_fall(evidence: Evidence) -> str:
    """Say what has certainly fallen meanwhile; empty where nothing has."""
    covered, score = coverage_shift(evaluation_ends(evidence)), evidence.trend("reward")
    if covered is not None and covered[1].change.high < 0:
        return f"pass@{covered[0]} has fallen by {-covered[1].change.value:.2g}"
    if score is not None and score.verdict == "falling":
        return f"the reward has fallen from {score.start.value:.3g} to {score.end.value:.3g}"
    return ""


def _facts(evidence: Evidence, ends: Ends, found: FormatShift) -> tuple[Fact, ...]:
    facts = [
        Fact("effective formats at the start", found.effective, "", f"{found.texts[0]:,} texts, {ends.start.name}"),
        Fact(f"written as {found.leading} at the start", found.share.start, "%"),
        Fact(f"written as {found.leading} now", found.share.now, "%", f"{found.texts[1]:,} texts, {ends.now.name}"),
    ]
    covered = coverage_shift(evaluation_ends(evidence))
    return (*facts, *([] if covered is None else [Fact(f"change of pass@{covered[0]}", covered[1].change)]))


FINDING = FormatCollapse()
"""The check with its default thresholds."""
