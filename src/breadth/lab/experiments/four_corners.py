"""The four corners over several seeds: plain and protected training, one long thought and a vote at equal tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from breadth.base import settings
from breadth.lab.coursework import REPLIES_A_UNIT
from breadth.lab.demo_plan import ARMS, FULL, Plan
from breadth.lab.experiment import Bench, Done, Trial
from breadth.report.page import Page
from breadth.report.sections import Fact, Section, Severity, Verdict

WORK = "breadth.lab.experiments.four_corners:run_arm"


@dataclass(frozen=True)
class FourCorners:
    """The experiment and its sizes."""

    name: str = "corners"
    """What to type."""
    statement: str = (
        "Plain or protected training, one long thought or a vote for the same tokens: what each remedy is worth, and in which loop."
    )
    """What it tests."""
    seeds: int = 5
    """Reasoners trained in each arm."""
    plan: Plan = FULL
    """How arms are trained and measured; its seed is not used."""

    def trials(self, bench: Bench) -> tuple[Trial, ...]:
        """List both arms at every seed."""
        units = self.plan.steps + self.plan.problems * self.plan.samples // REPLIES_A_UNIT
        return tuple(
            Trial(
                f"{arm}/seed-{seed}",
                WORK,
                {"weights": bench.weights, "arm": arm, "plan": settings.to_table(replace(self.plan, seed=seed))},
                units,
            )
            for seed in range(bench.seeds)
            for arm in ARMS
        )

    def page(self, done: Sequence[Done], bench: Bench) -> Page:
        """Make the two by two table over the seeds at which both arms have ended."""
        from breadth.lab import records
        from breadth.lab.corners import Arm, corners
        from breadth.lab.demo_page import effects, spending, two_by_two

        found = {one.trial.name: records.loads(Arm, json.dumps(one.result["arm"])) for one in done}
        seeds = [seed for seed in range(bench.seeds) if all(f"{arm}/seed-{seed}" in found for arm in ARMS)]
        facts = [Fact("base", bench.weights), Fact("seeds", len(seeds))]
        if not seeds:
            verdict = Verdict(
                Severity.CANNOT_TELL, "At no seed have both arms ended.", "Run the experiment again: it goes on where it stopped."
            )
            return Page("The four corners", [verdict], self.statement, facts)
        plain, protected = ([found[f"{arm}/seed-{seed}"] for seed in seeds] for arm in ARMS)
        table = corners(plain, protected, k=self.plan.samples, votes=self.plan.votes)
        sections: list[Section] = [two_by_two(table), effects(table), spending(table)]
        return Page("The four corners", sections, self.statement, facts)


def run_arm(asked: Mapping[str, Any], folder: Path, base: Path | None, told: Callable[[int], None]) -> dict[str, Any]:
    """Train one arm at one seed and let it answer both ways."""
    from breadth.lab import records
    from breadth.lab.demo_jobs import StepTaken, train_arm

    def tell(what: Any) -> None:
        if isinstance(what, StepTaken):
            told(what.step)

    plan = settings.from_table(Plan, asked["plan"])
    return {"arm": json.loads(records.dumps(train_arm(tell, plan, asked["arm"], folder, base).arm))}


CORNERS = FourCorners()
"""As it is run."""
