"""The cases of known truth: the course of each, what is wrong with it on purpose, and the signs by which one sees that it came about."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from breadth.base.checks import require
from breadth.lab.grpo import Course, train_in_stages
from breadth.lab.model.reasoner import load
from breadth.runs.reader import Run
from breadth.runs.schema import read_header, to_toml_value, write_header
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


class Killed(Exception):
    """A run was broken off on purpose."""


@dataclass(frozen=True)
class Fault:
    """How a run differs from what its settings say; the defaults are no fault at all."""

    drawn_at: float | None = None
    """Temperature that replies are drawn at, while log-probs and loss take it to be 1: TRL's ``generation_kwargs`` does
    that silently.
    """
    restarted_from: int | None = None
    """Step at which the run was killed and begun again from the last checkpoint, which repeats some steps."""
    averaged_over_padding: bool = False
    """Whether, from the restart on, the entropy that is logged is the mean over padded positions too, as without a
    mask.
    """
    solved: tuple[float, float] | None = None
    """Train only on problems of which the base solves a share outside this open range; None takes them as they come."""

    def __post_init__(self) -> None:
        require(self, "drawn_at", self.drawn_at is None or self.drawn_at > 0, "a temperature above 0")
        require(self, "restarted_from", self.restarted_from is None or self.restarted_from >= 1, "1 or more")

    def put_into(self, trainer: Any) -> None:
        """Change the trainer of a run, or of what follows its restart."""
        if self.drawn_at is not None:
            trainer.args.generation_kwargs = {"temperature": self.drawn_at}
            trainer.generation_kwargs["temperature"] = trainer.generation_config.temperature = self.drawn_at

    def put_into_log(self, trainer: Any) -> None:
        """Change what the trainer logs after a restart."""
        if self.averaged_over_padding:
            trainer.log = _padded(trainer)


def kill_at(trainer: Any, step: int) -> None:
    """Let a trainer break at a step, as if it were killed there."""
    from transformers import TrainerCallback

    class Killer(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        """Breaks the training off."""

        def on_step_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            if state.global_step >= step:
                raise Killed

    trainer.add_callback(Killer())


def _padded(trainer: Any) -> Any:
    """Return a trainer's log that averages the entropy over all positions of the batch, which is padded to its longest reply."""
    log = trainer.log

    def logged(*arguments: Any, **options: Any) -> None:
        waiting = trainer._metrics["train"]  # TRL averages these into the log and forgets them
        if waiting.get("entropy"):
            filled = sum(waiting["completions/mean_length"]) / sum(waiting["completions/max_length"])
            waiting["entropy"] = [entropy * filled for entropy in waiting["entropy"]]
        log(*arguments, **options)

    return logged


ENDS = 5
"""Generations at either end of a run that are taken together."""
QUERY = """
    SELECT step, "group", reward, truncated, list_sum(entropy) AS entropy, -list_sum(logprobs) AS surprise, len(entropy) AS counted
    FROM rollouts WHERE split = 'train' ORDER BY step
"""
NUMBERS = (
    "passed_start",
    "passed_end",
    "entropy_start",
    "entropy_ratio",
    "logged_ratio",
    "truncated",
    "flat",
    "surprise",
)
"""Mean reward of the first and of the last generations; entropy of the first, and of the last over it, by the tokens; the same ratio as
logged; share of replies cut; share of groups whose rewards are all equal; mean -log p of the tokens drawn, over their
mean entropy."""


@dataclass(frozen=True)
class Sign:
    """A number that must lie in a range."""

    number: str
    """Which."""
    least: float | None = None
    """Smallest value that shows it."""
    most: float | None = None
    """Largest."""

    def __post_init__(self) -> None:
        require(self, "number", self.number in NUMBERS, f"one of {', '.join(NUMBERS)}")

    def shows(self, numbers: Mapping[str, float | None]) -> bool:
        """Say whether a run shows it."""
        value = numbers[self.number]
        low, high = -math.inf if self.least is None else self.least, math.inf if self.most is None else self.most
        return value is not None and low <= value <= high

    def words(self, numbers: Mapping[str, float | None]) -> str:
        """Say what was found and what is wanted."""
        value = numbers[self.number]
        wanted = [
            *([] if self.least is None else [f"{self.least:g} or more"]),
            *([] if self.most is None else [f"{self.most:g} or less"]),
        ]
        found = "not there" if value is None else f"{value:.3g}"
        return f"no: {self.number} is {found}, wanted {' and '.join(wanted)}"


def numbers_of(run: Path) -> dict[str, float | None]:
    """Read the numbers of a run; None where it has no such thing."""
    there = Run.open(run)
    steps: dict[int, list[Mapping[str, float]]] = defaultdict(list)
    for row in there.query(QUERY).to_pylist():
        steps[row["step"]].append(row)
    generations = [rows for _, rows in sorted(steps.items())]
    every = [row for rows in generations for row in rows]
    first, last = ([row for rows in part for row in rows] for part in (generations[:ENDS], generations[-ENDS:]))
    logged = there.series("entropy")
    return {
        "passed_start": _mean(row["reward"] for row in first),
        "passed_end": _mean(row["reward"] for row in last),
        "entropy_start": _per_token(first, "entropy"),
        "entropy_ratio": _ratio(_per_token(last, "entropy"), _per_token(first, "entropy")),
        "logged_ratio": _ratio(_mean(logged.values[-ENDS:]), _mean(logged.values[:ENDS])),
        "truncated": _mean(row["truncated"] for row in every),
        "flat": _mean(float(len({row["reward"] for row in rows}) == 1) for rows in _groups(every)),
        "surprise": _ratio(_per_token(every, "surprise"), _per_token(every, "entropy")),
    }


def _groups(rows: Iterable[Mapping[str, float]]) -> list[list[Mapping[str, float]]]:
    found: dict[float, list[Mapping[str, float]]] = defaultdict(list)
    for row in rows:
        found[row["group"]].append(row)
    return list(found.values())


def _mean(values: Iterable[float | None]) -> float | None:
    found = [float(value) for value in values if value is not None]
    return float(np.mean(found)) if found else None


def _per_token(rows: Iterable[Mapping[str, float]], name: str) -> float | None:
    found = [(row[name], row["counted"]) for row in rows if row[name] is not None]
    count = sum(counted for _, counted in found)
    return sum(total for total, _ in found) / count if count else None


def _ratio(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None


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
    write_header(replace(header, config=to_toml_value({**header.config, "trl": trl, "truth": truth})), run)


def _choose(trainer: Any, case: Case, base: Path | None) -> None:
    """Keep those problems of which the base solves a share outside the range; at least a generation's worth must be left."""
    from breadth.base.errors import SettingsError
    from breadth.lab.evaluation.evaluate import evaluate

    assert case.fault.solved is not None
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
