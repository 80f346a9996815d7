"""The four corners over several seeds: plain and protected training, one long thought and a vote at equal tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breadth.base import settings
from breadth.lab.demo.plan import ARMS, FULL, Plan
from breadth.lab.evaluation.checkpoints import REPLIES_A_UNIT
from breadth.lab.trials.experiment import Bench, Done, Trial
from breadth.report.cells import Cell
from breadth.report.sections import Column, Fact, Page, Section, Severity, Table, Verdict

if TYPE_CHECKING:
    from breadth.lab.evaluation.corners import Arm, Corners

WORK, BASE_WORK = "breadth.lab.experiments.four_corners:run_arm", "breadth.lab.experiments.four_corners:run_base"
EVERY = 20
"""Optimizer steps between the policies that are kept, for whoever wants to look at them, e.g. the gate."""
BASE = "base"
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
    first: int = 0
    """The first seed."""
    plan: Plan = replace(FULL, steps=120, problems=200)
    """How arms are trained and measured; its seed is not used."""
    others: tuple[int, ...] = (48, 96)
    """Thinking tokens at which the corners are asked once more."""

    def trials(self, bench: Bench) -> tuple[Trial, ...]:
        """List the base, and both arms at every seed."""
        looks = self.plan.problems * self.plan.samples // REPLIES_A_UNIT
        before = Trial(BASE, BASE_WORK, {"weights": bench.weights, "plan": settings.to_table(self.plan)}, max(1, looks))
        return before, *(
            Trial(
                f"{arm}/seed-{seed}",
                WORK,
                {
                    "weights": bench.weights,
                    "arm": arm,
                    "plan": settings.to_table(replace(self.plan, seed=seed)),
                    "others": list(self.others),
                },
                self.plan.steps + looks,
            )
            for seed in self._seeds(bench)
            for arm in ARMS
        )

    def page(self, done: Sequence[Done], bench: Bench) -> Page:
        """Make the two by two table over the seeds at which both arms have ended."""
        from breadth.lab import records
        from breadth.lab.demo.conclusions import meaning
        from breadth.lab.demo.page import effects, spending, two_by_two
        from breadth.lab.evaluation.corners import Policies, claims, corners, policies_table
        from breadth.lab.evaluation.evaluate import Measured

        found = {one.trial.name: _by_budget(one.result) for one in done if one.trial.name != BASE}
        base = next((records.from_row(Measured, one.result["base"]) for one in done if one.trial.name == BASE), None)
        seeds = [seed for seed in self._seeds(bench) if all(f"{arm}/seed-{seed}" in found for arm in ARMS)]
        facts = [Fact("base", bench.weights), Fact("seeds", ", ".join(map(str, seeds)) or "none"), self._asked()]
        if not seeds:
            verdict = Verdict(
                Severity.CANNOT_TELL,
                "At no seed have both arms ended.",
                "Run the experiment again: it goes on where it stopped.",
            )
            return Page(self.title, [verdict], self.statement, facts)
        plain, protected = ([found[f"{arm}/seed-{seed}"] for seed in seeds] for arm in ARMS)
        tables = {
            budget: corners(
                [one[budget] for one in plain],
                [one[budget] for one in protected],
                k=self.plan.samples,
                votes=self.plan.votes,
            )
            for budget in sorted(plain[0])
        }
        table = tables[self.plan.thinking]
        sections: list[Section] = [meaning(table), two_by_two(table), effects(table)]
        if base is not None:
            before = Policies(
                base, [one[self.plan.thinking] for one in plain], [one[self.plan.thinking] for one in protected]
            )
            sections += [claims(before, table), policies_table(before, self.plan.samples, self.plan.votes)]
        sections += [spending(table), _budgets(tables)]
        return Page(self.title, sections, self.statement, facts)

    def _seeds(self, bench: Bench) -> range:
        return range(self.first, self.first + bench.seeds)

    def _asked(self) -> Fact:
        """Say which of the held-out problems are asked, in the order they are drawn in."""
        return Fact("held-out problems", f"{self.plan.skipped + 1} to {self.plan.skipped + self.plan.problems}")


def run_base(asked: Mapping[str, Any], folder: Path, base: Path | None, told: Callable[[int], None]) -> dict[str, Any]:
    """Measure the base as the arms are measured."""
    from breadth.lab import records
    from breadth.lab.demo.run import measure_base

    found = measure_base(lambda _: None, settings.from_table(Plan, asked["plan"]), folder, base)
    told(1)
    return {"base": records.to_row(found)}


def run_arm(asked: Mapping[str, Any], folder: Path, base: Path | None, told: Callable[[int], None]) -> dict[str, Any]:
    """Train one arm at one seed and let it answer both ways, at every budget."""
    from breadth.lab import records
    from breadth.lab.demo.run import answered, train_arm
    from breadth.lab.grpo import train_in_stages

    plan = settings.from_table(Plan, asked["plan"])
    train_in_stages(
        plan.course(asked["arm"]), folder, base, range(EVERY, plan.steps, EVERY), lambda step, _: told(step)
    )
    arm = train_arm(lambda _: None, plan, asked["arm"], folder, base).arm
    others = [answered(replace(plan, thinking=budget), folder) for budget in asked["others"]]
    return {"arm": records.to_row(arm), "others": [records.to_row(one) for one in others]}


def _by_budget(result: Mapping[str, Any]) -> dict[int, Arm]:
    """Return an arm with its answers at each number of thinking tokens."""
    from breadth.lab import records
    from breadth.lab.evaluation.corners import Arm
    from breadth.lab.evaluation.extended_vs_parallel import BothWays

    arm = records.from_row(Arm, result["arm"])
    others = [records.from_row(BothWays, one) for one in result["others"]]
    return {one.thinking: replace(arm, both_ways=one) for one in (arm.both_ways, *others)}


def _budgets(tables: Mapping[int, Corners]) -> Table:
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
    first=CORNERS.seeds,
    plan=replace(CORNERS.plan, problems=400, skipped=CORNERS.plan.problems),
)
"""The same on what nobody had seen when price, rule and budget were fixed: the corners' own problems had been looked at
before.
"""
