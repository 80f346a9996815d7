"""Runs a demo: two arms trained side by side, all measured, into one folder; interrupted, it goes on where it was."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breadth import __version__
from breadth.base import settings
from breadth.base.atomic import write_error
from breadth.base.cores import available_cores
from breadth.base.errors import BrokenFileError, MissingExtraError
from breadth.lab import records
from breadth.lab.demo.plan import ARMS, ArmName, Plan
from breadth.lab.demo.results import DemoResults, Forced
from breadth.lab.evaluation.corners import Arm, corners
from breadth.lab.evaluation.evaluate import Measured
from breadth.lab.evaluation.extended_vs_parallel import BothWays
from breadth.lab.evaluation.training_log import TrainingLog
from breadth.lab.model.reasoner import check, digest, shipped
from breadth.lab.trials.runner import locked
from breadth.lab.trials.worker_pool import Call, Tell, Workers

if TYPE_CHECKING:
    from breadth.lab.model.reasoner import Reasoner
    from breadth.lab.task.problems import Problem


ASKED, RESULTS, TIMES, LOCK = "demo.toml", "results.json", "seconds.txt", ".lock"
"""In the folder of a demo: what was asked for, what was found, the seconds it took so far, and who works in it."""
PAGE, PICTURE = "report.html", "picture.svg"
"""What is made of the results: the page, and the picture that stands alone."""
BASE, FORCED = "base", "forced"
"""Folders beside the arms' own: the base measured, and the plain arm with forced thinking."""
LIBRARIES = ("torch", "transformers", "trl", "numpy")
Heard = Callable[[str, Any], None]
"""Told who says what: plain, protected, base or forced, and an event."""


@dataclass(frozen=True)
class Asked:
    """What a folder is the demo of."""

    version: str
    """Of breadth."""
    base: str
    """Hash of the base's files."""
    plan: Plan
    """The rest."""


def run_demo(plan: Plan, folder: Path, base: Path | None, heard: Heard) -> DemoResults:
    """Run a demo, or what is left of it, and return what it found; a folder of another demo is refused.

    As many processes as there are cores for them, two at most, one thread each.
    """
    _check_installed()
    check(shipped() if base is None else base)
    asked = Asked(__version__, digest(base), plan)
    with locked(folder):
        _open(asked, folder)
        if (folder / RESULTS).exists():
            return records.load(DemoResults, folder / RESULTS)
        results = _found(asked, folder, base, heard)
        records.dump(results, folder / RESULTS)
    return results


def _found(asked: Asked, folder: Path, base: Path | None, heard: Heard) -> DemoResults:
    """Do the work that is left."""
    with _timed(folder / TIMES) as seconds, Workers(min(2, available_cores())) as workers:
        arms, measured = _train(workers, asked.plan, folder, base, heard)
        forced = _forced(workers, asked.plan, folder, heard)
        return _results(asked, arms, measured, forced, seconds())


def _check_installed() -> None:
    if any(find_spec(name) is None for name in ("torch", "transformers", "trl", "datasets")):
        raise MissingExtraError("The demo, which trains a tiny reasoner,", "train")


def _open(asked: Asked, folder: Path) -> None:
    """Make the folder, or see that it is of the same demo."""
    path = folder / ASKED
    if path.exists():
        there = _read(path)
        if there != asked:
            raise BrokenFileError(
                path,
                f"is of another demo ({_difference(there, asked)}).",
                "Name another folder with --out, or move this one away.",
            )
        return
    if any(one.name != LOCK for one in folder.iterdir()):
        raise BrokenFileError(folder, "holds other things, and no demo.", "Name a new or an empty folder with --out.")
    settings.dump(asked, path)


def _read(path: Path) -> Asked | None:
    """Return what a folder was made for; None when another version of breadth wrote it in a way that this one cannot read."""
    try:
        return settings.load(Asked, path)
    except BrokenFileError:
        return None


def _difference(there: Asked | None, asked: Asked) -> str:
    """Say in what two demos differ, the most telling first."""
    if there is None or there.version != asked.version:
        return (
            "of another version of breadth" if there is None else f"of breadth {there.version}, this is {asked.version}"
        )
    if there.base != asked.base:
        return "from another base"
    ours, theirs = settings.to_table(asked.plan), settings.to_table(there.plan)
    name = next(name for name in ours if ours[name] != theirs[name])
    return f"{name} = {theirs[name]}, now {ours[name]}"


def _train(
    workers: Workers, plan: Plan, folder: Path, base: Path | None, heard: Heard
) -> tuple[list[TrainedArm], Measured]:
    names = [*ARMS, BASE]
    for name in names:
        _made(folder / name)
    calls = [Call(train_arm, (plan, name, folder / name, base)) for name in ARMS]
    found = workers.run(
        [*calls, Call(measure_base, (plan, folder / BASE, base))], lambda place, said: heard(names[place], said)
    )
    return found[:2], found[2]


def _forced(workers: Workers, plan: Plan, folder: Path, heard: Heard) -> tuple[Forced, ...]:
    place = _made(folder / FORCED)
    calls = [
        Call(force_thinking, (plan, folder / "plain", place / f"{tokens}.json", tokens))
        for tokens in sorted(plan.budgets, reverse=True)  # the longest first, so that none is waited for at the end
    ]
    return tuple(workers.run(calls, lambda _, said: heard(FORCED, said))[::-1])


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    return folder


def _results(
    asked: Asked, arms: list[TrainedArm], base: Measured, forced: tuple[Forced, ...], seconds: float
) -> DemoResults:
    plan, (plain, protected) = asked.plan, arms
    return DemoResults(
        version=asked.version,
        plan=plan,
        base=base,
        plain=plain.arm.measured,
        protected=protected.arm.measured,
        corners=corners([plain.arm], [protected.arm], k=plan.samples, votes=plan.votes),
        forced=forced,
        plain_training=plain.training,
        protected_training=protected.training,
        versions={
            "breadth": asked.version,
            "python": platform.python_version(),
            **{name: version(name) for name in LIBRARIES},
        },
        base_digest=asked.base,
        seconds=round(seconds, 1),
    )


@contextmanager
def _timed(path: Path) -> Iterator[Callable[[], float]]:
    """Yield a clock that counts the seconds of all attempts; those of this one are kept also when it breaks."""
    began, before = time.monotonic(), 0.0
    with suppress(OSError, ValueError):  # none before, or not ours: then this one counts alone
        before = float(path.read_text(encoding="utf-8"))
    try:
        yield lambda: before + time.monotonic() - began
    finally:
        with suppress(OSError):
            path.write_text(f"{before + time.monotonic() - began:.1f}\n", encoding="utf-8")


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
    training: TrainingLog
    """How its training went."""


def train_arm(tell: Tell, plan: Plan, name: ArmName, folder: Path, base: Path | None) -> TrainedArm:
    """Train an arm, measure it as it is, and let it answer both ways."""
    from breadth.lab.evaluation.training_log import read_training_log
    from breadth.lab.grpo import RUN, train

    _one_thread()
    tell(StageBegun("training"))
    reasoner = train(plan.course(name), folder, base, lambda step, logs: tell(_step(step, logs)))
    training = records.kept(TrainingLog, folder / TRAINING, lambda: read_training_log(folder / RUN, grammar=True))
    measured = _measured(tell, plan, reasoner, folder / MEASURED)
    both_ways = _answered(tell, plan, reasoner, folder / BOTH_WAYS)
    tell(StageBegun(DONE))
    return TrainedArm(Arm(measured, both_ways), training)


def answered(plan: Plan, folder: Path) -> BothWays:
    """Let the arm trained in a folder answer both ways at a plan's thinking tokens, and keep that in a file."""
    from breadth.lab.grpo import TRAINED
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
    from breadth.lab.evaluation.evaluate import PLAIN, evaluate
    from breadth.lab.grpo import TRAINED
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
        from breadth.lab.evaluation.evaluate import evaluate, measured

        tell(StageBegun(f"{plan.samples} replies to each of {plan.problems} held-out problems"))
        return measured(evaluate(reasoner, problems(plan, reasoner), plan.samples, seed=plan.seed), plan.ks)

    return records.kept(Measured, path, look)


def _answered(tell: Tell, plan: Plan, reasoner: Reasoner, path: Path) -> BothWays:
    def answer() -> BothWays:
        from breadth.lab.evaluation.extended_vs_parallel import answer_both_ways

        tell(StageBegun("one long thought, and votes for the same tokens"))
        return answer_both_ways(
            reasoner, problems(plan, reasoner), thinking=plan.thinking, repeats=plan.repeats, seed=plan.seed
        )

    return records.kept(BothWays, path, answer)


def problems(plan: Plan, reasoner: Reasoner) -> list[Problem]:
    """List the held-out problems of a plan."""
    from breadth.lab.task.problems import draw_tasks

    return draw_tasks(plan.skipped + plan.problems, reasoner.teacher.facts.prime, plan.level)[plan.skipped :]


def _step(step: int, logs: Mapping[str, float]) -> StepTaken:
    return StepTaken(step, float(logs["reward"]), float(logs.get("entropy", math.nan)))


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
