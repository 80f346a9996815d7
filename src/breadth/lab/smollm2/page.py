"""The second rung as a page: verdicts computed from the numbers, the two by two table, the policies; what does not show is said not to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from breadth.lab.demo.conclusions import meaning
from breadth.lab.demo.page import effects, spending, two_by_two
from breadth.lab.evaluation.corners import Arm, Effect, Policies, change, claims, corners
from breadth.lab.evaluation.evaluate import Measured
from breadth.lab.evaluation.seeds import over_seeds
from breadth.lab.evaluation.training_log import GENERATIONS_AT_END
from breadth.lab.smollm2.evaluation import Breadth, RungArm
from breadth.lab.smollm2.experiment import EXAMPLE, RungPlan
from breadth.lab.trials.experiment import Bench
from breadth.measure.intervals import Interval
from breadth.report.cells import Cell, number
from breadth.report.sections import Column, Fact, Page, Section, Severity, Table, Verdict

TITLE = "The second rung: SmolLM2-135M-Instruct on sums"
NAMES = ("plain GRPO", "protected")
LONG = "The long thought goes on by the question being put once more on a line of its own, and its last attempt counts."
"""How this model is made to think on."""


@dataclass(frozen=True)
class Found:
    """What the page is made of."""

    plan: RungPlan
    """What was asked for."""
    bench: Bench
    """On what."""
    base: Breadth | None
    """The base, once it has been measured."""
    plain: Sequence[RungArm]
    """Plain policies, one a seed."""
    protected: Sequence[RungArm]
    """Protected ones, of the same seeds."""
    minutes: float
    """Of all trials, added up."""


def rung_page(found: Found, statement: str) -> Page:
    """Return the whole report, by as much as has ended."""
    if not found.plain:
        head, remedy = "At no seed have both arms ended.", "Run the same command again: it goes on where it stopped."
        return Page(
            TITLE, [Verdict(Severity.CANNOT_TELL, head, remedy), *_before(found)], statement, _provenance(found)
        )
    plan = found.plan
    table = corners(
        [one.arm for one in found.plain], [one.arm for one in found.protected], k=plan.samples, votes=plan.votes
    )
    sections: list[Section] = [
        meaning(table),
        two_by_two(table),
        effects(table),
        spending(table, LONG),
        policies(found),
        training(found),
    ]
    if found.base is not None:
        base, plain = found.base.measured, [one.arm for one in found.plain]
        sections[3:3] = [
            narrowing(base, plain, plan.samples),
            claims(Policies(base, plain, [one.arm for one in found.protected]), table),
        ]
    return Page(TITLE, sections, statement, _provenance(found))


def narrowing(base: Measured, plain: Sequence[Arm], k: int) -> Verdict:
    """Say what plain training did to the base."""
    gained, lost = (change(plain, base, count) for count in (1, k))
    share = float(np.mean([arm.measured.entropy.value for arm in plain])) / base.entropy.value
    told = (
        f"plain GRPO leaves {number(share, '%')} of the base's entropy; {_told('pass@1', gained)},"
        f" {_told(f'pass@{k}', lost)}"
    )
    worse = lost.shows and lost.value.value < 0
    facts = [Fact("pass@1, plain less base", gained.value), Fact(f"pass@{k}, plain less base", lost.value)]
    return Verdict(Severity.WARNING if worse else Severity.NOTE, f"On held-out sums {told}.", "", facts)


def policies(found: Found) -> Table:
    """Return what the base and both arms know and how broad they are."""
    plan = found.plan
    columns = ["pass@1", f"maj@{plan.votes}", f"pass@{plan.samples}", "entropy", "different answers", "tokens", "cut"]
    rows: list[list[Cell]] = [] if found.base is None else [["base", *_numbers([found.base], plan)]]
    rows += [[name, *_numbers([one.breadth for one in arms], plan)] for name, arms in _arms(found)]
    over = "problems" if len(found.plain) < 2 else "seeds of training (Student's t); the base's over problems"
    return Table(
        "The policies on held-out sums",
        [Column("policy"), *(Column(name, {"entropy": "nats", "cut": "%"}.get(name, "")) for name in columns)],
        rows,
        f"{plan.samples} replies to each of {plan.problems} problems at temperature 1; 95% intervals over {over}."
        " Different answers are those among all replies to a problem; cut is the share of replies that did not end by"
        " themselves.",
    )


def training(found: Found) -> Table:
    """Return how the training of both arms went, at its beginning and at its end."""
    rows: list[list[Cell]] = []
    for name, arms in _arms(found):
        for what, series in (
            ("right", "reward"),
            ("entropy", "entropy"),
            ("cut", "truncated"),
            ("groups without a difference", "zero_variance"),
        ):
            ends = np.array([one.training.endpoints(series) for one in arms]).mean(0)
            rows.append([f"{name}: {what}", float(ends[0]), float(ends[1])])
    return Table(
        "How training went, on the problems trained on",
        [Column("series"), Column(f"first {GENERATIONS_AT_END} generations"), Column(f"last {GENERATIONS_AT_END}")],
        rows,
        "From the run folders: shares of replies or of groups; entropy in nats a token. The mean of seeds where there"
        " are several.",
    )


def _numbers(found: Sequence[Breadth], plan: RungPlan) -> list[Cell]:
    def of(quantity: Callable[[Breadth], Interval]) -> Interval:
        each = [quantity(one) for one in found]
        return each[0] if len(each) == 1 else over_seeds([one.value for one in each], bounds=(0.0, np.inf))

    return [
        of(lambda one: one.measured.at(1).pass_rate),
        of(lambda one: one.measured.at(plan.votes).majority_rate),
        of(lambda one: one.measured.at(plan.samples).pass_rate),
        of(lambda one: one.measured.entropy),
        of(lambda one: one.distinct),
        of(lambda one: one.measured.tokens),
        float(np.mean([one.cut for one in found])),
    ]


def _arms(found: Found) -> list[tuple[str, Sequence[RungArm]]]:
    return list(zip(NAMES, (found.plain, found.protected), strict=True))


def _before(found: Found) -> list[Section]:
    """Return what is known of the base while no arm can be compared."""
    if found.base is None:
        return []
    return [Table("The base", [Column("policy"), Column("pass@1")], [["base", found.base.measured.at(1).pass_rate]])]


def _told(what: str, effect: Effect) -> str:
    if not effect.shows:
        return f"that it changes {what} does not show"
    return f"{what} {'rises' if effect.value.value > 0 else 'falls'}"


def _provenance(found: Found) -> list[Fact]:
    plan = found.plan
    trained = (
        f"{plan.steps} steps of {plan.prompts} problems x {plan.group} replies, learning rate {plan.rate:g}, all"
        " weights"
    )
    return [
        Fact("base weights", f"sha256 {found.bench.weights}"),
        Fact("seeds", len(found.plain)),
        Fact("training", trained),
        Fact("a line", EXAMPLE.worked),
        Fact("minutes of all trials", round(found.minutes, 1)),
    ]
