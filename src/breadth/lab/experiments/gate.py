"""The gate that a base must pass first: room to gain, breadth to lose, thinking that can be too long."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from breadth.base.errors import BrokenFileError, require
from breadth.lab.evaluation.evaluate import MAX_REPLY_TOKENS, PLAIN_SAMPLING, Evaluation, evaluate
from breadth.lab.grpo import POLICY_FOLDER, STAGES_FOLDER
from breadth.lab.reasoner import Reasoner, load_reasoner
from breadth.lab.task.problems import Level, Problem, draw_held_out
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.paired_tests import HumpTest, hump_test, paired_difference
from breadth.report.cells import Cell
from breadth.report.sections import Axis, Column, Curve, Fact, Page, Section, Series, Severity, Table, Verdict

THINKING_MULTIPLES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Lengths of forced thinking, as multiples of the natural length."""
OnStage = Callable[[str], None]


@dataclass(frozen=True)
class Gate:
    """What a base must satisfy, and how it is measured."""

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
class GateCheck:
    """One condition."""

    quantity: str
    """Quantity that was measured."""
    required: str
    """Required value."""
    value: Cell
    """Measured value."""
    is_met: bool
    """Whether the measured value is as required."""
    note: str = ""
    """What a reader should know."""


@dataclass(frozen=True)
class GateResult:
    """Result of the gate."""

    checks: tuple[GateCheck, ...]
    """All conditions, in order."""
    hump: HumpTest
    """Accuracy against forced thinking."""
    natural: float
    """Mean tokens of a reply that nothing is forced on."""

    @property
    def is_met(self) -> bool:
        """Whether all conditions are met."""
        return all(check.is_met for check in self.checks)


def run_gate(
    reasoner: Reasoner,
    gate: Gate = Gate(),  # noqa: B008 - frozen
    trained: Path | None = None,
    on_stage: OnStage = lambda _: None,
) -> GateResult:
    """Check a base; with the folder of a plain run that kept its stages, check what training made of it too."""
    problems = draw_held_out(reasoner.teacher.facts.prime, gate.level)[: gate.problems]
    on_stage("replies to the problems held out")
    base = evaluate(reasoner, problems, gate.samples)
    natural = float(base.tokens.mean())
    hump = measure_forced_thinking(reasoner, problems, gate, natural, on_stage)
    checks = [*base_checks(base, gate), *hump_checks(hump, natural)]
    if trained is not None:
        checks += training_checks(base, trained, gate, on_stage)
    return GateResult(tuple(checks), hump, natural)


def gate_page(result: GateResult, gate: Gate, command: str) -> Page:
    """Put what was found on a page."""
    missed = [check.quantity for check in result.checks if not check.is_met]
    headline = f"Not met: {', '.join(missed)}." if missed else f"All {len(result.checks)} conditions are met."
    rows: list[list[Cell]] = [
        [check.quantity, check.required, check.value, "yes" if check.is_met else "no", check.note]
        for check in result.checks
    ]
    columns = [Column(name) for name in ("quantity", "required", "measured", "met", "note")]
    hump = result.hump
    sections: list[Section] = [
        Verdict(
            Severity.WARNING if missed else Severity.GOOD,
            headline,
            "A condition is met by the measured value; the interval shows how sure that is.",
        ),
        Table("The gate", columns, rows),
        Curve(
            "Accuracy against forced thinking",
            [Series("accuracy", hump.budgets, hump.accuracies)],
            Axis("minimum thinking", "tokens"),
            Axis("accuracy"),
            note=f"An unforced reply has {result.natural:.0f} tokens.",
        ),
    ]
    facts = [
        Fact("command", command),
        Fact("held-out problems", gate.problems),
        Fact("replies to each", gate.samples),
        Fact("level", gate.level),
    ]
    return Page("The gate of the base", sections, provenance=facts)


def base_checks(base: Evaluation, gate: Gate) -> Iterator[GateCheck]:
    """Yield the conditions on the base itself."""
    yield range_check("pass@1", base.pass_at(1), gate.score)
    yield range_check(f"pass@{gate.samples}", base.pass_at(gate.samples), gate.breadth)
    shares = sorted(base.styles().values())
    rarest = rarer_style_share(base)
    yield GateCheck(
        "rarer format's share", f"{gate.alive:g} or more", rarest, len(shares) > 1 and rarest.value >= gate.alive
    )


def range_check(what: str, found: Interval, wanted: tuple[float, float]) -> GateCheck:
    """Check that a value lies in a range."""
    low, high = wanted
    sure = low <= found.low and found.high <= high
    met = low <= found.value <= high
    return GateCheck(
        what, f"{low:g} to {high:g}", found, met, "" if sure or not met else "the interval reaches outside"
    )


def rarer_style_share(base: Evaluation) -> Interval:
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


def measure_forced_thinking(
    reasoner: Reasoner, problems: Sequence[Problem], gate: Gate, natural: float, on_stage: OnStage
) -> HumpTest:
    """Measure accuracy with nothing forced and with ever longer thinking."""
    budgets = sorted({0, *(math.ceil(stretch * natural) for stretch in THINKING_MULTIPLES)})
    columns = []
    for budget in budgets:
        on_stage(f"at least {budget} thinking tokens")
        sampling = replace(PLAIN_SAMPLING, max_tokens=budget + MAX_REPLY_TOKENS)
        found = evaluate(reasoner, problems, gate.forced_samples, seed=1, sampling=sampling, min_thinking=budget)
        columns.append(found.right.mean(1))
    return hump_test(budgets, np.stack(columns, 1))


def hump_checks(hump: HumpTest, natural: float) -> Iterator[GateCheck]:
    """Yield the conditions on forced thinking."""
    last = hump.budgets[-1]
    yield GateCheck(
        "best forced thinking",
        f"inside 8 x {natural:.0f} tokens",
        f"{hump.peak:.0f} tokens",
        hump.peak < last,
        f"accuracy {max(hump.accuracies):.3f} there, {hump.accuracies[-1]:.3f} at {last:.0f}",
    )
    note = "" if hump.can_tell else "too few problems differ to tell"
    yield GateCheck(
        "fall past the best", "above 0 for sure", hump.fall, hump.is_positive, note or f"p = {hump.p_value:.2g}"
    )


def training_checks(base: Evaluation, folder: Path, gate: Gate, on_stage: OnStage) -> Iterator[GateCheck]:
    """Check that plain training costs breadth, and that a vote gains somewhere along the way."""
    places = list_policies(folder)
    evaluations = {}
    for name, place in places.items():
        on_stage(f"the policy of {name}")
        evaluations[name] = evaluate(load_reasoner(place), base.problems, gate.samples)
    k = gate.samples
    lost = paired_difference(evaluations[POLICY_FOLDER].pass_by_problem(k), base.pass_by_problem(k))
    yield GateCheck(
        f"pass@{k} after plain training minus before", "below 0 for sure", lost.difference, lost.difference.high < 0
    )
    gains = {
        name: mean_interval(evaluation.majority_by_problem(8) - evaluation.pass_by_problem(1))
        for name, evaluation in evaluations.items()
    }
    best = max(gains, key=lambda name: gains[name].value)
    yield GateCheck(
        "maj@8 minus pass@1 while training",
        f"{gate.votes:g} or more somewhere",
        gains[best],
        gains[best].value >= gate.votes,
        f"at {best}",
    )


def list_policies(folder: Path) -> dict[str, Path]:
    """List the policies of a run, by stage."""
    if not (folder / POLICY_FOLDER).is_dir():
        raise BrokenFileError(
            folder,
            f"holds no trained policy ({POLICY_FOLDER}).",
            "Name the folder of a run that has ended, e.g. on-policy/seed-0 of remedies.",
        )
    stages = sorted(int(path.name) for path in (folder / STAGES_FOLDER).glob("*") if path.name.isdigit())
    return {
        **{f"step {step}": folder / STAGES_FOLDER / str(step) for step in stages},
        POLICY_FOLDER: folder / POLICY_FOLDER,
    }
