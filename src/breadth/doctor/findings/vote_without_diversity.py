"""``vote-without-diversity``: the draws agree so much that voting on them cannot change the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from breadth.doctor.evidence.record import SCORE_MARGIN, TIED_WIDTH, TUNE_COMMAND, Evidence, is_inference_run
from breadth.doctor.finding import CannotTell, Change, CheckResult, Finding, Loop, Prescription
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.doctor.evidence.sweeps import PlainSamples
    from breadth.measure.intervals import Interval

_NAME = "vote-without-diversity"


@dataclass(frozen=True)
class VoteWithoutDiversity:
    """A vote of any width is one draw, paid for several times.

    For sure (95 %, all widths at once) no vote scores five points more or less than one draw. Then there are two cases,
    told apart by how often one of all the draws is right. If that, too, is within five points of one draw, the model
    has one answer to a question: no vote and no selector can help, and what is wrong stays wrong until training
    supplies breadth. If it is more, right answers are there and are outvoted: a selector (verifier, judge) could find
    them. A model that is right nearly everywhere agrees with itself too, and is left alone; that is why right answers
    must be known. Misleads at temperature 0, where all draws are one.
    """

    loop: ClassVar[Loop] = "inference"
    causes: ClassVar[tuple[str, ...]] = ()

    margin: float = SCORE_MARGIN
    """Difference of scores that counts: what `breadth tune` accepts to lose for fewer tokens.

    Below it a vote is one draw, a perfect
    selector is no better than none, and what is left to be solved is not worth a word."""
    unread: float = 0.2
    """Share of samples without a readable answer above which nothing is said: `breadth tune` warns from there on, and two unread
    samples are not two that agree."""
    varied: float = 0.7
    """Temperature to draw with where it was lower: the middle of the 0.6 to 0.8 that papers on voting use (arXiv
    2203.11171).
    """

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare every vote with one draw, and both with what a perfect selector would reach."""
        if not is_inference_run(evidence):
            return None
        from breadth.doctor.evidence.sweeps import plain_samples, simultaneous_intervals

        drawn = plain_samples(evidence, _NAME)
        if drawn is None or isinstance(drawn, CannotTell):
            return drawn
        widths = [width for width in drawn.widths if width > TIED_WIDTH]
        if not widths:
            return CannotTell(
                _NAME,
                f"{drawn.num_samples} comparable samples of a question are there; votes begin at three",
                f"{TUNE_COMMAND} --widths 1,4,8",
            )
        if drawn.unread_share > self.unread:
            return CannotTell(
                _NAME,
                f"no answer could be read in {drawn.unread_share:.0%} of the samples",
                "--answer-format, or ask for stated answers",
            )
        if not drawn.labelled:
            return CannotTell(
                _NAME,
                "right answers are not known: draws that agree may all be right",
                f"{TUNE_COMMAND}, with right answers in FILE",
            )
        gaps = simultaneous_intervals(drawn.vote_scores(widths) - drawn.vote_scores([1]))
        same = all(-self.margin < gap.low and gap.high < self.margin for gap in gaps)
        return self.compare_with_selector(drawn, gaps[-1]) if same else None

    def compare_with_selector(self, drawn: PlainSamples, vote: Interval) -> Finding | None:
        """Tell a narrow model from right answers that are outvoted."""
        from breadth.measure.intervals import mean_interval

        reached, one = drawn.pass_at(drawn.num_samples), drawn.pass_at(1)
        beyond, out = (mean_interval(values, bounds=(-1.0, 1.0)) for values in (reached - one, 1 - reached))
        if beyond.high < self.margin and out.low > self.margin:
            return self.report_narrow(drawn, vote, beyond, out)
        return self.report_outvoted(drawn, vote, beyond) if beyond.low > self.margin else None

    def report_narrow(self, drawn: PlainSamples, vote: Interval, beyond: Interval, out: Interval) -> Finding:
        """Build the finding for a model with one answer per question."""
        return Finding(
            _NAME,
            Severity.WARNING,
            "strong",
            "inference",
            f"{share_unanimous(drawn):.0%} of the questions get one answer only in {drawn.num_samples} draws, and {out.value:.0%}"
            " are wrong in all.",
            (*_facts(drawn, vote, beyond), Fact("wrong in every draw", out, "%")),
            "At the same temperature new questions get several answers, and a vote on them scores otherwise than one"
            " draw.",
            f"A vote of {drawn.num_samples} pays for {drawn.num_samples} draws and is worth one.",
            (*self.raise_temperature(drawn), *_train()),
        )

    def report_outvoted(self, drawn: PlainSamples, vote: Interval, beyond: Interval) -> Finding:
        """Build the finding for right answers that are outvoted."""
        return Finding(
            _NAME,
            Severity.NOTE,
            "strong",
            "inference",
            f"A vote of {drawn.num_samples} is worth one draw, and yet one of them is right {100 * beyond.value:.0f} points"
            " more often.",
            _facts(drawn, vote, beyond),
            "On new questions votes score more than one draw.",
            f"A vote of {drawn.num_samples} pays for {drawn.num_samples} draws and is worth one.",
            (_select(beyond),),
        )

    def raise_temperature(self, drawn: PlainSamples) -> tuple[Prescription, ...]:
        """Prescribe a higher temperature where the samples were drawn at a low one."""
        if drawn.sampling.temperature >= self.varied:
            return ()
        now = drawn.sampling.temperature
        why = (
            "Greedy draws are all the same."
            if now == 0
            else "Draws differ more, and only draws that differ can outvote each other."
        )
        change = (Change("temperature", self.varied),)
        return (
            Prescription(
                f"Draw at temperature {self.varied:g} in the place of {now:g}", why, change, source="arXiv 2203.11171"
            ),
        )


def share_unanimous(drawn: PlainSamples) -> float:
    """Return the share of questions whose samples all agree."""
    return float((drawn.classes == drawn.classes[:, :1]).all(axis=1).mean())


def _facts(drawn: PlainSamples, vote: Interval, beyond: Interval) -> tuple[Fact, ...]:
    return (
        Fact(
            f"vote of {drawn.widths[-1]} less one draw", vote, "%", f"{drawn.where}; the interval allows for all widths"
        ),
        Fact(f"one of {drawn.num_samples} right less one draw", beyond, "%", "what a perfect selector would gain"),
        *_spread(drawn),
    )


def _spread(drawn: PlainSamples) -> tuple[Fact, ...]:
    import numpy as np

    from breadth.measure.diversity import group_diversity

    spread = group_diversity(
        np.repeat(np.arange(drawn.num_questions), drawn.num_samples),
        drawn.classes.ravel(),
        sample_size=drawn.num_samples,
    )
    return (
        Fact("questions with one answer only", share_unanimous(drawn), "%"),
        Fact(f"different answers in {drawn.num_samples} draws", float(spread.expected_distinct.mean())),
    )


def _train() -> tuple[Prescription, ...]:
    return (
        Prescription(
            "Train for breadth: hold the entropy of the policy, or go back to a checkpoint that has more",
            "What no draw finds no vote and no judge can choose; only training moves it.",
            (),
            "One draw may score less for a while.",
            "arXiv 2505.22617, 2509.06941",
        ),
    )


def _select(beyond: Interval) -> Prescription:
    return Prescription(
        "Choose among the draws by a verifier or a judge (strategy best-of-n in policy.toml), not by a vote",
        f"Right answers are among the draws and are outvoted; a perfect choice would gain {100 * beyond.value:.0f}"
        " points.",
        (),
        "A weak judge is worse than the vote, the more the wider it chooses.",
        "arXiv 2408.03314",
    )


FINDING = VoteWithoutDiversity()
"""As the doctor asks it."""
