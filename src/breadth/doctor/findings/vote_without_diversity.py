"""``vote-without-diversity``: samples agree so much that voting on them cannot change the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from breadth.doctor.evidence.record import SCORE_MARGIN, TIED_WIDTH, TUNE_COMMAND, Evidence, is_inference_run
from breadth.doctor.finding import CannotTell, Change, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.doctor.evidence.sweeps import PlainSamples
    from breadth.measure.intervals import Interval

_NAME = "vote-without-diversity"


@dataclass(frozen=True)
class VoteWithoutDiversity:
    """A vote of any width equals one sample, at several times the cost.

    Certainly (95 %, all widths together) no vote scores five points more or less than one sample. Then there are two
    cases, separated by how often any sample is correct. If that, too, is within five points of one sample, the model
    has one answer per question: no vote and no selector can help, and wrong answers stay wrong until training supplies
    breadth. If it is more, correct answers exist and are outvoted: a selector (verifier, judge) could find them. A
    model that is correct nearly everywhere agrees with itself too, and is not reported; that is why correct answers
    must be known. It misleads at temperature 0, where all samples are the same.
    """

    loop: ClassVar[Loop] = "inference"
    causes: ClassVar[tuple[str, ...]] = ()
    summary: ClassVar[str] = "samples are so alike that a vote is one sample, paid several times"
    first_step: ClassVar[str] = "choose with a verifier; raise the temperature; train for breadth"

    margin: float = SCORE_MARGIN
    """Score difference that counts: what `breadth tune` gives up for fewer tokens.

    Below it a vote equals one sample, a perfect selector is no better than none, and the unsolved rest is not reported.
    """
    unread: float = 0.2
    """Share of samples without a readable answer above which nothing is reported: `breadth tune` warns from there on,
    and two unread samples are not two that agree."""
    varied: float = 0.7
    """Temperature to prescribe where it was lower: the middle of the 0.6 to 0.8 that papers on voting use (arXiv
    2203.11171)."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare every vote with one sample, and both with a perfect selector."""
        if not is_inference_run(evidence):
            return None
        from breadth.doctor.evidence.sweeps import plain_samples
        from breadth.tuning.choice import bonferroni_intervals

        samples = plain_samples(evidence, _NAME)
        if samples is None or isinstance(samples, CannotTell):
            return samples
        widths = [width for width in samples.widths if width > TIED_WIDTH]
        if not widths:
            return CannotTell(
                _NAME,
                f"{samples.num_samples} comparable samples per question are recorded; votes need at least three",
                f"{TUNE_COMMAND} --widths 1,4,8",
            )
        if samples.unread_share > self.unread:
            return CannotTell(
                _NAME,
                f"no answer could be read in {samples.unread_share:.0%} of the samples",
                "--answer-format, or ask for stated answers",
            )
        if not samples.labelled:
            return CannotTell(
                _NAME,
                "correct answers are not known: samples that agree may all be correct",
                f"{TUNE_COMMAND}, with correct answers in FILE",
            )
        gaps = bonferroni_intervals(samples.vote_scores(widths) - samples.vote_scores([1]), seed=0)
        same = all(-self.margin < gap.low and gap.high < self.margin for gap in gaps)
        if same:
            return self.compare_with_selector(samples, gaps[-1])
        gap = max(gaps, key=lambda gap: abs(gap.value))
        shown = f"a vote scores {100 * gap.value:+.1f} points against one sample"
        shown = f"{shown} ({100 * gap.low:+.1f} to {100 * gap.high:+.1f})"
        if gap.low > 0 or gap.high < 0 or abs(gap.value) >= self.margin:
            return Excluded(_NAME, shown)
        return CannotTell(_NAME, shown, f"{TUNE_COMMAND}, with more questions", undecided=True)

    def compare_with_selector(self, samples: PlainSamples, vote: Interval) -> CheckResult:
        """Separate a narrow model from correct answers that are outvoted."""
        from breadth.measure.intervals import mean_interval

        reached, single = samples.pass_at(samples.num_samples), samples.pass_at(1)
        beyond, out = (mean_interval(values, bounds=(-1.0, 1.0)) for values in (reached - single, 1 - reached))
        if beyond.high < self.margin and out.low > self.margin:
            return self.report_narrow(samples, vote, beyond, out)
        if beyond.low > self.margin:
            return self.report_outvoted(samples, vote, beyond)
        shown = f"one of {samples.num_samples} samples is correct {100 * beyond.value:.1f} points more often than one"
        if beyond.value <= self.margin and out.value <= self.margin:
            return Excluded(_NAME, f"{shown}, and {out.value:.0%} of the questions are wrong in all")
        return CannotTell(_NAME, shown, f"{TUNE_COMMAND}, with more questions", undecided=True)

    def report_narrow(self, samples: PlainSamples, vote: Interval, beyond: Interval, out: Interval) -> Finding:
        """Build the finding for a model with one answer per question."""
        return Finding(
            _NAME,
            Severity.WARNING,
            "strong",
            "inference",
            f"{share_unanimous(samples):.0%} of the questions get only one answer in {samples.num_samples} samples,"
            f" and {out.value:.0%}"
            " are wrong in all of them.",
            (*_facts(samples, vote, beyond), Fact("wrong in every sample", out, "%")),
            "At the same temperature new questions get several answers, and a vote on them scores differently from one"
            " sample.",
            f"A vote of {samples.num_samples} pays for {samples.num_samples} samples and is worth one.",
            (*self.raise_temperature(samples), *_train()),
        )

    def report_outvoted(self, samples: PlainSamples, vote: Interval, beyond: Interval) -> Finding:
        """Build the finding for correct answers that are outvoted."""
        return Finding(
            _NAME,
            Severity.NOTE,
            "strong",
            "inference",
            f"A vote of {samples.num_samples} is worth one sample, although one of them is correct"
            f" {100 * beyond.value:.0f} points"
            " more often.",
            _facts(samples, vote, beyond),
            "On new questions votes score more than one sample.",
            f"A vote of {samples.num_samples} pays for {samples.num_samples} samples and is worth one.",
            (_select(beyond),),
        )

    def raise_temperature(self, samples: PlainSamples) -> tuple[Prescription, ...]:
        """Prescribe a higher temperature where the samples were drawn at a low one."""
        if samples.sampling.temperature >= self.varied:
            return ()
        now = samples.sampling.temperature
        why = (
            "Greedy samples are all the same."
            if now == 0
            else "Samples differ more, and only samples that differ can outvote each other."
        )
        change = (Change("temperature", self.varied),)
        return (
            Prescription(
                f"Sample at temperature {self.varied:g} instead of {now:g}", why, change, source="arXiv 2203.11171"
            ),
        )


def share_unanimous(samples: PlainSamples) -> float:
    """Return the share of questions whose samples all agree."""
    return float((samples.classes == samples.classes[:, :1]).all(axis=1).mean())


def _facts(samples: PlainSamples, vote: Interval, beyond: Interval) -> tuple[Fact, ...]:
    return (
        Fact(
            f"vote of {samples.widths[-1]} minus one sample",
            vote,
            "%",
            f"{samples.where}; the interval allows for all widths",
        ),
        Fact(f"one of {samples.num_samples} correct minus one sample", beyond, "%", "gain of a perfect selector"),
        *_spread(samples),
    )


def _spread(samples: PlainSamples) -> tuple[Fact, ...]:
    import numpy as np

    from breadth.measure.diversity import group_diversity

    spread = group_diversity(
        np.repeat(np.arange(samples.num_questions), samples.num_samples),
        samples.classes.ravel(),
        sample_size=samples.num_samples,
    )
    return (
        Fact("questions with only one answer", share_unanimous(samples), "%"),
        Fact(f"different answers in {samples.num_samples} samples", float(spread.expected_distinct.mean())),
    )


def _train() -> tuple[Prescription, ...]:
    return (
        Prescription(
            "Train for breadth: hold the entropy of the policy, or go back to a checkpoint that has more",
            "No vote and no judge can choose an answer that no sample has; only training helps.",
            (),
            "A single sample may score less for a while.",
            "arXiv 2505.22617, 2509.06941",
        ),
    )


def _select(beyond: Interval) -> Prescription:
    return Prescription(
        "Choose among the samples by a verifier or a judge (strategy best-of-n in policy.toml), not by a vote",
        f"Correct answers are among the samples and are outvoted; a perfect choice would gain {100 * beyond.value:.0f}"
        " points.",
        (),
        "A weak judge is worse than the vote, more so with more samples.",
        "arXiv 2408.03314",
    )


FINDING = VoteWithoutDiversity()
"""The check with its default thresholds."""
