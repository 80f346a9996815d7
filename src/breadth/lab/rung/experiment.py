"""The second rung as an experiment: SmolLM2 before training, after plain GRPO and after protected GRPO, each answering both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breadth.base import settings
from breadth.lab.demo.plan import ARMS
from breadth.lab.rung.plan import RungPlan
from breadth.lab.trials.experiment import Bench, Done, Trial
from breadth.report.sections import Page

if TYPE_CHECKING:
    from breadth.lab.rung.measuring import Breadth
    from breadth.lab.rung.model import Policy

WORK, BASE_WORK = "breadth.lab.rung.experiment:run_arm", "breadth.lab.rung.experiment:run_base"
BASE, MODEL = "base", "model"
"""Name of the trial that measures the base; in the folder of the experiment, with its hash: the base as transformers
loads it.
"""
BREADTH, BOTH_WAYS = "breadth.json", "both_ways.json"
"""In the folder of a trial, beside what training leaves there."""
STEPS_A_LOOK, STEPS_BOTH_WAYS = 4, 15
"""Optimizer steps that take as long as measuring a policy, and as answering both ways, about."""


@dataclass(frozen=True)
class SecondRung:
    """The experiment and its sizes.

    Trials run side by side with a thread each, not one after the other with two: reading and writing tokens one by one,
    Adam and all the small steps between the large products gain little from a second thread, and two trainings that
    share nothing gain all of it. The longest trial is first, and measuring the base comes last, beside it.
    """

    name: str = "smollm2"
    """What to type."""
    statement: str = (
        "A real small model on sums: what plain and protected GRPO do to its breadth, and what a long thought and a"
        " vote make of it."
    )
    """What it tests."""
    seeds: int = 1
    """Policies trained in each arm."""
    plan: RungPlan = RungPlan()
    """How arms are trained and measured; its seed is not used."""

    def trials(self, bench: Bench) -> tuple[Trial, ...]:
        """List both arms at every seed, and the base."""
        arms = tuple(
            Trial(
                f"{arm}/seed-{seed}",
                WORK,
                {"weights": bench.weights, "arm": arm, "plan": settings.to_table(replace(self.plan, seed=seed))},
                self.plan.steps + STEPS_A_LOOK + STEPS_BOTH_WAYS,
            )
            for seed in range(bench.seeds)
            for arm in reversed(ARMS)  # the protected arm pays for its reference policy, too
        )
        return *arms, Trial(
            BASE, BASE_WORK, {"weights": bench.weights, "plan": settings.to_table(self.plan)}, STEPS_A_LOOK
        )

    def page(self, done: Sequence[Done], bench: Bench) -> Page:
        """Make the page of the seeds at which both arms have ended."""
        from breadth.lab import records
        from breadth.lab.rung.arm import RungArm
        from breadth.lab.rung.measuring import Breadth
        from breadth.lab.rung.page import Found, rung_page

        base = next((records.from_row(Breadth, one.result["base"]) for one in done if one.trial.name == BASE), None)
        arms = {one.trial.name: records.from_row(RungArm, one.result["arm"]) for one in done if one.trial.name != BASE}
        seeds = [seed for seed in range(bench.seeds) if all(f"{arm}/seed-{seed}" in arms for arm in ARMS)]
        plain, protected = ([arms[f"{arm}/seed-{seed}"] for seed in seeds] for arm in ARMS)
        minutes = sum(one.seconds for one in done) / 60
        return rung_page(Found(self.plan, bench, base, plain, protected, minutes), self.statement)


def run_base(asked: Mapping[str, Any], folder: Path, base: Path | None, told: Callable[[int], None]) -> dict[str, Any]:
    """Measure the base as the arms are measured."""
    from breadth.lab import records
    from breadth.lab.rung.model import load

    found = _measured(load(_given(base)), settings.from_table(RungPlan, asked["plan"]), folder, 0)
    told(STEPS_A_LOOK)
    return {"base": records.to_row(found)}


def run_arm(asked: Mapping[str, Any], folder: Path, base: Path | None, told: Callable[[int], None]) -> dict[str, Any]:
    """Train one arm at one seed, measure it, and let it answer both ways; what was done before an interruption is read."""
    from breadth.lab import records
    from breadth.lab.evaluation.extended_vs_parallel import BothWays
    from breadth.lab.rung.arm import RungArm
    from breadth.lab.rung.measuring import answer_sums
    from breadth.lab.rung.training import RUN, train
    from breadth.lab.rung.went import went

    plan = settings.from_table(RungPlan, asked["plan"])
    policy = train(plan, asked["arm"], folder, _given(base), told)
    breadth = _measured(policy, plan, folder, plan.steps)
    told(plan.steps + STEPS_A_LOOK)
    both_ways = records.kept(BothWays, folder / BOTH_WAYS, lambda: answer_sums(policy, plan))
    arm = RungArm(breadth, both_ways, went(folder / RUN))
    return {"arm": records.to_row(arm)}


def _measured(policy: Policy, plan: RungPlan, folder: Path, step: int) -> Breadth:
    from breadth.lab import records
    from breadth.lab.rung.measuring import Breadth, measure
    from breadth.lab.rung.training import RUN

    return records.kept(Breadth, folder / BREADTH, lambda: measure(policy, plan, folder / RUN, step))


def _given(base: Path | None) -> Path:
    if base is None:
        raise ValueError("the second rung ships no model: a trial is given the folder of one")
    return base
