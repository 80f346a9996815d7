"""``under-sampling``: a vote over more samples would score higher than the policy in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from breadth.doctor.evidence.record import (
    FALSE_ALARM_RATE,
    SCORE_MARGIN,
    TIED_WIDTH,
    TUNE_COMMAND,
    Evidence,
    is_inference_run,
)
from breadth.doctor.finding import CannotTell, Change, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.doctor.evidence.sweeps import MeasuredPolicy, PlainSamples

_NAME = "under-sampling"


@dataclass(frozen=True)
class UnderSampling:
    """A wider vote than the policy in use certainly gains.

    One test covers all wider votes (sign flips of whole questions, the best chosen again in each), which allows for the
    luck of the best. Of those that gain, the cheapest within one standard error of the best is named. It misleads where
    tokens are scarce: the doctor cannot say what a gain may cost, so the tokens are shown with it.
    """

    loop: ClassVar[Loop] = "inference"
    causes: ClassVar[tuple[str, ...]] = ()
    summary: ClassVar[str] = "a wider vote would gain for sure"
    first_step: ClassVar[str] = "draw more samples"

    false_alarm_rate: float = FALSE_ALARM_RATE
    """p-value of such a gain; ten checks together may alarm one healthy sweep in twenty."""
    margin: float = SCORE_MARGIN
    """Gain above which, if certain, it is a warning: below it `breadth tune` does not count a difference."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Look for a wider vote that gains."""
        if not is_inference_run(evidence):
            return None
        from breadth.doctor.evidence.sweeps import measure_policy, plain_samples

        samples = plain_samples(evidence, _NAME)
        if samples is None or isinstance(samples, CannotTell):
            return samples
        used = measure_policy(evidence, samples, _NAME)
        if used is None:
            return CannotTell(_NAME, "the policy in use is not known", "its policy.toml, named next to the sweep")
        if isinstance(used, CannotTell):
            return used
        wider = [width for width in samples.widths if width > max(used.spending.width, TIED_WIDTH)]
        return self.check_widest(samples, used) if not wider else self.compare_wider_votes(samples, used, wider)

    def check_widest(self, samples: PlainSamples, used: MeasuredPolicy) -> CannotTell | Excluded:
        """Decide by the last increase in width: where it gained nothing, the next would not either."""
        from breadth.tuning.choice import bonferroni_intervals

        before = [width for width in samples.widths if 2 * width <= used.spending.width][-1:]
        if (
            before
            and bonferroni_intervals(used.scores[:, None] - samples.vote_scores(before), seed=0)[0].high < self.margin
        ):
            return Excluded(_NAME, f"the last doubling gained less than {100 * self.margin:.0f} points")
        wanted = 2 * max(used.spending.width, TIED_WIDTH)
        return CannotTell(
            _NAME,
            f"no vote wider than {used.spending.width} was measured",
            f"{TUNE_COMMAND} --widths 1,{used.spending.width},{wanted}",
        )

    def compare_wider_votes(self, samples: PlainSamples, used: MeasuredPolicy, wider: list[int]) -> CheckResult:
        """Return the finding for the cheapest wider vote that gains."""
        from breadth.tuning.choice import bonferroni_intervals, improvement_p_values

        gaps = samples.vote_scores(wider) - used.scores[:, None]
        gains = [
            width
            for width, chance in zip(wider, improvement_p_values(gaps).tolist(), strict=True)
            if chance <= self.false_alarm_rate
        ]
        if gains:
            return self.report(samples, used, cheapest_gain(samples, gains), float(improvement_p_values(gaps).min()))
        open_ = max(bound.high for bound in bonferroni_intervals(gaps, seed=0))
        if open_ < self.margin:
            return Excluded(_NAME, f"wider votes gain at most {100 * open_:.1f} points")
        missing = (
            f"{samples.num_questions} questions leave a gain of up to {100 * open_:.0f} points by more samples open,"
            " and show"
            " none"
        )
        return CannotTell(_NAME, missing, f"{TUNE_COMMAND}, with more questions", undecided=True)

    def report(self, samples: PlainSamples, used: MeasuredPolicy, width: int, chance: float) -> Finding:
        """Build the finding."""
        from breadth.measure.intervals import mean_interval

        scores = samples.vote_scores([width])[:, 0]
        gain, tokens = mean_interval(scores - used.scores, bounds=(-1.0, 1.0)), width * float(samples.tokens.mean())
        return Finding(
            _NAME,
            Severity.WARNING if gain.low > self.margin else Severity.NOTE,
            "strong",
            "inference",
            f"A vote of {width} scores {scores.mean():.0%}, the policy in use, {used.spending.name}, {used.score:.0%}.",
            (
                Fact("gain", gain, "%", f"{samples.where}; p = {chance:.2g} over all wider votes together"),
                Fact(f"{samples.cost_unit} per question in use", used.tokens),
                Fact(f"{samples.cost_unit} of a vote of {width}", tokens),
            ),
            "On new questions the wider vote scores no more.",
            f"{100 * gain.value:.1f} points on questions like these, for {tokens - used.tokens:,.0f}"
            f" {samples.cost_unit} more per question.",
            _prescriptions(width, used, tokens),
        )


def cheapest_gain(samples: PlainSamples, gains: list[int]) -> int:
    """Return the narrowest vote within one standard error of the best of those that gain."""
    from breadth.measure.curves import one_standard_error_choice

    return (
        gains[0]
        if len(gains) == 1
        else round(one_standard_error_choice(gains, samples.vote_scores(gains), replicates=40).budget.value)
    )


def _prescriptions(width: int, used: MeasuredPolicy, tokens: float) -> tuple[Prescription, ...]:
    more = tokens / max(used.tokens, 1e-9)
    return (
        Prescription(
            f"Vote over {width} samples",
            "Correct answers agree more often than wrong ones here, so a wider vote finds them.",
            (Change("votes", width),),
            f"{more:.1f} times the tokens; a vote that stops once decided (adaptive-vote) uses fewer.",
            "arXiv 2203.11171; this sweep",
        ),
    )


FINDING = UnderSampling()
"""The check with its default thresholds."""
