"""A comparison as a page: what to use first, then curves, differences, breadth, and what lies beyond the samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from breadth.comparison.accuracy_curves import Worth, beyond, crossing
from breadth.comparison.policies import ComparedPolicy
from breadth.comparison.recommendation import Recommendation
from breadth.measure.coverage import chart_ks
from breadth.measure.diversity import split_by_solved
from breadth.measure.intervals import Interval
from breadth.measure.paired_tests import paired_difference
from breadth.measure.transfer import ArmSamples, transfer_gap
from breadth.report.cells import Cell, Missing
from breadth.report.sections import Axis, Column, Curve, Fact, Page, Section, Series, Severity, Table, Verdict


def comparison_page(found: Sequence[Worth], advice: Recommendation) -> Page:
    """Put policies side by side; the first is what the others are compared with."""
    sections: list[Section] = [
        _verdict(advice),
        _choices(advice),
        _scores(found),
        _curve(found, "pass@k"),
        *_votes(found),
    ]
    sections += [_differences(found), *_crossings(found), _breadth(found), _beyond(found)]
    problems = found[0].passed.shape[0]
    facts = [Fact("problems asked of all", problems), Fact("samples of each", int(found[0].ks[-1]))]
    return Page("Comparison", sections, " against ".join(one.contestant.name for one in found), facts)


def _verdict(advice: Recommendation) -> Verdict:
    best = advice.choices[0]
    name = best.worth.contestant.name
    headline = f"For {advice.budget}: {name} with {best.policy}, {best.score.value:.1%} right."
    if advice.against_next is None:
        return Verdict(Severity.GOOD, headline)
    second = advice.choices[1].worth.contestant.name
    gap = advice.against_next
    body = f"Against {second} at the same budget, problem by problem."
    numbers = [
        Fact("difference", gap.display_value, "%"),
        Fact("p", round(gap.p_value, 4)),
    ]
    if advice.shown:
        return Verdict(Severity.GOOD, headline, body, numbers)
    return Verdict(
        Severity.CANNOT_TELL,
        f"{headline} It is not shown to beat {second}.",
        f"{body} More problems would tell.",
        numbers,
    )


def _choices(advice: Recommendation) -> Table:
    rows: list[list[Cell]] = [
        [
            one.worth.contestant.name,
            one.policy + (" (all there are)" if one.cut else ""),
            one.score,
            _tokens(one.worth.contestant, one.draws),
        ]
        for one in advice.choices
    ]
    columns = [Column("policy"), Column("how"), Column("right"), Column("tokens")]
    return Table(
        f"For {advice.budget}",
        columns,
        rows,
        "A vote of two is one draw: a tie is broken by chance. Intervals over problems.",
    )


def _tokens(one: ComparedPolicy, draws: int) -> Cell:
    return Missing("tokens were not logged") if one.tokens is None else round(one.tokens * draws)


def _scores(found: Sequence[Worth]) -> Table:
    most = int(found[0].ks[-1])
    rows: list[list[Cell]] = []
    for one in found:
        voted = one.vote_curve
        rows.append(
            [
                one.contestant.name,
                one.pass_curve[0],
                Missing("no answer could be read") if voted is None else voted[-1],
                one.pass_curve[-1],
            ]
        )
    return Table(
        "Scores",
        [Column("policy"), Column("pass@1"), Column(f"maj@{most}"), Column(f"pass@{most}")],
        rows,
        "Intervals over problems.",
    )


def _curve(found: Sequence[Worth], what: str) -> Curve:
    lines = []
    for one in found:
        points = one.pass_curve if what == "pass@k" else one.vote_curve
        if points is not None:
            ks = chart_ks(int(one.ks[-1]))
            shown = [points[k - 1] for k in ks]
            lines.append(
                Series(
                    one.contestant.name, ks, [p.value for p in shown], [p.low for p in shown], [p.high for p in shown]
                )
            )
    return Curve(what, lines, Axis("samples of a problem, k"), Axis("right", "%"), log_x=True)


def _votes(found: Sequence[Worth]) -> list[Section]:
    return [_curve(found, "maj@k")] if any(one.voted is not None for one in found) else []


def _differences(found: Sequence[Worth]) -> Table:
    first, most = found[0], int(found[0].ks[-1])
    rows: list[list[Cell]] = []
    for one in found[1:]:
        cells = [paired_difference(one.passed[:, place], first.passed[:, place]).display_value for place in (0, -1)]
        votes = (
            None
            if one.voted is None or first.voted is None
            else paired_difference(one.voted[:, -1], first.voted[:, -1])
        )
        rows.append(
            [
                one.contestant.name,
                cells[0],
                Missing("no answer could be read") if votes is None else votes.display_value,
                cells[1],
            ]
        )
    columns = [Column("policy"), Column("pass@1", "%"), Column(f"maj@{most}", "%"), Column(f"pass@{most}", "%")]
    return Table(f"Less {first.contestant.name}, problem by problem", columns, rows, "Paired over problems.")


def _crossings(found: Sequence[Worth]) -> Iterator[Section]:
    for one in found[1:]:
        place = crossing(found[0], one)
        if place is None:
            continue
        names = f"{found[0].contestant.name} and {one.contestant.name}"
        headline = f"pass@k of {names} crosses between k = {place.before} and k = {place.after}."
        body = "The score of one draw was bought with breadth." if place.sure else "That both ends differ is not shown."
        numbers = [
            Fact("leader ahead at k = 1 by", place.ahead.display_value, "%"),
            Fact("and at the largest k by", place.behind.display_value, "%"),
        ]
        yield Verdict(Severity.NOTE if place.sure else Severity.CANNOT_TELL, headline, body, numbers)


def _breadth(found: Sequence[Worth]) -> Table:
    base = _arm(found[0].contestant)
    rows: list[list[Cell]] = []
    for one in found:
        arm = one.contestant
        split = split_by_solved(arm.problems.astype(str), arm.classes, arm.right)
        cells: list[Cell] = [
            part.distinct if part.groups else Missing("no such problem") for part in (split.solved, split.unsolved)
        ]
        rows.append(
            [
                arm.name,
                *cells,
                _transfer(one, base) if one is not found[0] else Missing("what the others are compared with"),
            ]
        )
    columns = [Column("policy"), Column("different answers, solved"), Column("unsolved"), Column("transfer gap")]
    note = (
        "Transfer gap: different answers lost on problems that neither solves; above 0 diversity was lost where no"
        " reward arrived."
    )
    return Table("Breadth", columns, rows, note)


def _arm(one: ComparedPolicy) -> ArmSamples:
    return ArmSamples(one.problems.astype(str), one.classes, one.right)


def _transfer(one: Worth, base: ArmSamples) -> Cell:
    found: Interval = transfer_gap(_arm(one.contestant), base).every.shared
    if not np.isfinite(found.value):
        return Missing("no problem is left unsolved by both")
    told = found.high - found.low < one.ks[-1]  # one problem alone has an interval as wide as can be
    return found if told else Missing("one problem or two is left unsolved by both: too few")


def _beyond(found: Sequence[Worth]) -> Table:
    rows: list[list[Cell]] = []
    every = [beyond(one) for one in found]
    for one, seen in zip(found, every, strict=True):
        told = {None: "too few samples to test", True: "yes", False: "no: do not believe it"}[seen.honest]
        rows.append([one.contestant.name, seen.found.zero_inflated_pass[0], seen.found.beta_pass[0], told])
    far = every[0].found.ks[0]
    columns = [
        Column("policy"),
        Column(f"pass@{far}, if some cannot be solved"),
        Column("if all can"),
        Column("half foretells the whole"),
    ]
    return Table(
        "Beyond the samples",
        columns,
        rows,
        "Two fits that err to either side; the last column tests the method on this policy itself.",
    )
