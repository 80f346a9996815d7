"""Which remedy keeps breadth, and what it costs: every arm at the same steps, rate and problems, against the control of its regime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from breadth.lab.evaluation.checkpoints import (
    VOTED,
    Judged,
    Look,
    Looks,
    Measure,
    MeasuredArm,
    base_trial,
    beside_table,
    course_trial,
    measured_arms,
    over_beside,
)
from breadth.lab.evaluation.seeds import over_seeds, ranks
from breadth.lab.experiments.arms import ALL_ARMS, ON_POLICY, PLAIN, best_pair
from breadth.lab.trials.experiment import Bench, Done, Trial
from breadth.measure.transfer import transfer_gap
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
        from breadth.lab.experiments.arms import ALL_ARMS

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

        return remedies_page(self, done, bench)


REMEDIES = Remedies()
"""As it is run."""


NATS = (0.0, float("inf"))


def remedies_page(experiment: Remedies, done: Sequence[Done], bench: Bench) -> Page:
    """Put what the trials found on one page."""
    found = measured_arms(done)
    arms = {name: found[name] for name in ALL_ARMS if name in found}
    base = next((Look.from_row(one.result["looks"][0]) for one in done if one.trial.name == "base"), None)
    most = experiment.looks.samples
    sections: list[Section] = [_verdict(arms, most)]
    if arms:
        sections += [_scores(arms, base, most), _gains(arms, most), _entropies(arms, base, most)]
        sections += [*beside(done, experiment.looks.samples_beside), *curves(arms, done)]
    facts = [Fact("base", bench.weights), Fact("seeds", max((len(arm.looks) for arm in arms.values()), default=0))]
    facts += [Fact("held-out problems", experiment.looks.problems), Fact("replies to each", most)]
    return Page("Remedies for entropy collapse", sections, experiment.statement, facts)


def _verdict(arms: dict[str, MeasuredArm], most: int) -> Verdict:
    """Name the arms that keep more coverage than their control without losing score, where the intervals over seeds say so."""
    better = []
    for name, arm in arms.items():
        control = arms.get(ALL_ARMS[name].control)
        if name in (ON_POLICY, PLAIN) or control is None:
            continue
        breadth, score = arm.gain_over_seeds(control, _passed(most)), arm.gain_over_seeds(control, _passed(1))
        if breadth is not None and score is not None and breadth.low > 0 and score.high >= 0:
            better.append(name)
    if not arms or max(len(arm.looks) for arm in arms.values()) < 2:
        return Verdict(
            Severity.CANNOT_TELL, "One seed or none has ended: nothing can be said yet.", "Run it with more --seeds."
        )
    if better:
        headline = (
            f"Against the control of their regime these keep more pass@{most} and do not lose pass@1 for sure:"
            f" {', '.join(better)}."
        )
        return Verdict(Severity.GOOD, headline, "Intervals are over seeds, not corrected for the number of arms.")
    return Verdict(Severity.NOTE, f"No arm keeps more pass@{most} than the control of its regime for sure.")


def _scores(arms: dict[str, MeasuredArm], base: Look | None, most: int) -> Table:
    """Scores at the end, with intervals over seeds and places that admit ties."""
    few = min(8, most)
    first, breadth = ({name: arm.over_seeds(_passed(k)) for name, arm in arms.items()} for k in (1, most))
    places, wide = ranks(first), ranks(breadth)
    rows: list[list[Cell]] = (
        [] if base is None else [["base", 0, *(_mean(base, k) for k in (1, few, most)), _voted_mean(base, few), "", ""]]
    )
    for name, arm in arms.items():
        cells = (first[name], arm.over_seeds(_passed(few)), breadth[name], arm.over_seeds(lambda look: look.voted(few)))
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
        "Intervals: Student's t over seeds. Arms whose intervals overlap share places. Updates: optimizer steps a"
        " generation."
    )
    return Table("At the end of the course, on problems held out", [Column(one) for one in names], rows, note)


def _gains(arms: dict[str, MeasuredArm], most: int) -> Table:
    """Differences to the control of the same regime and seed, with both intervals."""
    rows: list[list[Cell]] = []
    for name, arm in arms.items():
        control = arms.get(ALL_ARMS[name].control)
        if control is None or control is arm:
            continue
        gains = [
            gain
            for k in (1, most)
            for gain in (arm.gain_over_seeds(control, _passed(k)), arm.gain_over_problems(control, _passed(k)))
        ]
        rows.append([name, ALL_ARMS[name].control, *gains, ALL_ARMS[name].what])
    if PLAIN in arms and ON_POLICY in arms:
        own, other = arms[PLAIN], arms[ON_POLICY]
        gains = [
            gain
            for k in (1, most)
            for gain in (own.gain_over_seeds(other, _passed(k)), own.gain_over_problems(other, _passed(k)))
        ]
        rows.insert(0, [PLAIN, ON_POLICY, *gains, ALL_ARMS[PLAIN].what])
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
        [Column(one) for one in names],
        rows,
        "Each difference with its interval over either.",
    )


def _entropies(arms: dict[str, MeasuredArm], base: Look | None, most: int) -> Table:
    """Where entropy is left, and how many different answers."""
    draws = min(16, most)
    rows: list[list[Cell]] = []
    if base is not None:
        own: list[Cell] = [
            base.entropy,
            base.planning,
            base.execution,
            float(np.mean(base.distinct(draws))),
            base.formed,
        ]
        rows.append(["base", *own, Missing("The base is what the others are compared with.")])
    for name, arm in arms.items():
        numbers = [
            arm.number(of, NATS)
            for of in (lambda look: look.entropy, lambda look: look.planning, lambda look: look.execution)
        ]
        distinct = arm.over_seeds(lambda look: look.distinct(draws), bounds=NATS)
        rows.append([name, *numbers, distinct, arm.number(lambda look: look.formed, (0.0, 1.0)), _gap(arm, base)])
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
        "Entropy in nats a token; planning tokens choose (the forks), execution tokens state a value. Transfer gap:"
        " different answers lost on problems that neither base nor policy solves, at the seeds that have any; all"
        " intervals over seeds."
    )
    return Table("Where entropy is left", [Column(one) for one in names], rows, note)


def _gap(arm: MeasuredArm, base: Look | None) -> Cell:
    if base is None:
        return Missing("The base has not been looked at.")
    gaps = [transfer_gap(look.arm, base.arm).every.shared.value for look in arm.last.values()]
    found = [gap for gap in gaps if np.isfinite(gap)]
    return (
        over_seeds(found)
        if len(found) > 1
        else Missing("At one seed or none is a problem left that both leave unsolved.")
    )


def _passed(k: int) -> Measure:
    def measure(look: Look) -> FloatArray:
        return look.passed(k)

    return measure


def _mean(look: Look, k: int) -> float:
    return float(np.mean(look.passed(k)))


def _voted_mean(look: Look, k: int) -> float:
    return float(np.mean(look.voted(k)))


def beside(done: Sequence[Done], replies: int) -> list[Section]:
    """Return the table, and the pair by the rule; nothing where no trial was judged beside.

    ``replies`` are those to each problem.
    """
    found: dict[str, list[Judged]] = {}
    for one in done:
        if "beside" in one.result:
            found.setdefault(one.trial.arm, []).append(one.result)
    arms = {name: found[name] for name in ALL_ARMS if name in found}
    note = (
        "Neither trained on nor held out; intervals over seeds. As many replies vote as fit into the tokens, by their"
        " mean length."
    )
    return [*_pair(arms), beside_table("arm", arms, replies, note)] if arms else []


def _pair(arms: Mapping[str, Sequence[Judged]]) -> list[Section]:
    votes = {name: over_beside(seeds, VOTED) for name, seeds in arms.items()}
    pair = best_pair({name: vote.value for name, vote in votes.items()})
    if pair is None:
        return []
    rule = (
        "The two of one regime with the best votes beside the problems trained on; chosen without a look at what is"
        " held out."
    )
    return [
        Verdict(
            Severity.NOTE, f"The pair to try is {' and '.join(pair)}.", rule, [Fact(name, votes[name]) for name in pair]
        )
    ]


WIDTH = 10
"""Generations that a point of a training curve averages over."""
SHOWN = 4
"""Arms that are drawn beside the controls; more lines cannot be told apart."""


def curves(arms: dict[str, MeasuredArm], done: Sequence[Done]) -> list[Curve]:
    """Draw the entropy of planning tokens while training and pass@8 at each look: the controls and the arms with the most coverage."""
    shown = {name: arms[name] for name in drawn(arms)}
    lines = [_entropy(name, [one for one in done if one.trial.name.startswith(f"{name}/seed-")]) for name in shown]
    note = f"Means over seeds; the controls and the {SHOWN} arms with the highest coverage at the end."
    entropy = Curve(
        "Entropy of the planning tokens while training",
        [line for line in lines if line.x],
        Axis("generation"),
        Axis("entropy", "nats"),
        note=f"{note} On the problems trained on.",
    )
    scored, covered = ([_passed_of_remedies_curves(name, arm, k) for name, arm in shown.items()] for k in (1, 8))
    return [
        entropy,
        Curve("Score at each look", scored, Axis("generation"), Axis("pass@1"), note=f"{note} On problems held out."),
        Curve(
            "Coverage at each look", covered, Axis("generation"), Axis("pass@8"), note=f"{note} On problems held out."
        ),
    ]


def drawn(arms: dict[str, MeasuredArm]) -> list[str]:
    """Choose the arms to draw."""
    others = [name for name in arms if name not in (ON_POLICY, PLAIN)]
    others.sort(key=lambda name: -arms[name].over_seeds(lambda look: look.passed(look.samples)).value)
    return [name for name in (ON_POLICY, PLAIN, *others[:SHOWN]) if name in arms]


def _entropy(name: str, done: Sequence[Done]) -> Series:
    """Average the seeds, each over blocks of generations."""
    found = [one.result["train"] for one in done]
    length = min((len(one["steps"]) for one in found), default=0)
    if not length:
        return Series(name, (), ())
    table = np.array(
        [[np.nan if value is None else value for value in one["planning"][:length]] for one in found]
    ).mean(0)
    width = min(WIDTH, max(1, length // 4))
    ends = range(width, length + 1, width)
    return Series(
        name,
        [found[0]["steps"][end - 1] / ALL_ARMS[name].updates for end in ends],
        [float(table[end - width : end].mean()) for end in ends],
    )


def _passed_of_remedies_curves(name: str, arm: MeasuredArm, k: int) -> Series:
    """Average pass@k at each step at which every seed was looked at."""
    by_seed = [
        {look.step: float(np.mean(look.passed(min(k, look.samples)))) for look in looks} for looks in arm.looks.values()
    ]
    steps = sorted(set.intersection(*(set(one) for one in by_seed)))
    return Series(
        name,
        [step / ALL_ARMS[name].updates for step in steps],
        [float(np.mean([one[step] for one in by_seed])) for step in steps],
    )
