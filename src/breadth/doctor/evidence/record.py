"""Everything known of one run: its metrics, rollouts and settings, each read once, and which loop the run is of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from breadth.base.errors import BreadthError, CatalogueError
from breadth.doctor.finding import CannotTell
from breadth.doctor.trainer_config import ConfigDialect, TrainerConfig
from breadth.measure.course import LEVEL_SHARES, PEAK_SHARES, Course, Stretch, describe_course
from breadth.measure.intervals import Interval
from breadth.measure.series import smooth_by_median
from breadth.measure.trends import Trend, log_trend, trend
from breadth.measure.validate import IntArray
from breadth.runs.importer import IMPORTERS
from breadth.runs.names import metric_words
from breadth.runs.outcomes import ANY_BUDGET, Samples, budget_name, read_samples, rollout_steps, sample_budgets
from breadth.runs.reader import MetricSeries, Run

if TYPE_CHECKING:
    from breadth.inference.policy import Policy
    from breadth.tuning.result import TuningResult


MIN_POINTS = 8
"""Points below which no direction is read from a series (`breadth.measure.trends`)."""
LOG_SCALE_METRICS = ("entropy",)
"""Metrics whose trend is taken on the logarithm: they fall and rise by factors."""
FACTOR_METRICS = frozenset({"entropy", "length", "grad_norm", "kl_reference", "kl_old", "mismatch"})
"""Metrics whose stretches are compared by their ratio."""


SCORES = ("reward_shaped", "accuracy")
"""What counts as the score of a run that logs no reward, best first."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """One run, or a configuration alone."""

    name: str
    """The run's name."""
    run: Run | None = None
    """Its metrics and rollouts; None where there is a configuration only."""
    config: TrainerConfig = field(default_factory=TrainerConfig)
    """Its settings."""
    dialect: ConfigDialect | None = None
    """Writes changes to the settings for the user's trainer; None where the trainer is not known."""
    data: tuple[str, ...] = ()
    """Texts of a sample of the training data: worked solutions where it has them, else what it asks."""
    server: Mapping[str, Any] | None = None
    """The result of probing a server, as `breadth probe --save` writes it."""
    policy: Policy | None = None
    """The inference policy in use."""
    _trends: dict[tuple[str, str], Trend | None] = field(default_factory=dict, repr=False)
    _courses: dict[tuple[str, str], Course | None] = field(default_factory=dict, repr=False)

    def series(self, name: str, split: str = "train") -> MetricSeries | None:
        """Return a metric's finite values by step; None where it was not logged."""
        stored = self.find_stored_name(name, split)
        if self.run is None or stored is None:
            return None
        found = self.run.series(stored, split).finite
        return found if len(found) else None

    def find_stored_name(self, name: str, split: str = "train") -> str | None:
        """Return the name a metric is stored under; a run without a reward has another score."""
        logged = () if self.run is None else self.run.metric_names(split)
        several = (name, *SCORES) if name == "reward" else (name,)
        return next((stored for stored in several if stored in logged), None)

    def trend(self, name: str, split: str = "train") -> Trend | None:
        """Return a metric's start, end and direction; None where it has fewer than eight points."""
        if (name, split) not in self._trends:
            found = self.series(name, split)
            self._trends[name, split] = (
                None if found is None or len(found) < MIN_POINTS else trend_in_range(name, found)
            )
        return self._trends[name, split]

    def course(self, name: str, split: str = "train") -> Course | None:
        """Return the levels along a metric; None where it has fewer than eight points."""
        if (name, split) not in self._courses:
            found = self.series(name, split)
            course = None if found is None else measure_course(name, found)
            self._courses[name, split] = None if course is None or found is None else clip_course(name, course, found)
        return self._courses[name, split]

    def logged_name(self, name: str) -> str:
        """Return the trainer's own name of a metric; plain words for one that was not logged."""
        stored = self.find_stored_name(name)
        theirs = None if self.run is None else self.run.header.names.get(stored or name)
        return theirs or stored or metric_words(name)

    def describe_steps(self, name: str) -> str:
        """Return the trainer's name of a metric and the steps it covers, as text."""
        found = self.series(name)
        return "" if found is None else f"{self.logged_name(name)}, steps {found.steps[0]:,} to {found.steps[-1]:,}"

    @cached_property
    def sweep_result(self) -> TuningResult | None:
        """The result of a `breadth tune` sweep or an imported evaluation; None for other runs, or incomplete ones."""
        if self.run is None or not (is_sweep(self.run) or self.is_evaluation):
            return None
        from breadth.tuning.result import analyze_sweep

        try:
            return analyze_sweep(self.run)
        except BreadthError:
            return None

    @cached_property
    def is_evaluation(self) -> bool:
        """Whether the run holds imported samples without a step of training: votes, or a sweep of budgets."""
        if self.run is None or not is_imported(self.run) or self.run.metric_names():
            return False
        return not len(rollout_steps(self.run)) and len(rollout_steps(self.run, "eval")) == 1

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The start and the end of its rollouts; empty where there are none."""
        return () if self.run is None else rollout_windows(self.run)

    def late_trend(self, name: str) -> Trend | None:
        """Return the trend over the second half of the run; None where that has fewer than eight points."""
        found = self.series(name)
        half = 0 if found is None else len(found) // 2
        return (
            None
            if found is None or half < MIN_POINTS
            else trend_in_range(name, MetricSeries(name, found.steps[half:], found.values[half:]))
        )

    def how_to_log(self, name: str) -> str:
        """Return the setting that makes the run's own trainer log something; empty where it is not known."""
        if self.run is None:
            return ""
        try:
            return str(IMPORTERS.load(self.run.header.trainer).switches.get(name, ""))
        except CatalogueError:
            return ""

    def missing_metric(self, finding: str, metric: str) -> CannotTell:
        """Return that a finding cannot tell: the metric is not logged, or at too few steps."""
        found = self.series(metric)
        if found is None and self.run is not None and (rows := len(self.run.series(metric))):
            return CannotTell(
                finding,
                f"{self.logged_name(metric)} is logged at {rows} steps, but never as a number",
                "find out why it is NaN",
            )
        if found is None:
            return CannotTell(finding, f"{metric_words(metric)} is not logged", self.how_to_log(metric))
        return CannotTell(
            finding,
            f"{self.logged_name(metric)} has {len(found)} usable points; {MIN_POINTS} are needed",
            "log more often, or train longer",
        )

    def first_step_past(self, name: str, level: float, *, below: bool) -> int | None:
        """Return the first step after which a metric stays past a level; None where it does not.

        A running median of five points must stay past the level to the end of the run.
        """
        found = self.series(name)
        if found is None or len(found) < MIN_POINTS:
            return None
        middle = smooth_by_median(found.values)
        past = middle < level if below else middle > level
        inside = np.flatnonzero(~past)
        if not past[-1]:
            return None
        return int(found.steps[0 if not len(inside) else inside[-1] + 1])


def trend_in_range(name: str, found: MetricSeries) -> Trend:
    """Return the trend of a series, its ends cut to what the metric can be."""
    fitted = (log_trend if name in LOG_SCALE_METRICS else trend)(found.steps, found.values)
    return replace(fitted, start=clip_to_range(name, fitted.start), end=clip_to_range(name, fitted.end))


WINDOWS_PER_RUN = 8
"""A window is this fraction of the steps: the eighth that the trends of metrics compare too."""


@dataclass(frozen=True)
class Window:
    """Rollouts of neighbouring steps."""

    name: str
    """Its steps, for a sentence: ``steps 1 to 20``."""
    when: str
    """Its place in the run: ``start``, ``now``, or ``all`` when there is only one window; the budget of a sweep."""
    first: int
    """First step."""
    last: int
    """Last step."""
    samples: Samples
    """The rollouts."""
    split: str = "train"
    """Whether they are of training or held-out problems."""
    budget: int | None = ANY_BUDGET
    """Budget of thinking that they were sampled under, where a sweep has several."""

    @cached_property
    def classes(self) -> IntArray:
        """Answer class of each rollout, -1 where no answer could be read."""
        from breadth.measure.answers import answer_classes

        return answer_classes(self.samples.answers)

    @cached_property
    def is_graded(self) -> bool:
        """Whether every rollout is known to be right or wrong."""
        return bool(len(self.samples)) and not bool(np.isnan(self.samples.correct).any())


def rollout_windows(run: Run, split: str = "train") -> tuple[Window, ...]:
    """Return the first and the last eighth of the steps with rollouts.

    There is one window where there are too few steps for two; samples of one step under several budgets of thinking
    have a window for each. A run without training rollouts, such as one that `solve`
    recorded, is read by its held-out rollouts.
    """
    steps = rollout_steps(run, split)
    if not len(steps):
        split = "eval"
        steps = rollout_steps(run, split)
    if not len(steps):
        return ()
    if len(steps) == 1 and (budgets := sample_budgets(run, split)):
        step = int(steps[0])
        return tuple(
            Window(name, name, step, step, read_samples(run, step, step, split, budget), split, budget)
            for budget in budgets
            for name in [budget_name(budget)]
        )
    size = max(1, len(steps) // WINDOWS_PER_RUN)
    parts = [steps] if len(steps) < 2 else [steps[:size], steps[-size:]]
    places = ("all",) if len(parts) == 1 else ("start", "now")
    return tuple(_window(run, part, when, split) for part, when in zip(parts, places, strict=True))


def _window(run: Run, steps: IntArray, when: str, split: str) -> Window:
    first, last = int(steps[0]), int(steps[-1])
    name = f"step {first}" if first == last else f"steps {first} to {last}"
    return Window(name, when, first, last, read_samples(run, first, last, split), split)


METRIC_BOUNDS = {
    **dict.fromkeys(
        ("zero_variance_groups", "truncated", *(f"clip_fraction{end}" for end in ("", "_low", "_high", "_dual"))),
        (0.0, 1.0),
    ),
    **dict.fromkeys(("entropy", "reward_std", "length", "length_min", "length_max", "grad_norm"), (0.0, math.inf)),
}
"""Lowest and highest value of metrics that have bounds."""


def measure_course(name: str, found: MetricSeries) -> Course | None:
    """Return the levels along a series, compared as fits the metric."""
    shares = LEVEL_SHARES if name in ("reward", "accuracy") else PEAK_SHARES
    return describe_course(found.steps, found.values, by_log=name in FACTOR_METRICS, shares=shares)


def clip_course(name: str, course: Course, found: MetricSeries) -> Course:
    """Cut the levels of a course to what the metric can be; a reward that stays between 0 and 1 is a share."""
    share = name == "reward" and found.values.min() >= 0 and found.values.max() <= 1
    bounded = "truncated" if share else name

    def clip(stretch: Stretch) -> Stretch:
        return replace(stretch, level=clip_to_range(bounded, stretch.level))

    return replace(
        course,
        start=clip(course.start),
        middle=clip(course.middle),
        early=clip(course.early),
        late=clip(course.late),
        end=clip(course.end),
        highest=clip(course.highest),
        lowest=clip(course.lowest),
    )


def clip_to_range(name: str, interval: Interval) -> Interval:
    """Cut an interval to the metric's range.

    An interval around an impossible value (percent for a share) stays as it is.
    """
    low, high = METRIC_BOUNDS.get(name, (-math.inf, math.inf))
    slack = 1e-9 if math.isfinite(high) else 0.0
    if not low - slack <= interval.value <= high + slack:
        return interval
    value = min(max(interval.value, low), high)
    return replace(interval, value=value, low=max(interval.low, low), high=min(max(interval.high, value), high))


MAX_TEXTS_PER_WINDOW = 400
"""Completions read of each window: enough for shares to within five points, little enough to take a second."""


FALSE_ALARM_RATE = 0.005
"""False-alarm rate of one check on a healthy sweep: ten checks together may then alarm one sweep in twenty."""
SCORE_MARGIN = 0.05
"""Score difference below which two policies count as equal: what `breadth tune` gives up for fewer tokens."""
TIED_WIDTH = 2
"""Width of a vote that is never considered: two samples that differ are a tie, so it scores like one sample at twice
the tokens."""
TUNE_COMMAND = "breadth tune URL --tasks FILE --out FOLDER"
"""The command that measures what a run folder does not hold."""


def is_inference_run(evidence: Evidence) -> bool:
    """Say whether a run is a sweep, a record of `solve` or an imported evaluation, and not of training."""
    run = evidence.run
    return run is not None and (is_sweep(run) or is_recorded_solve(run) or evidence.is_evaluation)


def is_sweep(run: Run) -> bool:
    """Say whether a run folder is from `breadth tune`, complete or not."""
    return "plan" in run.header.config and not is_imported(run)


def is_recorded_solve(run: Run) -> bool:
    """Say whether a run folder was recorded while answering under a policy.

    Trainers have a section ``policy`` too, without a strategy.
    """
    policy = run.header.config.get("policy")
    return isinstance(policy, Mapping) and "strategy" in policy and not is_sweep(run) and not is_imported(run)


def is_imported(run: Run) -> bool:
    """Say whether a run folder was imported from a trainer's files."""
    return bool(run.header.trainer or run.header.files)
