"""The four corners: plain and protected training, one long thought and a vote at equal tokens, and what each remedy is worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from breadth.base.errors import MeasureError
from breadth.lab.evaluation.evaluate import Measured
from breadth.lab.evaluation.extended_vs_parallel import BothWays, Replies
from breadth.lab.evaluation.seeds import over_seeds
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.paired_tests import paired_difference
from breadth.measure.validate import FloatArray
from breadth.report.cells import Cell
from breadth.report.sections import Column, Table

Way = Literal["extended", "parallel"]
WAYS: tuple[Way, ...] = ("extended", "parallel")
"""How the tokens are spent: one long thought, or independent ones and a vote."""


@dataclass(frozen=True)
class Arm:
    """What was measured of one trained reasoner."""

    measured: Measured
    """Its replies as they come."""
    both_ways: BothWays
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
    unread: float
    """Share of repeats without a readable answer."""


@dataclass(frozen=True)
class Coverage:
    """What an arm's replies hold, whatever is made of them."""

    pass_1: Interval
    """Chance that one reply is right."""
    pass_k: Interval
    """Chance that one of k is."""
    majority: Interval
    """Chance that a vote over some is."""


@dataclass(frozen=True)
class Effect:
    """A difference of accuracies."""

    value: Interval
    """With its interval over problems, each compared with itself."""
    p_value: float
    """Chance of a difference at least as large if the signs of problems were tossed."""
    over_seeds: Interval | None = None
    """The same over seeds of training, where there are several: Student's t over their means."""

    @property
    def quoted(self) -> Interval:
        """The interval to quote: over seeds where there are several, for these vary more."""
        return self.value if self.over_seeds is None else self.over_seeds

    @property
    def shows(self) -> bool:
        """Whether zero lies outside every interval there is."""
        return all(0.0 not in one for one in (self.value, self.over_seeds) if one is not None)


@dataclass(frozen=True)
class Corners:
    """The two by two table with its margins."""

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
    vote_when_plain: Effect
    """Vote less long thought, after plain training."""
    vote_when_protected: Effect
    """Vote less long thought, after protected training."""
    protection_when_extended: Effect
    """Protected less plain, by one long thought."""
    protection_when_parallel: Effect
    """Protected less plain, by vote."""
    interaction: Effect
    """How much more the vote gains after protected than after plain training."""
    pass_k_kept: Effect
    """pass@k of the protected less that of the plain arm."""
    pass_1_change: Effect
    """pass@1 of the protected less that of the plain arm."""


def corners(plain: Sequence[Arm], protected: Sequence[Arm], *, k: int, votes: int) -> Corners:
    """Compare the arms, one reasoner for each seed in each, all on the same problems; pairs are the same seed."""
    _check(plain, protected)
    long_plain, short_plain = _right(plain, "extended"), _right(plain, "parallel")
    long_protected, short_protected = _right(protected, "extended"), _right(protected, "parallel")
    return Corners(
        problems=long_plain.shape[1],
        repeats=len(plain[0].both_ways.extended.right[0]),
        seeds=len(plain),
        thinking=plain[0].both_ways.thinking,
        k=k,
        votes=votes,
        plain_extended=_corner(plain, "extended"),
        plain_parallel=_corner(plain, "parallel"),
        protected_extended=_corner(protected, "extended"),
        protected_parallel=_corner(protected, "parallel"),
        plain=_coverage(plain, k, votes),
        protected=_coverage(protected, k, votes),
        vote_when_plain=compare(short_plain, long_plain),
        vote_when_protected=compare(short_protected, long_protected),
        protection_when_extended=compare(long_protected, long_plain),
        protection_when_parallel=compare(short_protected, short_plain),
        interaction=compare(short_protected - long_protected, short_plain - long_plain),
        pass_k_kept=compare(_passed(protected, k), _passed(plain, k)),
        pass_1_change=compare(_passed(protected, 1), _passed(plain, 1)),
    )


def _check(plain: Sequence[Arm], protected: Sequence[Arm]) -> None:
    if not plain or len(plain) != len(protected):
        raise MeasureError(
            f"There are {len(plain)} plain and {len(protected)} protected reasoners.",
            "Give one of each for every seed, in the same order.",
        )
    shapes = {
        (np.shape(_replies(arm, way).right), arm.both_ways.thinking) for arm in (*plain, *protected) for way in WAYS
    }
    questions = {arm.measured.question for arm in (*plain, *protected)}
    if len(shapes) > 1 or len(questions) > 1:
        raise MeasureError(
            "The reasoners were not asked the same problems equally often with the same budget.",
            "Measure all of them with one plan.",
        )


def _replies(arm: Arm, way: Way) -> Replies:
    return arm.both_ways.extended if way == "extended" else arm.both_ways.parallel


def _right(arms: Sequence[Arm], way: Way) -> FloatArray:
    """Return the share of right answers of each problem for each seed: [seeds, problems]."""
    return np.array([_replies(arm, way).accuracies() for arm in arms])


def _passed(arms: Sequence[Arm], k: int) -> FloatArray:
    """Return pass@k of each problem for each seed: [seeds, problems]."""
    return np.array([arm.measured.at(k).passed for arm in arms])


def _corner(arms: Sequence[Arm], way: Way) -> Corner:
    replies = [_replies(arm, way) for arm in arms]
    tokens, allowed = np.array([one.tokens for one in replies]), np.array([one.allowed for one in replies])
    return Corner(
        mean_interval(_right(arms, way).mean(0), bounds=(0.0, 1.0)),
        float(tokens.mean()),
        float(1 - tokens.sum() / allowed.sum()),
        mean_interval(np.mean([one.entropies() for one in replies], 0)),
        float(np.mean([one.unread for one in replies])),
    )


def _coverage(arms: Sequence[Arm], k: int, votes: int) -> Coverage:
    def rate(values: FloatArray) -> Interval:
        return mean_interval(values.mean(0), bounds=(0.0, 1.0))

    return Coverage(
        rate(_passed(arms, 1)),
        rate(_passed(arms, k)),
        rate(np.array([arm.measured.at(votes).majority for arm in arms])),
    )


def compare(first: FloatArray, second: FloatArray) -> Effect:
    """Compare two tables of [seeds, problems]: problem by problem over the mean of seeds, and seed by seed over the mean of problems."""
    paired = paired_difference(first.mean(0), second.mean(0))
    return Effect(paired.difference, paired.p_value, over_seeds((first - second).mean(1)) if len(first) > 1 else None)


HALF = 0.5
"""Share of the base's entropy that plain training is said to leave less than."""


@dataclass(frozen=True)
class Policies:
    """The base and what became of it, one reasoner a seed."""

    base: Measured
    """Before training."""
    plain: Sequence[Arm]
    """After plain training."""
    protected: Sequence[Arm]
    """After protected training."""


def policies_table(found: Policies, k: int, votes: int) -> Table:
    """Return what the base and both arms know and how broad they are."""
    rows: list[list[Cell]] = [["base", *_numbers(found.base, k, votes)]]
    for name, arms in (("plain GRPO", found.plain), ("protected", found.protected)):
        by_seed = [[number.value for number in _numbers(arm.measured, k, votes)] for arm in arms]
        rows.append([name, *(over_seeds(values, bounds=(0.0, np.inf)) for values in zip(*by_seed, strict=True))])
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


def claims(found: Policies, table: Corners) -> Table:
    """Return every claim with its number and whether it shows."""
    rows: list[list[Cell]] = [
        [what, number, "shows" if shows else "does not show"] for what, number, shows in _claims(found, table)
    ]
    return Table(
        "What should show",
        [Column("claim"), Column("difference"), Column("verdict")],
        rows,
        "A claim shows when its interval over problems and its interval over seeds (Student's t, which stands here)"
        " both leave out zero.",
    )


def _claims(found: Policies, table: Corners) -> Iterator[tuple[str, Interval, bool]]:
    k = table.k
    ratios = [arm.measured.entropy.value / found.base.entropy.value for arm in found.plain]
    left = over_seeds(ratios, bounds=(0.0, np.inf))
    yield "plain training leaves less than half of the base's entropy (share left)", left, left.high < HALF
    yield _above("plain training raises pass@1", change(found.plain, found.base, 1))
    yield _below(f"plain training lowers pass@{k}", change(found.plain, found.base, k))
    yield _above("protected training raises pass@1", change(found.protected, found.base, 1))
    yield _above("pass@1 of protected is above plain's", table.pass_1_change)
    yield _above(f"pass@{k} of protected is above plain's", table.pass_k_kept)
    yield _above(f"pass@{k} of protected is above the base's", change(found.protected, found.base, k))
    yield _above("a vote beats one long thought after plain training", table.vote_when_plain)
    yield _above("a vote beats one long thought after protected training", table.vote_when_protected)
    yield _above("protection adds to the vote", table.protection_when_parallel)
    yield _above("the vote gains more after protected training (interaction)", table.interaction)


def _above(what: str, effect: Effect) -> tuple[str, Interval, bool]:
    return what, effect.quoted, effect.shows and effect.value.value > 0


def _below(what: str, effect: Effect) -> tuple[str, Interval, bool]:
    return what, effect.quoted, effect.shows and effect.value.value < 0


def change(arms: Sequence[Arm], base: Measured, k: int) -> Effect:
    """Return how much pass@k has changed since the base, over the seeds of an arm."""
    after = np.array([arm.measured.at(k).passed for arm in arms])
    return compare(after, np.broadcast_to(np.array(base.at(k).passed), after.shape))


def _numbers(one: Measured, k: int, votes: int) -> list[Interval]:
    rates = [one.at(1).pass_rate, one.at(votes).majority_rate, one.at(k).pass_rate]
    return [*rates, one.entropy, one.planning, one.execution, one.tokens]
