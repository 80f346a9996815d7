"""The four corners over several seeds: plain and protected training, one long thought and a vote at equal tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breadth.base import settings
from breadth.lab.demo.plan import ARMS, FULL_DEMO, DemoPlan
from breadth.lab.evaluation.checkpoints import REPLIES_PER_UNIT
from breadth.lab.trials.experiment import ExperimentSetup, ExperimentTrial, FinishedTrial
from breadth.report.cells import Cell
from breadth.report.sections import Column, Fact, Page, Section, Severity, Table, Verdict

if TYPE_CHECKING:
    from breadth.lab.evaluation.corners import Corners, EvaluatedArm

ARM_WORK, BASE_WORK = (
    "breadth.lab.experiments.four_corners:run_corners_arm",
    "breadth.lab.experiments.four_corners:run_corners_base",
)
KEEP_POLICY_EVERY = 20
"""Optimizer steps between the policies that are kept, for later evaluation, e.g. by the gate."""
BASE_TRIAL = "base"
"""Name of the trial that measures the base."""


@dataclass(frozen=True)
class FourCorners:
    """The experiment and its sizes."""

    name: str = "corners"
    """What to type."""
    statement: str = (
        "Plain or protected training, one long thought or a vote for the same tokens: what each remedy is worth, and in"
        " which loop."
    )
    """What it tests."""
    title: str = "The four corners"
    """Over the page."""
    seeds: int = 5
    """Reasoners trained in each arm."""
    first_seed: int = 0
    """The first seed."""
    plan: DemoPlan = replace(FULL_DEMO, steps=120, problems=200)
    """How arms are trained and evaluated; its seed is not used."""
    extra_budgets: tuple[int, ...] = (48, 96)
    """Further thinking budgets at which the corners are measured."""

    def trials(self, setup: ExperimentSetup) -> tuple[ExperimentTrial, ...]:
        """List the base, and both arms at every seed."""
        eval_units = self.plan.problems * self.plan.samples // REPLIES_PER_UNIT
        before = ExperimentTrial(
            BASE_TRIAL, BASE_WORK, {"weights": setup.weights, "plan": settings.to_table(self.plan)}, max(1, eval_units)
        )
        return before, *(
            ExperimentTrial(
                f"{arm}/seed-{seed}",
                ARM_WORK,
                {
                    "weights": setup.weights,
                    "arm": arm,
                    "plan": settings.to_table(replace(self.plan, seed=seed)),
                    "extra_budgets": list(self.extra_budgets),
                },
                self.plan.steps + eval_units,
            )
            for seed in self._seeds(setup)
            for arm in ARMS
        )

    def page(self, done: Sequence[FinishedTrial], setup: ExperimentSetup) -> Page:
        """Make the two-by-two table over the seeds at which both arms have ended."""
        from breadth.lab import records
        from breadth.lab.demo.page import corners_spending_table, corners_table, effects_table
        from breadth.lab.demo.results import conclude_corners
        from breadth.lab.evaluation.corners import BaseAndArms, claims_table, compare_corners, policies_table
        from breadth.lab.evaluation.evaluate import PolicyEval

        found = {trial.trial.name: arms_by_budget(trial.result) for trial in done if trial.trial.name != BASE_TRIAL}
        base = next(
            (records.from_row(PolicyEval, trial.result["base"]) for trial in done if trial.trial.name == BASE_TRIAL),
            None,
        )
        seeds = [seed for seed in self._seeds(setup) if all(f"{arm}/seed-{seed}" in found for arm in ARMS)]
        facts = [
            Fact("base", setup.weights),
            Fact("seeds", ", ".join(map(str, seeds)) or "none"),
            Fact("held-out problems", f"{self.plan.skipped + 1} to {self.plan.skipped + self.plan.problems}"),
        ]
        if not seeds:
            verdict = Verdict(
                Severity.CANNOT_TELL,
                "At no seed have both arms ended.",
                "Run the experiment again: it resumes where it stopped.",
            )
            return Page(self.title, [verdict], self.statement, facts)
        plain, protected = ([found[f"{arm}/seed-{seed}"] for seed in seeds] for arm in ARMS)
        tables = {
            budget: compare_corners(
                [arms[budget] for arms in plain],
                [arms[budget] for arms in protected],
                k=self.plan.samples,
                votes=self.plan.votes,
            )
            for budget in sorted(plain[0])
        }
        table = tables[self.plan.thinking]
        sections: list[Section] = [conclude_corners(table), corners_table(table), effects_table(table)]
        if base is not None:
            before = BaseAndArms(
                base, [arms[self.plan.thinking] for arms in plain], [arms[self.plan.thinking] for arms in protected]
            )
            sections += [claims_table(before, table), policies_table(before, self.plan.samples, self.plan.votes)]
        sections += [corners_spending_table(table), budgets_table(tables)]
        return Page(self.title, sections, self.statement, facts)

    def _seeds(self, setup: ExperimentSetup) -> range:
        return range(self.first_seed, self.first_seed + setup.seeds)


def run_corners_base(
    config: Mapping[str, Any], folder: Path, base: Path | None, on_units: Callable[[int], None]
) -> dict[str, Any]:
    """Evaluate the base as the arms are evaluated."""
    from breadth.lab import records
    from breadth.lab.demo.run import measure_base

    found = measure_base(lambda _: None, settings.from_table(DemoPlan, config["plan"]), folder, base)
    on_units(1)
    return {"base": records.to_row(found)}


def run_corners_arm(
    config: Mapping[str, Any], folder: Path, base: Path | None, on_units: Callable[[int], None]
) -> dict[str, Any]:
    """Train one arm at one seed and let it answer by long thought and by vote, at every budget."""
    from breadth.lab import records
    from breadth.lab.demo.run import answer_at_budget, train_arm
    from breadth.lab.grpo import train_with_checkpoints

    plan = settings.from_table(DemoPlan, config["plan"])
    train_with_checkpoints(
        plan.grpo_run(config["arm"]),
        folder,
        base,
        range(KEEP_POLICY_EVERY, plan.steps, KEEP_POLICY_EVERY),
        lambda step, _: on_units(step),
    )
    arm = train_arm(lambda _: None, plan, config["arm"], folder, base).arm
    others = [answer_at_budget(replace(plan, thinking=budget), folder) for budget in config["extra_budgets"]]
    return {"arm": records.to_row(arm), "extra_answers": [records.to_row(answers) for answers in others]}


def arms_by_budget(result: Mapping[str, Any]) -> dict[int, EvaluatedArm]:
    """Return an arm with its answers at each number of thinking tokens."""
    from breadth.lab import records
    from breadth.lab.evaluation.corners import EvaluatedArm
    from breadth.lab.evaluation.extended_vs_parallel import ExtendedVsParallel

    arm = records.from_row(EvaluatedArm, result["arm"])
    others = [records.from_row(ExtendedVsParallel, row) for row in result["extra_answers"]]
    return {answers.thinking: replace(arm, answers=answers) for answers in (arm.answers, *others)}


def budgets_table(tables: Mapping[int, Corners]) -> Table:
    """Return the four corners at every budget, and what protection adds to the vote there."""
    rows: list[list[Cell]] = [
        [
            str(budget),
            table.plain_extended.accuracy,
            table.plain_parallel.accuracy,
            table.protected_extended.accuracy,
            table.protected_parallel.accuracy,
            table.protection_when_parallel.value,
        ]
        for budget, table in tables.items()
    ]
    columns = [
        "thinking tokens",
        "plain, long thought",
        "plain, vote",
        "protected, long thought",
        "protected, vote",
        "protection, by vote",
    ]
    return Table(
        "At other budgets", [Column(name) for name in columns], rows, "Intervals over problems, the mean of seeds."
    )


CORNERS = FourCorners()
"""As it is run."""
CONFIRMATION = FourCorners(
    "confirmation",
    "The four corners once more, with everything frozen: held-out problems and training seeds that no choice was made"
    " with.",
    "The four corners, confirmed",
    first_seed=CORNERS.seeds,
    plan=replace(CORNERS.plan, problems=400, skipped=CORNERS.plan.problems),
)
"""The same on what nobody had seen when price, rule and budget were fixed: the corners' own problems had been looked at
before.
"""
