"""The four corners: plain and protected training, one long thought and a vote at equal tokens.

Here are the two-by-two table, what each remedy is worth in it, and the claims it is expected to show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from breadth.base.errors import MeasureError
from breadth.lab.evaluation.evaluate import PolicyEval
from breadth.lab.evaluation.extended_vs_parallel import ExtendedVsParallel, FinalAnswers
from breadth.lab.evaluation.training_log import seed_interval
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.paired_tests import paired_difference
from breadth.measure.validate import FloatArray
from breadth.report.cells import Cell
from breadth.report.sections import Column, Table

ThinkingMode = Literal["extended", "parallel"]
THINKING_MODES: tuple[ThinkingMode, ...] = ("extended", "parallel")
"""How the tokens are spent: one long thought, or independent ones and a vote."""


@dataclass(frozen=True)
class EvaluatedArm:
    """What was measured of one trained reasoner."""

    policy: PolicyEval
    """Its replies as they come."""
    answers: ExtendedVsParallel
    """Its answers by one long thought and by a vote."""


@dataclass(frozen=True)
class Corner:
    """One way of training with one way of inference."""

    accuracy: Interval
    """Share of right answers, over problems."""
    tokens: float
    """Written for an answer, on average."""
    saved: float
    """Share of the tokens allowed that were not needed."""
    answer_entropy: Interval
    """Entropy of the answers that repeats give to one problem, in nats."""
    unreadable: float
    """Share of repeats without a readable answer."""


@dataclass(frozen=True)
class Coverage:
    """pass@k and majority of an arm's replies."""

    pass_1: Interval
    """Chance that one reply is right."""
    pass_k: Interval
    """Chance that one of k is."""
    majority: Interval
    """Chance that a vote over some is."""


@dataclass(frozen=True)
class PairedEffect:
    """A difference of accuracies."""

    value: Interval
    """With its interval over problems, each compared with itself."""
    p_value: float
    """Probability of a difference at least as large if the signs of the problems were random."""
    over_seeds: Interval | None = None
    """The same over seeds of training, where there are several: Student's t over their means."""

    @property
    def main_interval(self) -> Interval:
        """The interval to report: over seeds if there are several, as they vary more."""
        return self.value if self.over_seeds is None else self.over_seeds

    @property
    def is_significant(self) -> bool:
        """Whether zero lies outside every interval there is."""
        return all(0.0 not in interval for interval in (self.value, self.over_seeds) if interval is not None)


@dataclass(frozen=True)
class Corners:
    """The two-by-two table with its effects."""

    problems: int
    """Problems asked."""
    repeats: int
    """Answers to each, in each corner and for each seed."""
    seeds: int
    """Reasoners trained in each arm."""
    thinking: int
    """Thinking tokens that were forced."""
    k: int
    """Replies that pass@k is about."""
    votes: int
    """Replies that the vote of `Coverage` is over."""
    plain_extended: Corner
    """Plain training, one long thought."""
    plain_parallel: Corner
    """Plain training, a vote."""
    protected_extended: Corner
    """Protected training, one long thought."""
    protected_parallel: Corner
    """Protected training, a vote."""
    plain: Coverage
    """Replies of the plain arm."""
    protected: Coverage
    """Replies of the protected arm."""
    vote_when_plain: PairedEffect
    """Vote minus long thought, after plain training."""
    vote_when_protected: PairedEffect
    """Vote minus long thought, after protected training."""
    protection_when_extended: PairedEffect
    """Protected minus plain, by one long thought."""
    protection_when_parallel: PairedEffect
    """Protected minus plain, by vote."""
    interaction: PairedEffect
    """How much more the vote gains after protected than after plain training."""
    pass_k_kept: PairedEffect
    """pass@k of the protected minus that of the plain arm."""
    pass_1_change: PairedEffect
    """pass@1 of the protected minus that of the plain arm."""


def compare_corners(plain: Sequence[EvaluatedArm], protected: Sequence[EvaluatedArm], *, k: int, votes: int) -> Corners:
    """Compare the arms, one reasoner for each seed in each, all on the same problems; pairs are the same seed."""
    check_comparable(plain, protected)
    long_plain, short_plain = _accuracies(plain, "extended"), _accuracies(plain, "parallel")
    long_protected, short_protected = _accuracies(protected, "extended"), _accuracies(protected, "parallel")
    return Corners(
        problems=long_plain.shape[1],
        repeats=len(plain[0].answers.extended.right[0]),
        seeds=len(plain),
        thinking=plain[0].answers.thinking,
        k=k,
        votes=votes,
        plain_extended=_corner(plain, "extended"),
        plain_parallel=_corner(plain, "parallel"),
        protected_extended=_corner(protected, "extended"),
        protected_parallel=_corner(protected, "parallel"),
        plain=_coverage(plain, k, votes),
        protected=_coverage(protected, k, votes),
        vote_when_plain=compare_by_seed(short_plain, long_plain),
        vote_when_protected=compare_by_seed(short_protected, long_protected),
        protection_when_extended=compare_by_seed(long_protected, long_plain),
        protection_when_parallel=compare_by_seed(short_protected, short_plain),
        interaction=compare_by_seed(short_protected - long_protected, short_plain - long_plain),
        pass_k_kept=compare_by_seed(_pass_at_k(protected, k), _pass_at_k(plain, k)),
        pass_1_change=compare_by_seed(_pass_at_k(protected, 1), _pass_at_k(plain, 1)),
    )


def check_comparable(plain: Sequence[EvaluatedArm], protected: Sequence[EvaluatedArm]) -> None:
    """Refuse arms of different seeds, problems, repeats or budgets."""
    if not plain or len(plain) != len(protected):
        raise MeasureError(
            f"There are {len(plain)} plain and {len(protected)} protected reasoners.",
            "Give one of each for every seed, in the same order.",
        )
    shapes = {
        (np.shape(_answers_of(arm, way).right), arm.answers.thinking)
        for arm in (*plain, *protected)
        for way in THINKING_MODES
    }
    questions = {arm.policy.question for arm in (*plain, *protected)}
    if len(shapes) > 1 or len(questions) > 1:
        raise MeasureError(
            "The reasoners were not asked the same problems equally often with the same budget.",
            "Measure all of them with one plan.",
        )


def _answers_of(arm: EvaluatedArm, way: ThinkingMode) -> FinalAnswers:
    return arm.answers.extended if way == "extended" else arm.answers.parallel


def _accuracies(arms: Sequence[EvaluatedArm], way: ThinkingMode) -> FloatArray:
    """Return the share of right answers of each problem for each seed: [seeds, problems]."""
    return np.array([_answers_of(arm, way).accuracies() for arm in arms])


def _pass_at_k(arms: Sequence[EvaluatedArm], k: int) -> FloatArray:
    """Return pass@k of each problem for each seed: [seeds, problems]."""
    return np.array([arm.policy.scores_at(k).pass_at_k for arm in arms])


def _corner(arms: Sequence[EvaluatedArm], way: ThinkingMode) -> Corner:
    replies = [_answers_of(arm, way) for arm in arms]
    tokens, allowed = (
        np.array([answers.tokens for answers in replies]),
        np.array([answers.allowed for answers in replies]),
    )
    return Corner(
        mean_interval(_accuracies(arms, way).mean(0), bounds=(0.0, 1.0)),
        float(tokens.mean()),
        float(1 - tokens.sum() / allowed.sum()),
        mean_interval(np.mean([answers.entropies() for answers in replies], 0)),
        float(np.mean([answers.unreadable for answers in replies])),
    )


def _coverage(arms: Sequence[EvaluatedArm], k: int, votes: int) -> Coverage:
    def rate(values: FloatArray) -> Interval:
        return mean_interval(values.mean(0), bounds=(0.0, 1.0))

    return Coverage(
        rate(_pass_at_k(arms, 1)),
        rate(_pass_at_k(arms, k)),
        rate(np.array([arm.policy.scores_at(votes).majority_at_k for arm in arms])),
    )


def compare_by_seed(first: FloatArray, second: FloatArray) -> PairedEffect:
    """Compare two tables of [seeds, problems], paired by problem (mean over seeds) and by seed (mean over problems)."""
    paired = paired_difference(first.mean(0), second.mean(0))
    return PairedEffect(
        paired.difference, paired.p_value, seed_interval((first - second).mean(1)) if len(first) > 1 else None
    )


MAX_ENTROPY_LEFT = 0.5
"""Plain training is claimed to leave less than this share of the base's entropy."""


@dataclass(frozen=True)
class BaseAndArms:
    """The base and what became of it, one reasoner a seed."""

    base: PolicyEval
    """Before training."""
    plain: Sequence[EvaluatedArm]
    """After plain training."""
    protected: Sequence[EvaluatedArm]
    """After protected training."""


def policies_table(found: BaseAndArms, k: int, votes: int) -> Table:
    """Return scores, entropies and tokens of the base and both arms."""
    rows: list[list[Cell]] = [["base", *_policy_numbers(found.base, k, votes)]]
    for name, arms in (("plain GRPO", found.plain), ("protected", found.protected)):
        by_seed = [[number.value for number in _policy_numbers(arm.policy, k, votes)] for arm in arms]
        rows.append([name, *(seed_interval(values, bounds=(0.0, np.inf)) for values in zip(*by_seed, strict=True))])
    columns = [
        Column("policy"),
        Column("pass@1"),
        Column(f"maj@{votes}"),
        Column(f"pass@{k}"),
        Column("entropy", "nats"),
        Column("forks", "nats"),
        Column("mechanical", "nats"),
        Column("tokens"),
    ]
    return Table(
        "The policies on held-out problems",
        columns,
        rows,
        "Intervals over seeds of training; the base's over problems.",
    )


def claims_table(found: BaseAndArms, table: Corners) -> Table:
    """Return every claim with its number and verdict."""
    rows: list[list[Cell]] = [
        [what, number, "shows" if shows else "does not show"] for what, number, shows in list_claims(found, table)
    ]
    return Table(
        "What should show",
        [Column("claim"), Column("difference"), Column("verdict")],
        rows,
        "A claim shows when its intervals over problems and over seeds (Student's t, printed here) both exclude zero.",
    )


def list_claims(found: BaseAndArms, table: Corners) -> Iterator[tuple[str, Interval, bool]]:
    """Yield each claim with its number and whether it shows."""
    k = table.k
    ratios = [arm.policy.entropy.value / found.base.entropy.value for arm in found.plain]
    left = seed_interval(ratios, bounds=(0.0, np.inf))
    yield "plain training leaves less than half of the base's entropy (share left)", left, left.high < MAX_ENTROPY_LEFT
    yield _above("plain training raises pass@1", change_from_base(found.plain, found.base, 1))
    yield _below(f"plain training lowers pass@{k}", change_from_base(found.plain, found.base, k))
    yield _above("protected training raises pass@1", change_from_base(found.protected, found.base, 1))
    yield _above("pass@1 of protected is above plain's", table.pass_1_change)
    yield _above(f"pass@{k} of protected is above plain's", table.pass_k_kept)
    yield _above(f"pass@{k} of protected is above the base's", change_from_base(found.protected, found.base, k))
    yield _above("a vote beats one long thought after plain training", table.vote_when_plain)
    yield _above("a vote beats one long thought after protected training", table.vote_when_protected)
    yield _above("protection adds to the vote", table.protection_when_parallel)
    yield _above("the vote gains more after protected training (interaction)", table.interaction)


def _above(what: str, effect: PairedEffect) -> tuple[str, Interval, bool]:
    return what, effect.main_interval, effect.is_significant and effect.value.value > 0


def _below(what: str, effect: PairedEffect) -> tuple[str, Interval, bool]:
    return what, effect.main_interval, effect.is_significant and effect.value.value < 0


def change_from_base(arms: Sequence[EvaluatedArm], base: PolicyEval, k: int) -> PairedEffect:
    """Return how much pass@k has changed since the base, over the seeds of an arm."""
    after = np.array([arm.policy.scores_at(k).pass_at_k for arm in arms])
    return compare_by_seed(after, np.broadcast_to(np.array(base.scores_at(k).pass_at_k), after.shape))


def _policy_numbers(policy: PolicyEval, k: int, votes: int) -> list[Interval]:
    rates = [policy.scores_at(1).pass_rate, policy.scores_at(votes).majority_rate, policy.scores_at(k).pass_rate]
    return [*rates, policy.entropy, policy.planning, policy.execution, policy.tokens]
