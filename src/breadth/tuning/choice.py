"""Everything the policy may be chosen from: plain draws voted on at each width, and thinking forced to each budget, with score and cost."""

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
    """What it is called in the report."""
    strategy: Strategy
    """What runs it."""
    width: int
    """Samples it draws for a question."""
    budget: int | None
    """Thinking tokens it forces; None for none."""
    scores: FloatArray
    """Its score on each question: accuracy, or agreement where right answers are not known."""
    costs: FloatArray
    """Tokens it writes for each question."""
    seconds: float
    """Mean seconds to an answer: votes are drawn side by side, so one takes as long as the slowest of a group."""
    money: float
    """Mean cost of a question by the prices given."""

    @property
    def score(self) -> float:
        """Its mean score."""
        return float(self.scores.mean())

    @property
    def cost(self) -> float:
        """Its mean cost."""
        return float(self.costs.mean())


def list_options(evidence: SweepEvidence) -> tuple[Option, ...]:
    """Return every option, cheapest first.

    A vote of k is scored exactly from the samples there are: the mean over all ways to draw k of them, ties shared.
    Nothing is drawn for each width apart, so all widths rest on the same samples.
    """
    votes = plain_votes(evidence)
    forced = [_forced(arm) for arm in evidence.serial]
    return tuple(sorted([*votes, *forced], key=lambda option: (option.cost, option.width)))


def plain_votes(evidence: SweepEvidence) -> list[Option]:
    """Return the vote of each width over plain draws, narrowest first."""
    plain, widths = evidence.plain, sorted({1, *evidence.plan.widths})
    return [
        Option(
            "one plain draw" if width == 1 else f"vote of {width}",
            Single() if width == 1 else Vote(width),
            width,
            None,
            scores,
            plain.tokens.mean(axis=1) * width,
            _slowest(plain.seconds, width),
            float(plain.money.mean()) * width,
        )
        for width, scores in zip(widths, vote_scores(plain, widths).T, strict=True)
    ]


def vote_scores(arm: ArmEvidence, widths: list[int]) -> FloatArray:
    """Return the score of votes over an arm's samples: questions x widths."""
    rows = np.repeat(np.arange(len(arm.classes)), arm.classes.shape[1])
    return maj_at_k_by_problem(rows, arm.classes.ravel(), arm.scores.ravel(), widths)


def _forced(evidence: ArmEvidence) -> Option:
    return Option(
        evidence.arm.name,
        evidence.arm.strategy,
        1,
        evidence.arm.budget,
        evidence.scores.mean(axis=1),
        evidence.tokens.mean(axis=1),
        float(evidence.seconds.mean()),
        float(evidence.money.mean()),
    )


def _slowest(seconds: FloatArray, width: int) -> float:
    """Return the mean time of the slowest of ``width`` samples, over groups of neighbouring ones."""
    groups = seconds.shape[1] // width
    return float(seconds[:, : groups * width].reshape(len(seconds), groups, width).max(axis=2).mean())


@dataclass(frozen=True)
class EqualTokensComparison:
    """One forced budget and the widest vote over plain draws that costs no more."""

    budget: int
    """Thinking tokens forced."""
    serial: Interval
    """Score of one forced trace."""
    serial_tokens: float
    """Tokens it writes, the answer included."""
    width: int
    """Plain draws voted on."""
    parallel: Interval
    """Score of that vote."""
    parallel_tokens: float
    """Tokens they write."""
    difference: PairedComparison
    """Parallel less serial."""


def compare_at_equal_tokens(evidence: SweepEvidence) -> tuple[EqualTokensComparison, ...]:
    """Compare at every budget that pays for at least one plain draw.

    The width is set by mean tokens alone, never by scores, so there is no luck in the match. Where the budget would pay
    for more draws than there are, the vote is of all there are and costs less than the trace: the comparison then leans
    against the vote.
    """
    plain = evidence.plain
    each = float(plain.tokens.mean())
    found = []
    for arm in evidence.serial:
        cost = float(arm.tokens.mean())
        width = min(int(cost / each + 1e-9), plain.classes.shape[1]) if each > 0 else 0
        if width < 1 or arm.arm.budget is None:
            continue
        serial, parallel = arm.scores.mean(axis=1), vote_scores(plain, [width])[:, 0]
        found.append(
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
    return tuple(found)


MIN_QUESTIONS = 12
"""Questions below which nothing is chosen: resampling fewer gives intervals that are too narrow (see `mean_interval`).
"""
FOLDS = 5
"""Parts of the questions for the honest score: each part is scored with what the other four would choose."""
SCORE_MARGIN = 0.05
"""Loss of score that is accepted for fewer tokens, and gain below which more tokens are not worth it, when no gain is
shown.
"""
RISK = 0.05
"""Chance of paying for more than one plain draw although nothing is better."""

ChoiceReason: TypeAlias = Literal["better", "cheaper", "enough", "cannot tell"]
"""Why the option is chosen: dearer ones are shown to be better; a cheaper one is shown to be no worse; dearer ones are shown to gain
too little; or nothing is shown and the default is kept."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The option to use, why, and what to expect of it."""

    option: Option
    """What to use."""
    best: Option
    """The option with the highest measured score."""
    default: Option
    """What would be used without measuring: one plain draw."""
    outcome: ChoiceReason
    """Why it is chosen."""
    p_value: float
    """Chance of such a gain over one plain draw somewhere among the dearer options, if none of them were better."""
    cost: Interval
    """Tokens of a question; where the one-standard-error rule chose, the range is over what it chooses when questions
    are resampled.
    """
    score: Interval
    """What to expect on new questions: every question scored with what the others chose."""
    gain: PairedComparison
    """The expected score less that of one plain draw, on the same questions."""
    agreement: float
    """Share of the folds that chose the same option."""

    @property
    def is_conclusive(self) -> bool:
        """Whether the questions say anything about the choice."""
        return self.outcome != "cannot tell"


def choose(options: Sequence[Option], *, seed: int = 0) -> Choice:
    """Choose by the one-standard-error rule (Breiman et al.

    1984), paired over questions, once a dearer option is shown to gain anything.

    One test for all options that cost more than one plain draw: does any score higher by more than chance (sign flips
    of whole questions, the best option chosen anew in each, so its luck is allowed for)? If so, the cheapest option
    within one standard error of the best is taken; a dearer one only if its own gain is shown. If not, a cheaper one is
    taken when its loss is shown to be under five points, else one plain draw. Below 12 questions it is one plain draw
    whatever they say. The score to expect is cross-fitted in five parts, the whole procedure repeated in each, so that
    it does not profit from the luck of the choice; where no gain is left of it, one plain draw is kept.
    """
    table = np.column_stack([option.scores for option in options])
    costs = _apart(np.array([option.cost for option in options]))
    default = next(place for place, option in enumerate(options) if option.width == 1 and option.budget is None)
    enough = len(table) >= MIN_QUESTIONS
    picked, outcome, p_value = _pick(table, costs, default, seed) if enough else (default, _UNKNOWN, 1.0)
    honest, picks = _cross_fitted(table, costs, default, seed) if enough else (table[:, default], [default])
    if outcome == "better" and honest.mean() <= table[:, default].mean():
        picked, outcome = default, _UNKNOWN  # what is gone on questions that were not chosen on is not promised
    chosen = options[picked]
    return Choice(
        chosen,
        options[int(np.argmax(table.mean(axis=0)))],
        options[default],
        outcome,
        p_value,
        _cheapest_as_good(table, costs, default, seed) if outcome == "better" else _fixed(chosen.cost),
        mean_interval(honest, bounds=(0.0, 1.0), seed=seed),
        paired_difference(honest, table[:, default], seed=seed),
        float(np.mean([pick == picked for pick in picks])),
    )


_UNKNOWN: ChoiceReason = "cannot tell"


def improvement_p_values(gaps: FloatArray, *, seed: int = 0) -> FloatArray:
    """Return for each column of differences the chance that the best of all columns is as good as it, if none were above 0."""
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


def _pick(table: FloatArray, costs: FloatArray, default: int, seed: int) -> tuple[int, ChoiceReason, float]:
    """Return the option chosen on some questions, why, and the p-value of a gain."""
    gaps = table - table[:, [default]]
    dearer, cheaper = np.flatnonzero(costs > costs[default]), np.flatnonzero(costs < costs[default])
    p_value = float(improvement_p_values(gaps[:, dearer], seed=seed).min(initial=1.0))
    if p_value <= RISK:
        value = _cheapest_as_good(table, costs, default, seed, replicates=40).value
        return int(np.argmin(np.abs(costs - value))), "better", p_value
    for place, interval in zip(cheaper.tolist(), _bounds(gaps[:, cheaper], seed), strict=True):
        if interval.low > -SCORE_MARGIN:
            return place, "cheaper", p_value
    # Where nothing dearer was measured, nothing says that it would not gain.
    small = dearer.size > 0 and all(interval.high < SCORE_MARGIN for interval in _bounds(gaps[:, dearer], seed))
    return default, "enough" if small else "cannot tell", p_value


def _cheapest_as_good(
    table: FloatArray, costs: FloatArray, default: int, seed: int, replicates: int = BOOTSTRAP_REPLICATES
) -> Interval:
    """Return the cost of the cheapest option within one standard error of the best, of those that gain on one plain draw.

    A dearer option must be shown to gain: one that varies much is within its own wide error of the best whatever it is
    worth.
    """
    gaps = table - table[:, [default]]
    dearer = np.flatnonzero(costs > costs[default])
    gains = (costs < costs[default]) & (gaps.mean(axis=0) > 0)
    gains[dearer[improvement_p_values(gaps[:, dearer], seed=seed) <= RISK]] = True
    if gains.sum() == 1:
        return _fixed(float(costs[gains][0]))
    return one_standard_error_choice(costs[gains], table[:, gains], replicates=replicates, seed=seed).budget


def _bounds(gaps: FloatArray, seed: int) -> tuple[Interval, ...]:
    """Return intervals of several mean differences that hold all together (Bonferroni)."""
    if not gaps.shape[1]:
        return ()
    return curve_intervals(gaps, bounds=(-1.0, 1.0), level=1 - RISK / gaps.shape[1], replicates=2000, seed=seed)


def _cross_fitted(table: FloatArray, costs: FloatArray, default: int, seed: int) -> tuple[FloatArray, list[int]]:
    """Return the score of each question under what the other folds chose, and what they chose."""
    fold = np.random.default_rng(seed).permutation(len(table)) % FOLDS
    picks = [_pick(table[fold != part], costs, default, seed)[0] for part in range(FOLDS)]
    return table[np.arange(len(table)), np.array(picks)[fold]], picks


def _fixed(cost: float) -> Interval:
    return Interval(cost, cost, cost, 0.95, "not resampled")


def _apart(costs: FloatArray) -> FloatArray:
    """Set equal costs a hair apart, in the order given: the rule wants each cost once."""
    return costs * (1 + 1e-9 * np.arange(len(costs)))
