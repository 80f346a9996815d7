"""The report of the SmolLM2 replication: verdicts computed from the numbers, the two-by-two table, the policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from breadth.lab.demo.page import corners_spending_table, corners_table, effects_table
from breadth.lab.demo.results import conclude_corners
from breadth.lab.evaluation.corners import (
    BaseAndArms,
    EvaluatedArm,
    PairedEffect,
    change_from_base,
    claims_table,
    compare_corners,
)
from breadth.lab.evaluation.evaluate import PolicyEval
from breadth.lab.evaluation.training_log import GENERATIONS_AT_END, seed_interval
from breadth.lab.smollm2.evaluation import SmolLM2Arm, SumsEval
from breadth.lab.smollm2.experiment import EXAMPLE, SmolLM2Plan
from breadth.lab.trials.experiment import ExperimentSetup
from breadth.measure.intervals import Interval
from breadth.report.cells import Cell, format_number
from breadth.report.sections import Column, Fact, Page, Section, Severity, Table, Verdict

SMOLLM2_TITLE = "The SmolLM2 replication: SmolLM2-135M-Instruct on sums"
ARM_LABELS = ("plain GRPO", "protected")
LONG_THOUGHT_NOTE = (
    "The long thought is continued by repeating the question on a line of its own; its last attempt counts."
)
"""How this model is made to continue thinking."""


@dataclass(frozen=True)
class SmolLM2Results:
    """What the page is made of."""

    plan: SmolLM2Plan
    """What was asked for."""
    setup: ExperimentSetup
    """On what."""
    base: SumsEval | None
    """The base, once it has been measured."""
    plain: Sequence[SmolLM2Arm]
    """Plain policies, one a seed."""
    protected: Sequence[SmolLM2Arm]
    """Protected ones, of the same seeds."""
    minutes: float
    """Of all trials, added up."""


def smollm2_page(found: SmolLM2Results, statement: str) -> Page:
    """Return the whole report, by as much as has ended."""
    if not found.plain:
        head, remedy = "At no seed have both arms ended.", "Run the same command again: it resumes where it stopped."
        return Page(
            SMOLLM2_TITLE,
            [Verdict(Severity.CANNOT_TELL, head, remedy), *_base_sections(found)],
            statement,
            smollm2_provenance(found),
        )
    plan = found.plan
    table = compare_corners(
        [arm.arm for arm in found.plain], [arm.arm for arm in found.protected], k=plan.samples, votes=plan.votes
    )
    sections: list[Section] = [
        conclude_corners(table),
        corners_table(table),
        effects_table(table),
        corners_spending_table(table, LONG_THOUGHT_NOTE),
        smollm2_policies_table(found),
        training_table(found),
    ]
    if found.base is not None:
        base, plain = found.base.policy, [arm.arm for arm in found.plain]
        sections[3:3] = [
            conclude_narrowing(base, plain, plan.samples),
            claims_table(BaseAndArms(base, plain, [arm.arm for arm in found.protected]), table),
        ]
    return Page(SMOLLM2_TITLE, sections, statement, smollm2_provenance(found))


def conclude_narrowing(base: PolicyEval, plain: Sequence[EvaluatedArm], k: int) -> Verdict:
    """Say what plain training did to the base."""
    gained, lost = (change_from_base(plain, base, count) for count in (1, k))
    share = float(np.mean([arm.policy.entropy.value for arm in plain])) / base.entropy.value
    sentence = (
        f"plain GRPO leaves {format_number(share, '%')} of the base's entropy; {change_sentence('pass@1', gained)},"
        f" {change_sentence(f'pass@{k}', lost)}"
    )
    worse = lost.is_significant and lost.value.value < 0
    facts = [Fact("pass@1, plain minus base", gained.value), Fact(f"pass@{k}, plain minus base", lost.value)]
    return Verdict(Severity.WARNING if worse else Severity.NOTE, f"On held-out sums {sentence}.", "", facts)


def smollm2_policies_table(found: SmolLM2Results) -> Table:
    """Return what the base and both arms know and how broad they are."""
    plan = found.plan
    columns = ["pass@1", f"maj@{plan.votes}", f"pass@{plan.samples}", "entropy", "different answers", "tokens", "cut"]
    rows: list[list[Cell]] = [] if found.base is None else [["base", *_sums_numbers([found.base], plan)]]
    rows += [[name, *_sums_numbers([arm.sums for arm in arms], plan)] for name, arms in _arms(found)]
    over = "problems" if len(found.plain) < 2 else "seeds of training (Student's t); the base's over problems"
    return Table(
        "The policies on held-out sums",
        [Column("policy"), *(Column(name, {"entropy": "nats", "cut": "%"}.get(name, "")) for name in columns)],
        rows,
        f"{plan.samples} replies to each of {plan.problems} problems at temperature 1; 95% intervals over {over}."
        " Different answers are those among all replies to a problem; cut is the share of replies that did not end by"
        " themselves.",
    )


def training_table(found: SmolLM2Results) -> Table:
    """Return the training of both arms, at its beginning and at its end."""
    rows: list[list[Cell]] = []
    for name, arms in _arms(found):
        for what, series in (
            ("right", "reward"),
            ("entropy", "entropy"),
            ("cut", "truncated"),
            ("zero-variance groups", "zero_variance"),
        ):
            ends = np.array([arm.training.endpoints(series) for arm in arms]).mean(0)
            rows.append([f"{name}: {what}", float(ends[0]), float(ends[1])])
    return Table(
        "How training went, on the problems trained on",
        [Column("series"), Column(f"first {GENERATIONS_AT_END} generations"), Column(f"last {GENERATIONS_AT_END}")],
        rows,
        "From the run folders: shares of replies or of groups; entropy in nats per token. The mean over seeds if there"
        " are several.",
    )


def _sums_numbers(found: Sequence[SumsEval], plan: SmolLM2Plan) -> list[Cell]:
    def combine(quantity: Callable[[SumsEval], Interval]) -> Interval:
        each = [quantity(policy) for policy in found]
        return each[0] if len(each) == 1 else seed_interval([interval.value for interval in each], bounds=(0.0, np.inf))

    return [
        combine(lambda policy: policy.policy.scores_at(1).pass_rate),
        combine(lambda policy: policy.policy.scores_at(plan.votes).majority_rate),
        combine(lambda policy: policy.policy.scores_at(plan.samples).pass_rate),
        combine(lambda policy: policy.policy.entropy),
        combine(lambda policy: policy.distinct),
        combine(lambda policy: policy.policy.tokens),
        float(np.mean([policy.truncated for policy in found])),
    ]


def _arms(found: SmolLM2Results) -> list[tuple[str, Sequence[SmolLM2Arm]]]:
    return list(zip(ARM_LABELS, (found.plain, found.protected), strict=True))


def _base_sections(found: SmolLM2Results) -> list[Section]:
    """Return what is known of the base while no arm can be compared."""
    if found.base is None:
        return []
    return [
        Table("The base", [Column("policy"), Column("pass@1")], [["base", found.base.policy.scores_at(1).pass_rate]])
    ]


def change_sentence(what: str, effect: PairedEffect) -> str:
    """Say whether a number rises or falls significantly."""
    if not effect.is_significant:
        return f"no significant change in {what}"
    return f"{what} {'rises' if effect.value.value > 0 else 'falls'}"


def smollm2_provenance(found: SmolLM2Results) -> list[Fact]:
    """Return how the results were made."""
    plan = found.plan
    trained = (
        f"{plan.steps} steps of {plan.prompts} problems x {plan.group} replies, learning rate {plan.learning_rate:g},"
        " all weights"
    )
    return [
        Fact("base weights", f"sha256 {found.setup.weights}"),
        Fact("seeds", len(found.plain)),
        Fact("training", trained),
        Fact("a line", EXAMPLE.full_line),
        Fact("minutes of all trials", round(found.minutes, 1)),
    ]
