"""The work of a demo, cut into calls for worker processes; what has been done before is read, not done again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from breadth.lab import records
from breadth.lab.demo.plan import ArmName, Plan
from breadth.lab.demo.results import Forced, Training
from breadth.lab.measuring.both_ways import BothWays
from breadth.lab.measuring.corners import Arm
from breadth.lab.measuring.measured import Measured
from breadth.lab.trials.workers import Tell

if TYPE_CHECKING:
    from breadth.lab.model.reasoner import Reasoner
    from breadth.lab.task.problems import Problem

MEASURED, BOTH_WAYS, TRAINING = "measured.json", "both_ways.json", "training.json"
"""In the folder of an arm, beside what training leaves there."""
DONE = "done"
"""The last stage of all."""


@dataclass(frozen=True)
class StepTaken:
    """An arm has taken an optimizer step."""

    step: int
    """Which."""
    reward: float
    """Share of right replies in it."""
    entropy: float
    """Of its tokens, in nats."""


@dataclass(frozen=True)
class StageBegun:
    """A call has come to another part of its work."""

    stage: str
    """What is done now."""


@dataclass(frozen=True)
class TrainedArm:
    """What an arm's call brings home."""

    arm: Arm
    """Measured on held-out problems."""
    training: Training
    """How its training went."""


def train_arm(tell: Tell, plan: Plan, name: ArmName, folder: Path, base: Path | None) -> TrainedArm:
    """Train an arm, measure it as it is, and let it answer both ways."""
    from breadth.lab.courses.train_curve import train_curve
    from breadth.lab.courses.training import RUN, train

    _one_thread()
    tell(StageBegun("training"))
    reasoner = train(plan.course(name), folder, base, lambda step, logs: tell(_step(step, logs)))
    training = records.kept(Training, folder / TRAINING, lambda: Training.of(train_curve(folder / RUN)))
    measured = _measured(tell, plan, reasoner, folder / MEASURED)
    both_ways = _answered(tell, plan, reasoner, folder / BOTH_WAYS)
    tell(StageBegun(DONE))
    return TrainedArm(Arm(measured, both_ways), training)


def answered(plan: Plan, folder: Path) -> BothWays:
    """Let the arm trained in a folder answer both ways at a plan's thinking tokens, and keep that in a file."""
    from breadth.lab.courses.training import TRAINED
    from breadth.lab.model.reasoner import load

    return _answered(lambda _: None, plan, load(folder / TRAINED), folder / f"both_ways-{plan.thinking}.json")


def measure_base(tell: Tell, plan: Plan, folder: Path, base: Path | None) -> Measured:
    """Measure the base as it is."""
    from breadth.lab.model.reasoner import load

    _one_thread()
    found = _measured(tell, plan, load(base), folder / MEASURED)
    tell(StageBegun(DONE))
    return found


def force_thinking(tell: Tell, plan: Plan, folder: Path, path: Path, tokens: int) -> Forced:
    """Measure the reasoner trained in a folder with thinking of exactly so many tokens, and keep that in a file."""
    if path.exists():
        return records.load(Forced, path)
    from breadth.lab.courses.training import TRAINED
    from breadth.lab.measuring.evaluation import PLAIN, evaluate
    from breadth.lab.model.reasoner import load

    _one_thread()
    tell(StageBegun(f"exactly {tokens} tokens of thinking"))
    sampling = replace(PLAIN, thinking_tokens=tokens, max_tokens=tokens + 16)
    reasoner = load(folder / TRAINED)
    found = evaluate(
        reasoner,
        problems(plan, reasoner),
        plan.budget_samples,
        seed=plan.seed,
        sampling=sampling,
        least_thinking=tokens,
    )
    forced = Forced.of(tokens, found)
    records.dump(forced, path)
    return forced


def _measured(tell: Tell, plan: Plan, reasoner: Reasoner, path: Path) -> Measured:
    def look() -> Measured:
        from breadth.lab.measuring.evaluation import evaluate
        from breadth.lab.measuring.measured import measured

        tell(StageBegun(f"{plan.samples} replies to each of {plan.problems} held-out problems"))
        return measured(evaluate(reasoner, problems(plan, reasoner), plan.samples, seed=plan.seed), plan.ks)

    return records.kept(Measured, path, look)


def _answered(tell: Tell, plan: Plan, reasoner: Reasoner, path: Path) -> BothWays:
    def answer() -> BothWays:
        from breadth.lab.measuring.both_ways import answer_both_ways

        tell(StageBegun("one long thought, and votes for the same tokens"))
        return answer_both_ways(
            reasoner, problems(plan, reasoner), thinking=plan.thinking, repeats=plan.repeats, seed=plan.seed
        )

    return records.kept(BothWays, path, answer)


def problems(plan: Plan, reasoner: Reasoner) -> list[Problem]:
    """List the held-out problems of a plan."""
    from breadth.lab.task.tasks import draw_tasks

    return draw_tasks(plan.skipped + plan.problems, reasoner.teacher.facts.prime, plan.level)[plan.skipped :]


def _step(step: int, logs: Mapping[str, float]) -> StepTaken:
    return StepTaken(step, float(logs["reward"]), float(logs.get("entropy", math.nan)))


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
