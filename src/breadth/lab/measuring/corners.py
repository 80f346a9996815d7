"""The four corners: plain and protected training, one long thought and a vote at equal tokens, and what each remedy is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from breadth.base.errors import MeasureError
from breadth.lab.measuring.both_ways import BothWays, Replies
from breadth.lab.measuring.measured import Measured
from breadth.lab.measuring.seeds import over_seeds
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.paired_tests import paired_difference

Way = Literal["extended", "parallel"]
WAYS: tuple[Way, ...] = ("extended", "parallel")
"""How the tokens are spent: one long thought, or independent ones and a vote."""
Floats = NDArray[np.float64]


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


def _right(arms: Sequence[Arm], way: Way) -> Floats:
    """Return the share of right answers of each problem for each seed: [seeds, problems]."""
    return np.array([_replies(arm, way).accuracies() for arm in arms])


def _passed(arms: Sequence[Arm], k: int) -> Floats:
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
    def rate(values: Floats) -> Interval:
        return mean_interval(values.mean(0), bounds=(0.0, 1.0))

    return Coverage(
        rate(_passed(arms, 1)),
        rate(_passed(arms, k)),
        rate(np.array([arm.measured.at(votes).majority for arm in arms])),
    )


def compare(first: Floats, second: Floats) -> Effect:
    """Compare two tables of [seeds, problems]: problem by problem over the mean of seeds, and seed by seed over the mean of problems."""
    paired = paired_difference(first.mean(0), second.mean(0))
    return Effect(paired.difference, paired.p_value, over_seeds((first - second).mean(1)) if len(first) > 1 else None)
