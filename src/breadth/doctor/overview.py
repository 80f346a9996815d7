"""A run at a glance: its contents, every instrument that can read it, and what the others would need.

Here are the contents, the metrics and the entropy law; the instruments on rollouts are in `rollout_instruments`. An
instrument turns a run into report sections; it measures and does not diagnose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from breadth.base.errors import CatalogueError
from breadth.doctor.evidence.record import clip_to_range, rollout_windows
from breadth.measure.change_points import ChangePoint, find_change_points
from breadth.measure.trends import trend
from breadth.report.cells import Cell, Missing
from breadth.report.plaintext import pluralize
from breadth.report.sections import Axis, Column, Curve, Event, Fact, Facts, Page, Section, Table, Text
from breadth.report.sections import Series as Line
from breadth.runs.importer import IMPORTERS
from breadth.runs.names import METRIC_NAMES, describe_metric, metric_words
from breadth.runs.outcomes import correctness_sql
from breadth.runs.reader import MetricSeries, Run

if TYPE_CHECKING:
    from breadth.measure.entropy import LawFit


def overview(run: Run) -> Page:
    """Read a run with every instrument that it has the data for."""
    from breadth.doctor.rollout_instruments import completion_table, coverage_sections, diversity_table, group_chart

    windows = rollout_windows(run)
    contents, *rest = contents_sections(run)
    sections: list[Section] = [
        contents,
        *metric_sections(run),
        *law_section(run),
        *coverage_sections(windows),
        *diversity_table(windows),
        *completion_table(run, windows),
        *group_chart(windows),
        *rest,
    ]
    sources = ", ".join(file.rpartition("/")[2] for file in run.header.files[:3])
    more = f" and {len(run.header.files) - 3} more" if len(run.header.files) > 3 else ""
    provenance = [
        Fact("run", run.name),
        *([Fact("created", run.header.created)] if run.header.created else []),
        Fact("from", f"{sources}{more}" or "a live run"),
    ]
    return Page(
        run.name,
        sections,
        subtitle="What this run says about its breadth",
        provenance=provenance,
    )


INSTRUMENT_INPUTS = {
    "entropy": "whether the policy is narrowing",
    "reward": "whether it learns at all",
    "zero_variance_groups": "how many rollouts give no gradient",
    "truncated": "whether completions are truncated",
    "length": "whether thinking grows or collapses",
    "kl_reference": "how far it drifts from the reference policy",
    "clip_fraction": "whether the ratio clip ever acts",
    "mismatch": "whether trainer and sampler disagree",
    "rollouts": "pass@k, votes, distinct answers, degenerate texts",
    "entropy per token": "where the entropy is: at forks or in mechanical steps",
    "eval": "whether held-out problems follow the training reward",
}
"""Input of an instrument -> what it would show."""


def contents_sections(run: Run) -> Sequence[Section]:
    """Return what the run folder holds, what it lacks, and remarks on its input."""
    sections: list[Section] = [
        Facts("What is here", contents_facts(run)),
        Facts("What is missing", missing_inputs(run)),
    ]
    remarks = [*run.header.remarks, *run.broken]
    if remarks:
        lines = [remark_line(remark.file, remark.row, remark.problem, remark.remedy) for remark in remarks[:12]]
        more = max(0, len(remarks) - 12) + run.header.remarks_left_out
        sections.append(
            Text("\n\n".join([*lines, f"... and {more} more." if more > 0 else ""]).strip(), "Remarks on the input")
        )
    return [section for section in sections if not isinstance(section, Facts) or section.facts]


def trainer_switches(run: Run) -> Mapping[str, str]:
    """Return the settings that make the run's own trainer log more; empty when the trainer is not known."""
    try:
        switches: Mapping[str, str] = IMPORTERS.load(run.header.trainer).switches
    except CatalogueError:
        return {}
    return switches


def contents_facts(run: Run) -> list[Fact]:
    """Return what the run folder holds."""
    logged = run.metric_names() or run.metric_names("eval")
    ours = [metric_label(name) for name in logged if describe_metric(name)]
    steps = sorted({point.step for point in run.points})
    facts = [
        Fact("trainer", run.header.trainer or "not known"),
        Fact(
            "steps",
            f"{steps[0]:,} to {steps[-1]:,}, {len(steps):,} logged" if steps else Missing("no metrics were logged"),
        ),
        Fact("starts", run.attempts, note="the newest attempt of each step counts" if run.attempts > 1 else ""),
        Fact(
            "metrics",
            len(logged) or Missing("no metrics were logged"),
            note=f"known to us: {', '.join(ours)}" if ours else "",
        ),
    ]
    for split, counts in count_rollouts(run).items():
        text = (
            f"{counts['count']:,} of {pluralize(counts['problems'], 'problem')} at {pluralize(counts['steps'], 'step')}"
        )
        facts.append(Fact("rollouts" if split == "train" else "held-out rollouts", text))
    if run.rollout_files:
        grading = describe_grading(run)
        switch = trainer_switches(run).get("correct") if isinstance(grading, Missing) else None
        facts.append(Fact("right or wrong", grading, note=f"to see it: {switch}" if switch else ""))
    kind = run.header.entropies.get("entropy")
    if kind:
        temperature = f"temperature {kind.temperature:g}" if kind.temperature is not None else "temperature not logged"
        facts.append(
            Fact("entropy is", f"{kind.estimator}, {kind.aggregation}, {kind.token_set} tokens, {temperature}")
        )
    return facts


def count_rollouts(run: Run) -> dict[str, dict[str, int]]:
    """Return how many rollouts, problems and steps there are, training and held-out ones apart."""
    if not run.rollout_files:
        return {}
    sql = """SELECT split, count(*) AS count, count(DISTINCT problem) AS problems, count(DISTINCT step) AS steps
             FROM rollouts GROUP BY split ORDER BY split DESC"""
    return {row.pop("split"): row for row in run.query(sql).to_pylist()}


def describe_grading(run: Run) -> str | Missing:
    """Return how rollouts are known to be right or wrong."""
    if correctness_sql(run) is None:
        why = "the reward has more than two values" if "reward" in run.columns else "there is no reward"
        return Missing(f"{why} and no grade was logged, so pass@k cannot be measured")
    if run.header.reward_levels:
        low, high = run.header.reward_levels
        return f"a reward of {high:g} is right, {low:g} is wrong"
    return "as graded when they were recorded"


def missing_inputs(run: Run) -> list[Fact]:
    """Return what instruments lack, with the setting that switches it on."""
    switches = trainer_switches(run)
    absent = [name for name in INSTRUMENT_INPUTS if not has_input(run, name)]
    notes = {name: f"to see it: {setting}" for name, setting in switches.items()}
    return [
        Fact(metric_label(name), f"would show {INSTRUMENT_INPUTS[name]}", note=notes.get(name, "")) for name in absent
    ]


def has_input(run: Run, name: str) -> bool:
    """Say whether a run holds an input of `INSTRUMENT_INPUTS`."""
    if name == "rollouts":
        return bool(run.rollout_files)
    if name == "entropy per token":
        return "entropy" in run.columns
    if name == "eval":
        return bool(run.metric_names("eval"))
    return name in run.metric_names()


def remark_line(file: str, row: int | None, problem: str, remedy: str) -> str:
    """Return a remark on the input as one line."""
    name = file.rpartition("/")[2]
    where = f"{name}, row {row}: " if name and row else f"{name}: " if name else ""
    return f"{where}{problem} {remedy}".strip()


CURVE_METRICS = ("entropy", "reward", "zero_variance_groups", "truncated", "length", "kl_reference")
"""Metrics shown as curves; the others are in the table."""
BOOKKEEPING_METRICS = ("learning_rate", "epoch", "tokens_seen", "seconds_per_step", "loss")
"""Schedules and bookkeeping, whose trend says nothing about breadth."""
METRIC_UNITS = {
    "entropy": "nats",
    "kl_reference": "nats",
    "kl_old": "nats",
    "length": "tokens",
    "length_min": "tokens",
    "length_max": "tokens",
}
"""Units of metrics that have one."""

MAX_CROSSINGS = 12
"""Times that a line may cross the range of its own values before means are drawn instead."""
MIN_WINDOW, MAX_WINDOWS = 5, 30
"""Points of a mean at least, and about how many means are drawn."""

MIN_JUMP_SHARE = 0.1
"""Smallest jump that is marked, as a share of the metric's range."""


def metric_sections(run: Run) -> Sequence[Section]:
    """Return a table of every metric we know by name, then the most important as curves."""
    names = [name for name in METRIC_NAMES if name in run.metric_names() and name not in BOOKKEEPING_METRICS]
    if not names:
        return []
    return [metric_table(run, names), *metric_curves(run, [name for name in CURVE_METRICS if name in names])]


def metric_curves(run: Run, names: Sequence[str]) -> list[Curve]:
    """Return metrics over the steps with their jumps; those that are constant or hardly logged are left out."""
    return [curve for name in names if (curve := metric_curve(run, name)) is not None]


def metric_table(run: Run, names: Sequence[str]) -> Table:
    """Return start, end and direction of each metric."""
    columns = [Column("metric"), Column("start"), Column("now"), Column("direction")]
    rows: list[list[Cell]] = []
    for name in names:
        series = run.series(name)
        found = trend(series.steps, series.values)
        unit = f" ({METRIC_UNITS[name]})" if name in METRIC_UNITS else ""
        rows.append(
            [metric_label(name) + unit, clip_to_range(name, found.start), clip_to_range(name, found.end), found.verdict]
        )
    return Table(
        "Metrics",
        columns,
        rows,
        note="Start and now are medians of the first and last eighth of the run, with 95% intervals.",
    )


def metric_curve(run: Run, name: str) -> Curve | None:
    """Return one metric over the steps with its jumps; None where it is constant or hardly logged."""
    series = run.series(name)
    if len(series.finite) < 2 or np.ptp(series.finite.values) == 0:
        return None  # for a constant the table is enough
    logged = run.header.names.get(name, name)
    events = [Event(jump.step, f"jump from {jump.before:.3g} to {jump.after:.3g}") for jump in visible_jumps(series)]
    title = metric_words(name).removeprefix("the ")
    notes = [f"Logged as {logged}."] if logged != name else []
    window = smoothing_window(series)
    if window > 1:
        line = smoothed_line(metric_label(name), series, window)
        notes.append(f"Mean of every {window} points; four in five lie within the band.")
    else:
        line = Line(metric_label(name), series.steps.tolist(), series.values.tolist())
    return Curve(
        title[0].upper() + title[1:],
        [line],
        Axis("step"),
        Axis(logged, METRIC_UNITS.get(name, "")),
        events=events,
        band="four in five points",
        note=" ".join(notes),
    )


def smoothing_window(series: MetricSeries) -> int:
    """Return how many points to average for each one drawn; 1 where a line through all points can be read.

    A line that crosses its own range too often is a scribble that hides the course.
    """
    values = series.finite.values
    crossings = float(np.abs(np.diff(values)).sum() / np.ptp(values))
    if crossings <= MAX_CROSSINGS:
        return 1
    return max(MIN_WINDOW, round(len(series) / MAX_WINDOWS))


def smoothed_line(label: str, series: MetricSeries, window: int) -> Line:
    """Return the means of consecutive points, with a band that holds four in five of them; NaN alone leaves a gap."""
    count = max(1, len(series) // window)
    steps = [float(piece.mean()) for piece in np.array_split(series.steps, count)]
    low, mean, high = [], [], []
    for piece in np.array_split(series.values, count):
        values = piece[np.isfinite(piece)] if np.isfinite(piece).any() else np.array([np.nan])
        low.append(float(np.quantile(values, 0.1)))
        mean.append(float(values.mean()))
        high.append(float(np.quantile(values, 0.9)))
    return Line(label, steps, mean, low, high)


def visible_jumps(series: MetricSeries) -> list[ChangePoint]:
    """Return at most three jumps that are large enough to see."""
    min_size = MIN_JUMP_SHARE * float(np.ptp(series.finite.values))
    jumps = find_change_points(series.steps, series.values).jumps
    return [jump for jump in jumps if abs(jump.after - jump.before) >= min_size][:3]


def metric_label(name: str) -> str:
    """Return a metric's name with spaces."""
    return name.replace("_", " ")


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


def law_section(run: Run) -> Sequence[Section]:
    """Fit score against exp(entropy): the ceiling of the score, or why the fit is not valid."""
    result = fit_run_law(run)
    if result is None:
        return []
    fit, reasons = result
    if reasons:
        return [
            Facts(
                "Entropy law: not valid here",
                [Fact(f"reason {number}", reason) for number, reason in enumerate(reasons, 1)],
            )
        ]
    return [Facts("Entropy law", law_facts(fit))]


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


def law_facts(fit: LawFit) -> list[Fact]:
    """Return the ceiling, the steps left and the share of variance explained."""
    left = fit.steps_left if fit.steps_left is not None else Missing("entropy is not falling")
    return [
        Fact("ceiling", fit.ceiling, note="training reward when entropy is used up, if nothing changes"),
        Fact("steps left", left, note=f"until entropy reaches {fit.floor:.3g} nats by its recent trend"),
        Fact("explained", fit.r2, note="share of the score's variance (R squared)"),
    ]
