"""Runs whose trouble is known because it was put there: what the doctor is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from breadth.base import settings
from breadth.lab.trials.experiment import Bench, Done, Trial
from breadth.report.cells import Cell
from breadth.report.sections import Column, Fact, Page, Severity, Table, Verdict

WORK = "breadth.lab.experiments.known_truth:run_case"
SHOWN = ("passed_start", "passed_end", "entropy_ratio", "logged_ratio", "truncated", "flat", "surprise")
"""Numbers of a run that the table shows; `breadth.lab.experiments.known_cases` says what they are."""


@dataclass(frozen=True)
class KnownTruth:
    """The experiment and its sizes."""

    name: str = "known-truth"
    """What to type."""
    statement: str = (
        "Eight real runs, each with a failure of known cause (one with none), for detectors to be judged by."
    )
    """What it tests."""
    seeds: int = 3
    """Repetitions of every case."""
    course: Mapping[str, Any] = field(default_factory=dict)
    """What the courses have in place of their own settings."""

    def trials(self, bench: Bench) -> tuple[Trial, ...]:
        """List every case at every seed."""
        from dataclasses import replace

        from breadth.lab.experiments.known_cases import CASES

        found = []
        for seed in range(bench.seeds):
            for label, case in CASES.items():
                posed = replace(case, course=replace(case.course, seed=seed, **self.course))
                asked = {"weights": bench.weights, "label": label, "case": settings.to_table(posed)}
                found.append(Trial(f"{label}/seed-{seed}", WORK, asked, posed.course.steps))
        return tuple(found)

    def page(self, done: Sequence[Done], bench: Bench) -> Page:
        """Say of every run whether the failure it was made for is really there."""
        rows: list[list[Cell]] = []
        for one in done:
            label, _, seed = one.trial.name.partition("/seed-")
            rows.append(
                [
                    label,
                    seed,
                    "; ".join(one.result["missing"]) or "yes",
                    *(one.result["numbers"][name] for name in SHOWN),
                ]
            )
        columns = [
            Column(one)
            for one in ("truth", "seed", "is it there", "pass@1 first", "pass@1 last", "entropy, last / first")
        ]
        columns += [
            Column("logged entropy, last / first"),
            Column("cut", "%"),
            Column("flat groups", "%"),
            Column("surprise / entropy"),
        ]
        note = (
            "First and last are means of five generations. Surprise is the mean of -log p of the tokens drawn: it"
            " equals the entropy where replies are drawn from the policy that is trained."
        )
        facts = [Fact("base", bench.weights), Fact("runs", len(done))]
        return Page(
            "Runs of known truth", [_verdict(done), Table("The runs", columns, rows, note)], self.statement, facts
        )


def run_case(asked: Mapping[str, Any], folder: Path, base: Path | None, told: Any) -> dict[str, Any]:
    """Run a case into a run folder that carries its truth, and measure whether the failure is there."""
    from breadth.lab.experiments.known_cases import Case, mark, numbers_of, train_case
    from breadth.lab.grpo import RUN

    case = settings.from_table(Case, asked["case"])
    train_case(case, folder, base, told)
    mark(folder / RUN, asked["label"], case)
    numbers = numbers_of(folder / RUN)
    return {
        "numbers": numbers,
        "missing": [sign.words(numbers) for sign in case.signs if not sign.shows(numbers)],
        "why": case.why,
    }


def _verdict(done: Sequence[Done]) -> Verdict:
    without = [one.trial.name for one in done if one.result["missing"]]
    if not done:
        return Verdict(
            Severity.CANNOT_TELL, "No run has ended yet.", "Run the experiment again: it goes on where it stopped."
        )
    if without:
        return Verdict(
            Severity.WARNING,
            f"{len(without)} of {len(done)} runs do not show what they were made for: {', '.join(without)}.",
            "Do not judge a detector by these; the settings want another base, rate or number of steps.",
        )
    return Verdict(Severity.GOOD, f"All {len(done)} runs show what they were made for.")


KNOWN_TRUTH = KnownTruth()
"""As it is run."""
