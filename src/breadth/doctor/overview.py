"""A run at a glance: its contents, every instrument that can read it, and what the others would need.

Here are the contents, the metrics and the entropy law; the instruments on rollouts are in `rollout_instruments`. An
instrument turns a run into report sections; it measures and does not diagnose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from breadth.base.errors import CatalogueError
from breadth.doctor.evidence.record import clip_to_range, rollout_windows
from breadth.doctor.evidence.run_course import fit_run_law
from breadth.doctor.pictures import METRIC_UNITS, metric_curves, metric_label
from breadth.measure.trends import trend
from breadth.report.cells import Cell, Missing
from breadth.report.plaintext import pluralize
from breadth.report.sections import Column, Fact, Facts, Page, Section, Table, Text
from breadth.runs.importer import IMPORTERS
from breadth.runs.names import METRIC_NAMES, describe_metric
from breadth.runs.outcomes import correctness_sql
from breadth.runs.reader import Run

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


def metric_sections(run: Run) -> Sequence[Section]:
    """Return a table of every metric we know by name, then the most important as curves."""
    names = [name for name in METRIC_NAMES if name in run.metric_names() and name not in BOOKKEEPING_METRICS]
    if not names:
        return []
    return [metric_table(run, names), *metric_curves(run, [name for name in CURVE_METRICS if name in names])]


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


def law_facts(fit: LawFit) -> list[Fact]:
    """Return the ceiling, the steps left and the share of variance explained."""
    left = fit.steps_left if fit.steps_left is not None else Missing("entropy is not falling")
    return [
        Fact("ceiling", fit.ceiling, note="training reward when entropy is used up, if nothing changes"),
        Fact("steps left", left, note=f"until entropy reaches {fit.floor:.3g} nats by its recent trend"),
        Fact("explained", fit.r2, note="share of the score's variance (R squared)"),
    ]
