"""The remedies experiment: which remedy keeps breadth, and at what cost, against the control of its regime.

Here are the trials and the page: scores, gains, entropies, the validation set with the pair to try, and the curves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from breadth.lab.evaluation.checkpoints import (
    VALIDATION_VOTE,
    ArmEvals,
    CheckpointEval,
    CheckpointEvalPlan,
    ProblemScores,
    ValidatedResult,
    base_eval_trial,
    evals_by_arm,
    grpo_trial,
    validation_interval,
    validation_table,
)
from breadth.lab.evaluation.training_log import seed_interval, seed_ranks
from breadth.lab.experiments.arms import ALL_ARMS, ON_POLICY, PLAIN, best_pair
from breadth.lab.trials.experiment import ExperimentSetup, ExperimentTrial, FinishedTrial
from breadth.measure.diversity import transfer_gap
from breadth.measure.validate import FloatArray
from breadth.report.cells import Cell, Missing
from breadth.report.sections import Axis, Column, Curve, Fact, Page, Section, Series, Severity, Table, Verdict


@dataclass(frozen=True)
class Remedies:
    """The experiment and its sizes."""

    name: str = "remedies"
    """What to type."""
    statement: str = (
        "Twelve remedies, and two of them together, against plain GRPO: entropy, pass@k, votes and diversity on"
        " held-out problems."
    )
    """What it tests."""
    seeds: int = 5
    """Repetitions of every arm."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What the courses have in place of the defaults of `Course`."""
    eval_plan: CheckpointEvalPlan = CheckpointEvalPlan(every=30)
    """How policies are measured."""

    def trials(self, setup: ExperimentSetup) -> tuple[ExperimentTrial, ...]:
        """List the base and every arm, seed by seed: an unfinished experiment then has complete comparisons."""
        from breadth.lab.experiments.arms import ALL_ARMS

        trials = [
            grpo_trial(f"{name}/seed-{seed}", arm.grpo_run(seed, **self.overrides), self._eval_plan(arm.updates), setup)
            for seed in range(setup.seeds)
            for name, arm in ALL_ARMS.items()
        ]
        return (base_eval_trial(self.eval_plan, setup), *trials)

    def _eval_plan(self, updates: int) -> CheckpointEvalPlan:
        """Evaluate after equally many generations in every regime."""
        return replace(self.eval_plan, every=self.eval_plan.every * updates)

    def page(self, done: Sequence[FinishedTrial], setup: ExperimentSetup) -> Page:
        """Return tables over seeds and problems, ranks and curves."""
        return remedies_page(self, done, setup)


REMEDIES = Remedies()
"""As it is run."""


NON_NEGATIVE = (0.0, float("inf"))


def remedies_page(experiment: Remedies, done: Sequence[FinishedTrial], setup: ExperimentSetup) -> Page:
    """Put what the trials found on one page."""
    found = evals_by_arm(done)
    arms = {name: found[name] for name in ALL_ARMS if name in found}
    base = next(
        (CheckpointEval.from_row(trial.result["evals"][0]) for trial in done if trial.trial.name == "base"), None
    )
    most = experiment.eval_plan.samples
    sections: list[Section] = [remedies_verdict(arms, most)]
    if arms:
        sections += [remedy_scores_table(arms, base, most), gains_table(arms, most), entropies_table(arms, base, most)]
        sections += [*validation_sections(done, experiment.eval_plan.validation_samples), *remedy_curves(arms, done)]
    facts = [Fact("base", setup.weights), Fact("seeds", max((len(arm.evals) for arm in arms.values()), default=0))]
    facts += [Fact("held-out problems", experiment.eval_plan.problems), Fact("replies to each", most)]
    return Page("Remedies for entropy collapse", sections, experiment.statement, facts)


def remedies_verdict(arms: dict[str, ArmEvals], most: int) -> Verdict:
    """Name the arms that significantly keep more coverage than their control without losing score."""
    better = []
    for name, arm in arms.items():
        control = arms.get(ALL_ARMS[name].control)
        if name in (ON_POLICY, PLAIN) or control is None:
            continue
        breadth, score = arm.gain_over_seeds(control, pass_at(most)), arm.gain_over_seeds(control, pass_at(1))
        if breadth is not None and score is not None and breadth.low > 0 and score.high >= 0:
            better.append(name)
    if not arms or max(len(arm.evals) for arm in arms.values()) < 2:
        return Verdict(
            Severity.CANNOT_TELL,
            "Fewer than two seeds have ended: it is too early for a conclusion.",
            "Run it with more --seeds.",
        )
    if better:
        headline = (
            f"Against the control of their regime these keep more pass@{most} with no significant loss of pass@1:"
            f" {', '.join(better)}."
        )
        return Verdict(Severity.GOOD, headline, "Intervals are over seeds, not corrected for the number of arms.")
    return Verdict(Severity.NOTE, f"No arm keeps significantly more pass@{most} than the control of its regime.")


def remedy_scores_table(arms: dict[str, ArmEvals], base: CheckpointEval | None, most: int) -> Table:
    """Scores at the end, with intervals over seeds and places that admit ties."""
    few = min(8, most)
    first, breadth = ({name: arm.seed_interval(pass_at(k)) for name, arm in arms.items()} for k in (1, most))
    places, wide = seed_ranks(first), seed_ranks(breadth)
    rows: list[list[Cell]] = (
        []
        if base is None
        else [["base", 0, *(average_pass_at_k(base, k) for k in (1, few, most)), average_majority(base, few), "", ""]]
    )
    for name, arm in arms.items():
        cells = (
            first[name],
            arm.seed_interval(pass_at(few)),
            breadth[name],
            arm.seed_interval(lambda checkpoint: checkpoint.majority_at_k(few)),
        )
        rows.append([name, ALL_ARMS[name].updates, *cells, places[name], wide[name]])
    names = (
        "arm",
        "updates",
        "pass@1",
        f"pass@{few}",
        f"pass@{most}",
        f"maj@{few}",
        "place by pass@1",
        f"place by pass@{most}",
    )
    note = (
        "Intervals: Student's t over seeds. Arms whose intervals overlap share places. Updates: optimizer steps per"
        " generation."
    )
    return Table("At the end of training, on held-out problems", [Column(name) for name in names], rows, note)


def gains_table(arms: dict[str, ArmEvals], most: int) -> Table:
    """Differences to the control of the same regime and seed, with both intervals."""
    rows: list[list[Cell]] = []
    for name, arm in arms.items():
        control = arms.get(ALL_ARMS[name].control)
        if control is None or control is arm:
            continue
        gains = [
            gain
            for k in (1, most)
            for gain in (arm.gain_over_seeds(control, pass_at(k)), arm.gain_over_problems(control, pass_at(k)))
        ]
        rows.append([name, ALL_ARMS[name].control, *gains, ALL_ARMS[name].description])
    if PLAIN in arms and ON_POLICY in arms:
        own, other = arms[PLAIN], arms[ON_POLICY]
        gains = [
            gain
            for k in (1, most)
            for gain in (own.gain_over_seeds(other, pass_at(k)), own.gain_over_problems(other, pass_at(k)))
        ]
        rows.insert(0, [PLAIN, ON_POLICY, *gains, ALL_ARMS[PLAIN].description])
    names = (
        "arm",
        "against",
        "pass@1, seeds",
        "pass@1, problems",
        f"pass@{most}, seeds",
        f"pass@{most}, problems",
        "what it is",
    )
    return Table(
        "Against the control, paired by seed",
        [Column(name) for name in names],
        rows,
        "Each difference with its interval over either.",
    )


def entropies_table(arms: dict[str, ArmEvals], base: CheckpointEval | None, most: int) -> Table:
    """Where entropy is left, and how many different answers."""
    draws = min(16, most)
    rows: list[list[Cell]] = []
    if base is not None:
        own: list[Cell] = [
            base.entropy,
            base.planning,
            base.execution,
            float(np.mean(base.distinct_answers(draws))),
            base.well_formed,
        ]
        rows.append(["base", *own, Missing("The base is what the others are compared with.")])
    for name, arm in arms.items():
        numbers = [
            arm.scalar_interval(of, NON_NEGATIVE)
            for of in (
                lambda checkpoint: checkpoint.entropy,
                lambda checkpoint: checkpoint.planning,
                lambda checkpoint: checkpoint.execution,
            )
        ]
        distinct = arm.seed_interval(lambda checkpoint: checkpoint.distinct_answers(draws), bounds=NON_NEGATIVE)
        rows.append(
            [
                name,
                *numbers,
                distinct,
                arm.scalar_interval(lambda checkpoint: checkpoint.well_formed, (0.0, 1.0)),
                transfer_gap_cell(arm, base),
            ]
        )
    names = (
        "arm",
        "entropy",
        "of planning",
        "of execution",
        f"different answers of {draws}",
        "well formed",
        "transfer gap",
    )
    note = (
        "Entropy in nats per token; planning tokens choose (the forks), execution tokens state a value. Transfer gap:"
        " different answers lost on problems that neither base nor policy solves, at the seeds that have any; all"
        " intervals over seeds."
    )
    return Table("Where entropy is left", [Column(name) for name in names], rows, note)


def transfer_gap_cell(arm: ArmEvals, base: CheckpointEval | None) -> Cell:
    """Return the transfer gap of an arm, over the seeds that have one."""
    if base is None:
        return Missing("The base has not been evaluated.")
    gaps = [
        transfer_gap(checkpoint.to_arm_samples, base.to_arm_samples).every.shared.value
        for checkpoint in arm.last.values()
    ]
    found = [gap for gap in gaps if np.isfinite(gap)]
    return (
        seed_interval(found)
        if len(found) > 1
        else Missing("At one seed or none is a problem left that both leave unsolved.")
    )


def pass_at(k: int) -> ProblemScores:
    """Return a function that gives pass@k of each problem."""

    def measure(checkpoint: CheckpointEval) -> FloatArray:
        return checkpoint.pass_at_k(k)

    return measure


def average_pass_at_k(checkpoint: CheckpointEval, k: int) -> float:
    """Return the mean pass@k over problems."""
    return float(np.mean(checkpoint.pass_at_k(k)))


def average_majority(checkpoint: CheckpointEval, k: int) -> float:
    """Return the mean maj@k over problems."""
    return float(np.mean(checkpoint.majority_at_k(k)))


def validation_sections(done: Sequence[FinishedTrial], replies: int) -> list[Section]:
    """Return the table and the pair chosen by the rule; nothing if no trial was evaluated on the validation set.

    ``replies`` is the number per problem.
    """
    found: dict[str, list[ValidatedResult]] = {}
    for trial in done:
        if "validation" in trial.result:
            found.setdefault(trial.trial.arm, []).append(trial.result)
    arms = {name: found[name] for name in ALL_ARMS if name in found}
    note = (
        "Neither trained on nor held out; intervals over seeds. As many replies vote as fit into the tokens, by their"
        " mean length."
    )
    return [*pair_verdict(arms), validation_table("arm", arms, replies, note)] if arms else []


def pair_verdict(arms: Mapping[str, Sequence[ValidatedResult]]) -> list[Section]:
    """Name the two arms to combine."""
    votes = {name: validation_interval(seeds, VALIDATION_VOTE) for name, seeds in arms.items()}
    pair = best_pair({name: vote.value for name, vote in votes.items()})
    if pair is None:
        return []
    rule = "The two arms of one regime with the best votes on validation problems, chosen without held-out problems."
    return [
        Verdict(
            Severity.NOTE, f"The pair to try is {' and '.join(pair)}.", rule, [Fact(name, votes[name]) for name in pair]
        )
    ]


CURVE_BLOCK = 10
"""Generations that a point of a training curve averages over."""
MAX_SHOWN_ARMS = 4
"""Arms plotted next to the controls; more lines are hard to distinguish."""


def remedy_curves(arms: dict[str, ArmEvals], done: Sequence[FinishedTrial]) -> list[Curve]:
    """Plot planning entropy in training, and pass@1 and pass@8 at the evaluations, for controls and best arms."""
    shown = {name: arms[name] for name in choose_shown_arms(arms)}
    lines = [
        entropy_series(name, [trial for trial in done if trial.trial.name.startswith(f"{name}/seed-")])
        for name in shown
    ]
    note = f"Means over seeds; the controls and the {MAX_SHOWN_ARMS} arms with the highest coverage at the end."
    entropy = Curve(
        "Entropy of the planning tokens while training",
        [line for line in lines if line.x],
        Axis("generation"),
        Axis("entropy", "nats"),
        note=f"{note} On training problems.",
    )
    scored, covered = ([pass_at_k_series(name, arm, k) for name, arm in shown.items()] for k in (1, 8))
    return [
        entropy,
        Curve(
            "Score at each evaluation", scored, Axis("generation"), Axis("pass@1"), note=f"{note} On held-out problems."
        ),
        Curve(
            "Coverage at each evaluation",
            covered,
            Axis("generation"),
            Axis("pass@8"),
            note=f"{note} On held-out problems.",
        ),
    ]


def choose_shown_arms(arms: dict[str, ArmEvals]) -> list[str]:
    """Choose the arms to draw."""
    others = [name for name in arms if name not in (ON_POLICY, PLAIN)]
    others.sort(
        key=lambda name: -arms[name].seed_interval(lambda checkpoint: checkpoint.pass_at_k(checkpoint.samples)).value
    )
    return [name for name in (ON_POLICY, PLAIN, *others[:MAX_SHOWN_ARMS]) if name in arms]


def entropy_series(name: str, done: Sequence[FinishedTrial]) -> Series:
    """Average the seeds, each over blocks of generations."""
    found = [trial.result["train"] for trial in done]
    length = min((len(log["steps"]) for log in found), default=0)
    if not length:
        return Series(name, (), ())
    table = np.array(
        [[np.nan if value is None else value for value in log["planning"][:length]] for log in found]
    ).mean(0)
    width = min(CURVE_BLOCK, max(1, length // 4))
    ends = range(width, length + 1, width)
    return Series(
        name,
        [found[0]["steps"][end - 1] / ALL_ARMS[name].updates for end in ends],
        [float(table[end - width : end].mean()) for end in ends],
    )


def pass_at_k_series(name: str, arm: ArmEvals, k: int) -> Series:
    """Average pass@k at each step at which every seed was evaluated."""
    by_seed = [
        {
            checkpoint.step: float(np.mean(checkpoint.pass_at_k(min(k, checkpoint.samples))))
            for checkpoint in checkpoints
        }
        for checkpoints in arm.evals.values()
    ]
    steps = sorted(set.intersection(*(set(scores) for scores in by_seed)))
    return Series(
        name,
        [step / ALL_ARMS[name].updates for step in steps],
        [float(np.mean([scores[step] for scores in by_seed])) for step in steps],
    )
