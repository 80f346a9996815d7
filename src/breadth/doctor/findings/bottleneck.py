"""``bottleneck``: which of the two loops limits the score, in two numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    """What more breadth in training would gain, against a better inference policy on this checkpoint.

    The gap to a perfect score has three parts, question by question. (1) The best measured policy's lead over the one
    in use: inference can gain that today. (2) The value of one correct answer among all samples, above that: the model
    finds it and the policy does not choose it. A verifier or a judge could, so this is inference still, not training.
    (3) Questions that no sample solves: no policy and no judge can choose an answer that is not there. More
    samples reach some of them; the rest is what only training can gain. The largest of the three is the bottleneck; it
    is named only where its lead over the next, on the same questions, excludes zero.

    The best policy is chosen on four fifths of the questions and scored on the other fifth, so its luck does not count.
    (3) is divided by an extrapolation to ten times the samples: what those do not reach either is training's, the rest
    is a matter of more samples. Two fits make it, one in which every question can be solved and one with questions that
    never are, and it counts only where the same fits, made from half of the samples, predict the result of all samples.
    Otherwise (3) is not divided, and may be either's. Without a measured policy in use, one plain
    sample is the baseline. Always a note: it says where to look, not that something is broken. It misleads where
    guessing yields correct answers, as in multiple choice: many samples then reach everything, and training seems to
    have nothing left to give.
    """

    loop: ClassVar[Loop] = "both"
    causes: ClassVar[tuple[str, ...]] = ()
    summary: ClassVar[str] = "which of the two loops limits accuracy now"
    first_step: ClassVar[str] = "what the finding names: training for breadth, or a better policy"

    extrapolate_to: int = 10
    """Times the samples to which the unreachable share is extrapolated; beyond that the two fits only give a bracket
    (`breadth.measure.extrapolation`)."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare the two numbers."""
        if not is_inference_run(evidence):
            return None
        from breadth.doctor.evidence.sweeps import (
            MeasuredPolicy,
            measure_plain_vote,
            measure_policy,
            plain_samples,
            sweep,
        )

        result, samples = sweep(evidence), plain_samples(evidence, _NAME)
        if samples is None or isinstance(samples, CannotTell):
            return samples
        if result is None:
            return CannotTell(_NAME, "only the recorded policy was measured", TUNE_COMMAND)
        if not samples.labelled or samples.num_samples < 2:
            missing = (
                "correct answers are not known"
                if not samples.labelled
                else "one sample per question does not show what more would reach"
            )
            return CannotTell(_NAME, missing, f"{TUNE_COMMAND}, with correct answers in FILE and --widths 1,2,4,8")
        used = measure_policy(evidence, samples, _NAME)
        known = isinstance(used, MeasuredPolicy)
        now = used if isinstance(used, MeasuredPolicy) else measure_plain_vote(samples, 1)
        return describe_gap(
            split_score_gap(result, samples, now.scores, self.extrapolate_to), samples, result, now, known=known
        )


def describe_gap(
    found: ScoreGap, samples: PlainSamples, result: TuningResult, now: MeasuredPolicy, *, known: bool
) -> Finding:
    """Build the finding."""
    who = f"the policy in use ({now.spending.name})" if known else "one plain sample"
    return Finding(
        _NAME,
        Severity.NOTE,
        "strong" if found.lead.low > 0 and stays_largest(found) else "likely",
        "both",
        f"{_which(found)}: {found.unreachable.value:.0%} of the questions are out of reach of {samples.num_samples}"
        f" samples{describe_extrapolation(found)}, and the best policy measured gains"
        f" {round(100 * found.policy.value, 1) + 0.0:.1f} points on {who}.",  # adding zero makes -0.0 a plain one
        (
            Fact("score now", now.score, "%", f"{who}, {samples.where}"),
            Fact(
                "inference: best measured policy, gain on that",
                found.policy,
                "%",
                "chosen and scored on different questions",
            ),
            Fact(
                "inference: gain of a perfect choice among the samples",
                found.selector,
                "%",
                "needs a verifier or a judge",
            ),
            *unreachable_facts(found, samples.num_samples),
            Fact("lead of the largest part", found.lead, "%", "on the same questions"),
        ),
        "On new questions another of the three parts is the largest.",
        "",
        _prescriptions(found, samples.num_samples, result),
    )


def _which(found: ScoreGap) -> str:
    if found.lead.low <= 0:
        return "Neither loop is shown to limit the score more"
    if found.largest == "out":
        if found.extrapolated is None:
            return "What no sample solves limits the score"
        return "Training limits the score" if stays_largest(found) else "The number of samples limits the score"
    words = {
        "policy": "The inference policy limits the score",
        "selector": "Choosing among the samples limits the score",
    }
    return words[found.largest]


def describe_extrapolation(found: ScoreGap) -> str:
    """Return what many more samples would not reach, for the headline; empty where it is not known."""
    if found.extrapolated is None:
        return ""
    return f" and {found.extrapolated.value:.0%} of {found.samples:,} (extrapolated)"


def stays_largest(found: ScoreGap) -> bool:
    """Say whether the largest part stays the largest with many more samples; what they reach is not training's."""
    return found.largest != "out" or (
        found.extrapolated is not None and found.extrapolated.low > max(found.policy.value, found.selector.value)
    )


def unreachable_facts(found: ScoreGap, drawn: int) -> tuple[Fact, ...]:
    """Return the share that no sample solves, and how much of it is training's, where that is known."""
    note = "no policy can choose an answer that is not there"
    measured = Fact(f"training or more samples: out of reach of {drawn} samples", found.unreachable, "%", note)
    if found.extrapolated is None:
        return (measured,)
    name = f"out of reach of {found.samples:,} samples too, extrapolated"
    note = "only training gains these; by fits that predict all samples from half of them"
    return measured, Fact(name, found.extrapolated, "%", note)


def _prescriptions(found: ScoreGap, drawn: int, result: TuningResult) -> tuple[Prescription, ...]:
    option = result.choice.option
    policy = Prescription(
        f"Use the policy that the sweep chose: {option.name}",
        f"{result.score:.0%} expected at {result.cost:,.0f} {result.evidence.cost_unit} per question.",
        (Change("votes", option.width) if option.budget is None else Change("thinking_budget", option.budget),),
        source="breadth tune",
    )
    select = Prescription(
        "Choose among the samples by a verifier or a judge (strategy best-of-n in policy.toml)",
        f"Up to {100 * found.selector.value:.0f} points are in correct samples that are not chosen.",
        (),
        "A weak judge is worse than a vote.",
        "arXiv 2408.03314",
    )
    if found.extrapolated is None:
        out = found.unreachable.value
        why = f"{out:.0%} of the questions are solved by none of {drawn} samples: training can, or more samples."
    else:
        out = found.extrapolated.value
        why = f"{out:.0%} of the questions are out of reach of {found.samples:,} samples too: only training gains them."
    train = Prescription(
        "Train for breadth: hold entropy, keep a KL penalty to the base, or start from a checkpoint with higher pass@k",
        why,
        source="arXiv 2505.22617, 2505.24864",
    )
    more = Prescription(
        f"Draw more samples, up to {found.samples:,}, and choose among them by a verifier or a judge",
        f"About {found.unreachable.value - out:.0%} of the questions have their first correct sample there.",
        (),
        "A vote does not find an answer that is correct once in many samples.",
        "arXiv 2407.21787",
    )
    shown = found.policy.value if result.choice.outcome == "better" else 0.0
    gains = ((shown, policy), (found.selector.value, select), (found.unreachable.value - out, more), (out, train))
    return tuple(remedy for gain, remedy in sorted(gains, key=lambda pair: -pair[0]) if gain > 0)


FIT_REPLICATES = 200
"""Resamples behind an extrapolated number: it is a bracket, whose ends need no third digit."""


GapPart = Literal["policy", "selector", "out"]
"""Parts of the gap: a better policy, a perfect choice among the samples, or correct samples at all."""


@dataclass(frozen=True)
class ScoreGap:
    """The three parts, as means over questions; with the score in use they add up to 1."""

    policy: Interval
    """Score of the best measured policy minus that of the one in use."""
    selector: Interval
    """How often any sample is correct, minus the score of the best policy."""
    unreachable: Interval
    """How often no sample is correct."""
    largest: GapPart
    """The largest of the three."""
    lead: Interval
    """The largest minus the next, on the same questions."""
    samples: int
    """Samples to which ``extrapolated`` reaches."""
    extrapolated: Interval | None
    """How often none of so many samples would be correct, by the two fits: what only training gains.

    None where the fits fail their test."""


def split_score_gap(result: TuningResult, samples: PlainSamples, scores: FloatArray, times: int) -> ScoreGap:
    """Split the gap; ``scores`` are those of the policy in use, ``times`` is how far to extrapolate."""
    best = cross_fitted_best(np.column_stack([option.scores for option in result.options]), result.evidence.plan.seed)
    reached = samples.pass_at(samples.num_samples)
    parts: dict[GapPart, FloatArray] = {"policy": best - scores, "selector": reached - best, "out": 1 - reached}
    first, second = sorted(parts, key=lambda part: -float(parts[part].mean()))[:2]
    means = {part: mean_interval(values, bounds=(-1.0, 1.0)) for part, values in parts.items()}
    lead = mean_interval(parts[first] - parts[second], bounds=(-1.0, 1.0))
    further = extrapolate_unreachable(samples, times * samples.num_samples)
    if further is not None:  # more samples never reach less
        value = min(further.value, means["out"].value)
        further = replace(further, value=value, low=min(further.low, value), high=max(further.high, value))
    return ScoreGap(means["policy"], means["selector"], means["out"], first, lead, times * samples.num_samples, further)


def cross_fitted_best(table: FloatArray, seed: int = 0) -> FloatArray:
    """Return each question's score under the option that is best on the other four fifths (questions x options)."""
    from breadth.tuning.choice import FOLDS

    fold = np.random.default_rng(seed).permutation(len(table)) % FOLDS
    picks = np.array([int(np.argmax(table[fold != part].mean(axis=0))) for part in range(FOLDS)])
    return np.asarray(table[np.arange(len(table)), picks[fold]])


def extrapolate_unreachable(samples: PlainSamples, number: int) -> Interval | None:
    """Return the share of questions that so many samples never solve; None where the fits fail their test.

    The test: fits to the first half of each question's samples must predict the result of all samples.
    """
    from breadth.measure.pass_at_k import extrapolate_pass_at_k

    half = samples.num_samples // 2
    if half < 2:
        return None
    right = samples.scores == 1
    try:
        early = extrapolate_pass_at_k(
            np.full(samples.num_questions, half),
            right[:, :half].sum(axis=1),
            [samples.num_samples],
            replicates=FIT_REPLICATES,
        )
        late = extrapolate_pass_at_k(
            np.full(samples.num_questions, samples.num_samples), right.sum(axis=1), [number], replicates=FIT_REPLICATES
        )
    except MeasureError:  # every sample correct, or none
        return None
    if float(samples.pass_at(samples.num_samples).mean()) not in bracket_fits(early):
        return None
    reached = bracket_fits(late)
    return Interval(1 - reached.value, 1 - reached.high, 1 - reached.low, reached.level, reached.method)


def bracket_fits(found: Extrapolation) -> Interval:
    """Return the bracket of the two fits; where the data demand never-solved questions, the fit that has them."""
    plain, inflated = found.beta_pass[0], found.zero_inflated_pass[0]
    return (
        inflated
        if found.has_impossible_problems
        else Interval(plain.value, inflated.low, plain.high, plain.level, "two fits")
    )


FINDING = Bottleneck()
"""The check with its default thresholds."""
