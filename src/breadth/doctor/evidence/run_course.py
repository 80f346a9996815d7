"""The course of a run: how far its score has fallen, what else happened in order, and the law of entropy and score."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from breadth.doctor.evidence.log_defects import nan_runs
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.evidence.scores import logged_eval_score
from breadth.measure.course import LEVEL_SHARES, Course, Stretch, describe_course
from breadth.measure.intervals import Interval
from breadth.measure.series import smooth_by_median
from breadth.report.sections import Severity
from breadth.runs.reader import Run

if TYPE_CHECKING:
    from breadth.measure.entropy import LawFit

LOST = 0.25
"""Share of its best that a score must have lost to have collapsed: a reader of the plot calls it a fall, and no plateau
or dip of the healthy runs in our fixtures reaches it."""
SOLVED = 0.9
"""Share of the way from lowest to highest reward above which a score is solved: ScaleRL retires problems from a pass
rate of 0.9 on, MiniMax-M1 trains on none above it."""
MANY_EPOCHS = 10
"""Passes over the training problems from which on their score is one of memory: runs that generalise take one to three,
and those that repeat few problems on purpose (arXiv 2504.20571) need held-out ones."""
MIN_CAP = 24
"""Tokens from which on completions that are all of one length are cut: answers of a fixed form are shorter."""
MIN_AT_CAP, MIN_SHARE_AT_CAP = 3, 0.02
"""Steps, and share of them, at which the mean length is exactly its highest, a whole number, from which on that is the
cap: a mean of several completions meets it by chance only where all of them were cut."""
ROUND_CAPS = (50, 64)
"""Caps that people set are multiples of these; a highest mean length that is one exactly is the cap."""
NEAR_BEST = 0.1
"""Share of the way from its start to its best step that a score may be short of that, and still be at its best."""
MAX_CUT_SOLVED = 0.5
"""Share of truncated completions above which nothing counts as solved."""
GONE = 0.05
"""Share of its best below which nothing is left of a score."""
SURE_LEVEL = 0.8
"""Confidence that slow wander must leave a fall to half: it was measured beyond doubt already."""
ENTROPY_SETTINGS = {
    "entropy_coef": "an entropy bonus",
    "entropy_coeff": "an entropy bonus",
    "use_adaptive_entropy": "an adaptive entropy bonus",
    "beta": "a KL penalty",
    "kl_loss_coef": "a KL penalty",
    "use_kl_loss": "a KL penalty",
}
"""Settings that act on entropy, name in the trainer's configuration -> what it is.

The entropy law was only ever observed without them.
"""


@dataclass(frozen=True)
class ScoreFall:
    """How far a score lies below its own best stretch."""

    name: str
    """The trainer's name of the score."""
    course: Course
    """Its levels."""
    best: Stretch
    """The best stretch, or the first points where they lie far above all others."""
    size: Interval
    """Best stretch minus the end, as measured, allowing for the choice of the best stretch."""
    share: float
    """The fall over what there was to lose: the best level, or the way to it from the start if that is longer."""
    most: float
    """The largest share that a plain interval leaves open."""
    is_sure: bool
    """Whether the fall is beyond measurement noise and slow wander."""
    half_step: float | None
    """Step from which on more than half of the fall had happened; None where it came back in between."""
    was_low_before: bool
    """Whether the score had been as low after its best quarter and came back."""

    @property
    def end(self) -> Stretch:
        """The last eighth."""
        return self.course.end

    def describe_open(self) -> str:
        """Say how large a fall the noise does not exclude."""
        return f"a fall of {self.most:.0%}" if self.most < 1 else "a fall of any size"


def score_fall(evidence: Evidence) -> ScoreFall | None:
    """Measure how far the training score lies below its best; None without eight points.

    It is the reward, or the accuracy next to it where that has fallen further for sure.
    """
    falls = [
        measure_fall(course, evidence.logged_name(name), wanders=True)
        for name in ("reward", "accuracy")
        if (course := evidence.course(name)) is not None
    ]
    return next((fall for fall in falls if fall.is_sure and fall.share >= LOST), falls[0] if falls else None)


def measure_held_out_fall(evidence: Evidence) -> ScoreFall | None:
    """Measure how far the logged held-out score lies below its best; None with fewer than eight evaluations."""
    held_out = logged_eval_score(evidence)
    course = None if held_out is None else describe_course(held_out.steps, held_out.values, shares=LEVEL_SHARES)
    return None if course is None or held_out is None else measure_fall(course, held_out.name, wanders=False)


def measure_fall(course: Course, name: str, *, wanders: bool) -> ScoreFall:
    """Measure the fall of a score from its best stretch to its end.

    A training score wanders with the problems it is counted on; held-out problems are the same every time. Last points
    that lie far below all others, or first ones far above them, are no wander.
    """
    best, end = course.highest, course.end
    broken_at_once = course.before_break is not None and course.before_break.level.value > best.level.value
    if broken_at_once and course.before_break is not None:
        best = course.before_break
    has_died = course.broken_off > 0 and course.values[-1] < course.values[: -course.broken_off].min()
    size, plain = negate(course.change(best, end)), negate(course.change(best, end, chosen=False))
    scale = max(abs(best.level.value), best.level.value - course.start.level.value, 1e-12)
    share = size.value / scale
    level = SURE_LEVEL if share >= 0.5 else 0.95
    beyond_wander = (
        not wanders or is_gone(course, best) or negate(course.change_beyond_wander(best, end, level=level)).low > 0
    )
    middle = (best.level.value + end.level.value) / 2
    return ScoreFall(
        name,
        course,
        best,
        plain if has_died or broken_at_once else size,
        share,
        plain.high / scale,
        has_died or broken_at_once or (size.low > 0 and beyond_wander),
        course.first_past(middle, below=True, begin=best.begin),
        has_recovered(course),
    )


def is_gone(course: Course, best: Stretch) -> bool:
    """Say whether a score that cannot be negative, and was near its best for most of the run, is at nothing now.

    Slow wander does not do that; a step to nothing looks like very slow wander.
    """
    before = course.values[: course.end.begin]
    was_high = float(np.median(before)) >= best.level.value / 2
    return was_high and float(course.values.min()) >= 0 and course.end.level.value <= GONE * best.level.value


def is_solved(evidence: Evidence, level: float = SOLVED) -> bool:
    """Say whether a score between its two values, or between 0 and 1, is near its highest value and stays there."""
    score, series, run = evidence.course("reward"), evidence.series("reward"), evidence.run
    if score is None or series is None or run is None:
        return False
    levels = run.header.reward_levels
    low, high = (min(levels), max(levels)) if len(levels) == 2 else (0.0, 1.0)
    inside = low <= float(series.values.min()) and float(series.values.max()) <= high + 1e-9
    return inside and score.end.level.value > low + level * (high - low)


def is_memorised(evidence: Evidence) -> bool:
    """Say whether every problem was trained on so often that a solved training score says nothing of others."""
    epochs = evidence.series("epoch")
    return epochs is not None and float(epochs.values[-1]) >= MANY_EPOCHS


def is_at_its_best(evidence: Evidence) -> bool:
    """Say whether a score that rose stays near the largest value of any step, as a solved one does on any scale.

    Where some problems are always solved and some never, the score depends on which were drawn. Completions that are
    cut solve nothing, and a score between 0 and 1 that ends below one half has not solved most of them.
    """
    score, series, cut = evidence.course("reward"), evidence.series("reward"), evidence.course("truncated")
    if series is None or score is None or (cut is not None and cut.end.level.value > MAX_CUT_SOLVED):
        return False
    best, start = float(series.values.max()), score.start.level.value
    if float(series.values.min()) >= 0 and best <= 1 and score.end.level.value < 0.5:
        return False
    return best - score.end.level.value < NEAR_BEST * (best - start)


def has_risen(evidence: Evidence) -> bool:
    """Say whether the score surely ends above its start."""
    score = evidence.course("reward")
    return score is not None and score.change(score.start, score.end).low > 0


def score_pays(evidence: Evidence) -> bool:
    """Say whether the score surely rises over the second half of the run, and has not fallen from its best."""
    fall = score_fall(evidence)
    if fall is not None and fall.is_sure and fall.share >= LOST:
        return False
    late, score = evidence.late_trend("reward"), evidence.course("reward")
    if late is not None and late.verdict == "rising":
        return True
    return score is not None and score.change(score.middle, score.end).low > 0


def severity_by_score(evidence: Evidence) -> Severity:
    """Return how bad a failure is by the score: critical where that has fallen, a note where it rises or is solved."""
    fall = score_fall(evidence)
    if fall is not None and fall.is_sure and fall.share >= LOST:
        return Severity.CRITICAL
    return Severity.NOTE if score_pays(evidence) or is_solved(evidence) else Severity.WARNING


def has_recovered(course: Course) -> bool:
    """Say whether a score had been near its best, then nearly as low as at the end, and near its best again.

    Near is within a quarter of the fall, in means of a sixteenth of the points.
    """
    width = max(3, len(course.values) // 16)
    means = np.convolve(course.values, np.ones(width) / width, "valid")
    best, end = course.highest.level.value, course.end.level.value
    is_high, is_low = means > best - (best - end) / 4, means < end + (best - end) / 4
    turns = [bool(high) for high, low in zip(is_high, is_low, strict=True) if high != low]
    phases = [phase for place, phase in enumerate(turns) if place == 0 or phase != turns[place - 1]]
    return phases.count(True) > 1


def length_cap(evidence: Evidence) -> float | None:
    """Return the longest completion possible: by the settings or the log, or what the longest or all stop at."""
    if evidence.config.max_completion_length is not None:
        return float(evidence.config.max_completion_length)
    logged = evidence.series("length_cap")
    if logged is not None and len(logged):
        return float(logged.values[-1])
    longest = evidence.series("length_max")
    if longest is not None and len(longest) >= MIN_POINTS:
        most = float(longest.values.max())
        return most if (longest.values >= most).mean() > 0.25 else None
    mean = evidence.series("length")
    if mean is None or len(mean) < MIN_POINTS:
        return None
    most = float(mean.values.max())
    at_most = mean.values >= most * (1 - 1e-9)
    ends_there = at_most[-max(3, len(mean) // 8) :].mean() > 0.5
    is_reached = at_most.sum() >= MIN_AT_CAP and most.is_integer() and at_most.mean() >= MIN_SHARE_AT_CAP
    is_reached = is_reached or any(most % unit == 0 for unit in ROUND_CAPS)
    return most if (ends_there or is_reached) and most >= MIN_CAP else None


def negate(change: Interval) -> Interval:
    """Turn a change into a fall."""
    return Interval(-change.value, -change.high, -change.low, change.level, change.method)


@dataclass(frozen=True)
class RunEvent:
    """Something that happened to a metric."""

    step: float
    """When it began."""
    metric: str
    """Our name of the metric."""
    text: str
    """What happened, in a few words with the step."""


@dataclass(frozen=True)
class Turn:
    """What counts as an event of a metric that moves by factors."""

    noun: str
    """What it is called."""
    rise: float
    """Factor above the start that is an event."""
    fall: float
    """Share of the start that is one."""


TURNS = {
    "entropy": Turn("entropy", 2.0, 0.5),
    "length": Turn("the mean length", 2.0, 0.5),
    "grad_norm": Turn("the gradient norm", 10.0, 0.01),
    "kl_reference": Turn("the KL to the reference", math.inf, 0.0),
    "mismatch": Turn("the mismatch of trainer and sampler", 4.0, 0.0),
}
"""Metric -> what counts as an event: the thresholds of the findings about it."""


def run_events(evidence: Evidence) -> list[RunEvent]:
    """Return what happened, in order of steps."""
    found = [event for name, turn in TURNS.items() for event in factor_events(evidence.course(name), name, turn)]
    found += truncation_events(evidence.course("truncated"))
    fall = score_fall(evidence)
    if fall is not None and fall.is_sure and fall.share >= LOST and fall.half_step is not None:
        found.append(RunEvent(fall.half_step, "reward", f"the score fell at step {fall.half_step:,.0f}"))
    found += [
        RunEvent(
            nan_run.first,
            nan_run.name,
            f"{evidence.logged_name(nan_run.name)} is no number from step {nan_run.first:,} on",
        )
        for nan_run in nan_runs(evidence)
        if nan_run.to_the_end
    ]
    frozen = death_step(evidence)
    if frozen is not None:
        found.append(RunEvent(frozen, "frozen", f"nothing moves since step {frozen:,.0f}"))
    return sorted(found, key=lambda event: event.step)


def factor_events(course: Course | None, name: str, turn: Turn) -> Iterator[RunEvent]:
    """Yield the surest rise and fall of a metric that moves by factors."""
    if course is None:
        return
    up, down = course.change(course.start, course.highest), course.change(course.start, course.lowest)
    if up.low > turn.rise and (step := first_beyond(course, turn.rise)) is not None:
        yield RunEvent(step, name, f"{turn.noun} rose past {turn.rise:g} times its start at step {step:,.0f}")
    if down.high < turn.fall and (step := first_beyond(course, turn.fall)) is not None:
        yield RunEvent(step, name, f"{turn.noun} fell below {turn.fall:.0%} of its start at step {step:,.0f}")


def first_beyond(course: Course, factor: float) -> float | None:
    """Return the first step at which a running median of five points is past a factor of the start."""
    middle = smooth_by_median(course.values)
    wanted = math.log(course.start.level.value) + math.log(factor)
    past = np.flatnonzero(middle > wanted if factor > 1 else middle < wanted)
    past = past[past >= course.start.end]
    return float(course.steps[past[0]]) if len(past) else None


def truncation_events(course: Course | None) -> Iterator[RunEvent]:
    """Yield when many completions began to be cut, where few were at the start."""
    if course is None or course.highest.level.low <= 0.3 or course.start.level.high >= 0.3:
        return
    past = np.flatnonzero(course.values > 0.3)
    if len(past):
        step = course.steps[past[0]]
        yield RunEvent(float(step), "truncated", f"30% of the completions were cut from step {step:,.0f} on")


def death_step(evidence: Evidence) -> float | None:
    """Return the step since which the run is dead: neither the score nor anything else moves."""
    alive = [evidence.course(name) for name in ("reward", "reward_std", "grad_norm", "entropy", "length")]
    courses = [course for course in alive if course is not None and not is_constant(course)]
    score = evidence.course("reward")
    if score is None or score.frozen is None or not courses:
        return None
    still = [course.frozen for course in courses]
    return None if any(step is None for step in still) else max(step for step in still if step is not None)


def is_constant(course: Course) -> bool:
    """Say whether a metric never moved at all."""
    return bool(np.ptp(course.values) <= 1e-9 * max(float(np.abs(course.values).max()), 1e-12))


def tell_story(evidence: Evidence) -> str:
    """Return what happened in one sentence; empty where it was fewer than two things."""
    events = run_events(evidence)
    if len(events) < 2:
        return ""
    return ", then ".join(event.text for event in events[:5])


def events_before(evidence: Evidence, step: float | None) -> tuple[RunEvent, ...]:
    """Return what happened to other metrics up to a step, and a twentieth of the run after it."""
    if step is None:
        return ()
    score = evidence.course("reward")
    slack = 0.0 if score is None else 0.05 * float(score.steps[-1] - score.steps[0])
    return tuple(
        event
        for event in run_events(evidence)
        if event.step <= step + slack and event.metric not in ("reward", "frozen")
    )


def fit_run_law(run: Run) -> tuple[LawFit, list[str]] | None:
    """Fit the law to a run's entropy and reward, with the reasons against it; None under three common steps."""
    entropy, score = run.series("entropy"), run.series("reward")
    steps, left, right = np.intersect1d(entropy.steps, score.steps, return_indices=True)
    if len(steps) < 3:
        return None
    from breadth.measure.entropy import fit_law

    fit = fit_law(
        steps, entropy.values[left], score.values[right], interventions=tuple(entropy_interventions(run.header.config))
    )
    return fit, [*fit.reasons, *impossible_ceiling(fit, run.header.reward_levels)]


def entropy_interventions(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings of a configuration, nested ones too, that act on entropy."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from entropy_interventions(value)
        elif key in ENTROPY_SETTINGS and is_switched_on(value):
            yield f"{ENTROPY_SETTINGS[key]} ({key} = {value})"


def is_switched_on(value: Any) -> bool:
    """Say whether a setting is true or a positive number."""
    return value is True or (isinstance(value, int | float) and not isinstance(value, bool) and value > 0)


def impossible_ceiling(fit: LawFit, levels: Sequence[float]) -> Iterator[str]:
    """Yield an objection where the ceiling exceeds the largest reward: the law is linear, the reward is bounded."""
    if fit.valid and levels and fit.ceiling.low > max(levels):
        best = max(levels)
        yield (
            f"It puts the ceiling at {fit.ceiling.value:.3g}, above the largest possible reward, {best:g}: the score"
            " saturates first."
        )
