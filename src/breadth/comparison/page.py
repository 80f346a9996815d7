"""A comparison as a page: what to use first, then curves, differences, breadth, and pass@k past the samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from breadth.comparison.accuracy import (
    AccuracyCurves,
    ComparedPolicy,
    Recommendation,
    extrapolate_past_samples,
    find_crossing,
)
from breadth.measure.diversity import ArmSamples, split_by_solved, transfer_gap
from breadth.measure.intervals import Interval
from breadth.measure.paired_tests import paired_difference
from breadth.measure.pass_at_k import chart_ks
from breadth.report.cells import Cell, Missing
from breadth.report.sections import Axis, Column, Curve, Fact, Page, Section, Series, Severity, Table, Verdict


def comparison_page(curves: Sequence[AccuracyCurves], advice: Recommendation) -> Page:
    """Build the page of a comparison; the others are compared with the first policy."""
    sections: list[Section] = [
        recommendation_verdict(advice),
        *verdict_on_problems([each.policy for each in curves]),
        choices_table(advice),
        policy_scores_table(curves),
        accuracy_chart(curves, "pass@k"),
        *([accuracy_chart(curves, "maj@k")] if any(policy.voted is not None for policy in curves) else []),
    ]
    sections += [
        differences_table(curves),
        *verdicts_on_crossings(curves),
        policy_diversity_table(curves),
        extrapolation_table(curves),
    ]
    problems = curves[0].passed.shape[0]
    kinds = sorted({each.policy.split for each in curves})
    kind = " and ".join(PROBLEM_KINDS.get(split, split) for split in kinds)
    facts = [Fact("common problems", f"{problems:,}, {kind}"), Fact("samples per problem", int(curves[0].ks[-1]))]
    return Page("Comparison", sections, " against ".join(policy.policy.name for policy in curves), facts)


def recommendation_verdict(advice: Recommendation) -> Verdict:
    """State what to use for the budget, and whether it is shown to beat the second."""
    best = advice.choices[0]
    name = best.curves.policy.name
    headline = f"For {advice.budget}: {name} with {best.method}, {best.score.value:.1%} right."
    if advice.against_next is None:
        return Verdict(Severity.GOOD, headline)
    second = advice.choices[1].curves.policy.name
    gap = advice.against_next
    body = f"Against {second} at the same budget, problem by problem."
    numbers = [Fact("difference", gap.display_value, "%"), Fact("p", round(gap.p_value, 4))]
    if advice.is_significant:
        return Verdict(Severity.GOOD, headline, body, numbers)
    return Verdict(
        Severity.CANNOT_TELL,
        f"{headline} It is not shown to beat {second}.",
        f"{body} More problems would tell.",
        numbers,
    )


PROBLEM_KINDS = {"eval": "held-out", "train": "trained on"}
"""What problems of a split are."""


def verdict_on_problems(policies: Sequence[ComparedPolicy]) -> Iterator[Verdict]:
    """Yield a warning where the problems, or some of them, were trained on."""
    trained = [policy.name for policy in policies if policy.split == "train"]
    if trained:
        all_of_them = len(trained) == len(policies)
        which = "The runs have" if all_of_them else f"{', '.join(trained)} {'has' if len(trained) == 1 else 'have'}"
        yield Verdict(
            Severity.WARNING,
            f"This compares problems that were trained on: {which} no held-out replies in common.",
            "A score on training problems does not show what new ones would get, and the last step has few of them."
            " Evaluate the checkpoints on held-out problems (see the how-to on comparing), then compare again.",
        )


def choices_table(advice: Recommendation) -> Table:
    """List every policy at the budget, best first."""
    rows: list[list[Cell]] = []
    for choice in advice.choices:
        tokens = choice.curves.policy.tokens
        rows.append(
            [
                choice.curves.policy.name,
                choice.method + (" (all there are)" if choice.cut else ""),
                choice.score,
                Missing("tokens were not logged") if tokens is None else round(tokens * choice.draws),
            ]
        )
    columns = [Column("policy"), Column("how"), Column("right"), Column("tokens")]
    return Table(
        f"For {advice.budget}",
        columns,
        rows,
        "A vote of two is worth one sample: a tie is broken by chance. Intervals over problems.",
    )


def policy_scores_table(curves: Sequence[AccuracyCurves]) -> Table:
    """List pass@1, and maj@k and pass@k at the largest k."""
    most = int(curves[0].ks[-1])
    rows: list[list[Cell]] = [
        [
            each.policy.name,
            each.pass_curve[0],
            Missing("no answer could be read") if each.vote_curve is None else each.vote_curve[-1],
            each.pass_curve[-1],
        ]
        for each in curves
    ]
    return Table(
        "Scores",
        [Column("policy"), Column("pass@1"), Column(f"maj@{most}"), Column(f"pass@{most}")],
        rows,
        "Intervals over problems.",
    )


def accuracy_chart(curves: Sequence[AccuracyCurves], metric: str) -> Curve:
    """Draw pass@k or maj@k of every policy."""
    lines = []
    for each in curves:
        points = each.pass_curve if metric == "pass@k" else each.vote_curve
        if points is not None:
            ks = chart_ks(int(each.ks[-1]))
            charted = [points[k - 1] for k in ks]
            values, lows, highs = ([getattr(p, end) for p in charted] for end in ("value", "low", "high"))
            lines.append(Series(each.policy.name, ks, values, lows, highs))
    return Curve(metric, lines, Axis("samples of a problem, k"), Axis("right", "%"), log_x=True)


def differences_table(curves: Sequence[AccuracyCurves]) -> Table:
    """List the paired differences of every policy from the first."""
    first, most = curves[0], int(curves[0].ks[-1])
    rows: list[list[Cell]] = []
    for other in curves[1:]:
        cells = [paired_difference(other.passed[:, k], first.passed[:, k]).display_value for k in (0, -1)]
        votes = (
            None
            if other.voted is None or first.voted is None
            else paired_difference(other.voted[:, -1], first.voted[:, -1])
        )
        rows.append(
            [
                other.policy.name,
                cells[0],
                Missing("no answer could be read") if votes is None else votes.display_value,
                cells[1],
            ]
        )
    columns = [Column("policy"), Column("pass@1", "%"), Column(f"maj@{most}", "%"), Column(f"pass@{most}", "%")]
    return Table(f"Difference to {first.policy.name}, problem by problem", columns, rows, "Paired over problems.")


def verdicts_on_crossings(curves: Sequence[AccuracyCurves]) -> Iterator[Section]:
    """Yield a verdict for every policy whose pass@k crosses that of the first."""
    for other in curves[1:]:
        crossing = find_crossing(curves[0], other)
        if crossing is None:
            continue
        names = f"{curves[0].policy.name} and {other.policy.name}"
        headline = f"pass@k of {names} crosses between k = {crossing.before} and k = {crossing.after}."
        significant = crossing.is_significant
        body = (
            "The score of one sample was bought with breadth." if significant else "That both ends differ is not shown."
        )
        numbers = [
            Fact("leader ahead at k = 1 by", crossing.ahead.display_value, "%"),
            Fact("and at the largest k by", crossing.behind.display_value, "%"),
        ]
        yield Verdict(Severity.NOTE if significant else Severity.CANNOT_TELL, headline, body, numbers)


def policy_diversity_table(curves: Sequence[AccuracyCurves]) -> Table:
    """List how many different answers each policy gives, and the transfer gap to the first."""
    base = _arm(curves[0].policy)
    rows: list[list[Cell]] = []
    for each in curves:
        policy = each.policy
        split = split_by_solved(policy.problems.astype(str), policy.classes, policy.right)
        cells: list[Cell] = [
            part.distinct if part.groups else Missing("no such problem") for part in (split.solved, split.unsolved)
        ]
        gap = transfer_cell(each, base) if each is not curves[0] else Missing("what the others are compared with")
        rows.append([policy.name, *cells, gap])
    columns = [Column("policy"), Column("different answers, solved"), Column("unsolved"), Column("transfer gap")]
    note = (
        "Transfer gap: different answers lost on problems that neither solves; above 0 diversity was lost where no"
        " reward arrived."
    )
    return Table("Breadth", columns, rows, note)


def _arm(policy: ComparedPolicy) -> ArmSamples:
    return ArmSamples(policy.problems.astype(str), policy.classes, policy.right)


def transfer_cell(curves: AccuracyCurves, base: ArmSamples) -> Cell:
    """Return the transfer gap of a policy to the base, or why there is none."""
    gap: Interval = transfer_gap(_arm(curves.policy), base).every.shared
    if not np.isfinite(gap.value):
        return Missing("no problem is left unsolved by both")
    enough = gap.high - gap.low < curves.ks[-1]  # a single problem has the widest interval possible
    return gap if enough else Missing("one problem or two is left unsolved by both: too few")


def extrapolation_table(curves: Sequence[AccuracyCurves]) -> Table:
    """List pass@k past the samples, with the test of the method on each policy's own samples."""
    verdicts = {None: "too few samples to test", True: "yes", False: "no: do not believe it"}
    extrapolations = [extrapolate_past_samples(each) for each in curves]
    rows: list[list[Cell]] = [
        [each.policy.name, past.fits.zero_inflated_pass[0], past.fits.beta_pass[0], verdicts[past.is_reliable]]
        for each, past in zip(curves, extrapolations, strict=True)
    ]
    columns = [
        Column("policy"),
        Column(f"pass@{extrapolations[0].fits.ks[0]}, if some cannot be solved"),
        Column("if all can"),
        Column("half predicts the whole"),
    ]
    return Table(
        "Beyond the samples",
        columns,
        rows,
        "Two fits that err to either side; the last column tests the method on this policy itself.",
    )
