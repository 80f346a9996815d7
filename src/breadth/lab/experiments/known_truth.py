"""The known-truth experiment: runs with failures of known cause, which the doctor is tested on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from breadth.base import settings
from breadth.lab.trials.experiment import ExperimentSetup, ExperimentTrial, FinishedTrial
from breadth.report.cells import Cell
from breadth.report.sections import Column, Fact, Page, Severity, Table, Verdict

CASE_WORK = "breadth.lab.experiments.known_truth:run_case"
SHOWN_NUMBERS = (
    "reward_start",
    "reward_end",
    "entropy_ratio",
    "logged_ratio",
    "truncated",
    "zero_variance",
    "surprise",
)
"""Numbers of a run that the table shows; `breadth.lab.experiments.known_cases` says what they are."""


@dataclass(frozen=True)
class KnownTruth:
    """The experiment and its sizes."""

    name: str = "known-truth"
    """What to type."""
    statement: str = "Eight real runs, each with a failure of known cause (one with none), to test detectors on."
    """What it tests."""
    seeds: int = 3
    """Repetitions of every case."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What the courses have in place of their own settings."""

    def trials(self, setup: ExperimentSetup) -> tuple[ExperimentTrial, ...]:
        """List every case at every seed."""
        from dataclasses import replace

        from breadth.lab.experiments.known_cases import CASES

        found = []
        for seed in range(setup.seeds):
            for label, case in CASES.items():
                seeded = replace(case, grpo_run=replace(case.grpo_run, seed=seed, **self.overrides))
                config = {"weights": setup.weights, "label": label, "case": settings.to_table(seeded)}
                found.append(ExperimentTrial(f"{label}/seed-{seed}", CASE_WORK, config, seeded.grpo_run.steps))
        return tuple(found)

    def page(self, done: Sequence[FinishedTrial], setup: ExperimentSetup) -> Page:
        """Say for every run whether the intended failure is there."""
        rows: list[list[Cell]] = []
        for trial in done:
            label, _, seed = trial.trial.name.partition("/seed-")
            rows.append(
                [
                    label,
                    seed,
                    "; ".join(trial.result["missing"]) or "yes",
                    *(trial.result["numbers"][name] for name in SHOWN_NUMBERS),
                ]
            )
        columns = [
            Column(name)
            for name in ("truth", "seed", "is it there", "pass@1 first", "pass@1 last", "entropy, last / first")
        ]
        columns += [
            Column("logged entropy, last / first"),
            Column("cut", "%"),
            Column("zero-variance groups", "%"),
            Column("surprise / entropy"),
        ]
        note = (
            "First and last are means of five generations. Surprise is the mean of -log p of the sampled tokens:"
            " it equals the entropy where replies are sampled from the policy that is trained."
        )
        facts = [Fact("base", setup.weights), Fact("runs", len(done))]
        return Page(
            "Runs of known truth", [_verdict(done), Table("The runs", columns, rows, note)], self.statement, facts
        )


def run_case(config: Mapping[str, Any], folder: Path, base: Path | None, on_units: Any) -> dict[str, Any]:
    """Run a case into a run folder that carries its truth, and measure whether the failure is there."""
    from breadth.lab.experiments.known_cases import KnownCase, symptom_numbers, train_case, write_truth
    from breadth.lab.grpo import RUN_FOLDER

    case = settings.from_table(KnownCase, config["case"])
    train_case(case, folder, base, on_units)
    write_truth(folder / RUN_FOLDER, config["label"], case)
    numbers = symptom_numbers(folder / RUN_FOLDER)
    return {
        "numbers": numbers,
        "missing": [sign.describe_missing(numbers) for sign in case.symptoms if not sign.is_present(numbers)],
        "why": case.cause,
    }


def _verdict(done: Sequence[FinishedTrial]) -> Verdict:
    without = [trial.trial.name for trial in done if trial.result["missing"]]
    if not done:
        return Verdict(
            Severity.CANNOT_TELL, "No run has ended yet.", "Run the experiment again: it resumes where it stopped."
        )
    if without:
        return Verdict(
            Severity.WARNING,
            f"{len(without)} of {len(done)} runs do not show the failure they were made for: {', '.join(without)}.",
            "Do not test a detector on these; they need another base, learning rate or number of steps.",
        )
    return Verdict(Severity.GOOD, f"All {len(done)} runs show the failure they were made for.")


KNOWN_TRUTH = KnownTruth()
"""The experiment as it is run."""
