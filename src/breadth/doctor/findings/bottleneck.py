"""``bottleneck``: which of the two loops holds the score back, in two numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from breadth.base.errors import MeasureError
from breadth.doctor.evidence.record import TUNE_COMMAND, Evidence, is_inference_run
from breadth.doctor.finding import CannotTell, Change, CheckResult, Finding, Loop, Prescription
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.validate import FloatArray
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.doctor.evidence.sweeps import MeasuredPolicy, PlainSamples
    from breadth.measure.pass_at_k import Extrapolation
    from breadth.tuning.result import TuningResult


_NAME = "bottleneck"


@dataclass(frozen=True)
class Bottleneck:
    """What more breadth in training would buy, against what a better inference policy would buy on this checkpoint.

    All that is missing to a perfect score falls into three parts, question by question. (1) What the best policy
    measured scores above the one in use: inference can have that today. (2) What one right answer among all the draws
    is worth above that: it is in the model and is not chosen; a verifier or a judge could have it, so it is inference
    still, and not training. (3) What none of the draws gets right: no policy and no judge can choose an answer that is
    not there, so at this many draws only training for breadth moves it. The two numbers are (3) and (1). The largest of
    the three is what limits, and it is said to be only where its lead over the next, on the same questions, leaves out
    zero.

    The best policy is chosen on four fifths of the questions and scored on the other fifth, so that its luck does not
    count. (3) shrinks with more draws, and the sweep has only so many: it is therefore carried on to ten times the
    draws by two fits, one that lets every question be solved some day and one with questions that never are; and that
    is shown only where the same fits, made from half of the draws, foretell what all draws came to (the test of
    honesty). Without a policy in use that was measured, one plain draw stands for it. Always a note: it says where to
    look, not that something is broken. Misleads where right answers come by guessing, as in multiple choice: then many
    draws reach everything and training looks as if it had nothing left to give.
    """

    loop: ClassVar[Loop] = "both"
    causes: ClassVar[tuple[str, ...]] = ()

    extrapolate_to: int = 10
    """Times the draws to which what is out of reach is carried on: beyond that the two fits are a bracket and no more
    (`breadth.measure.pass_at_k`)."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Set the two numbers against each other."""
        if not is_inference_run(evidence):
            return None
        from breadth.doctor.evidence.sweeps import (
            MeasuredPolicy,
            measure_plain_vote,
            measure_policy,
            plain_samples,
            sweep,
        )

        judged, drawn = sweep(evidence), plain_samples(evidence, _NAME)
        if drawn is None or isinstance(drawn, CannotTell):
            return drawn
        if judged is None:
            return CannotTell(_NAME, "other policies than the recorded one were not measured", TUNE_COMMAND)
        if not drawn.labelled or drawn.num_samples < 2:
            missing = (
                "right answers are not known"
                if not drawn.labelled
                else "one draw of a question says nothing of what more would reach"
            )
            return CannotTell(_NAME, missing, f"{TUNE_COMMAND}, with right answers in FILE and --widths 1,2,4,8")
        used = measure_policy(evidence, drawn, _NAME)
        known = isinstance(used, MeasuredPolicy)
        now = used if isinstance(used, MeasuredPolicy) else measure_plain_vote(drawn, 1)
        return describe_gap(
            split_score_gap(judged, drawn, now.scores, self.extrapolate_to), drawn, judged, now, known=known
        )


def describe_gap(
    found: ScoreGap, drawn: PlainSamples, judged: TuningResult, now: MeasuredPolicy, *, known: bool
) -> Finding:
    """Build the finding."""
    who = f"the policy in use ({now.spending.name})" if known else "one plain draw"
    return Finding(
        _NAME,
        Severity.NOTE,
        "strong" if found.lead.low > 0 and stays_largest(found) else "likely",
        "both",
        f"{_which(found)}: {found.unreachable.value:.0%} of the questions are out of reach of {drawn.num_samples} draws, and the best"
        f" policy measured gains {round(100 * found.policy.value, 1) + 0.0:.1f} points on {who}.",  # adding zero makes -0.0 a plain one
        (
            Fact("score now", now.score, "%", f"{who}, {drawn.where}"),
            Fact(
                "inference: best policy measured less that",
                found.policy,
                "%",
                "chosen and scored on different questions",
            ),
            Fact(
                "inference: a perfect choice among the draws above that",
                found.selector,
                "%",
                "needs a verifier or a judge",
            ),
            Fact(
                f"training: out of reach of {drawn.num_samples} draws",
                found.unreachable,
                "%",
                "no policy can choose what is not there",
            ),
            Fact("lead of the largest of the three", found.lead, "%", "on the same questions"),
            *_further(found),
        ),
        "New questions put another of the three first.",
        "",
        _prescriptions(found, judged),
    )


def _which(found: ScoreGap) -> str:
    if found.lead.low <= 0:
        return "No loop is shown to limit more than the other"
    words = {
        "policy": "The inference policy limits",
        "selector": "Choosing among the draws limits",
        "out": "Training limits",
    }
    return words[found.largest]


def stays_largest(found: ScoreGap) -> bool:
    """Say whether the largest stays so with many more draws; what they would reach is not training's."""
    return found.largest != "out" or (
        found.extrapolated is not None and found.extrapolated.low > max(found.policy.value, found.selector.value)
    )


def _further(found: ScoreGap) -> tuple[Fact, ...]:
    if found.extrapolated is None:
        return ()
    note = "by fits that foretell all draws from half of them"
    return (Fact(f"out of reach of {found.samples:,} draws, foretold", found.extrapolated, "%", note),)


def _prescriptions(found: ScoreGap, judged: TuningResult) -> tuple[Prescription, ...]:
    option = judged.choice.option
    policy = Prescription(
        f"Use what the sweep chose: {option.name}",
        f"{judged.score:.0%} to expect at {judged.cost:,.0f} tokens a question.",
        (Change("votes", option.width) if option.budget is None else Change("thinking_budget", option.budget),),
        source="breadth tune",
    )
    select = Prescription(
        "Choose among the draws by a verifier or a judge (strategy best-of-n in policy.toml)",
        f"Up to {100 * found.selector.value:.0f} points lie in draws that are right and not chosen.",
        (),
        "A weak judge is worse than a vote.",
        "arXiv 2408.03314",
    )
    train = Prescription(
        "Train for breadth: hold entropy, keep a price on leaving the base, or start from a checkpoint with more"
        " pass@k",
        f"{found.unreachable.value:.0%} of the questions are in no draw, so that only the weights can bring them.",
        source="arXiv 2505.22617, 2505.24864",
    )
    shown = found.policy.value if judged.choice.outcome == "better" else 0.0
    worth = ((shown, policy), (found.selector.value, select), (found.unreachable.value, train))
    return tuple(one for gain, one in sorted(worth, key=lambda pair: -pair[0]) if gain > 0)


FINDING = Bottleneck()
"""As the doctor asks it."""


FIT_REPLICATES = 200
"""Resamples behind a foretold number: it is a bracket, whose ends need no third digit."""


GapPart = Literal["policy", "selector", "out"]
"""What is missing: a better policy, a perfect choice among the draws, or draws that are right at all."""


@dataclass(frozen=True)
class ScoreGap:
    """The three parts, as means over questions; together with the score in use they are 1."""

    policy: Interval
    """Score of the best policy measured less that of the one in use."""
    selector: Interval
    """How often one of all the draws is right, less the score of the best policy."""
    unreachable: Interval
    """How often none of the draws is right."""
    largest: GapPart
    """The largest of the three."""
    lead: Interval
    """The largest less the next, on the same questions."""
    samples: int
    """Draws to which ``further`` is carried on."""
    extrapolated: Interval | None
    """How often none of so many draws would be right, by the two fits; None where they do not foretell what was drawn.
    """


def split_score_gap(judged: TuningResult, drawn: PlainSamples, scores: FloatArray, times: int) -> ScoreGap:
    """Split what is missing; ``scores`` are those of the policy in use, ``times`` how much further to carry on."""
    best = cross_fitted_best(np.column_stack([one.scores for one in judged.options]), judged.evidence.plan.seed)
    reached = drawn.pass_at(drawn.num_samples)
    parts: dict[GapPart, FloatArray] = {"policy": best - scores, "selector": reached - best, "out": 1 - reached}
    first, second = sorted(parts, key=lambda part: -float(parts[part].mean()))[:2]
    means = {part: mean_interval(values, bounds=(-1.0, 1.0)) for part, values in parts.items()}
    lead = mean_interval(parts[first] - parts[second], bounds=(-1.0, 1.0))
    further = extrapolate_unreachable(drawn, times * drawn.num_samples)
    return ScoreGap(means["policy"], means["selector"], means["out"], first, lead, times * drawn.num_samples, further)


def cross_fitted_best(table: FloatArray, seed: int = 0) -> FloatArray:
    """Return each question's score under the option that is best on the other four fifths of the questions (questions x options)."""
    from breadth.tuning.choice import FOLDS

    fold = np.random.default_rng(seed).permutation(len(table)) % FOLDS
    picks = np.array([int(np.argmax(table[fold != part].mean(axis=0))) for part in range(FOLDS)])
    return np.asarray(table[np.arange(len(table)), picks[fold]])


def extrapolate_unreachable(drawn: PlainSamples, draws: int) -> Interval | None:
    """Return the share of questions out of reach of so many draws; None where the fits fail the test of honesty.

    The test: made from the first half of each question's draws, what they foretell for all draws must hold what those
    came to.
    """
    from breadth.measure.pass_at_k import extrapolate_pass_at_k

    half = drawn.num_samples // 2
    if half < 2:
        return None
    right = drawn.scores == 1
    try:
        early = extrapolate_pass_at_k(
            np.full(drawn.num_questions, half),
            right[:, :half].sum(axis=1),
            [drawn.num_samples],
            replicates=FIT_REPLICATES,
        )
        late = extrapolate_pass_at_k(
            np.full(drawn.num_questions, drawn.num_samples), right.sum(axis=1), [draws], replicates=FIT_REPLICATES
        )
    except MeasureError:  # every draw right, or none
        return None
    if float(drawn.pass_at(drawn.num_samples).mean()) not in bracket_fits(early):
        return None
    reached = bracket_fits(late)
    return Interval(1 - reached.value, 1 - reached.high, 1 - reached.low, reached.level, reached.method)


def bracket_fits(found: Extrapolation) -> Interval:
    """Return what lies between the two fits; where the draws demand questions that are never solved, what the fit with them says."""
    plain, inflated = found.beta_pass[0], found.zero_inflated_pass[0]
    return (
        inflated
        if found.has_impossible_problems
        else Interval(plain.value, inflated.low, plain.high, plain.level, "two fits")
    )
