"""The cases of known truth: the course of each, what is wrong with it on purpose, and the signs by which one sees that it came about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from breadth.lab.courses.course import Course
from breadth.lab.courses.faults import Fault, Killed, kill_at
from breadth.lab.courses.signs import Sign
from breadth.lab.courses.staging import train_in_stages
from breadth.lab.model.reasoner import load
from breadth.runs.schema import read_header, storable, write_header
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.entropy_bonus import EntropyBonus
from breadth.training.loss.fork_thermostat import ForkThermostat

PLAIN = Chain((GroupAdvantage(), ClippedPolicy()))
TRIES = 16
"""Replies of the base by which problems are chosen."""
RESTARTED = "restarted"
"""Beside the run: that it has been killed on purpose already."""


@dataclass(frozen=True)
class Case:
    """One run of known truth."""

    why: str
    """What causes it."""
    course: Course
    """How it is trained."""
    signs: tuple[Sign, ...]
    """What must be seen in the run for the label to hold."""
    also: tuple[str, ...] = ()
    """Other findings that would be right to name beside it."""
    fault: Fault = Fault()
    """What is wrong with the run beyond its settings."""


def _course(chain: Chain = PLAIN, **settings: Any) -> Course:
    """Return a course of the size cases have: forty steps, of eight problems out of 256, and eight replies."""
    return Course(chain, **{"steps": 40, "prompts": 8, "group": 8, "rate": 2e-4, "problems": 256, **settings})


CASES: dict[str, Case] = {
    "entropy-collapse": Case(
        "A high learning rate over the same eight problems again and again, until the score stands still.",
        _course(rate=1e-3, problems=8, steps=80),  # at 2e-3 two runs of nineteen got their entropy back
        (Sign("entropy_ratio", most=0.5),),
        also=(
            "fork-collapse",
            "diversity-transfer",
            "overconfidence",
            "zero-variance-groups",
            "format-collapse",
            "drift",
        ),
    ),
    "entropy-explosion": Case(
        "An entropy bonus so large that it outweighs the reward.",
        _course(PLAIN.plus(EntropyBonus(coefficient=0.3)), rate=5e-4, steps=30, longest=64),
        (Sign("entropy_ratio", least=1.5),),
        also=("truncation", "degenerate-rollouts", "drift"),
    ),
    "truncation": Case(
        "Replies may have 22 tokens, fewer than most of them need.",
        _course(longest=22, rate=5e-5),
        (Sign("truncated", least=0.3),),
        also=("zero-variance-groups", "overly-hard"),
    ),
    "zero-variance-groups": Case(
        "Groups of two, on problems that the base solves never or always.",
        _course(prompts=32, group=2, problems=512, rate=5e-5),
        (Sign("flat", least=0.75),),
        also=("overly-hard",),
        fault=Fault(solved=(1 / 16, 15 / 16)),
    ),
    "overly-hard": Case(
        "Only long problems that the base did not solve once in sixteen replies.",
        _course(level="hard", problems=512),
        (Sign("passed_start", most=0.06),),
        also=("zero-variance-groups",),
        fault=Fault(solved=(1 / 32, 2.0)),
    ),
    "train-inference-mismatch": Case(
        "Replies are drawn at temperature 1.5, while log-probs and loss take it to be 1.",
        _course(),
        (Sign("surprise", least=1.15),),
        fault=Fault(drawn_at=1.5),
    ),
    "unreliable-metric": Case(
        "Killed and begun again; from there on the entropy that is logged is averaged over padding too. The policy"
        " hardly moves.",
        _course(rate=2e-5),
        (Sign("logged_ratio", most=0.85), Sign("entropy_ratio", least=0.9)),
        fault=Fault(restarted_from=26, averaged_over_padding=True),
    ),
    "healthy": Case(
        "A gentle rate over many problems, with the entropy of the forking tokens held.",
        _course(PLAIN.plus(ForkThermostat()), rate=3e-4),
        (
            Sign("entropy_ratio", least=0.7, most=1.3),
            Sign("truncated", most=0.1),
            Sign("surprise", least=0.9, most=1.1),
        ),
    ),
}
"""Label -> case. The labels are the names of the findings a detector should come to; ``healthy`` is none of them."""


def train_case(case: Case, folder: Path, base: Path | None, told: Callable[[int], None]) -> None:
    """Run the course of a case with its fault; one that is to be killed is killed once and goes on from its checkpoint."""
    fault, killed_at = case.fault, case.fault.restarted_from
    begun_again = killed_at is not None and (folder / RESTARTED).exists()

    def prepare(trainer: Any) -> None:
        fault.put_into(trainer)
        if fault.solved is not None:
            _choose(trainer, case, base)
        if begun_again:
            fault.put_into_log(trainer)
        elif killed_at is not None:
            kill_at(trainer, killed_at)

    try:
        train_in_stages(case.course, folder, base, (), lambda step, _: told(step), prepare)
    except Killed:
        (folder / RESTARTED).touch()
        train_case(case, folder, base, told)


def mark(run: Path, label: str, case: Case) -> None:
    """Write the truth into the header of a run, and what of its configuration the fault changed; no detector may read the truth."""
    header = read_header(run)
    trl = dict(header.config.get("trl", {}))
    if case.fault.drawn_at is not None:
        trl["generation_kwargs"] = {"temperature": case.fault.drawn_at}
    truth = {"label": label, "why": case.why, "also": list(case.also)}
    write_header(replace(header, config=storable({**header.config, "trl": trl, "truth": truth})), run)


def _choose(trainer: Any, case: Case, base: Path | None) -> None:
    """Keep those problems of which the base solves a share outside the range; at least a generation's worth must be left."""
    from breadth.base.errors import SettingsError
    from breadth.lab.measuring.evaluation import evaluate

    assert case.fault.solved is not None  # noqa: S101 - asked before
    reasoner = load(base)
    problems = case.course.trained_on(reasoner.teacher.facts.prime)
    shares = evaluate(reasoner, problems, TRIES).right.mean(1)
    low, high = case.fault.solved
    kept = [place for place, share in enumerate(shares) if share <= low or share >= high]
    if len(kept) < case.course.prompts:
        raise SettingsError(
            f"{len(kept)} of {len(problems)} problems are solved as seldom or as often as asked; a generation takes"
            f" {case.course.prompts}.",
            "Draw more problems, or widen what is asked for.",
        )
    trainer.train_dataset = trainer.train_dataset.select(kept)
