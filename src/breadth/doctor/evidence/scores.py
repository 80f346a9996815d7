"""Scores beside the training reward: on held-out problems, by grade, and the components that a reward is made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.measure.intervals import Interval
from breadth.measure.paired_tests import paired_difference
from breadth.measure.trends import Trend, Verdict, trend
from breadth.measure.validate import FloatArray, IntArray
from breadth.runs.outcomes import Outcomes, correctness_sql, count_outcomes
from breadth.runs.reader import MetricSeries, Run
from breadth.runs.schema import REWARD_PREFIX

CORRECTNESS_NAMES = re.compile(
    r"(?<![a-z])(?:acc|accuracy|correct|correctness|exact|verif[a-z]*|solved?|match|answers?|pass(?:@1|1|ed|_rate)?|tests?)(?![a-z@])"
)
"""Names that mean: is the answer right."""
_HELD_OUT = (CORRECTNESS_NAMES, re.compile(r"(?:mean|avg)@"), re.compile(r"reward|score"))
# Which held-out number is taken: one about right and wrong where there is one, then a mean of any, then the reward.
_NO_SCORE = re.compile(
    r"(?:best|worst|maj)@|pass@(?!1(?!\d))|(?<![a-z])(?:std|min|max|len|length|tokens?|entropy|kl|loss|time|format|turns|clip[a-z]*|"
    r"truncated|count|zero|runtime|second)(?![a-z])"
)
# Held-out numbers that are none about how well: spreads, lengths, votes, bookkeeping.
RELEVANT_SHARE = 0.1
"""Share of the start that a change must reach to matter, as in `breadth.measure.trends`."""
_COMPONENT = re.compile(
    r"(?:^|/)(?:rewards|env/all|reward(?!/(?:mean|avg|total|all|raw|sum|std|min|max)\b))/(?P<name>(?!reward/total$)[^/]+(?:/[^/]+)*?)(?:/mean)?$"
)
_SPREAD = re.compile(r"(?:^|[/_])(?:std|min|max)$")


@dataclass(frozen=True)
class ScoreChange:
    """How far a score has moved over the run."""

    name: str
    """What the trainer calls it."""
    start: float
    """Where it was."""
    end: float
    """Where it is."""
    change: Interval
    """End minus start."""
    verdict: Verdict
    """rising, falling, flat, or cannot tell."""
    relevant: float
    """The change that would matter, in its units."""
    where: str
    """What it was read from."""


def is_training_run(evidence: Evidence) -> bool:
    """Say whether the evidence is of a training run: metrics or rollouts of training, and no sweep of an inference policy."""
    run = evidence.run
    if run is None or "plan" in run.header.config:
        return False
    if run.metric_names():
        return True
    return (
        bool(run.rollout_files)
        and len(run.query("SELECT DISTINCT step FROM rollouts WHERE split = 'train' LIMIT 2")) > 1
    )


def eval_score_change(evidence: Evidence) -> ScoreChange | None:
    """Return how the held-out score has moved: by its logged metric, else by graded rollouts; None where neither is there.

    Of several metrics those about right and wrong are taken, averaged over data sets. Where there are rollouts at a few
    steps only, the first and the last are compared problem by problem.
    """
    logged = logged_eval_score(evidence)
    if logged is not None and len(logged) >= MIN_POINTS:
        return score_change(logged, f"{len(logged)} evaluations, steps {logged.steps[0]:,} to {logged.steps[-1]:,}")
    graded = None if evidence.run is None else count_outcomes(evidence.run, "eval")
    if graded is None:
        return None
    right = accuracy_by_step(graded)
    return (
        score_change(right, f"held-out rollouts at {len(right)} steps")
        if len(right) >= MIN_POINTS
        else compare_first_and_last(graded)
    )


def count_evaluations(evidence: Evidence) -> int:
    """Count the steps that have a held-out score of any kind."""
    logged = logged_eval_score(evidence)
    return 0 if logged is None else len(logged)


def score_change(series: MetricSeries, where: str) -> ScoreChange:
    """Return how a series has moved; it needs eight points."""
    found = trend(series.steps, series.values)
    return ScoreChange(
        series.name, found.start.value, found.end.value, found.change, found.verdict, found.relevant_change, where
    )


def excludes_rise(score: Trend | ScoreChange) -> bool:
    """Say whether a rise that would matter is excluded."""
    return score.verdict in ("flat", "falling") or (
        score.verdict != "rising" and score.change.high < score.relevant_change
    )


def accuracy_by_step(graded: Outcomes) -> MetricSeries:
    """Return the share of right rollouts at each step."""
    steps, place = np.unique(graded.steps, return_inverse=True)
    return MetricSeries(
        "share of right rollouts", steps, np.bincount(place, graded.correct) / np.bincount(place, graded.graded)
    )


def reward_for_correct(run: Run) -> float | None:
    """Return how much more reward a right rollout gets than a wrong one; None where rollouts do not say."""
    right = correctness_sql(run)
    if right is None or "reward" not in run.columns:
        return None
    sql = f"SELECT regr_slope(reward, CAST({right} AS DOUBLE)) AS worth FROM rollouts WHERE split = 'train'"  # noqa: S608 - column names are ours
    worth: float | None = run.query(sql)["worth"].to_pylist()[0]
    return worth


def reward_components(evidence: Evidence) -> tuple[MetricSeries, ...]:
    """Return what the reward is made of, by step, under the trainer's own names; empty where it is one number."""
    run = evidence.run
    if run is None:
        return ()
    named = [name for name in run.metric_names() if _COMPONENT.search(name) and not _SPREAD.search(name)]
    found = [
        series
        for series in (evidence.series(name) for name in named)
        if series is not None and len(series) >= MIN_POINTS
    ]
    return tuple(found) if len(found) > 1 else tuple(components_of_rollouts(run))


def component_name(name: str) -> str:
    """Return a component's own name, without what the trainer puts around it."""
    found = _COMPONENT.search(name)
    return (found["name"] if found else name.removeprefix(REWARD_PREFIX)).removesuffix("/mean")


def logged_eval_score(evidence: Evidence) -> MetricSeries | None:
    """Return the logged held-out score: of the most telling kind, averaged over data sets at the steps that have them all."""
    names = () if evidence.run is None else evidence.run.metric_names("eval")
    names = tuple(name for name in names if not _NO_SCORE.search(name.casefold()))
    for kind in _HELD_OUT:
        chosen = [name for name in names if kind.search(name.casefold())]
        if chosen:
            return mean_series([one for one in (evidence.series(name, "eval") for name in chosen) if one is not None])
    return None


def mean_series(several: Sequence[MetricSeries]) -> MetricSeries | None:
    """Average several series at the steps that all of them have."""
    if not several:
        return None
    steps = several[0].steps
    for one in several[1:]:
        steps = np.intersect1d(steps, one.steps)
    values = np.mean([one.values[np.isin(one.steps, steps)] for one in several], axis=0)
    name = several[0].name if len(several) == 1 else f"the mean of {len(several)} held-out scores"
    return MetricSeries(name, steps, values)


def compare_first_and_last(graded: Outcomes) -> ScoreChange | None:
    """Compare the first and the last step that were graded, problem by problem; None where they share no problem."""
    if not len(graded) or graded.steps[0] == graded.steps[-1]:
        return None
    first, last = (graded.select_steps(graded.steps[[end]]) for end in (0, -1))
    before, after = (
        dict(zip(one.problems.tolist(), (one.correct / one.graded).tolist(), strict=True)) for one in (first, last)
    )
    both = [problem for problem in before if problem in after]
    if not both:
        return None
    start, end = (np.array([one[problem] for problem in both]) for one in (before, after))
    change = paired_difference(end, start).difference
    verdict: Verdict = "rising" if change.low > 0 else "falling" if change.high < 0 else "cannot tell"
    where = f"the same {len(both)} problems at steps {first.steps[0]:,} and {last.steps[0]:,}"
    level = float(start.mean())
    return ScoreChange(
        "share of right rollouts", level, float(end.mean()), change, verdict, RELEVANT_SHARE * level, where
    )


def components_of_rollouts(run: Run) -> Iterable[MetricSeries]:
    """Yield the mean of each reward column of the rollouts by step."""
    names = sorted(name for name in run.columns if name.startswith(REWARD_PREFIX))
    if len(names) < 2:
        return
    quoted = [name.replace('"', '""') for name in names]
    means = ", ".join(f'avg("{name}") AS "{name}"' for name in quoted)
    table = run.query(f"SELECT step, {means} FROM rollouts WHERE split = 'train' GROUP BY step ORDER BY step")  # noqa: S608 - names are quoted
    for name in names:
        values = np.array([np.nan if value is None else value for value in table[name].to_pylist()], dtype=np.float64)
        found = MetricSeries(name, table["step"].to_numpy(), values).finite
        if len(found) >= MIN_POINTS:
            yield found


_ADDS_UP = 0.99
# Share of the reward's variance that weighted components must explain for the weights to be believed: what rounding in
# a log leaves.


@dataclass(frozen=True)
class RewardPart:
    """One component of the reward, or the share of right rollouts where those are graded."""

    name: str
    """What it is called, safe to print."""
    change: ScoreChange
    """How far it has moved."""
    weight: float
    """What a unit of it adds to the reward; 1 where that is not known."""
    share: float | None
    """How much of the reward's rise it explains; None where weights are not known."""
    means_correct: bool
    """Whether it means that the answer is right."""
    still_rises: bool
    """Whether it has risen over the second half of the run too."""


def reward_parts(evidence: Evidence) -> tuple[RewardPart, ...]:
    """Return the components of the reward, and the grades of rollouts where the reward is more than those."""
    found, reward = reward_components(evidence), evidence.series("reward")
    if reward is None:
        return ()
    gain = score_change(reward, "").change.value
    weights = fit_weights(reward, found)
    made_of = [
        describe_part(one, None if weights is None else weight, gain)
        for one, weight in zip(found, weights or [1.0] * len(found), strict=True)
    ]
    graded = accuracy_part(evidence, gain) if not any(one.means_correct for one in made_of) else None
    return (*made_of, *([] if graded is None else [graded]))


def describe_part(
    series: MetricSeries, weight: float | None, gain: float, *, name: str = "", counts: bool | None = None
) -> RewardPart:
    """Return how a component has changed and how much of the reward's rise it explains."""
    own = name or component_name(series.name)
    change = score_change(series, f"steps {series.steps[0]:,} to {series.steps[-1]:,}")
    half = len(series) // 2
    later = trend(series.steps[half:], series.values[half:]).verdict if len(series) >= 2 * MIN_POINTS else "cannot tell"
    means_right = CORRECTNESS_NAMES.search(own.casefold()) is not None if counts is None else counts
    share = None if weight is None or not gain else weight * change.change.value / gain
    return RewardPart(printable(own), change, 1.0 if weight is None else weight, share, means_right, later == "rising")


def accuracy_part(evidence: Evidence, gain: float) -> RewardPart | None:
    """Return the share of right rollouts as a part, unless the reward is nothing else."""
    run = evidence.run
    graded = None if run is None or len(run.header.reward_levels) == 2 else count_outcomes(run)
    right = None if graded is None else accuracy_by_step(graded)
    if run is None or right is None or len(right) < MIN_POINTS:
        return None
    return describe_part(right, reward_for_correct(run), gain, name="the share of right rollouts", counts=True)


def fit_weights(reward: MetricSeries, found: Sequence[MetricSeries]) -> list[float] | None:
    """Read the weights from the log: the reward is a weighted sum at every step; None where it turns out to be none."""
    steps = reward.steps
    for one in found:
        steps = np.intersect1d(steps, one.steps)
    if not found or len(steps) < max(MIN_POINTS, 2 * len(found)):
        return None
    columns = np.column_stack([_at(one, steps) for one in found])
    total = _at(reward, steps)
    weights = np.asarray(np.linalg.lstsq(columns, total, rcond=None)[0], dtype=np.float64)
    spread = float(np.sum((total - total.mean()) ** 2))
    missed = float(np.sum((total - columns @ weights) ** 2))
    return [float(weight) for weight in weights] if spread > 0 and missed <= (1 - _ADDS_UP) * spread else None


def _at(series: MetricSeries, steps: IntArray) -> FloatArray:
    return series.values[np.isin(series.steps, steps)]


def printable(name: str) -> str:
    """Keep a name from a log to one short printable line."""
    return "".join(sign if sign.isprintable() else "?" for sign in name)[:60]
