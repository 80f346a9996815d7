"""Scores: of training, on held-out problems, by grade, and the components that make up a reward."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.measure.intervals import Interval
from breadth.measure.trends import Trend, Verdict, trend
from breadth.measure.validate import FloatArray, IntArray
from breadth.runs.names import unflatten_name
from breadth.runs.outcomes import Outcomes, correctness_sql, count_outcomes
from breadth.runs.reader import MetricSeries, Run
from breadth.runs.schema import REWARD_PREFIX

BOUNDED_MEASURES = r"em|f1|ndcg|mrr|bleu|rouge[a-z]*|iou|recall"
"""Names of measures of an answer, as a pattern; by their definition they reach 1."""
CORRECTNESS_NAMES = re.compile(
    r"(?<![a-z])(?:acc|accuracy|correct|correctness|exact|verif[a-z]*|solved?|match|answers?|pass(?:@1|1|ed|_rate|_at_1)?|tests?|equation|"
    rf"success(?:es)?|succeeded|win_rate|{BOUNDED_MEASURES})(?![a-z@])"
)
"""Names of metrics that say whether the answer is correct."""
GOAL_NAMES = re.compile(r"(?<![a-z])(?:env(?:ironment)?|task|outcome|game)(?![a-z])")
"""Further names that a component of the reward has which is the goal itself."""
NO_CORRECTNESS = re.compile(r"penalt|length|format")
"""Names of metrics that do not, whatever else they say."""
FORM_NAMES = re.compile(r"format|xml|struct|json|boxed|(?<![a-z])(?:tags?|think|style)(?![a-z])")
"""Names of components that reward format, which is often learned before anything else."""
SHAPING_NAMES = re.compile(r"bonus|penalt|shaping")
"""Names of addends that are no goal by themselves."""
_HELD_OUT = (
    re.compile(r"^(?:val-)?core/"),
    CORRECTNESS_NAMES,
    re.compile(r"(?:mean|avg)@"),
    re.compile(r"reward|score|return"),
    re.compile(
        r"(?:^|/)(?:aime|amc|math|gsm|gpqa|olympiad|minerva|mmlu|humaneval|mbpp|livecodebench|lcb|ifeval|bbh|arc|countdown|"
        r"geo3k|hotpotqa|nq|triviaqa|popqa|musique)[\w.-]*$"
    ),
)
# Order of preference for the held-out score: what verl calls the core, correctness, a mean of several samples, the
# reward, and a number that has only the name of a benchmark (slime's eval/aime).
_NO_SCORE = re.compile(
    r"(?:best|worst|maj)@|pass@(?!1(?!\d))|pass_?(?:at_)?(?:[kn]|(?!1(?!\d))\d+)(?![a-z])|"
    r"(?<![a-z])(?:std|min|max|len|lengths?|tokens?|entropy|kl|loss|time|format|turns|clip[a-z]*|"
    r"truncated|count|zero|runtime|second|groups?|positive|penalty|num|calls?|has|missing|failed|errors?|invalid|"
    r"stopped|advantages?|version)(?![a-z])"
)
# Held-out numbers that are no scores: spreads, lengths, votes, the best of several, bookkeeping.
RELEVANT_SHARE = 0.1
"""Share of the start that a change must reach to matter, as in `breadth.measure.trends`."""
_COMPONENT = re.compile(
    r"(?:^|/)(?:rewards|env/all|reward(?!/(?:mean|avg|total|all|raw|sum|std|min|max)\b))/(?P<name>(?!reward/total$|by_group/|stop/|total_|(?:ac|ob)_tokens|turns_per)[^/]+(?:/[^/]+)*?)(?:/mean)?$"
)
_SPREAD = re.compile(r"(?:^|[/_])(?:std|min|max)$")


@dataclass(frozen=True)
class ScoreChange:
    """How far a score has changed over the run."""

    name: str
    """The trainer's name of it."""
    start: float
    """At the start."""
    end: float
    """At the end."""
    change: Interval
    """End minus start."""
    verdict: Verdict
    """rising, falling, flat, or cannot tell."""
    relevant_change: float
    """The change that would matter, in its units."""
    where: str
    """What it was read from."""


def is_training_run(evidence: Evidence) -> bool:
    """Say whether the evidence is of a training run.

    That is: it has metrics or rollouts of training, and is no sweep of inference policies.
    """
    run = evidence.run
    if run is None or "plan" in run.header.config:
        return False
    if run.metric_names():
        return True
    return (
        bool(run.rollout_files)
        and len(run.query("SELECT DISTINCT step FROM rollouts WHERE split = 'train' LIMIT 2")) > 1
    )


def is_supervised(evidence: Evidence) -> bool:
    """Say whether the log is one of supervised fine-tuning, which a console log may hold in front of the RL run."""
    names = () if evidence.run is None else evidence.run.metric_names()
    return "mean_token_accuracy" in names and not {"reward", "accuracy"} & {*names}


def eval_score_change(evidence: Evidence) -> ScoreChange | None:
    """Return the change of the held-out score, by its logged metric or else by graded rollouts.

    Of several metrics those about correctness are taken, averaged over data sets. With rollouts at a few steps only,
    the first and the last are compared problem by problem. None where neither is recorded.
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
    """Count the steps that have a held-out score."""
    logged = logged_eval_score(evidence)
    return 0 if logged is None else len(logged)


def score_change(series: MetricSeries, where: str) -> ScoreChange:
    """Return the change of a series of at least eight points."""
    found = trend(series.steps, series.values)
    return ScoreChange(
        series.name, found.start.value, found.end.value, found.change, found.verdict, found.relevant_change, where
    )


def excludes_rise(score: Trend | ScoreChange) -> bool:
    """Say whether a relevant rise is excluded."""
    return score.verdict in ("flat", "falling") or (
        score.verdict != "rising" and score.change.high < score.relevant_change
    )


def accuracy_by_step(graded: Outcomes) -> MetricSeries:
    """Return the share of correct rollouts at each step."""
    steps, place = np.unique(graded.steps, return_inverse=True)
    return MetricSeries(
        "share of correct rollouts", steps, np.bincount(place, graded.correct) / np.bincount(place, graded.graded)
    )


def reward_for_correct(run: Run) -> float | None:
    """Return how much more reward a correct rollout gets than a wrong one; None where that is not recorded."""
    right = correctness_sql(run)
    if right is None or "reward" not in run.columns:
        return None
    sql = f"SELECT regr_slope(reward, CAST({right} AS DOUBLE)) AS worth FROM rollouts WHERE split = 'train'"  # noqa: S608 - column names are ours
    worth: float | None = run.query(sql)["worth"].to_pylist()[0]
    return worth


def reward_components(evidence: Evidence) -> tuple[MetricSeries, ...]:
    """Return the components of the reward by step, under the trainer's own names; empty where there are none."""
    run = evidence.run
    if run is None:
        return ()
    named = [name for name in run.metric_names() if is_component(name)]
    found = [
        series
        for series in (evidence.series(name) for name in named)
        if series is not None and len(series) >= MIN_POINTS
    ]
    return tuple(found) if len(found) > 1 else find_addends(evidence) or tuple(components_of_rollouts(run))


def find_addends(evidence: Evidence) -> tuple[MetricSeries, ...]:
    """Return metrics named after correctness, format and bonus that add up to the reward, as own loops log them."""
    reward = evidence.series("reward")
    names = () if evidence.run is None else evidence.run.metric_names()
    named = [
        series
        for name in names
        if any(kind.search(name.casefold()) for kind in (CORRECTNESS_NAMES, FORM_NAMES, SHAPING_NAMES))
        if _SPREAD.search(name) is None and (series := evidence.series(name)) is not None and len(series) >= MIN_POINTS
    ]
    if reward is None or len(named) < 2 or fit_weights(reward, named) is None:
        return ()
    return tuple(named)


def is_component(name: str) -> bool:
    """Say whether a metric is the mean of one component of the reward."""
    return _COMPONENT.search(unflatten_name(name)) is not None and _SPREAD.search(name) is None


def component_name(name: str) -> str:
    """Return a component's own name, without the trainer's prefix."""
    found = _COMPONENT.search(unflatten_name(name))
    return (found["name"] if found else name.removeprefix(REWARD_PREFIX)).removesuffix("/mean")


def logged_eval_score(evidence: Evidence) -> MetricSeries | None:
    """Return the logged held-out score, averaged over data sets at the steps that have them all."""
    names = () if evidence.run is None else evidence.run.metric_names("eval")
    names = tuple(name for name in names if not _NO_SCORE.search(name.casefold()))
    for kind in _HELD_OUT:
        chosen = [name for name in names if kind.search(name.casefold())]
        if chosen:
            return mean_series(
                [series for series in (evidence.series(name, "eval") for name in chosen) if series is not None]
            )
    return None


def mean_series(several: Sequence[MetricSeries]) -> MetricSeries | None:
    """Average several series at the steps that all of them have."""
    if not several:
        return None
    steps = several[0].steps
    for series in several[1:]:
        steps = np.intersect1d(steps, series.steps)
    values = np.mean([series.values[np.isin(series.steps, steps)] for series in several], axis=0)
    name = several[0].name if len(several) == 1 else f"the mean of {len(several)} held-out scores"
    return MetricSeries(name, steps, values)


def compare_first_and_last(graded: Outcomes) -> ScoreChange | None:
    """Compare the first and the last graded step, problem by problem; None where they share no problem."""
    if not len(graded) or graded.steps[0] == graded.steps[-1]:
        return None
    first, last = (graded.select_steps(graded.steps[[end]]) for end in (0, -1))
    before, after = (
        dict(zip(window.problems.tolist(), (window.correct / window.graded).tolist(), strict=True))
        for window in (first, last)
    )
    both = [problem for problem in before if problem in after]
    if not both:
        return None
    from breadth.measure.paired_tests import paired_difference

    start, end = (np.array([shares[problem] for problem in both]) for shares in (before, after))
    change = paired_difference(end, start).difference
    verdict: Verdict = "rising" if change.low > 0 else "falling" if change.high < 0 else "cannot tell"
    where = f"the same {len(both)} problems at steps {first.steps[0]:,} and {last.steps[0]:,}"
    level = float(start.mean())
    return ScoreChange(
        "share of correct rollouts", level, float(end.mean()), change, verdict, RELEVANT_SHARE * level, where
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
# Share of the reward's variance that the fitted weights must explain: the rest is what rounding in
# a log leaves.


@dataclass(frozen=True)
class RewardPart:
    """One component of the reward, or the share of correct rollouts where those are graded."""

    name: str
    """Its name, safe to print."""
    change: ScoreChange
    """Its change over the run."""
    weight: float
    """What one unit of it adds to the reward; 1 where that is not known."""
    share: float | None
    """Share of the reward's rise that it explains; None where weights are not known."""
    means_correct: bool
    """Whether it means that the answer is correct."""
    still_rises: bool
    """Whether it has risen over the second half of the run too."""


def reward_parts(evidence: Evidence) -> tuple[RewardPart, ...]:
    """Return the components of the reward, and the grades of rollouts where the reward holds more than those."""
    found, reward = reward_components(evidence), evidence.series("reward")
    if reward is None:
        return ()
    gain = score_change(reward, "").change.value
    weights = fit_weights(reward, found)
    made_of = [
        describe_part(part, None if weights is None else weight, gain)
        for part, weight in zip(found, weights or [1.0] * len(found), strict=True)
    ]
    graded = accuracy_part(evidence, gain) if not any(part.means_correct for part in made_of) else None
    return (*made_of, *([] if graded is None else [graded]))


def describe_part(
    series: MetricSeries, weight: float | None, gain: float, *, name: str = "", counts: bool | None = None
) -> RewardPart:
    """Return how a component has changed and how much of the reward's rise it explains."""
    own = name or component_name(series.name)
    change = score_change(series, f"steps {series.steps[0]:,} to {series.steps[-1]:,}")
    half = len(series) // 2
    later = trend(series.steps[half:], series.values[half:]).verdict if len(series) >= 2 * MIN_POINTS else "cannot tell"
    means_right = means_correctness(own) if counts is None else counts
    share = None if weight is None or not gain else weight * change.change.value / gain
    return RewardPart(printable(own), change, 1.0 if weight is None else weight, share, means_right, later == "rising")


def means_correctness(name: str) -> bool:
    """Say whether a component's name says that the answer is correct."""
    folded = name.casefold()
    says = CORRECTNESS_NAMES.search(folded) or GOAL_NAMES.search(folded)
    return says is not None and NO_CORRECTNESS.search(folded) is None


def accuracy_part(evidence: Evidence, gain: float) -> RewardPart | None:
    """Return the share of correct rollouts as a part, unless it is the whole reward."""
    run = evidence.run
    graded = None if run is None or len(run.header.reward_levels) == 2 else count_outcomes(run)
    right = None if graded is None else accuracy_by_step(graded)
    if run is None or right is None or len(right) < MIN_POINTS:
        return None
    return describe_part(right, reward_for_correct(run), gain, name="the share of correct rollouts", counts=True)


def fit_weights(reward: MetricSeries, found: Sequence[MetricSeries]) -> list[float] | None:
    """Fit the weights of the components; None where the reward is not a weighted sum of them."""
    steps = reward.steps
    for series in found:
        steps = np.intersect1d(steps, series.steps)
    if not found or len(steps) < max(MIN_POINTS, 2 * len(found)):
        return None
    columns = np.column_stack([values_at(series, steps) for series in found])
    total = values_at(reward, steps)
    weights = np.asarray(np.linalg.lstsq(columns, total, rcond=None)[0], dtype=np.float64)
    spread = float(np.sum((total - total.mean()) ** 2))
    missed = float(np.sum((total - columns @ weights) ** 2))
    return [float(weight) for weight in weights] if spread > 0 and missed <= (1 - _ADDS_UP) * spread else None


def values_at(series: MetricSeries, steps: IntArray) -> FloatArray:
    """Return the values at the given steps."""
    return series.values[np.isin(series.steps, steps)]


def printable(name: str) -> str:
    """Reduce a name from a log to one short printable line."""
    return "".join(sign if sign.isprintable() else "?" for sign in name)[:60]
