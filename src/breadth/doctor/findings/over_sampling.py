"""``over-sampling``: a vote draws more samples than its score needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from breadth.doctor.evidence.record import SCORE_MARGIN, TIED_WIDTH, TUNE_COMMAND, Evidence, is_inference_run
from breadth.doctor.finding import CannotTell, Change, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.doctor.evidence.sweeps import MeasuredPolicy, PlainSamples
    from breadth.measure.intervals import Interval

_NAME = "over-sampling"


@dataclass(frozen=True)
class OverSampling:
    """A narrower vote is as good as the one in use, for fewer tokens.

    Votes of all widths are counted exactly over the same samples and compared question by question. A narrower vote is
    enough when the one in use shows no gain on it and a loss of five points or more is ruled out: the rule by which
    `breadth tune` takes a cheaper policy. A vote that stops early is replayed, and charged for the samples it really
    draws. Without a policy the widest measured vote is examined, and it is only a note. It misleads where the questions
    in use are harder than those measured: votes gain most where about half of the samples are correct.
    """

    loop: ClassVar[Loop] = "inference"
    causes: ClassVar[tuple[str, ...]] = ("vote-without-diversity",)
    summary: ClassVar[str] = "a narrower vote is as good"
    first_step: ClassVar[str] = "draw fewer, or stop when the vote is decided"

    margin: float = SCORE_MARGIN
    """Loss of score that must be ruled out: what `breadth tune` gives up for fewer tokens."""
    half: float = 0.5
    """Share of the tokens above which it is a warning: most of them then buy nothing."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Look for the narrowest vote that is enough."""
        if not is_inference_run(evidence):
            return None
        from breadth.doctor.evidence.sweeps import measure_plain_vote, measure_policy, plain_samples

        samples = plain_samples(evidence, _NAME)
        if samples is None or isinstance(samples, CannotTell):
            return samples
        used = measure_policy(evidence, samples, _NAME)
        if isinstance(used, CannotTell):
            return used
        known, wide = used is not None, measure_plain_vote(samples, samples.widths[-1]) if used is None else used
        affordable = min(wide.tokens / max(float(samples.tokens.mean()), 1e-9), wide.spending.width)
        narrower = [width for width in samples.widths if width < affordable and width != TIED_WIDTH]
        if not narrower:
            return Excluded(_NAME, f"no measured vote is narrower than {wide.spending.name}")
        return self.compare_votes(samples, wide, narrower, known=known)

    def compare_votes(
        self, samples: PlainSamples, wide: MeasuredPolicy, narrower: list[int], *, known: bool
    ) -> CheckResult:
        """Return the finding for the narrowest vote that is enough."""
        from breadth.tuning.choice import RISK, bonferroni_intervals, improvement_p_values

        gaps = samples.vote_scores(narrower) - wide.scores[:, None]
        bounds, gains = bonferroni_intervals(gaps, seed=0), improvement_p_values(-gaps)
        for width, bound, chance in zip(narrower, bounds, gains.tolist(), strict=True):
            if bound.low > -self.margin and chance > RISK:
                return self.report(samples, wide, (width, bound), known=known)
        if gains.min() <= RISK:
            return Excluded(_NAME, f"{wide.spending.name} scores more than every narrower vote (p = {gains.min():.2g})")
        missing = (
            f"{samples.num_questions} questions leave open whether {narrower[-1]} samples would lose {self.margin:.0%}"
            " or more"
        )
        return CannotTell(_NAME, missing, f"{TUNE_COMMAND}, with more questions", undecided=True)

    def report(
        self, samples: PlainSamples, wide: MeasuredPolicy, enough: tuple[int, Interval], *, known: bool
    ) -> Finding:
        """Build the finding."""
        width, bound = enough
        each = float(samples.tokens.mean())
        wasted = 1 - width * each / wide.tokens
        what = "one plain sample" if width == 1 else f"a vote of {width}"
        worse = "scores more" if bound.low > 0 else f"loses less than {100 * self.margin:.0f} points"
        who = "The policy in use" if known else "The widest measured vote"
        return Finding(
            _NAME,
            Severity.WARNING if known and wasted >= self.half else Severity.NOTE,
            "strong",
            "inference",
            f"{who}, {wide.spending.name}, costs {wide.tokens:,.0f} {samples.cost_unit} per question; {what} {worse}"
            f" with {width * each:,.0f}.",
            (
                Fact(
                    f"{what} minus {wide.spending.name}",
                    bound,
                    "%",
                    f"{samples.where}; the interval allows for all widths tried",
                ),
                Fact("score in use" if known else "score of the widest vote", wide.score, "%"),
                Fact(f"{samples.cost_unit} that buy nothing", wasted, "%"),
            ),
            f"On new questions {wide.spending.name} scores {self.margin:.0%} or more above {what}.",
            f"{wide.tokens - width * each:,.0f} {samples.cost_unit} per question buy nothing.",
            _prescriptions(width, wide),
        )


def _prescriptions(width: int, wide: MeasuredPolicy) -> tuple[Prescription, ...]:
    fewer = Prescription(
        f"Draw {width} instead of {'up to ' if wide.spending.early else ''}{wide.spending.width}",
        "The other samples cost tokens and do not change the score.",
        (Change("votes", width),),
        "Questions much harder than those measured may need more.",
        "this run; arXiv 2407.21787 on where votes stop gaining",
    )
    stop = Prescription(
        "Stop as soon as the vote is decided (strategy adaptive-vote in policy.toml)",
        "Samples that can no longer change the answer are not drawn: about 6 instead of 40 on easy questions.",
        (),
        "Short answers arrive first and count first.",
        "arXiv 2305.11860",
    )
    return (fewer,) if wide.spending.early or width == 1 else (fewer, stop)


FINDING = OverSampling()
"""The check with its default thresholds."""
