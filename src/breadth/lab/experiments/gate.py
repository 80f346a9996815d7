"""The gate a base must pass before anything is built on it: room to gain, breadth to lose, thinking that can be too long."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from breadth.base.checks import require
from breadth.base.errors import BrokenFileError
from breadth.lab.evaluation.evaluate import LONGEST, PLAIN, Evaluation, evaluate
from breadth.lab.grpo import STAGES, TRAINED
from breadth.lab.model.reasoner import Reasoner, load
from breadth.lab.task.problems import Level, Problem, held_out
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.paired_tests import HumpTest, hump_test, paired_difference
from breadth.report.cells import Cell
from breadth.report.sections import Axis, Column, Curve, Fact, Page, Section, Series, Severity, Table, Verdict

STRETCHES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Thinking that is forced, as multiples of the natural length; the last is the longest that is asked about."""
Told = Callable[[str], None]


@dataclass(frozen=True)
class Gate:
    """What is asked of a base, and how it is measured."""

    problems: int = 200
    """Problems held out."""
    samples: int = 64
    """Replies to each; pass@k is asked for this k."""
    forced_samples: int = 4
    """Replies to each at every length of forced thinking."""
    level: Level = "medium"
    """How long the problems are."""
    score: tuple[float, float] = (0.10, 0.40)
    """Range of pass@1: something to gain, something to learn from."""
    breadth: tuple[float, float] = (0.80, 0.97)
    """Range of pass@k at all replies: something to lose, and not everything is solved."""
    alive: float = 0.10
    """Share that the rarer surface format must have."""
    votes: float = 0.10
    """How far maj@8 must lie above pass@1 at some stage of plain training."""

    def __post_init__(self) -> None:
        require(self, "samples", self.samples >= 8, "8 or more, for maj@8")
        require(self, "problems", self.problems >= 2, "2 or more")
        require(self, "forced_samples", self.forced_samples >= 1, "1 or more")


@dataclass(frozen=True)
class Check:
    """One thing asked."""

    what: str
    """What was measured."""
    wanted: str
    """What it should be."""
    found: Cell
    """What it is."""
    met: bool
    """Whether the value found is as wanted."""
    note: str = ""
    """What a reader should know."""


@dataclass(frozen=True)
class Passage:
    """What the gate found."""

    checks: tuple[Check, ...]
    """Everything asked, in order."""
    hump: HumpTest
    """Accuracy against forced thinking."""
    natural: float
    """Mean tokens of a reply that nothing is forced on."""

    @property
    def met(self) -> bool:
        """Whether all of it is as wanted."""
        return all(check.met for check in self.checks)


def pass_gate(
    reasoner: Reasoner,
    gate: Gate = Gate(),
    trained: Path | None = None,
    told: Told = lambda _: None,
) -> Passage:
    """Measure a base; with the folder of a plain course that kept its stages, measure what training made of it too."""
    problems = held_out(reasoner.teacher.facts.prime, gate.level)[: gate.problems]
    told("replies to the problems held out")
    base = evaluate(reasoner, problems, gate.samples)
    natural = float(base.tokens.mean())
    hump = _forced(reasoner, problems, gate, natural, told)
    checks = [*_base_checks(base, gate), *_hump_checks(hump, natural)]
    if trained is not None:
        checks += _trained_checks(base, trained, gate, told)
    return Passage(tuple(checks), hump, natural)


def gate_page(passage: Passage, gate: Gate, command: str) -> Page:
    """Put what was found on a page."""
    missed = [check.what for check in passage.checks if not check.met]
    headline = f"Not met: {', '.join(missed)}." if missed else f"All {len(passage.checks)} conditions are met."
    rows: list[list[Cell]] = [
        [check.what, check.wanted, check.found, "yes" if check.met else "no", check.note] for check in passage.checks
    ]
    columns = [Column(name) for name in ("what", "wanted", "found", "met", "note")]
    hump = passage.hump
    sections: list[Section] = [
        Verdict(
            Severity.WARNING if missed else Severity.GOOD,
            headline,
            "Met is judged by the value found; the interval says how sure that is.",
        ),
        Table("The gate", columns, rows),
        Curve(
            "Accuracy against forced thinking",
            [Series("accuracy", hump.budgets, hump.accuracies)],
            Axis("least thinking", "tokens"),
            Axis("accuracy"),
            note=f"A reply has {passage.natural:.0f} tokens where nothing is forced.",
        ),
    ]
    facts = [
        Fact("command", command),
        Fact("held-out problems", gate.problems),
        Fact("replies to each", gate.samples),
        Fact("level", gate.level),
    ]
    return Page("The gate of the base", sections, provenance=facts)


def _base_checks(base: Evaluation, gate: Gate) -> Iterator[Check]:
    yield _within("pass@1", base.pass_at(1), gate.score)
    yield _within(f"pass@{gate.samples}", base.pass_at(gate.samples), gate.breadth)
    shares = sorted(base.styles().values())
    rarest = _rarest(base)
    yield Check(
        "rarer format's share", f"{gate.alive:g} or more", rarest, len(shares) > 1 and rarest.value >= gate.alive
    )


def _within(what: str, found: Interval, wanted: tuple[float, float]) -> Check:
    low, high = wanted
    sure = low <= found.low and found.high <= high
    met = low <= found.value <= high
    return Check(what, f"{low:g} to {high:g}", found, met, "" if sure or not met else "the interval reaches outside")


def _rarest(base: Evaluation) -> Interval:
    """Return the share of the rarer surface format, with the interval over problems."""
    rows = [
        [trace.attempts[0].style for trace in traces if trace.attempts and trace.attempts[0].style]
        for traces in base.traces
    ]
    names = [name for row in rows for name in row]
    if not names:
        return Interval(0.0, 0.0, 1.0, method="no format was seen")
    rarer = "prefix" if names.count("prefix") <= names.count("infix") else "infix"
    return mean_interval([row.count(rarer) / len(row) for row in rows if row], bounds=(0.0, 1.0))


def _forced(reasoner: Reasoner, problems: Sequence[Problem], gate: Gate, natural: float, told: Told) -> HumpTest:
    """Measure accuracy with nothing forced and with ever longer thinking."""
    budgets = sorted({0, *(math.ceil(stretch * natural) for stretch in STRETCHES)})
    columns = []
    for budget in budgets:
        told(f"at least {budget} thinking tokens")
        sampling = replace(PLAIN, max_tokens=budget + LONGEST)
        found = evaluate(reasoner, problems, gate.forced_samples, seed=1, sampling=sampling, least_thinking=budget)
        columns.append(found.right.mean(1))
    return hump_test(budgets, np.stack(columns, 1))


def _hump_checks(hump: HumpTest, natural: float) -> Iterator[Check]:
    last = hump.budgets[-1]
    yield Check(
        "best forced thinking",
        f"inside 8 x {natural:.0f} tokens",
        f"{hump.peak:.0f} tokens",
        hump.peak < last,
        f"accuracy {max(hump.accuracies):.3f} there, {hump.accuracies[-1]:.3f} at {last:.0f}",
    )
    note = "" if hump.can_tell else "too few problems differ to tell"
    yield Check(
        "fall past the best", "above 0 for sure", hump.fall, hump.is_positive, note or f"p = {hump.p_value:.2g}"
    )


def _trained_checks(base: Evaluation, folder: Path, gate: Gate, told: Told) -> Iterator[Check]:
    """Ask that plain training costs breadth, and that a vote is worth something somewhere on the way."""
    places = _policies(folder)
    looks = {}
    for name, place in places.items():
        told(f"the policy of {name}")
        looks[name] = evaluate(load(place), base.problems, gate.samples)
    k = gate.samples
    lost = paired_difference(looks[TRAINED].pass_by_problem(k), base.pass_by_problem(k))
    yield Check(
        f"pass@{k} after plain training less before", "below 0 for sure", lost.difference, lost.difference.high < 0
    )
    gains = {name: mean_interval(look.majority_by_problem(8) - look.pass_by_problem(1)) for name, look in looks.items()}
    best = max(gains, key=lambda name: gains[name].value)
    yield Check(
        "maj@8 less pass@1 while training",
        f"{gate.votes:g} or more somewhere",
        gains[best],
        gains[best].value >= gate.votes,
        f"at {best}",
    )


def _policies(folder: Path) -> dict[str, Path]:
    """List the policies of a course, by stage."""
    if not (folder / TRAINED).is_dir():
        raise BrokenFileError(
            folder,
            f"holds no trained policy ({TRAINED}).",
            "Name the folder of a course that has ended, e.g. on-policy/seed-0 of remedies.",
        )
    stages = sorted(int(path.name) for path in (folder / STAGES).glob("*") if path.name.isdigit())
    return {**{f"step {step}": folder / STAGES / str(step) for step in stages}, TRAINED: folder / TRAINED}
