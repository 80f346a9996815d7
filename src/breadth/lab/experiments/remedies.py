"""Which remedy keeps breadth, and what it costs: every arm at the same steps, rate and problems, against the control of its regime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from breadth.lab.trials.coursework import Looks, base_trial, course_trial
from breadth.lab.trials.experiment import Bench, Done, Trial
from breadth.report.sections import Page


@dataclass(frozen=True)
class Remedies:
    """The experiment and its sizes."""

    name: str = "remedies"
    """What to type."""
    statement: str = (
        "Twelve remedies, and two of them together, against plain GRPO: entropy, pass@k, votes and diversity on"
        " problems held out."
    )
    """What it tests."""
    seeds: int = 5
    """Repetitions of every arm."""
    course: Mapping[str, Any] = field(default_factory=dict)
    """What the courses have in place of the defaults of `Course`."""
    looks: Looks = Looks(every=30)
    """How policies are measured."""

    def trials(self, bench: Bench) -> tuple[Trial, ...]:
        """List the base and every arm at every seed; seed by seed, so that an unfinished experiment has whole comparisons."""
        from breadth.lab.experiments.pairing import ALL_ARMS

        courses = [
            course_trial(f"{name}/seed-{seed}", arm.course(seed, **self.course), self._looks(arm.updates), bench)
            for seed in range(bench.seeds)
            for name, arm in ALL_ARMS.items()
        ]
        return (base_trial(self.looks, bench), *courses)

    def _looks(self, updates: int) -> Looks:
        """Look after as many generations in every regime."""
        return replace(self.looks, every=self.looks.every * updates)

    def page(self, done: Sequence[Done], bench: Bench) -> Page:
        """Tables over seeds and problems, ranks and pictures."""
        from breadth.lab.experiments.remedies_page import remedies_page

        return remedies_page(self, done, bench)


REMEDIES = Remedies()
"""As it is run."""
