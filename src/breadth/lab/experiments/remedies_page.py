"""The page of the remedies: what each arm did to score, coverage, votes, entropy and diversity, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from breadth.lab.experiments.arms import ON_POLICY, PLAIN
from breadth.lab.experiments.pairing import ALL_ARMS
from breadth.lab.experiments.remedies_beside import beside
from breadth.lab.experiments.remedies_curves import curves
from breadth.lab.measuring.looks import Look
from breadth.lab.measuring.measured_arms import Floats, Measure, MeasuredArm, measured_arms
from breadth.lab.measuring.seeds import over_seeds, ranks
from breadth.lab.trials.experiment import Bench, Done
from breadth.measure.transfer import transfer_gap
from breadth.report.cells import Cell, Missing
from breadth.report.sections import Column, Fact, Page, Section, Severity, Table, Verdict

if TYPE_CHECKING:
    from breadth.lab.experiments.remedies import Remedies

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
    def measure(look: Look) -> Floats:
        return look.passed(k)

    return measure


def _mean(look: Look, k: int) -> float:
    return float(np.mean(look.passed(k)))


def _voted_mean(look: Look, k: int) -> float:
    return float(np.mean(look.voted(k)))
