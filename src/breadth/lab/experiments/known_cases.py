"""Runs with a known failure: the GRPO run of each case, the fault put into it, and the symptoms that must show.

Faults are real causes, put into a real trainer before it starts. Symptoms are numbers read from the run folder.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from breadth.base.errors import require
from breadth.lab.grpo import GrpoRun, train_with_checkpoints
from breadth.lab.reasoner import load_reasoner
from breadth.runs.reader import Run
from breadth.runs.schema import read_header, to_toml_value, write_header
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.entropy_bonus import EntropyBonus
from breadth.training.loss.fork_thermostat import ForkThermostat

PLAIN_GRPO = Chain((GroupAdvantage(), ClippedPolicy()))
BASE_REPLIES = 16
"""Replies of the base by which problems are chosen."""
RESTARTED_FILE = "restarted"
"""File next to the run: it has been killed on purpose already."""


class Killed(Exception):  # noqa: N818 - it is no error, it is what was asked for
    """A run was broken off on purpose."""


@dataclass(frozen=True)
class TrainingFault:
    """How a run differs from its settings; the defaults are no fault."""

    sampling_temperature: float | None = None
    """Temperature that replies are drawn at, while log-probs and loss take it to be 1: TRL's ``generation_kwargs`` does
    that silently.
    """
    restart_step: int | None = None
    """Step at which the run was killed and begun again from the last checkpoint, which repeats some steps."""
    entropy_over_padding: bool = False
    """Whether, from the restart on, the entropy that is logged is the mean over padded positions too, as without a
    mask.
    """
    keep_outside: tuple[float, float] | None = None
    """Train only on problems of which the base solves a share outside this open range; None takes them as they come."""

    def __post_init__(self) -> None:
        require(
            self,
            "sampling_temperature",
            self.sampling_temperature is None or self.sampling_temperature > 0,
            "a temperature above 0",
        )
        require(self, "restart_step", self.restart_step is None or self.restart_step >= 1, "1 or more")

    def apply_to_trainer(self, trainer: Any) -> None:
        """Change the trainer of a run, or of what follows its restart."""
        if self.sampling_temperature is not None:
            trainer.args.generation_kwargs = {"temperature": self.sampling_temperature}
            trainer.generation_kwargs["temperature"] = trainer.generation_config.temperature = self.sampling_temperature

    def apply_to_log(self, trainer: Any) -> None:
        """Change what the trainer logs after a restart."""
        if self.entropy_over_padding:
            trainer.log = log_over_padding(trainer)


def kill_at(trainer: Any, step: int) -> None:
    """Let a trainer break at a step, as if it were killed there."""
    from transformers import TrainerCallback

    class Killer(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
        """Breaks the training off."""

        def on_step_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            if state.global_step >= step:
                raise Killed

    trainer.add_callback(Killer())


def log_over_padding(trainer: Any) -> Any:
    """Return a trainer's log method that averages the entropy over padding too, as without a mask."""
    log = trainer.log

    def log_padded(*arguments: Any, **options: Any) -> None:
        waiting = trainer._metrics["train"]  # TRL averages these into the log and forgets them
        if waiting.get("entropy"):
            filled = sum(waiting["completions/mean_length"]) / sum(waiting["completions/max_length"])
            waiting["entropy"] = [entropy * filled for entropy in waiting["entropy"]]
        log(*arguments, **options)

    return log_padded


END_GENERATIONS = 5
"""Generations at either end of a run that are taken together."""
ROLLOUTS_QUERY = """
    SELECT step, "group", reward, truncated,
        list_sum(entropy) AS entropy, -list_sum(logprobs) AS surprise, len(entropy) AS counted
    FROM rollouts WHERE split = 'train' ORDER BY step
"""
SYMPTOM_NUMBERS = (
    "reward_start",
    "reward_end",
    "entropy_start",
    "entropy_ratio",
    "logged_ratio",
    "truncated",
    "zero_variance",
    "surprise",
)
"""Mean reward of the first and of the last generations; token entropy of the first, and of the last over it; the same
ratio as logged; share of truncated replies; share of groups with equal rewards; mean -log p of the sampled tokens over
their mean entropy.
"""


@dataclass(frozen=True)
class Symptom:
    """A number that must lie in a range."""

    quantity: str
    """Which of `SYMPTOM_NUMBERS`."""
    minimum: float | None = None
    """Smallest value that shows the symptom."""
    maximum: float | None = None
    """Largest value that shows it."""

    def __post_init__(self) -> None:
        require(self, "quantity", self.quantity in SYMPTOM_NUMBERS, f"one of {', '.join(SYMPTOM_NUMBERS)}")

    def is_present(self, numbers: Mapping[str, float | None]) -> bool:
        """Say whether a run shows the symptom."""
        value = numbers[self.quantity]
        low, high = (
            -math.inf if self.minimum is None else self.minimum,
            math.inf if self.maximum is None else self.maximum,
        )
        return value is not None and low <= value <= high

    def describe_missing(self, numbers: Mapping[str, float | None]) -> str:
        """Describe the value found and the range required."""
        value = numbers[self.quantity]
        wanted = [
            *([] if self.minimum is None else [f"{self.minimum:g} or more"]),
            *([] if self.maximum is None else [f"{self.maximum:g} or less"]),
        ]
        found = "missing" if value is None else f"{value:.3g}"
        return f"no: {self.quantity} is {found}, expected {' and '.join(wanted)}"


def symptom_numbers(run: Path) -> dict[str, float | None]:
    """Read the numbers of a run; None where it has no such thing."""
    there = Run.open(run)
    steps: dict[int, list[Mapping[str, float]]] = defaultdict(list)
    for row in there.query(ROLLOUTS_QUERY).to_pylist():
        steps[row["step"]].append(row)
    generations = [rows for _, rows in sorted(steps.items())]
    every = [row for rows in generations for row in rows]
    first, last = (
        [row for rows in part for row in rows]
        for part in (generations[:END_GENERATIONS], generations[-END_GENERATIONS:])
    )
    logged = there.series("entropy")
    return {
        "reward_start": _mean(row["reward"] for row in first),
        "reward_end": _mean(row["reward"] for row in last),
        "entropy_start": _per_token(first, "entropy"),
        "entropy_ratio": _ratio(_per_token(last, "entropy"), _per_token(first, "entropy")),
        "logged_ratio": _ratio(_mean(logged.values[-END_GENERATIONS:]), _mean(logged.values[:END_GENERATIONS])),
        "truncated": _mean(row["truncated"] for row in every),
        "zero_variance": _mean(float(len({row["reward"] for row in rows}) == 1) for rows in _groups(every)),
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
class KnownCase:
    """One run of known truth."""

    cause: str
    """What causes it."""
    grpo_run: GrpoRun
    """Its GRPO run."""
    symptoms: tuple[Symptom, ...]
    """What must be seen in the run for the label to hold."""
    may_also_find: tuple[str, ...] = ()
    """Other findings that are also right to report."""
    fault: TrainingFault = TrainingFault()
    """What is wrong with the run apart from its settings."""


def case_run(chain: Chain = PLAIN_GRPO, **settings: Any) -> GrpoRun:
    """Return a course of the size cases have: forty steps, of eight problems out of 256, and eight replies."""
    return GrpoRun(chain, **{"steps": 40, "prompts": 8, "group": 8, "learning_rate": 2e-4, "problems": 256, **settings})


CASES: dict[str, KnownCase] = {
    "entropy-collapse": KnownCase(
        "A high learning rate over the same eight problems again and again, until the score stops rising.",
        case_run(learning_rate=1e-3, problems=8, steps=80),  # at 2e-3 two runs of nineteen got their entropy back
        (Symptom("entropy_ratio", maximum=0.5),),
        may_also_find=(
            "fork-collapse",
            "diversity-transfer",
            "overconfidence",
            "zero-variance-groups",
            "format-collapse",
            "drift",
        ),
    ),
    "entropy-explosion": KnownCase(
        "An entropy bonus so large that it outweighs the reward.",
        case_run(
            PLAIN_GRPO.plus(EntropyBonus(coefficient=0.3)), learning_rate=5e-4, steps=30, max_completion_length=64
        ),
        (Symptom("entropy_ratio", minimum=1.5),),
        may_also_find=("truncation", "degenerate-rollouts", "drift"),
    ),
    "truncation": KnownCase(
        "Replies may have 22 tokens, fewer than most of them need.",
        case_run(max_completion_length=22, learning_rate=5e-5),
        (Symptom("truncated", minimum=0.3),),
        may_also_find=("zero-variance-groups", "overly-hard"),
    ),
    "zero-variance-groups": KnownCase(
        "Groups of two, on problems that the base solves never or always.",
        case_run(prompts=32, group=2, problems=512, learning_rate=5e-5),
        (Symptom("zero_variance", minimum=0.75),),
        may_also_find=("overly-hard",),
        fault=TrainingFault(keep_outside=(1 / 16, 15 / 16)),
    ),
    "overly-hard": KnownCase(
        "Only long problems that the base did not solve once in sixteen replies.",
        case_run(level="hard", problems=512),
        (Symptom("reward_start", maximum=0.06),),
        may_also_find=("zero-variance-groups",),
        fault=TrainingFault(keep_outside=(1 / 32, 2.0)),
    ),
    "train-inference-mismatch": KnownCase(
        "Replies are drawn at temperature 1.5, while log-probs and loss take it to be 1.",
        case_run(),
        (Symptom("surprise", minimum=1.15),),
        fault=TrainingFault(sampling_temperature=1.5),
    ),
    "unreliable-metric": KnownCase(
        "Killed and begun again; from there on the entropy that is logged is averaged over padding too. The policy"
        " hardly moves.",
        case_run(learning_rate=2e-5),
        (Symptom("logged_ratio", maximum=0.85), Symptom("entropy_ratio", minimum=0.9)),
        fault=TrainingFault(restart_step=26, entropy_over_padding=True),
    ),
    "healthy": KnownCase(
        "A gentle rate over many problems, with the entropy of the forking tokens held.",
        case_run(PLAIN_GRPO.plus(ForkThermostat()), learning_rate=3e-4),
        (
            Symptom("entropy_ratio", minimum=0.7, maximum=1.3),
            Symptom("truncated", maximum=0.1),
            Symptom("surprise", minimum=0.9, maximum=1.1),
        ),
    ),
}
"""Label -> case. The labels are the names of the findings a detector should come to; ``healthy`` is none of them."""


def train_case(case: KnownCase, folder: Path, base: Path | None, on_units: Callable[[int], None]) -> None:
    """Run a case with its fault; one that is to be killed is killed once and resumes from its checkpoint."""
    fault, killed_at = case.fault, case.fault.restart_step
    begun_again = killed_at is not None and (folder / RESTARTED_FILE).exists()

    def prepare(trainer: Any) -> None:
        fault.apply_to_trainer(trainer)
        if fault.keep_outside is not None:
            choose_problems(trainer, case, base)
        if begun_again:
            fault.apply_to_log(trainer)
        elif killed_at is not None:
            kill_at(trainer, killed_at)

    try:
        train_with_checkpoints(case.grpo_run, folder, base, (), lambda step, _: on_units(step), prepare)
    except Killed:
        (folder / RESTARTED_FILE).touch()
        train_case(case, folder, base, on_units)


def write_truth(run: Path, label: str, case: KnownCase) -> None:
    """Write the truth, and the settings that the fault changed, into the header of a run; no detector may read it."""
    header = read_header(run)
    trl = dict(header.config.get("trl", {}))
    if case.fault.sampling_temperature is not None:
        trl["generation_kwargs"] = {"temperature": case.fault.sampling_temperature}
    truth = {"label": label, "why": case.cause, "also": list(case.may_also_find)}
    write_header(replace(header, config=to_toml_value({**header.config, "trl": trl, "truth": truth})), run)


def choose_problems(trainer: Any, case: KnownCase, base: Path | None) -> None:
    """Keep the problems that the base solves more or less often than the range; a generation's worth must remain."""
    from breadth.base.errors import SettingsError
    from breadth.lab.evaluation.evaluate import evaluate

    assert case.fault.keep_outside is not None  # noqa: S101 - checked by the caller
    reasoner = load_reasoner(base)
    problems = case.grpo_run.training_problems(reasoner.teacher.facts.prime)
    shares = evaluate(reasoner, problems, BASE_REPLIES).right.mean(1)
    low, high = case.fault.keep_outside
    kept = [place for place, share in enumerate(shares) if share <= low or share >= high]
    if len(kept) < case.grpo_run.prompts:
        raise SettingsError(
            f"{len(kept)} of {len(problems)} problems are solved as seldom or as often as asked; a generation takes"
            f" {case.grpo_run.prompts}.",
            "Draw more problems, or widen what is asked for.",
        )
    trainer.train_dataset = trainer.train_dataset.select(kept)
