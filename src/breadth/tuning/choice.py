"""The options a sweep measured, the comparison at equal tokens, and which option to choose.

Options are plain samples voted on at each width, and thinking forced to each budget. The choice is the cheapest option
within one standard error of the best, measured again on questions it was not chosen on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy
from breadth.measure.curves import one_standard_error_choice
from breadth.measure.intervals import BOOTSTRAP_REPLICATES, Interval, curve_intervals, mean_interval
from breadth.measure.paired_tests import PairedComparison, paired_difference, share_at_least, sign_flipped_sums
from breadth.measure.validate import FloatArray
from breadth.measure.vote_counting import maj_at_k_by_problem
from breadth.tuning.evidence import ArmEvidence, SweepEvidence


@dataclass(frozen=True, eq=False)
class Option:
    """One policy that was measured."""

    name: str
    """Name in the report."""
    strategy: Strategy
    """Strategy that runs it."""
    width: int
    """Samples per question."""
    budget: int | None
    """Thinking tokens it forces; None for none."""
    scores: FloatArray
    """Its score on each question: accuracy, or agreement where right answers are not known."""
    costs: FloatArray
    """Tokens it writes for each question."""
    seconds: float
    """Mean seconds to an answer: a vote samples in parallel, so it takes as long as the slowest of a group."""
    money: float
    """Mean cost per question at the given prices."""

    @property
    def score(self) -> float:
        """Mean score over questions."""
        return float(self.scores.mean())

    @property
    def cost(self) -> float:
        """Mean tokens per question."""
        return float(self.costs.mean())


def list_options(evidence: SweepEvidence) -> tuple[Option, ...]:
    """Return every option, cheapest first.

    A vote of k is scored exactly from the samples: the mean over all subsets of k, ties shared. All widths
    use the same samples.
    """
    forced = [
        Option(
            arm.arm.name,
            arm.arm.strategy,
            1,
            arm.arm.budget,
            arm.scores.mean(axis=1),
            arm.tokens.mean(axis=1),
            float(arm.seconds.mean()),
            float(arm.money.mean()),
        )
        for arm in evidence.all_arms[1:]
    ]
    return tuple(sorted([*plain_votes(evidence), *forced], key=lambda option: (option.cost, option.width)))


def plain_votes(evidence: SweepEvidence) -> list[Option]:
    """Return the vote of each width over plain samples, narrowest first."""
    plain, widths = evidence.plain, sorted({1, *evidence.plan.widths})
    return [
        Option(
            "one plain sample" if width == 1 else f"vote of {width}",
            Single() if width == 1 else Vote(width),
            width,
            None,
            scores,
            plain.tokens.mean(axis=1) * width,
            mean_slowest(plain.seconds, width),
            float(plain.money.mean()) * width,
        )
        for width, scores in zip(widths, vote_scores(plain, widths).T, strict=True)
    ]


def vote_scores(arm: ArmEvidence, widths: list[int]) -> FloatArray:
    """Return the score of votes over an arm's samples: (questions, widths)."""
    rows = np.repeat(np.arange(len(arm.classes)), arm.classes.shape[1])
    return maj_at_k_by_problem(rows, arm.classes.ravel(), arm.scores.ravel(), widths)


def mean_slowest(seconds: FloatArray, width: int) -> float:
    """Return the mean time of the slowest of ``width`` samples, over groups of consecutive ones."""
    groups = seconds.shape[1] // width
    return float(seconds[:, : groups * width].reshape(len(seconds), groups, width).max(axis=2).mean())


@dataclass(frozen=True)
class EqualTokensComparison:
    """One forced budget and the widest vote over plain samples that costs no more."""

    budget: int
    """Thinking tokens forced."""
    serial: Interval
    """Score of one forced trace."""
    serial_tokens: float
    """Tokens of that trace, answer included."""
    width: int
    """Plain samples voted on."""
    parallel: Interval
    """Score of that vote."""
    parallel_tokens: float
    """Tokens of that vote."""
    difference: PairedComparison
    """Parallel less serial."""


def compare_at_equal_tokens(evidence: SweepEvidence) -> tuple[EqualTokensComparison, ...]:
    """Compare at every budget that pays for at least one plain sample.

    The width follows from mean tokens alone, never from scores, so the match has no selection bias. Where the budget
    pays for more samples than there are, the vote takes all of them and costs less than the trace: the comparison then
    favours the trace.
    """
    plain = evidence.plain
    each = float(plain.tokens.mean())
    comparisons = []
    for arm in evidence.all_arms[1:]:
        cost = float(arm.tokens.mean())
        width = min(int(cost / each + 1e-9), plain.classes.shape[1]) if each > 0 else 0
        if width < 1 or arm.arm.budget is None:
            continue
        serial, parallel = arm.scores.mean(axis=1), vote_scores(plain, [width])[:, 0]
        comparisons.append(
            EqualTokensComparison(
                arm.arm.budget,
                mean_interval(serial, bounds=(0.0, 1.0)),
                cost,
                width,
                mean_interval(parallel, bounds=(0.0, 1.0)),
                each * width,
                paired_difference(parallel, serial),
            )
        )
    return tuple(comparisons)


MIN_QUESTIONS = 12
"""Fewest questions to choose from: with fewer, resampled intervals are too narrow (see `mean_interval`)."""
FOLDS = 5
"""Parts of the questions for the cross-fitted score: each part is scored with the choice of the other four."""
SCORE_TOLERANCE = 0.05
"""Loss of score accepted for fewer tokens, and gain below which more tokens are not worth it, if no gain is shown."""
RISK = 0.05
"""Level of the tests: the chance to pay for more than one plain sample although nothing is better."""

ChoiceReason: TypeAlias = Literal["better", "cheaper", "enough", "cannot tell"]
"""Why an option is chosen: a more expensive one is shown to be better; a cheaper one is shown to be no worse; more
expensive ones are shown to gain too little; or nothing is shown and the default is kept.
"""


@dataclass(frozen=True, eq=False)
class OptionChoice:
    """The option to use, why, and what to expect of it."""

    option: Option
    """Option to use."""
    best: Option
    """The option with the highest measured score."""
    default: Option
    """Option used without measuring: one plain sample."""
    outcome: ChoiceReason
    """Why it is chosen."""
    p_value: float
    """Chance of such a gain over one plain sample among the more expensive options, if none of them were better."""
    cost: Interval
    """Tokens per question; for the one-standard-error rule, the interval is over its choices on resampled questions."""
    score: Interval
    """Expected score on new questions: every question is scored with the choice of the others."""
    gain: PairedComparison
    """The expected score less that of one plain sample, on the same questions."""
    agreement: float
    """Share of the folds that chose the same option."""

    @property
    def is_conclusive(self) -> bool:
        """Whether the questions support the choice."""
        return self.outcome != "cannot tell"


def choose(options: Sequence[Option], *, seed: int = 0) -> OptionChoice:
    """Choose by the one-standard-error rule, paired over questions, once a more expensive option is shown to gain.

    The rule is that of Breiman et al. 1984. One test covers all options that cost more than one plain sample: does any
    score higher by more than chance? It flips the signs of whole questions and picks the best option again in each
    flip, which accounts for the luck of the best. If so, the cheapest option within one standard error of the best is
    taken; a more expensive one only if its own gain is shown. If not, a cheaper one is taken when its loss is shown to
    be under five points, else one plain sample. Below 12 questions the choice is always one plain sample. The expected
    score is cross-fitted in five parts with the whole procedure repeated in each, so it does not profit from the luck
    of the choice. Where that leaves no gain, one plain sample is kept.
    """
    table = np.column_stack([option.scores for option in options])
    # The rule needs distinct costs: equal ones are separated slightly, in the order given.
    costs = np.array([option.cost for option in options]) * (1 + 1e-9 * np.arange(len(options)))
    default = next(place for place, option in enumerate(options) if option.width == 1 and option.budget is None)
    enough = len(table) >= MIN_QUESTIONS
    picked, outcome, p_value = pick_option(table, costs, default, seed) if enough else (default, _UNKNOWN, 1.0)
    fitted, picks = cross_fit(table, costs, default, seed) if enough else (table[:, default], [default])
    if outcome == "better" and fitted.mean() <= table[:, default].mean():
        picked, outcome = default, _UNKNOWN  # the gain is gone on questions that it was not chosen on
    chosen = options[picked]
    return OptionChoice(
        chosen,
        options[int(np.argmax(table.mean(axis=0)))],
        options[default],
        outcome,
        p_value,
        cheapest_as_good(table, costs, default, seed) if outcome == "better" else _constant(chosen.cost),
        mean_interval(fitted, bounds=(0.0, 1.0), seed=seed),
        paired_difference(fitted, table[:, default], seed=seed),
        float(np.mean([pick == picked for pick in picks])),
    )


_UNKNOWN: ChoiceReason = "cannot tell"


def improvement_p_values(gaps: FloatArray, *, seed: int = 0) -> FloatArray:
    """Return per column of differences the chance that the best of all is as good, if no column were above 0."""
    size = np.sqrt((gaps**2).sum(axis=0))
    differing = size > 0
    rows, chances = gaps[gaps.any(axis=1)][:, differing], np.ones(gaps.shape[1])
    if rows.size:
        sums, exact = sign_flipped_sums(rows, seed)
        best = (sums / size[differing]).max(axis=1)
        chances[differing] = [
            share_at_least(best, float(gain), exact=exact) for gain in rows.sum(axis=0) / size[differing]
        ]
    return chances


def pick_option(table: FloatArray, costs: FloatArray, default: int, seed: int) -> tuple[int, ChoiceReason, float]:
    """Return the option chosen on some questions, why, and the p-value of a gain."""
    gaps = table - table[:, [default]]
    expensive, cheaper = np.flatnonzero(costs > costs[default]), np.flatnonzero(costs < costs[default])
    p_value = float(improvement_p_values(gaps[:, expensive], seed=seed).min(initial=1.0))
    if p_value <= RISK:
        value = cheapest_as_good(table, costs, default, seed, replicates=40).value
        return int(np.argmin(np.abs(costs - value))), "better", p_value
    for place, interval in zip(cheaper.tolist(), bonferroni_intervals(gaps[:, cheaper], seed), strict=True):
        if interval.low > -SCORE_TOLERANCE:
            return place, "cheaper", p_value
    # Where nothing more expensive was measured, a gain by it is not ruled out.
    small = expensive.size > 0 and all(
        interval.high < SCORE_TOLERANCE for interval in bonferroni_intervals(gaps[:, expensive], seed)
    )
    return default, "enough" if small else "cannot tell", p_value


def cheapest_as_good(
    table: FloatArray, costs: FloatArray, default: int, seed: int, replicates: int = BOOTSTRAP_REPLICATES
) -> Interval:
    """Return the cost of the cheapest option within one standard error of the best that gains on one plain sample.

    A more expensive option must be shown to gain: one with high variance is within its own wide error of the best
    however bad it is.
    """
    gaps = table - table[:, [default]]
    expensive = np.flatnonzero(costs > costs[default])
    gains = (costs < costs[default]) & (gaps.mean(axis=0) > 0)
    gains[expensive[improvement_p_values(gaps[:, expensive], seed=seed) <= RISK]] = True
    if gains.sum() == 1:
        return _constant(float(costs[gains][0]))
    return one_standard_error_choice(costs[gains], table[:, gains], replicates=replicates, seed=seed).budget


def bonferroni_intervals(gaps: FloatArray, seed: int) -> tuple[Interval, ...]:
    """Return intervals of several mean differences that hold simultaneously (Bonferroni)."""
    if not gaps.shape[1]:
        return ()
    return curve_intervals(gaps, bounds=(-1.0, 1.0), level=1 - RISK / gaps.shape[1], replicates=2000, seed=seed)


def cross_fit(table: FloatArray, costs: FloatArray, default: int, seed: int) -> tuple[FloatArray, list[int]]:
    """Return the score of each question under the choice of the other folds, and those choices."""
    fold = np.random.default_rng(seed).permutation(len(table)) % FOLDS
    picks = [pick_option(table[fold != part], costs, default, seed)[0] for part in range(FOLDS)]
    return table[np.arange(len(table)), np.array(picks)[fold]], picks


def _constant(cost: float) -> Interval:
    return Interval(cost, cost, cost, 0.95, "not resampled")
